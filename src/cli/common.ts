/** Shared by several commands: flags that mean the same everywhere, and the opening of a log and a model. */
import { closeSync, existsSync, openSync, readSync } from 'node:fs'
import { dirname } from 'node:path'
import type { TopicNames } from '../../topics/index.ts'
import { partitionsIn } from '../client/topics.ts'
import type {
  CacheDtype,
  DeviceKind,
  ExpertOptions,
  OpenModelOptions,
  Overflow,
  Speculation,
} from '../engine/options.ts'
import { readSpeculation } from '../engine/speculation.ts'
import type { Model } from '../engine/types.ts'
import { ContinuoError, codeOf, messageOf } from '../errors.ts'
import type { ModelPackage } from '../models/open.ts'
import type { InputFormat, ValidateOptions } from '../operators/pipeline/validate.ts'
import { type PartitionState, readPartitionState } from '../operators/worker/partition-state.ts'
import { readSealKeys } from '../seal-key.ts'
import type { BlockCacheOptions } from '../state/block-cache.ts'
import { APPLICATION_ID } from '../streams/embedded/layout.ts'
import { parseEmbeddedUrl } from '../streams/embedded/url.ts'
import type { EventLog, OpenLogOptions } from '../streams/log.ts'
import { openLog } from '../streams/open.ts'
import { countChanged } from '../streams/partition-count.ts'
import type { ExitCode } from './command.ts'
import {
  choice,
  type Flag,
  needed,
  on,
  optional,
  optionalChoice,
  optionalWhole,
  refuseIdle,
  text,
  usage,
  type Values,
} from './flags.ts'
import { say } from './output.ts'

const logFlag = needed('URL', 'the log, file:PATH or kafka://HOST:PORT/PREFIX')
/** TLS to Kafka, beside `log` in every command that takes it. */
export const tlsFlags = {
  'tls-ca': optional(
    'FILE',
    'certificates (PEM) of the authorities that the brokers are checked against; with ssl=true',
  ),
  'tls-cert': optional('FILE', 'certificate (PEM) of this client, for brokers that ask for one'),
  'tls-key': optional('FILE', 'its private key (PEM)'),
}
export const TLS_FLAGS = Object.keys(tlsFlags)
/** Flags that open a log. */
export const logFlags = { log: logFlag, ...tlsFlags }
/** For commands that read or write state. */
export const sealFlags = {
  'seal-key': optional('FILE', 'the key that state is sealed with: 32 bytes or more, as they are or in hexadecimal'),
  'seal-key-old': optional('FILE', 'a former key, or the word plain for none, that is accepted where state is read'),
}
/** For commands that read or write whole states. */
export const blobFlags = {
  'blob-store': optional(
    'DIR',
    'folder, file:FOLDER or s3://bucket/prefix for blocks of large states; without it they are kept in the log',
  ),
}
/** For commands that compute sessions whose memory lies outside. */
export const blockFlags = {
  'block-cache-bytes': optionalWhole(
    'BYTES',
    'with an external memory: archived blocks in memory at most (default: 1 GiB); others are in files or in the blob store',
    { min: 0 },
  ),
  'block-dir-bytes': optionalWhole('BYTES', 'files of archived blocks at most (default: no bound)', { min: 0 }),
  'block-dir': optional('DIR', 'where those files lie (default: a fresh temporary folder)'),
}

/** Where archived blocks are; throws a usage error for flags that a model without any has no use for. */
export const blocksOf = (
  flags: Values<typeof blockFlags>,
  given: ReadonlySet<string>,
  { blocks }: Pick<Model, 'blocks'>,
): BlockCacheOptions => {
  if (blocks === null) refuseIdle(given, Object.keys(blockFlags), 'a model with a memory.json')
  return {
    maxBytes: flags['block-cache-bytes'],
    maxFileBytes: flags['block-dir-bytes'],
    dir: flags['block-dir'],
    warn: say,
  }
}

export const SEAL_FLAGS = Object.keys(sealFlags)
export const modelFlag = needed(
  'DIR',
  'folder of a model (config.json and its weights), a .gguf or .pth file, or owner/name of one that was pulled',
)
export const sessionFlag = needed('ID', 'the session')
export const groupFlag = text('ID', 'consumer group that owns the state', 'continuo')
export const inputTopicFlag = optional('TOPIC', 'read this topic instead of PREFIX.chunks')
export const threadsFlag = optionalWhole('N', 'engine threads (default: one a CPU, at most 16)', { min: 1, max: 256 })
export const deviceFlag = choice(
  ['auto', 'cpu', 'cuda'],
  'where the model runs, with the same bits: auto takes a CUDA device where one can be used, else the CPU',
  'auto',
)
/** `N`, or `N,always`: see `Speculation`. */
const speculateFlag: Flag<Speculation | undefined> = {
  kind: 'value',
  hint: 'N',
  help: 'guess up to N tokens ahead of each session that generates and judge them in one pass: faster where text repeats, the same results (docs/speculation.md)',
  read: (given, name) => {
    if (given.length === 0) return undefined
    try {
      return readSpeculation(given.at(-1)!, name)
    } catch (error) {
      throw usage(messageOf(error))
    }
  },
}
export const overflowFlag = choice(
  ['refuse', 'window'],
  'past the context limit of a model that has one: refuse, or attend to the last positions (the model was not trained for it; a log takes it for another model)',
  'refuse',
)
export const cacheDtypeFlag = optionalChoice(
  ['f32', 'f16', 'bf16'],
  'how keys and values are kept (default: as the package says, else f32; a log takes a narrower one for another model)',
)
export const partitionsFlag = optionalWhole('N', 'partitions of topics that are missing (default 1)', { min: 1 })
export const formatFlag = choice(['json', 'text'], 'events as JSON, or records of plain text', 'json')
/** For commands that open a model: how its experts are read, where they lie in a store. */
export const expertFlags = {
  'expert-bytes': optionalWhole(
    'BYTES',
    'experts of a mixture with a store that are in memory at most (default: half of the memory that is available)',
    { min: 1 },
  ),
  'expert-device-bytes': optionalWhole(
    'BYTES',
    'with a device: experts in its memory at most, two in any case (default: half of its memory that is free)',
    { min: 0 },
  ),
  'expert-io': choice(
    ['direct', 'buffered'],
    'how experts are read from disk: direct, past the page cache where the file system allows it, or buffered',
    'direct',
  ),
  'expert-policy': choice(['score', 'lfu', 'lru'], 'which experts leave memory first (docs/experts.md)', 'score'),
  'no-look-ahead': on('do not read ahead the experts that the next layers are likely to want'),
  'experts-from': choice(
    ['store', 'weights'],
    'of a mixture with a store of experts beside its weights: read them from which (a log takes the two for different models)',
    'store',
  ),
}
const machineFlags = { overflow: overflowFlag, 'cache-dtype': cacheDtypeFlag, threads: threadsFlag, device: deviceFlag }
/** How a model is opened, for commands that only read with it, */
export const readingFlags = { ...machineFlags, ...expertFlags }
/** for those that compute again what was generated, */
export const replayFlags = { ...machineFlags, speculate: speculateFlag, ...expertFlags }
/** and for those that generate. */
export const generatingFlags = {
  ...machineFlags,
  speculate: speculateFlag,
  'draft-model': optional(
    'DIR',
    'a smaller model with the same tokenizer that guesses what comes next: the same tokens, sooner (docs/speculation.md)',
  ),
  ...expertFlags,
}
/** Of commands that compute sessions again from their events. */
export const recomputeFlags = {
  'input-topic': inputTopicFlag,
  'input-format': formatFlag,
  ...replayFlags,
}

export type LogValues = Values<typeof logFlags> & Partial<SealValues & BlobValues>

/** The options of `openLog` for TLS. */
export const tlsOf = ({ 'tls-ca': ca, 'tls-cert': cert, 'tls-key': key }: Values<typeof tlsFlags>): OpenLogOptions => ({
  tls: { ...(ca !== undefined && { ca }), ...(cert !== undefined && { cert }), ...(key !== undefined && { key }) },
})

export type SealValues = Values<typeof sealFlags>

/** The options of `openLog` for seal keys; none for a command that has no flag for them. */
export const sealOf = (flags: Partial<SealValues>): OpenLogOptions => {
  if (!Object.hasOwn(flags, 'seal-key')) return {}
  const keys = readSealKeys({ file: flags['seal-key'], old: flags['seal-key-old'] })
  return keys === null ? {} : { sealKeys: keys }
}

type BlobValues = Values<typeof blobFlags>

/** The option of `openLog` for the blob store. */
export const blobsOf = ({ 'blob-store': blobStore }: Partial<BlobValues>): OpenLogOptions =>
  blobStore === undefined ? {} : { blobStore }

/**
 * Opens the log for the time of `use`. A URL of the wrong form is a usage error, and so are files that cannot serve.
 */
export const withLog = async (
  flags: LogValues,
  use: (log: EventLog) => Promise<ExitCode>,
  { existing = false, ...options }: OpenLogOptions & { readonly existing?: boolean } = {},
): Promise<ExitCode> => {
  const { log: url } = flags
  const opening = async (): Promise<EventLog> => {
    const missing = existing ? missingFile(url) : null
    if (missing === null) return openLog(url, { ...tlsOf(flags), ...sealOf(flags), ...blobsOf(flags), ...options })
    throw new ContinuoError(
      'UNAVAILABLE',
      existsSync(dirname(missing))
        ? `There is no log at ${missing}. Check --log, or create one: continuo topics apply --log ${url}`
        : `There is no log at ${missing}, and no folder ${dirname(missing)}. Check --log.`,
    )
  }
  const log = await opening().catch((error: unknown) => {
    if (codeOf(error) === 'INVALID') throw usage(messageOf(error))
    // Where no log is, nothing was refused to resume.
    if (codeOf(error) === 'REFUSED' && url.startsWith('file:') && !isLogFile(url))
      throw new ContinuoError('INVALID', messageOf(error), { cause: error })
    throw error
  })
  try {
    return await use(log)
  } finally {
    await log.close()
  }
}

/** The path of an embedded log that does not exist; null for any other log. */
export const missingFile = (url: string): string | null => {
  if (!url.startsWith('file:')) return null
  const { path } = parseEmbeddedUrl(url)
  return existsSync(path) ? null : path
}

/** Whether the file bears the mark of an embedded log: SQLite's application id, u32 big-endian at byte 68. */
const isLogFile = (url: string): boolean => {
  const fd = openSync(parseEmbeddedUrl(url).path, 'r')
  try {
    const mark = Buffer.alloc(4)
    readSync(fd, mark, 0, 4, 68)
    return mark.readUInt32BE() === APPLICATION_ID
  } finally {
    closeSync(fd)
  }
}

/** For commands that only look: a mistyped path must not become an empty log. */
export const withExistingLog = (flags: LogValues, use: (log: EventLog) => Promise<ExitCode>): Promise<ExitCode> =>
  withLog(flags, use, { existing: true })

/**
 * Partitions of the log, for commands that only look; INVALID when it has no input topic. Where the input has another
 * number by now, stderr says so, and the number is the one with which the log was written.
 */
export const partitionsOf = async (log: EventLog, names: TopicNames): Promise<number> => {
  const { partitions, changed } = await partitionsIn(log, names)
  if (changed !== null) say(countChanged(changed).message)
  return partitions
}

/**
 * An input that was named is somebody else's: a name that is mistyped must not become a topic. Throws a usage error
 * where it is missing.
 */
export const checkInput = async (log: EventLog, named: string | undefined): Promise<void> => {
  if (named === undefined || (await log.topics([named])).some(({ name }) => name === named)) return
  throw usage(
    `${log.url} has no topic ${named}, and a topic that --input-topic names is not created by this command. Correct the name, or create it: continuo topics apply --log ${log.url} --input-topic ${named}`,
  )
}

/** The state of a partition as it is committed, verified; for looking, not for keeping. */
export const stateOf = (log: EventLog, names: TopicNames, partition: number): Promise<PartitionState> =>
  readPartitionState(log, names, partition, 4 * 1024 * 1024)

/** How the records of a partition are read again: with the rules that its cursor keeps. */
export const validation = (
  format: InputFormat,
  { cursor }: Pick<PartitionState, 'cursor'>,
  { vocabSize }: Pick<Model, 'vocabSize'>,
  tokenizer: object | null,
): ValidateOptions => ({ format, input: cursor?.input, vocabSize, readsText: tokenizer !== null })

/** Flags of those commands that open a model, as their values arrive. */
interface OpenFlags extends Partial<Values<typeof expertFlags>> {
  readonly threads?: number | undefined
  readonly 'step-target'?: number
  readonly speculate?: Speculation | undefined
  readonly 'draft-model'?: string | undefined
  readonly overflow?: Overflow
  readonly 'cache-dtype'?: CacheDtype | undefined
  readonly device?: DeviceKind | 'auto'
}

/** The kernels of this CPU, and the name of the device where the model does not run on the CPU. */
export const runsOn = async ({ device }: Pick<Model, 'device'>) => {
  const { cudaStatus, kernelFeatures } = await import('../engine/inspect.ts')
  return { isa: kernelFeatures(), device, ...(device === 'cuda' && { gpu: cudaStatus().name }) }
}

const expertsOf = (flags: Partial<Values<typeof expertFlags>>): ExpertOptions => ({
  ...(flags['expert-bytes'] !== undefined && { bytes: flags['expert-bytes'] }),
  ...(flags['expert-device-bytes'] !== undefined && { deviceBytes: flags['expert-device-bytes'] }),
  ...(flags['expert-io'] !== undefined && { io: flags['expert-io'] }),
  ...(flags['expert-policy'] !== undefined && { policy: flags['expert-policy'] }),
  ...(flags['experts-from'] !== undefined && { from: flags['experts-from'] }),
  lookAhead: flags['no-look-ahead'] !== true,
})

/** How a model is opened, by the flags that say so. */
export const openOptions = ({
  threads,
  overflow,
  'cache-dtype': cacheDtype,
  device,
  'step-target': stepTarget,
  speculate,
  'draft-model': draftModel,
  ...flags
}: OpenFlags): OpenModelOptions => ({
  experts: expertsOf(flags),
  ...(threads === undefined ? {} : { threads }),
  ...(overflow === undefined ? {} : { overflow }),
  ...(cacheDtype === undefined ? {} : { cacheDtype }),
  ...(device === undefined ? {} : { device }),
  ...(stepTarget === undefined ? {} : { stepTarget }),
  ...(speculate === undefined ? {} : { speculate }),
  ...(draftModel === undefined ? {} : { draftModel }),
  warn: say,
})

/** What opening a model consisted of, in order, and how long each took, ms. */
export type Phases = readonly (readonly [phase: string, ms: number])[]

/** Loads a model package for the time of `use`. */
export const withModel = async (
  dir: string,
  flags: OpenFlags,
  use: (loaded: ModelPackage, phases: Phases) => Promise<ExitCode>,
): Promise<ExitCode> => {
  const { openPackage } = await import('../models/open.ts')
  const phases: (readonly [string, number])[] = []
  const onPhase = (phase: string, ms: number): void => {
    phases.push([phase, Math.round(ms * 10) / 10])
  }
  const loaded = await openPackage(dir, { ...openOptions(flags), onPhase })
  try {
    return await use(loaded, phases)
  } finally {
    await loaded.keepPacked()
    loaded.model.close()
  }
}
