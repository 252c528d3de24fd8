/**
 * What `--model` names, resolved in one place: a folder with config.json and its weights (safetensors or
 * pytorch_model.bin, in one file or in shards with an index), an RWKV-7 file as its author publishes it or the folder
 * that holds it, a GGUF file or the folder that holds it. Headers are read, weights are not.
 */
import type { BigIntStats } from 'node:fs'
import { readdir, stat } from 'node:fs/promises'
import { basename, dirname, join } from 'node:path'
import { z } from 'zod'
import { type Inspected, inspectFiles } from '../../engine/inspect.ts'
import type { FileFormat, GgufMetadata, TensorEntry } from '../../engine/native.ts'
import { ContinuoError, messageOf } from '../../errors.ts'
import { firstBytes } from '../../files.ts'
import { foreign, LOOKED } from '../../foreign.ts'
import { findModel } from '../../hub/cache.ts'
import { MOST_CONFIG_BYTES, parsePythonJson, readJsonFile } from '../../json.ts'
import { type Family, quantizationOf } from '../family.ts'
import { readGguf } from '../gguf/read.ts'
import { families, unnamedType } from '../index.ts'
import { type Generation, NO_GENERATION, readGeneration } from './generation.ts'
import { checkPth, PTH_CONFIG } from './pth.ts'
import { checkShards, readShards, type Shards } from './shards.ts'

export type Config = { readonly model_type: string; readonly [key: string]: unknown }

/** A model on disk. */
export interface Package extends Generation {
  /** What was named. */
  readonly path: string
  /** The folder with what stands beside the weights. */
  readonly dir: string
  /** What the family reads: config.json, or what the weights themselves say. */
  readonly config: Config
  /** What stands for the configuration in the model's fingerprint: config.json, or the metadata of a GGUF file. */
  readonly identity: unknown
  readonly family: Family
  /** The files of the weights, at least one. */
  readonly files: readonly string[]
  readonly format: FileFormat
  /** As the family names them. */
  readonly tensors: readonly TensorEntry[]
  /** As the files have them. */
  readonly fileTensors: readonly TensorEntry[]
  /** Of a GGUF file: tokenizer and chat template are in it. */
  readonly metadata: GgufMetadata | null
  /** Of a GGUF file: which key names each of its ends of a text. */
  readonly endKeys?: ReadonlyMap<number, string>
  /** What whoever opens the model should know: a sentence each. */
  readonly notes: readonly string[]
  /** Throws INVALID when a file of the weights is no longer what it was. */
  checkUnchanged(): Promise<void>
}

const invalid = (message: string, cause?: unknown): ContinuoError => new ContinuoError('INVALID', message, { cause })
const known = (): string => [...families.keys()].join(', ')

/** What may be named, for messages. */
const EXPECTED =
  'Expected a folder with config.json and model.safetensors (or shards with their index, or pytorch_model.bin), an RWKV-7 .pth file or a .gguf file'

/** A configuration that names no type, with the type that its form tells. */
const withType = (parsed: unknown): unknown => {
  const type = unnamedType(parsed)
  return type === undefined ? parsed : { model_type: type, ...Object(parsed) }
}

/** The content of config.json. Throws INVALID for a folder that is no model package. */
export const readConfig = async (dir: string): Promise<Config> => {
  const path = join(dir, 'config.json')
  let parsed: unknown
  try {
    parsed = (await readJsonFile(path, MOST_CONFIG_BYTES, parsePythonJson)).json
  } catch (cause) {
    if (cause instanceof ContinuoError) throw cause
    throw invalid(`${dir} is not a model package: cannot read config.json (${messageOf(cause)}). ${EXPECTED}.`, cause)
  }
  const config = z.looseObject({ model_type: z.string() }).safeParse(withType(parsed))
  if (!config.success) throw invalid(`${path} has no model_type, expected one of: ${known()}.`)
  return config.data
}

/**
 * The family of a configuration. Throws INVALID for one that Continuo does not know, and for quantised weights of
 * others.
 */
const familyOf = (path: string, config: Config): Family => {
  quantizationOf(config)
  const family = families.get(config.model_type)
  if (family) return family
  throw invalid(`${path} holds a "${config.model_type}" model, expected one of: ${known()}.`)
}

/** Identity of one version of a file. */
export const identityOf = ({ dev, ino, size, mtimeNs }: BigIntStats): string => [dev, ino, size, mtimeNs].join(' ')

/** Of the files; `undefined` for one that is not there. */
const identities = (files: readonly string[]): Promise<readonly (string | undefined)[]> =>
  Promise.all(
    files.map((file) =>
      stat(file, { bigint: true }).then(identityOf, (error: NodeJS.ErrnoException) => {
        if (error.code === 'ENOENT') return undefined
        throw invalid(`Cannot read ${file}: ${error.message}.`, error)
      }),
    ),
  )

interface Weights extends Inspected {
  readonly files: readonly string[]
  readonly fileTensors: readonly TensorEntry[]
  checkUnchanged(): Promise<void>
}

const ZIP = Buffer.from([0x50, 0x4b, 3, 4])

/** Throws INVALID for a file that is named for what it holds and holds something else. */
const refuseForeign = async (file: string): Promise<void> => {
  const bytes = await firstBytes(file, LOOKED)
  // Whoever reads the headers says that it is no file.
  if (bytes === null) return
  const what = foreign(bytes)
  if (what !== null) throw invalid(`${file} ${what}`)
  const first = Buffer.from(bytes.subarray(0, 4))
  // Safetensors begin with a length and an object, files of torch.save as a zip archive: those are told by name when
  // their headers were read.
  const isOther = bytes[8] === 0x7b || first.equals(ZIP)
  if (file.endsWith('.gguf') && first.toString('latin1') !== 'GGUF' && !isOther)
    throw invalid(
      `${file} is no GGUF file: it begins with the bytes ${first.toString('hex')}, expected 47475546 (GGUF). Fetch it again, or name the file by what it is.`,
    )
}

/** The headers of the files; the files must stay what they are from here on. */
const inspectWeights = async (files: readonly string[]): Promise<Weights> => {
  const before = await identities(files)
  for (const [at, file] of files.entries()) if (before[at] !== undefined) await refuseForeign(file)
  const inspected = inspectFiles(files)
  return {
    ...inspected,
    fileTensors: inspected.tensors,
    files,
    async checkUnchanged() {
      const at = (await identities(files)).findIndex((now, i) => now !== before[i])
      if (at >= 0)
        throw invalid(
          `${files[at]} was exchanged while it was being loaded; open the model again. Replace a model by renaming a new file over the old one.`,
        )
    },
  }
}

const formatOf = (files: readonly string[], formats: readonly FileFormat[]): FileFormat => {
  const at = formats.findIndex((format) => format !== formats[0])
  if (at < 0) return formats[0]!
  throw invalid(`${files[0]} is ${formats[0]} and ${files[at]} is ${formats[at]}, expected files of one format.`)
}

const INDICES = ['model.safetensors.index.json', 'pytorch_model.bin.index.json'] as const
const SINGLE = { safetensors: 'model.safetensors', torch: 'pytorch_model.bin' } as const

/** The files of a folder's weights, in the order in which one goes before the other; null: it has none. */
const weightsOf = async (
  dir: string,
  there: ReadonlySet<string>,
): Promise<{ readonly files: readonly string[]; readonly shards?: Shards } | null> => {
  for (const [single, index] of [
    [SINGLE.safetensors, INDICES[0]],
    [SINGLE.torch, INDICES[1]],
  ] as const) {
    if (there.has(single)) return { files: [join(dir, single)] }
    if (there.has(index)) {
      const shards = await readShards(dir, index)
      return { files: shards.names.map((name) => join(dir, name)), shards }
    }
  }
  return null
}

/** Looks at a configuration before the weights are looked for; throws to refuse it. */
type Judge = (path: string, config: Config) => void

/** A package whose configuration stands beside its weights. */
const packageOf = (
  named: Pick<Package, 'path' | 'dir' | 'config' | 'family' | 'format'>,
  weights: Weights,
  generation: Generation,
): Package => ({ ...named, identity: named.config, notes: [], ...weights, metadata: null, ...generation })

const openFolder = async (dir: string, there: ReadonlySet<string>, judge: Judge): Promise<Package> => {
  const config = await readConfig(dir)
  judge(dir, config)
  const family = familyOf(dir, config)
  const found = await weightsOf(dir, there)
  if (found === null) {
    throw invalid(
      `${dir} is not a model package: cannot read model.safetensors (there is none, nor shards with an index, nor pytorch_model.bin). ${EXPECTED}.`,
    )
  }
  const weights = await inspectWeights(found.files)
  const format = formatOf(weights.files, weights.formats)
  if (format === 'gguf') throw invalid(`${found.files[0]} is a GGUF file; name the file itself, with the ending .gguf.`)
  if (found.shards) checkShards(found.shards, weights.tensors)
  const generation = await readGeneration(dir)
  return packageOf({ path: dir, dir, config, family, format }, weights, generation)
}

const openPth = async (path: string, file: string): Promise<Package> => {
  const weights = await inspectWeights([file])
  const format = formatOf(weights.files, weights.formats)
  if (format !== 'torch') throw invalid(`${file} is no file of torch.save but ${format}. ${EXPECTED}.`)
  checkPth(file, weights.tensors)
  const config = PTH_CONFIG
  const named = { path, dir: dirname(file), config, family: familyOf(file, config), format }
  return packageOf(named, weights, NO_GENERATION)
}

/** `-00002-of-00003.gguf`: a part of a model that was split. */
const PART = /-(\d{5})-of-(\d{5})\.gguf$/
const MOST_PARTS = 512

/** The parts of the model whose first part, or whole, is `file`. */
const ggufFiles = (file: string): readonly string[] => {
  const [ending, part, parts] = PART.exec(file) ?? []
  if (ending === undefined || part === undefined) return [file]
  const count = Number(parts)
  if (Number(part) !== 1 || count < 1 || count > MOST_PARTS)
    throw invalid(`${file} is part ${Number(part)} of ${count}; name the first part, …-00001-of-${parts}.gguf.`)
  const stem = file.slice(0, -ending.length)
  return Array.from({ length: count }, (_, i) => `${stem}-${String(i + 1).padStart(5, '0')}-of-${parts}.gguf`)
}

const openGguf = async (path: string, file: string): Promise<Package> => {
  const weights = await inspectWeights(ggufFiles(file))
  const format = formatOf(weights.files, weights.formats)
  if (format !== 'gguf' || weights.metadata === null)
    throw invalid(`${file} is no GGUF file but ${format}. ${EXPECTED}.`)
  const { config, tensors, endTokens, endKeys, notes } = await readGguf(
    weights.files,
    weights.metadata,
    weights.tensors,
  )
  return {
    path,
    dir: dirname(file),
    config,
    identity: Object.fromEntries(weights.metadata),
    family: familyOf(file, config),
    format,
    notes,
    ...weights,
    tensors,
    endTokens,
    endKeys,
    sampling: null,
  }
}

/** The one model file of a folder without config.json. */
const modelFile = (dir: string, there: ReadonlySet<string>): string => {
  const found = [...there].filter((name) => {
    const part = PART.exec(name)?.[1]
    return /\.(pth|gguf)$/.test(name) && (part === undefined || Number(part) === 1)
  })
  const [only, ...more] = found.toSorted()
  if (only === undefined && there.has('adapter_config.json'))
    throw invalid(
      `${dir} is an adapter (LoRA), which changes another model and is none by itself. Merge it into its base model (merge_and_unload of peft), and name the folder of the result.`,
    )
  if (only === undefined)
    throw invalid(`${dir} is not a model package: cannot read config.json (there is none). ${EXPECTED}.`)
  if (more.length > 0)
    throw invalid(`${dir} holds several models (${[only, ...more].join(', ')}); name the file of one of them.`)
  return join(dir, only)
}

const openFile = async (path: string, file: string): Promise<Package> => {
  if (file.endsWith('.gguf')) return openGguf(path, file)
  if (file.endsWith('.pth')) return openPth(path, file)
  throw invalid(
    `${path} is a file that ends neither in .pth nor in .gguf. ${EXPECTED}; of any other model name the folder.`,
  )
}

/**
 * `named`: a path, or owner/name of a model in a cache. Throws INVALID where it names no model, or one that Continuo
 * does not read; the message says what would be read.
 */
export const readPackage = async (named: string, judge: Judge = () => {}): Promise<Package> => {
  const path = await findModel(named)
  const found = await stat(path).catch((cause) => {
    const what = /\.(pth|gguf)$/.test(path) ? 'it' : 'config.json'
    throw invalid(`${path} is not a model package: cannot read ${what} (${messageOf(cause)}). ${EXPECTED}.`, cause)
  })
  if (!found.isDirectory()) return openFile(path, path)
  const there = new Set(await readdir(path))
  if (!there.has('config.json')) return openFile(path, modelFile(path, there))
  const gguf = [...there].some((name) => name.endsWith('.gguf'))
  const own = [...Object.values(SINGLE), ...INDICES].some((name) => there.has(name))
  return gguf && !own ? openFile(path, modelFile(path, there)) : openFolder(path, there, judge)
}

/** The names of the weights' files, for what is shown. */
export const fileNames = ({ files }: Package): string =>
  files.length === 1 ? basename(files[0]!) : `${files.length} files`
