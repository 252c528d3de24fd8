/**
 * A snapshot is one safetensors file: every persistent of the model as a tensor, and in `__metadata__` the head it
 * belongs to, so that cursor and conductor can never be parted from the state. The same bytes are what `continuo
 * export` writes.
 *
 * Layout (docs/formats.md): u64 little-endian length of the header; the header, JSON padded with spaces to a multiple
 * of 8; the tensors, dense, in the order of the model's layout.
 */
import { z } from 'zod'
import { snapshotHead as headSchema, type SnapshotHead, type SnapshotRef } from '../../topics/state.ts'
import { digest, join } from '../bulk.ts'
import { ContinuoError } from '../errors.ts'
import { parseJson } from '../json.ts'
import type { LayoutEntry, StateTensors } from '../memory.ts'
import { hmac, type SealKeys, sameSeal } from '../seal-key.ts'
import { pulseMismatch } from './head.ts'
import { type MemoryStats, memoryStatsSchema } from './memory-stats.ts'

const extent = z.int().min(0)
const stored = z.record(
  z.string(),
  z.object({ dtype: z.string(), shape: z.array(extent), data_offsets: z.tuple([extent, extent]) }),
)

const metadataSchema = z.record(z.string(), z.string())

const FORMAT = 'continuo-snapshot'
/** A whole state; and one that is continued by blobs. */
const VERSION = '1'
const IN_BLOCKS = '2'

const utf8 = new TextEncoder()

/** `what`: a clause of which the snapshot is the subject. */
export const broken = (what: string): ContinuoError =>
  new ContinuoError('REFUSED', `The snapshot ${what}. Nothing was changed; use another copy of it.`)

/** How a file of version 2 continues its tensors by blobs (manifest.ts): members of its metadata. */
export interface ManifestText {
  readonly store: string
  readonly growth: string
  readonly blobs: string
}

/**
 * What the file's own checksum is taken over: an exported file has no head in a log that names its sha256. Texts stand
 * in the order in which they are hashed.
 */
const checked = (head: string, state: Uint8Array, vitals = '', manifest?: ManifestText): readonly Uint8Array[] => {
  const { store = '', growth = '', blobs = '' } = manifest ?? {}
  return [utf8.encode(head), state, utf8.encode(`${vitals}${store}${growth}${blobs}`)]
}

const entryOf = ({ dtype, shape, offset, bytes }: LayoutEntry) => ({
  dtype,
  shape,
  data_offsets: [offset, offset + bytes],
})

/**
 * A snapshot file as two pieces: its header, and the state itself. `stats` are for people who look at the file
 * (memory-stats.ts), where they are named `vitals`.
 */
export const filePieces = async (
  head: SnapshotHead,
  state: Uint8Array,
  entries: readonly LayoutEntry[],
  stats?: MemoryStats,
  manifest?: ManifestText,
): Promise<readonly [header: Uint8Array, state: Uint8Array]> => {
  const tensors = Object.fromEntries(entries.map((entry) => [entry.name, entryOf(entry)]))
  const inside = JSON.stringify({ ...head, snapshot: null })
  const told = stats && JSON.stringify(stats)
  const metadata = {
    format: FORMAT,
    version: manifest === undefined ? VERSION : IN_BLOCKS,
    head: inside,
    sha256: await digest(checked(inside, state, told, manifest)),
    ...(told !== undefined && { vitals: told }),
    ...manifest,
  }
  return [headerBytes({ __metadata__: metadata, ...tensors }), state]
}

/** The length of the header and the header, padded. */
const headerBytes = (content: unknown): Uint8Array => {
  const raw = utf8.encode(JSON.stringify(content))
  const length = Math.ceil(raw.length / 8) * 8
  const header = new Uint8Array(8 + length).fill(0x20, 8)
  new DataView(header.buffer).setBigUint64(0, BigInt(length), true)
  header.set(raw, 8)
  return header
}

/** The whole state in one file. */
export const encodeSnapshot = async (
  head: SnapshotHead,
  state: Uint8Array,
  layout: StateTensors,
  stats?: MemoryStats,
): Promise<Uint8Array> => join(await filePieces(head, state, layout.tensors(state), stats))

/** The HMAC of an exported file, over the parts that its own checksum covers, and that checksum. */
const exportSeal = (key: Uint8Array, { text, check, vitals = '' }: SnapshotHeader): string =>
  hmac(
    key,
    'export',
    [text, vitals, check].map((part) => utf8.encode(part)),
  )

/** The same file with an HMAC in its header: what `continuo export` writes with a key. */
export const sealExport = async (file: Uint8Array, { key }: SealKeys): Promise<Uint8Array> => {
  const header = readHeader(file)
  const { __metadata__, ...tensors } = header.tensors as Record<string, Record<string, string>>
  const sealed = { ...__metadata__, hmac: exportSeal(key, header) }
  return join([headerBytes({ __metadata__: sealed, ...tensors }), file.subarray(header.end)])
}

/** Throws REFUSED unless the file's seal is the one that the keys ask for. Its checksum is for `decodeSnapshot`. */
export const checkExport = (file: Uint8Array, keys: SealKeys | undefined): void => {
  const header = readHeader(file)
  const made = (header.tensors as Record<string, Record<string, string>>).__metadata__?.hmac
  if (made === undefined) {
    if (keys === undefined || keys.old === 'plain') return
    throw broken(
      'is sealed without a key, and --seal-key accepts none such: anybody could have made it. --seal-key-old plain accepts it',
    )
  }
  if (keys === undefined) throw broken('is sealed with a key: give it, --seal-key FILE or CONTINUO_SEAL_KEY_FILE')
  const accepted = [keys.key, ...(keys.old === null || keys.old === 'plain' ? [] : [keys.old])]
  if (!accepted.some((key) => sameSeal(made, exportSeal(key, header))))
    throw broken(
      'is not sealed with this key: it was altered, or another key (--seal-key) sealed it; --seal-key-old accepts a former one',
    )
}

/** One session's state as a file holds it. */
export interface Snapshot {
  /** Cursor, conductor, chain and sums. */
  readonly head: SnapshotHead
  /** The serialised context, laid out as the model's `layout` says. */
  readonly state: Uint8Array
}

export interface SnapshotHeader {
  readonly head: SnapshotHead
  readonly tensors: Readonly<Record<string, unknown>>
  /** Head and vitals as they stand in the file, and the checksum over them and the state. */
  readonly text: string
  readonly vitals: string | undefined
  readonly manifest: ManifestText | undefined
  readonly check: string
  /** Where the tensors begin. */
  readonly end: number
}

/** `file`: its beginning at least, with all of the header. Throws REFUSED. */
export const readHeader = (file: Uint8Array): SnapshotHeader => {
  if (file.length < 8) throw broken(`has ${file.length} bytes, too few for a safetensors header`)
  const length = Number(new DataView(file.buffer, file.byteOffset).getBigUint64(0, true))
  if (length > file.length - 8) throw broken(`announces a header of ${length} bytes and has ${file.length - 8}`)
  try {
    const header = new TextDecoder('utf-8', { fatal: true }).decode(file.subarray(8, 8 + length))
    const tensors = parseJson(header, 'The header') as Record<string, unknown>
    const metadata = metadataSchema.parse(tensors.__metadata__)
    const { format, version, head: text = '', sha256: check = '', vitals } = metadata
    const { store = '', growth = '', blobs = '' } = metadata
    if (format !== FORMAT || (version !== VERSION && version !== IN_BLOCKS)) {
      throw broken(
        `is of format ${format} version ${version}; expected ${FORMAT} version ${VERSION} or, in blocks, ${IN_BLOCKS}`,
      )
    }
    const head = headSchema.parse(parseJson(text, 'The head'))
    const manifest = version === VERSION ? undefined : { store, growth, blobs }
    return { head, tensors, text, vitals, manifest, check, end: 8 + length }
  } catch (error) {
    if (error instanceof ContinuoError)
      throw error.code === 'REFUSED' ? error : broken(`cannot be read. ${error.message}`)
    throw broken('has no readable header')
  }
}

/** The head inside a snapshot file. Throws REFUSED when the file is none. */
export const snapshotHead = (file: Uint8Array): SnapshotHead => readHeader(file).head

/** None where none were written, or none that can be read: nothing depends on them. */
const statsIn = (text = ''): MemoryStats | null => {
  try {
    return memoryStatsSchema.parse(parseJson(text, 'vitals'))
  } catch {
    return null
  }
}

/** A snapshot file by itself. */
export interface SnapshotFile extends Snapshot {
  /** The tensors in `state` that it names itself. */
  readonly tensors: readonly LayoutEntry[]
  readonly stats: MemoryStats | null
  /** How blobs continue the state; null where it is whole. */
  readonly manifest: ManifestText | null
}

/** The tensors that a header names, in a state of so many bytes. Throws REFUSED. */
export const namedEntries = (
  { tensors: named }: Pick<SnapshotHeader, 'tensors'>,
  bytes: number,
): readonly LayoutEntry[] => {
  const { __metadata__: _metadata, ...rest } = named
  const entries = stored.safeParse(rest)
  if (!entries.success) throw broken('names tensors in a form that safetensors does not have')
  return Object.entries(entries.data).map(
    ([
      name,
      {
        dtype,
        shape,
        data_offsets: [from, to],
      },
    ]) => {
      if (from > to || to > bytes) throw broken(`has ${name} from byte ${from} up to byte ${to} of ${bytes}`)
      return { name, dtype, shape, offset: from, bytes: to - from }
    },
  )
}

/**
 * A snapshot read without its model: the tensors are those that it names itself. Rejects with REFUSED when it fails its
 * checksum or its tensors do not fill the file.
 */
export const readSnapshotFile = async (file: Uint8Array): Promise<SnapshotFile> => {
  const { head, tensors: named, text, vitals, manifest, check, end } = readHeader(file)
  const state = file.subarray(end)
  const actual = await digest(checked(text, state, vitals, manifest))
  if (actual !== check) throw broken(`fails its checksum: it says ${check}, its content gives ${actual}`)
  const tensors = namedEntries({ tensors: named }, state.length)
  return { head, state, tensors, stats: statsIn(vitals), manifest: manifest ?? null }
}

/** Throws REFUSED unless the tensors that a file names are those of the layout. */
const checkNamed = (named: Readonly<Record<string, unknown>>, state: Uint8Array, layout: StateTensors): void =>
  checkTensors(named, layout.tensors(state))

/** The same with these tensors. */
export const checkTensors = (named: Readonly<Record<string, unknown>>, expected: readonly LayoutEntry[]): void => {
  const known = new Set(['__metadata__'])
  for (const entry of expected) {
    const { name } = entry
    const found = JSON.stringify(named[name] ?? null)
    const wanted = JSON.stringify(entryOf(entry))
    if (found !== wanted) throw broken(`has ${name} as ${found}; the model's layout says ${wanted}`)
    known.add(name)
  }
  const more = Object.keys(named).find((name) => !known.has(name))
  if (more !== undefined) throw broken(`has a tensor ${JSON.stringify(more)}, which the model's layout does not know`)
}

/** Throws REFUSED for a head that contradicts itself. */
export const checkPulse = ({ cursor, conductor }: SnapshotHead): void => {
  if (cursor.pulse !== conductor.globalStep) throw pulseMismatch(cursor.pulse, conductor.globalStep)
}

/** A state that was put together from a file and its blobs. Throws REFUSED when it is not of this layout. */
export const checkWhole = (
  { head, state }: Snapshot,
  tensors: readonly LayoutEntry[],
  layout: StateTensors,
): Snapshot => {
  checkNamed(Object.fromEntries(tensors.map((entry) => [entry.name, entryOf(entry)])), state, layout)
  checkPulse(head)
  return { head, state }
}

/** Rejects with REFUSED when the file is not a whole snapshot of this layout. */
export const decodeSnapshot = async (file: Uint8Array, layout: StateTensors): Promise<Snapshot> => {
  const { head, tensors, text, vitals, manifest, check, end } = readHeader(file)
  if (manifest !== undefined)
    throw broken('is in blocks, which lie in a blob store; a file that continuo export writes is whole')
  const state = file.subarray(end)
  checkNamed(tensors, state, layout)
  const actual = await digest(checked(text, state, vitals))
  if (actual !== check) throw broken(`fails its checksum: it says ${check}, its content gives ${actual}`)
  checkPulse(head)
  return { head, state }
}

/** Parts of at most `size` bytes, in order. */
export const splitParts = (file: Uint8Array, size: number): readonly Uint8Array[] => {
  const parts: Uint8Array[] = []
  for (let at = 0; at < file.length; at += size) parts.push(file.subarray(at, at + size))
  return parts
}

/** Puts parts together and compares with what the head names. Rejects with REFUSED. */
export const joinParts = async (
  session: string,
  parts: readonly Uint8Array[],
  ref: SnapshotRef,
): Promise<Uint8Array> => {
  const bytes = parts.reduce((sum, { length }) => sum + length, 0)
  if (parts.length !== ref.parts || bytes !== ref.bytes) {
    throw broken(
      `of session "${session}" at pulse ${ref.pulse} has ${parts.length} parts and ${bytes} bytes in the log; its head names ${ref.parts} and ${ref.bytes}`,
    )
  }
  const [file, actual] = await Promise.all([join(parts), digest(parts)])
  if (actual !== ref.sha256) {
    throw broken(
      `of session "${session}" at pulse ${ref.pulse} fails its checksum: its head says ${ref.sha256}, the bytes give ${actual}`,
    )
  }
  return file
}
