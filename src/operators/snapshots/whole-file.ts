/**
 * A whole snapshot in a file, as `continuo export` writes it, read by pieces: the state of a long session is never in
 * memory as one. Its frozen blocks go to the context one after the other, and those that may sleep stay in the file
 * until they are wanted.
 */
import { createHash } from 'node:crypto'
import { type FileHandle, open } from 'node:fs/promises'
import type { SnapshotHead } from '../../../topics/state.ts'
import { join, uninitialised } from '../../bulk.ts'
import { frozenRuns } from '../../engine/growth.ts'
import { ContinuoError } from '../../errors.ts'
import {
  type Growth,
  type KeptBlock,
  type LayoutEntry,
  placesOf,
  type Runs,
  type StateLayout,
  type StateSource,
} from '../../memory.ts'
import { hotTensors } from '../../state/manifest.ts'
import {
  broken,
  checkPulse,
  checkTensors,
  namedEntries,
  readHeader,
  type SnapshotHeader,
} from '../../state/snapshot.ts'

export interface WholeFile {
  readonly head: SnapshotHead
  /** Its header alone, as bytes of the file. */
  readonly header: Uint8Array
  /** Rejects with REFUSED unless the file's checksum is right. */
  verify(): Promise<void>
  /** Rejects with REFUSED unless the file has the tensors of the layout. */
  source(layout: StateLayout): Promise<StateSource>
  /** All of it at once. */
  whole(): Promise<Uint8Array>
  /** Rejects with REFUSED where the file was written to since it was opened. */
  checkUnchanged(): Promise<void>
  close(): Promise<void>
}

const PIECE = 1 << 20
/** Of a header at most: what safetensors allows. */
const MAX_HEADER = 100_000_000

const read = async (file: FileHandle, from: number, bytes: number): Promise<Uint8Array> => {
  const content = uninitialised(bytes)
  let at = 0
  while (at < bytes) {
    const { bytesRead } = await file.read(content, at, bytes - at, from + at)
    if (bytesRead === 0) throw broken(`ends at byte ${from + at}, where ${bytes - at} more are expected`)
    at += bytesRead
  }
  return content
}

/** The bytes of the header; null: the file does not say of itself that it is a snapshot. */
const headerIn = async (file: FileHandle, size: number): Promise<Uint8Array | null> => {
  if (size < 8) return null
  const length = Buffer.from(await read(file, 0, 8)).readBigUInt64LE()
  const bytes = await read(file, 0, 8 + Math.min(Number(length), size - 8, MAX_HEADER))
  if (!Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length).includes('"format":"continuo-snapshot"')) return null
  if (length > BigInt(size - 8)) throw broken(`announces a header of ${length} bytes and has ${size - 8}`)
  if (length > MAX_HEADER) throw broken(`announces a header of ${length} bytes; ${MAX_HEADER} are the most`)
  return bytes
}

const counterIn = async (file: FileHandle, at: number): Promise<number> =>
  Number(Buffer.from(await read(file, at, 8)).readBigInt64LE())

/** A table in blocks, as the file has it. */
interface Table {
  /** Where it begins in the file. */
  readonly at: number
  readonly positions: number
  readonly outer: number
  readonly row: number
}

interface InBlocks extends Table {
  readonly axis: number
  /** Positions in frozen blocks. */
  readonly before: number
}

/** Positions from … to − 1, part after part. */
const rowsOf = async (file: FileHandle, table: Table, from: number, to: number): Promise<Uint8Array[]> => {
  const { at, positions, outer, row } = table
  const parts: Uint8Array[] = []
  for (let part = 0; part < outer; part += 1)
    parts.push(await read(file, at + (part * positions + from) * row, (to - from) * row))
  return parts
}

const sourceOf = async (
  file: FileHandle,
  path: string,
  header: SnapshotHeader,
  stateBytes: number,
  layout: StateLayout,
): Promise<StateSource> => {
  const named = namedEntries(header, stateBytes)
  const entries = new Map(named.map((entry) => [entry.name, entry]))
  const entryOf = (name: string): LayoutEntry => {
    const entry = entries.get(name)
    if (entry === undefined) throw broken(`has ${name} as null; the model's layout says that it is there`)
    return entry
  }
  const { head, end: start } = header
  const counters: number[] = []
  for (const { name, dtype } of layout.first)
    counters.push(dtype === 'I64' ? await counterIn(file, start + entryOf(name).offset) : 0)
  const runs = frozenRuns(layout, counters, head.conductor.globalStep)
  /** Rings come whole, with the rest. */
  const frozen = layout.growth.map(({ places }, g): Runs => (places === undefined ? runs[g]! : { first: 0, end: 0 }))
  const tables = new Map<string, InBlocks>()
  for (const [g, growth] of layout.growth.entries()) {
    if (growth.places !== undefined) continue
    for (const { name, axis, outer, row } of growth.tables) {
      const { shape, offset, bytes } = entryOf(name)
      const positions = shape[axis] ?? -1
      const { from } = placesOf(growth, frozen[g]!.end)
      if (positions < from || positions * outer * row !== bytes)
        throw broken(`has ${name} with ${positions} positions and ${bytes} bytes; its counter asks for ${from} or more`)
      tables.set(name, { at: start + offset, positions, outer, row, axis, before: from })
    }
  }
  const pieces: Uint8Array[] = []
  for (const { name } of layout.first) {
    const table = tables.get(name)
    const { offset, bytes } = entryOf(name)
    if (table === undefined) pieces.push(await read(file, start + offset, bytes))
    else pieces.push(...(await rowsOf(file, table, table.before, table.positions)))
  }
  const hot = await join(pieces)
  const blocks = frozen.map(({ end }) => Array.from({ length: end }, (_, run) => ({ run })))
  // What the file names is what the rest and the blocks make together.
  let offset = 0
  const expected = hotTensors(layout, hot, blocks).map((entry) => {
    const { axis = -1, before = 0, outer = 0, row = 0 } = tables.get(entry.name) ?? {}
    const shape = entry.shape.map((extent, at) => (at === axis ? extent + before : extent))
    const bytes = entry.bytes + before * outer * row
    const whole = { ...entry, shape, offset, bytes }
    offset += bytes
    return whole
  })
  checkTensors(header.tensors, expected)
  if (offset !== stateBytes) throw broken(`has ${stateBytes} bytes of tensors, expected ${offset}`)
  const blockOf = async (growth: Growth, run: number): Promise<Uint8Array> => {
    const { from, to } = placesOf(growth, run)
    const parts: Uint8Array[] = []
    for (const { name } of growth.tables) parts.push(...(await rowsOf(file, tables.get(name)!, from, to)))
    return join(parts)
  }
  const sleepy = layout.growth.findIndex(({ sleeps }) => sleeps)
  const resting = (blocks[sleepy] ?? []).map(
    ({ run }): KeptBlock => ({
      key: `${path}#${run}`,
      isNear: true,
      read: () => blockOf(layout.growth[sleepy]!, run),
    }),
  )
  return {
    hot,
    blocks: blocks.map(({ length }) => length),
    ...(sleepy >= 0 && { resting }),
    async fill(sink) {
      for (const [g, own] of blocks.entries()) {
        if (sink.rests && g === sleepy) continue
        for (const { run } of own) await sink.bytes({ g, block: run }, await blockOf(layout.growth[g]!, run))
      }
    },
  }
}

/**
 * null: the file does not say of itself that it is a snapshot. Rejects as `open`, and with REFUSED for one that is cut
 * off or damaged.
 */
export const openWholeFile = async (path: string): Promise<WholeFile | null> => {
  const file = await open(path)
  try {
    const opened = await file.stat()
    const { size } = opened
    // Says itself what is wrong with reading it.
    if (opened.isDirectory()) await read(file, 0, 1)
    if (!opened.isFile())
      throw new ContinuoError(
        'INVALID',
        `${path} is a pipe or a device, and is read in no order: save it as a file first.`,
      )
    const bytes = await headerIn(file, size)
    if (bytes === null) {
      await file.close()
      return null
    }
    const header = readHeader(bytes)
    if (header.manifest !== undefined)
      throw broken('is in blocks, which lie in a blob store; a file that continuo export writes is whole')
    const { head, text, vitals = '', check, end } = header
    return {
      head,
      header: bytes,
      async verify() {
        const hash = createHash('sha256').update(text)
        for (let at = end; at < size; at += PIECE) hash.update(await read(file, at, Math.min(PIECE, size - at)))
        const actual = hash.update(vitals).digest('hex')
        if (actual !== check) throw broken(`fails its checksum: it says ${check}, its content gives ${actual}`)
        checkPulse(head)
      },
      source: (layout) => sourceOf(file, path, header, size - end, layout),
      whole: () => read(file, 0, size),
      async checkUnchanged() {
        const now = await file.stat()
        if (now.size === size && now.mtimeMs === opened.mtimeMs) return
        throw new ContinuoError('REFUSED', `${path} was written to while it was read. Nothing was changed; try again.`)
      },
      close: () => file.close(),
    }
  } catch (error) {
    await file.close()
    throw error
  }
}
