/**
 * A snapshot in blocks: a manifest names the frozen blocks of the tables that grow by the sha256 of their bytes, and holds the rest of
 * the state. It is a snapshot file of version 2 (docs/formats.md): the tensors are those of the hot part, and `growth` in its metadata
 * says how the blocks continue them, so that the whole can be put together without the model.
 */
import { z } from 'zod'
import type { Head, SnapshotRef } from '../../topics/state.ts'
import type { BlobName } from '../blobs/store.ts'
import { digest, type Move, scatter, uninitialised } from '../bulk.ts'
import { ContinuoError } from '../errors.ts'
import { parseJson } from '../json.ts'
import { BLOCK_POSITIONS, type Growth, type LayoutEntry, type StateLayout } from '../memory.ts'
import type { MemoryStats } from './memory-stats.ts'
import { filePieces, type SnapshotFile } from './snapshot.ts'

/** Blobs of each growth, block by block. */
export type BlobNames = readonly (readonly BlobName[])[]

/** Where blobs lie: the member `store` of a manifest. Either the folder of the partition in a shared store, or this: in its own topic. */
export const IN_TOPIC = 'topic'

const ENTRY_BYTES = 40
/** Of one position in one table. */
const MAX_ROW_BYTES = 2 ** 24

const count = z.int().min(0)
const growthSchema = z.array(
  z.strictObject({
    counter: z.string(),
    blocks: z
      .int()
      .min(0)
      .max(2 ** 31 / BLOCK_POSITIONS),
    tables: z.array(z.tuple([z.string(), count])).min(1),
  }),
)

const refuse = (what: string): never => {
  throw new ContinuoError('REFUSED', `The snapshot ${what}. Nothing was changed; use another copy of it.`)
}

const packNames = (names: BlobNames): string => {
  const all = names.flat()
  const bytes = Buffer.alloc(all.length * ENTRY_BYTES)
  for (const [i, { hash, place }] of all.entries()) {
    bytes.write(hash, i * ENTRY_BYTES, 'hex')
    bytes.writeBigUInt64LE(BigInt(`0x${place}`), i * ENTRY_BYTES + 32)
  }
  return bytes.toString('base64')
}

/** As two pieces, header and state. `store`: where the blobs of this partition lie, as above. `hot` as `StateParts` has it. */
export const encodeManifest = (
  head: Head,
  hot: Uint8Array,
  layout: StateLayout,
  store: string,
  names: BlobNames,
  stats?: MemoryStats,
): ReturnType<typeof filePieces> => {
  const growth = layout.growth.map(({ counter, tables }, g) => ({
    counter,
    blocks: names[g]!.length,
    tables: tables.map(({ name, axis }) => [name, axis]),
  }))
  return filePieces(head, hot, hotTensors(layout, hot, names), stats, {
    store,
    growth: JSON.stringify(growth),
    blobs: packNames(names),
  })
}

/** Something for each block of a growth. */
interface Blocks {
  readonly length: number
}

/** The tensors of the hot part behind these blocks of each growth. Throws REFUSED when it does not fit layout and blocks. */
export const hotTensors = (layout: StateLayout, hot: Uint8Array, blocks: readonly Blocks[]): readonly LayoutEntry[] => {
  const skipped = new Map(layout.growth.flatMap(({ tables }, g) => tables.map(({ name }) => [name, blocks[g]!.length])))
  return layout.tensors(hot, (name) => (skipped.get(name) ?? 0) * BLOCK_POSITIONS)
}

export interface Manifest {
  readonly head: Head
  readonly store: string
  readonly names: BlobNames
  /** Bytes of a blob of each growth. */
  readonly sizes: readonly number[]
}

/** A growth as the file describes it, with the tensors of its hot part. */
interface Described {
  readonly blocks: number
  readonly tables: readonly {
    readonly entry: LayoutEntry
    readonly axis: number
    readonly outer: number
    readonly row: number
  }[]
}

const bytesOfBlock = ({ tables }: Pick<Described, 'tables'>): number =>
  tables.reduce((sum, { outer, row }) => sum + outer * row * BLOCK_POSITIONS, 0)

const jsonOf = (text: string): unknown => {
  try {
    return parseJson(text, 'growth')
  } catch {
    return undefined
  }
}

const describedIn = (file: SnapshotFile): readonly Described[] => {
  const parsed = growthSchema.safeParse(jsonOf(file.manifest!.growth))
  if (!parsed.success) return refuse('describes its blocks in a form that it does not have')
  const seen = new Set<string>()
  return parsed.data.map(({ blocks, tables }) => ({
    blocks,
    tables: tables.map(([name, axis]) => {
      const entry = file.tensors.find((each) => each.name === name)
      if (entry === undefined || seen.has(name) || axis >= entry.shape.length)
        return refuse(`has blocks of a tensor ${JSON.stringify(name)} that it does not hold`)
      seen.add(name)
      const product = (extents: readonly number[]): number => extents.reduce((a, b) => a * b, 1)
      const outer = product(entry.shape.slice(0, axis))
      const rows = outer * entry.shape[axis]!
      const width = entry.dtype === 'F32' || entry.dtype === 'I32' ? 4 : ({ F16: 2, BF16: 2 }[entry.dtype] ?? 1)
      const row = product(entry.shape.slice(axis + 1)) * width
      if (!(outer * row > 0 && outer * row <= MAX_ROW_BYTES) || rows * row !== entry.bytes)
        return refuse(`has ${name} with ${entry.bytes} bytes for its shape`)
      return { entry, axis, outer, row }
    }),
  }))
}

/** The blobs that a snapshot file names; null: it is whole. Throws REFUSED for a file that contradicts itself. */
export const readManifest = (file: SnapshotFile): Manifest | null => {
  if (file.manifest === null) return null
  const packed = Buffer.from(file.manifest.blobs, 'base64')
  const growth = describedIn(file)
  const wanted = growth.reduce((sum, { blocks }) => sum + blocks, 0)
  if (packed.length !== wanted * ENTRY_BYTES)
    return refuse(`names ${packed.length / ENTRY_BYTES} blobs and has ${wanted} blocks`)
  if (file.manifest.store !== IN_TOPIC && !/^[0-9a-f]{32}\/\d{1,10}$/.test(file.manifest.store))
    return refuse(`says that its blobs lie in ${JSON.stringify(file.manifest.store)}`)
  let at = 0
  const next = (): BlobName => {
    const entry = packed.subarray(at, at + ENTRY_BYTES)
    at += ENTRY_BYTES
    return { hash: entry.toString('hex', 0, 32), place: entry.readBigUInt64LE(32).toString(16).padStart(16, '0') }
  }
  const names = growth.map(({ blocks }) => Array.from({ length: blocks }, next))
  return { head: file.head, store: file.manifest.store, names, sizes: growth.map(bytesOfBlock) }
}

/** Whether its blocks are those of the layout, and what it holds itself is the rest of the same tensors: then it needs no `assembly`. */
export const isOfLayout = (file: SnapshotFile, { names }: Manifest, layout: StateLayout): boolean => {
  const described = describedIn(file).map(({ tables }) => tables.map(({ entry, axis }) => [entry.name, axis]))
  const known = layout.growth.map(({ tables }) => tables.map(({ name, axis }) => [name, axis]))
  if (JSON.stringify(described) !== JSON.stringify(known)) return false
  const text = (entries: readonly LayoutEntry[]): string =>
    JSON.stringify(entries.map(({ name, dtype, shape, offset, bytes }) => [name, dtype, shape, offset, bytes]))
  try {
    return text(hotTensors(layout, file.state, names)) === text(file.tensors)
  } catch {
    return false
  }
}

/** The same file with other places of its blobs. */
export const withNames = (file: SnapshotFile, names: BlobNames): ReturnType<typeof filePieces> =>
  filePieces(file.head, file.state, file.tensors, file.stats ?? undefined, {
    ...file.manifest!,
    blobs: packNames(names),
  })

/** The whole state: the hot part of a file with its blocks before it, which are put in as they come. */
export interface Assembly {
  /** Copies a block of growth `g` into the state. Returns the sha256 of the bytes, for the caller to compare with the blob's name. */
  place(g: number, block: number, bytes: Uint8Array): Promise<string>
  /** To be called when all are in. Rejects with REFUSED where one had another length than its tables need. */
  finish(): Promise<{ readonly state: Uint8Array; readonly tensors: readonly LayoutEntry[] }>
}

/** Copies bytes to where they belong. Returns their sha256. */
type Placing = (state: Uint8Array) => Promise<string>

/** Throws REFUSED where the file contradicts itself. */
export const assembly = (file: SnapshotFile): Assembly => assemble(file.state, file.tensors, describedIn(file))

/** The same of parts that never were in a snapshot, behind these blocks of each growth. Throws REFUSED when `hot` does not fit. */
export const assemblyOf = (layout: StateLayout, hot: Uint8Array, blocks: readonly Blocks[]): Assembly => {
  const tensors = hotTensors(layout, hot, blocks)
  const growth = layout.growth.map(({ tables }, g) => ({
    blocks: blocks[g]!.length,
    tables: tables.map(({ name, axis, outer, row }) => {
      const entry = tensors.find((each) => each.name === name)!
      return { entry, axis, outer, row }
    }),
  }))
  return assemble(hot, tensors, growth)
}

const assemble = (hot: Uint8Array, tensors: readonly LayoutEntry[], growth: readonly Described[]): Assembly => {
  const sizes = growth.map(bytesOfBlock)
  /** The tables that blocks continue, with the positions in the blocks. */
  const grown = new Map(
    growth.flatMap(({ blocks, tables }) =>
      tables.map((table) => [table.entry, { ...table, added: blocks * BLOCK_POSITIONS }] as const),
    ),
  )
  let length = 0
  const placed = new Map(
    tensors.map((entry): [LayoutEntry, LayoutEntry] => {
      const table = grown.get(entry)
      const bytes = entry.bytes + (table === undefined ? 0 : table.added * table.outer * table.row)
      const shape = entry.shape.map((extent, axis) => (axis === table?.axis ? extent + table.added : extent))
      const offset = length
      length += bytes
      return [entry, { ...entry, shape, offset, bytes }]
    }),
  )

  const placeHot: Placing = (state) => {
    const moves = tensors.flatMap((entry): Move[] => {
      const table = grown.get(entry)
      const to = placed.get(entry)!.offset
      if (table === undefined) return [{ from: entry.offset, to, bytes: entry.bytes }]
      const [before, bytes] = [table.added * table.row, entry.bytes / table.outer]
      return Array.from({ length: table.outer }, (_, part) => ({
        from: entry.offset + part * bytes,
        to: to + part * (before + bytes) + before,
        bytes,
      }))
    })
    return scatter(hot, moves, state)
  }

  const placeBlock =
    (g: number, block: number, blob: Uint8Array): Placing =>
    (state) => {
      let from = 0
      const moves = growth[g]!.tables.flatMap(({ entry, axis, outer, row }) => {
        const { offset, shape } = placed.get(entry)!
        const bytes = BLOCK_POSITIONS * row
        return Array.from({ length: outer }, (_, part) => {
          const move = { from, to: offset + part * shape[axis]! * row + block * bytes, bytes }
          from += bytes
          return move
        })
      })
      return scatter(blob, moves, state)
    }

  /** Memory is taken once a block of each growth has shown that they are as large as the file says. */
  let state: Uint8Array | null = null
  const shown = new Set<number>()
  const early: Placing[] = []
  let fault: string | null = null
  return {
    async place(g, block, bytes) {
      if (bytes.length !== sizes[g]) {
        fault = `has a block of ${bytes.length} bytes; its tables have ${sizes[g]}`
        return digest([bytes])
      }
      shown.add(g)
      const placing = placeBlock(g, block, bytes)
      if (growth.every(({ blocks }, at) => blocks === 0 || shown.has(at))) {
        state ??= uninitialised(length)
        return placing(state)
      }
      early.push(placing)
      return digest([bytes])
    },
    async finish() {
      if (fault !== null) return refuse(fault)
      const whole = state ?? uninitialised(length)
      await Promise.all([placeHot, ...early].map((placing) => placing(whole)))
      return { state: whole, tensors: [...placed.values()] }
    },
  }
}

/** Bytes of a block of this growth. */
export const blockBytes = ({ tables }: Growth): number =>
  tables.reduce((sum, { outer, row }) => sum + outer * row * BLOCK_POSITIONS, 0)

/** What a reference to a manifest says of its blobs, which lie in `store`. */
export const namedIn = ({ growth }: StateLayout, names: BlobNames, store: string): SnapshotRef['blobs'] => ({
  count: names.reduce((sum, own) => sum + own.length, 0),
  bytes: names.reduce((sum, own, g) => sum + own.length * blockBytes(growth[g]!), 0),
  ...(store === IN_TOPIC && { in: IN_TOPIC }),
})
