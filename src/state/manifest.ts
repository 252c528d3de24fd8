/**
 * A snapshot in blocks: a manifest names the frozen blocks of rings and of tables that grow by the sha256 of their
 * bytes, and holds the rest of the state. It is a snapshot file of version 2 (docs/formats.md): the tensors are those
 * of the hot part, and `growth` in its metadata says how the blocks continue them, so that the whole can be put
 * together without the model.
 */
import { z } from 'zod'
import type { SnapshotHead, SnapshotRef } from '../../topics/state.ts'
import type { BlobName } from '../blobs/store.ts'
import { ContinuoError } from '../errors.ts'
import { parseJson } from '../json.ts'
import {
  BLOCK_POSITIONS,
  blockBytes,
  type Growth,
  type LayoutEntry,
  positionsOf,
  type Runs,
  ringBlocks,
  type StateLayout,
} from '../memory.ts'
import type { Followed } from './block-names.ts'
import type { MemoryStats } from './memory-stats.ts'
import { filePieces, type SnapshotFile } from './snapshot.ts'

/** The blob of a run (memory.ts). */
export interface RunName extends BlobName {
  readonly run: number
}

/** Blobs of each growth, run by run. */
export type BlobNames = readonly (readonly RunName[])[]

/** One past the last run that is named. */
export const endOf = (own: readonly RunName[]): number => (own.at(-1)?.run ?? -1) + 1
/** Those of runs that are still there. */
export const within = (own: readonly RunName[], { first, end }: Runs): readonly RunName[] =>
  own.filter(({ run }) => run >= first && run < end)

/**
 * Where blobs lie: the member `store` of a manifest. Either the folder of the partition in a shared store, or this: in
 * its own topic.
 */
export const IN_TOPIC = 'topic'

const ENTRY_BYTES = 40
/**
 * Entries of one growth that fill a page are a blob, which the file names in their place: so a file costs 40 bytes for
 * 256 blocks. Entries of rings stay in the file, and the last ones of each growth.
 */
export const PAGE_ENTRIES = 256
/** Of one position in one table. */
const MAX_ROW_BYTES = 2 ** 24

const count = z.int().min(0)
const growthSchema = z.array(
  z.strictObject({
    counter: z.string(),
    blocks: count.max(2 ** 31),
    /** Positions of a block of tables that grow; 256 where it is missing. */
    block: z.int().min(1).max(BLOCK_POSITIONS).optional(),
    /** Pages with the names of the first blocks; 0 where it is missing. */
    pages: count.max(2 ** 23).optional(),
    /** Of rings: how many places they have, and the first run that is named. */
    ring: z.tuple([count.max(2 ** 31), count]).optional(),
    tables: z.array(z.tuple([z.string(), count])).min(1),
  }),
)

/** For a file that contradicts itself. */
export const refuse = (what: string): never => {
  throw new ContinuoError('REFUSED', `The snapshot ${what}. Nothing was changed; use another copy of it.`)
}

/** As a page has them, and the metadata of a manifest. */
export const pageBytes = (names: readonly BlobName[]): Buffer => {
  const bytes = Buffer.alloc(names.length * ENTRY_BYTES)
  for (const [i, { hash, place }] of names.entries()) {
    bytes.write(hash, i * ENTRY_BYTES, 'hex')
    bytes.writeBigUInt64LE(BigInt(`0x${place}`), i * ENTRY_BYTES + 32)
  }
  return bytes
}

/** One conversion for all entries: those of a million tokens are some thousands. */
const unpacked = (bytes: Buffer): readonly BlobName[] => {
  const [hex, turned] = [bytes.toString('hex'), Buffer.from(bytes).swap64().toString('hex')]
  return Array.from({ length: bytes.length / ENTRY_BYTES }, (_, i) => {
    const [at, end] = [2 * i * ENTRY_BYTES, 2 * (i + 1) * ENTRY_BYTES]
    return { hash: hex.slice(at, end - 16), place: turned.slice(end - 16, end) }
  })
}

/** The names of the pages of each growth. */
export type PageNames = readonly (readonly BlobName[])[]

/** Bytes of a page. */
export const PAGE_BYTES = PAGE_ENTRIES * ENTRY_BYTES

/** The pages of each growth. */
export const pagesOf = (
  { growth }: Pick<StateLayout, 'growth'>,
  names: BlobNames,
): readonly (readonly Uint8Array[])[] =>
  names.map((own, g) => {
    const count = growth[g]!.places === undefined ? Math.floor(own.length / PAGE_ENTRIES) : 0
    return Array.from({ length: count }, (_, i) => pageBytes(own.slice(i * PAGE_ENTRIES, (i + 1) * PAGE_ENTRIES)))
  })

const packNames = (names: readonly (readonly BlobName[])[], pages: PageNames): string =>
  Buffer.concat(
    names.flatMap((own, g) => [
      pageBytes(pages[g] ?? []),
      pageBytes(own.slice((pages[g]?.length ?? 0) * PAGE_ENTRIES)),
    ]),
  ).toString('base64')

/**
 * As two pieces, header and state. `store`: where the blobs of this partition lie, as above. `hot` as `StateParts` has
 * it.
 */
export const encodeManifest = (
  head: SnapshotHead,
  hot: Uint8Array,
  layout: StateLayout,
  store: string,
  names: BlobNames,
  stats?: MemoryStats,
  pages: PageNames = [],
): ReturnType<typeof filePieces> => {
  for (const own of names)
    if (own.some(({ run }, at) => run !== own[0]!.run + at))
      throw new ContinuoError(
        'INTERNAL',
        `The runs of a manifest are ${own.map(({ run }) => run).join(', ')}: they must follow each other.`,
      )
  const growth = layout.growth.map(({ counter, places, block, tables }, g) => ({
    counter,
    blocks: names[g]!.length,
    ...(block !== undefined && { block }),
    ...((pages[g]?.length ?? 0) > 0 && { pages: pages[g]!.length }),
    ...(places !== undefined && { ring: [places, names[g]![0]!.run] }),
    tables: tables.map(({ name, axis }) => [name, axis]),
  }))
  return filePieces(head, hot, hotTensors(layout, hot, names), stats, {
    store,
    growth: JSON.stringify(growth),
    blobs: packNames(names, pages),
  })
}

/** A block of a growth, by its run. */
export interface RunOf {
  readonly run: number
}

/**
 * The tensors of the hot part beside these blocks of each growth. Throws REFUSED when it does not fit layout and
 * blocks.
 */
export const hotTensors = (
  layout: StateLayout,
  hot: Uint8Array,
  blocks: readonly (readonly RunOf[])[],
): readonly LayoutEntry[] => {
  const skipped = new Map(
    layout.growth.flatMap((growth, g) => {
      const positions = blocks[g]!.reduce((sum, { run }) => sum + positionsOf(growth, run), 0)
      return growth.tables.map(({ name }) => [name, positions] as const)
    }),
  )
  return layout.tensors(hot, (name) => skipped.get(name) ?? 0)
}

export interface Manifest {
  readonly head: SnapshotHead
  readonly store: string
  readonly names: BlobNames
  /** Their bytes. */
  readonly sizes: readonly (readonly number[])[]
  readonly pages: PageNames
  readonly growth: readonly Followed[]
}

/** A growth as the file describes it, with the tensors of its hot part. */
export interface Described extends Pick<Growth, 'places' | 'block'> {
  /** The first run that is named, and how many are. */
  readonly first: number
  readonly blocks: number
  /** Missing: none. */
  readonly pages?: number
  readonly tables: readonly Table[]
}

interface Table {
  readonly entry: LayoutEntry
  readonly axis: number
  readonly outer: number
  readonly row: number
}

const jsonOf = (text: string): unknown => {
  try {
    return parseJson(text, 'growth')
  } catch {
    return undefined
  }
}

const product = (extents: readonly number[]): number => extents.reduce((a, b) => a * b, 1)

const tableIn = (file: SnapshotFile, name: string, axis: number): Table => {
  const entry = file.tensors.find((each) => each.name === name)
  if (entry === undefined || axis >= entry.shape.length)
    return refuse(`has blocks of a tensor ${JSON.stringify(name)} that it does not hold`)
  const outer = product(entry.shape.slice(0, axis))
  const rows = outer * entry.shape[axis]!
  const width = entry.dtype === 'F32' || entry.dtype === 'I32' ? 4 : ({ F16: 2, BF16: 2 }[entry.dtype] ?? 1)
  const row = product(entry.shape.slice(axis + 1)) * width
  if (!(outer * row > 0 && outer * row <= MAX_ROW_BYTES) || rows * row !== entry.bytes)
    return refuse(`has ${name} with ${entry.bytes} bytes for its shape`)
  return { entry, axis, outer, row }
}

/** The growths of a manifest. Throws REFUSED for a file that contradicts itself. */
export const describedIn = (file: SnapshotFile): readonly Described[] => {
  const parsed = growthSchema.safeParse(jsonOf(file.manifest!.growth))
  if (!parsed.success) return refuse('describes its blocks in a form that it does not have')
  const seen = new Set<string>()
  return parsed.data.map(({ blocks, block, pages = 0, ring, tables: named }) => {
    const tables = named.map(([name, axis]) => {
      if (seen.has(name)) return refuse(`has blocks of a tensor ${JSON.stringify(name)} twice`)
      seen.add(name)
      return tableIn(file, name, axis)
    })
    if (pages * PAGE_ENTRIES > (ring === undefined ? blocks : 0))
      return refuse(`has ${pages} pages with names of ${blocks} blocks`)
    if (ring === undefined) return { first: 0, blocks, pages, tables, ...(block !== undefined && { block }) }
    const [places, first] = ring
    if (blocks !== ringBlocks(places) - 1)
      return refuse(`names ${blocks} blocks of a ring that has ${places} places, and so ${ringBlocks(places)} blocks`)
    // The file holds the block that no run is named of.
    const held = positionsOf({ places }, first + blocks)
    for (const { entry, axis } of tables)
      if (entry.shape[axis] !== held)
        return refuse(`holds ${entry.shape[axis]} places of the ring ${entry.name}, expected ${held}`)
    return { first, blocks, places, tables }
  })
}

/**
 * What a snapshot file says of its blobs itself; null: it is whole. Throws REFUSED for a file that contradicts itself.
 */
export const readOutline = (file: SnapshotFile): Outline | null => {
  const read = contentOf(file)
  if (read === null) return null
  return {
    head: file.head,
    store: file.manifest!.store,
    pages: read.map(({ pages }) => pages),
    growth: read.map(({ growth }) => inWords(growth)),
  }
}

/** A manifest without what its pages name. */
export type Outline = Pick<Manifest, 'head' | 'store' | 'pages' | 'growth'>

const inWords = ({ places, block, tables }: Described): Followed => ({
  tables: tables.map(({ entry }) => entry.name),
  ...(places !== undefined && { places }),
  ...(block !== undefined && { block }),
})

interface Content {
  readonly growth: Described
  readonly pages: readonly BlobName[]
  /** Those behind the pages. */
  readonly rest: readonly BlobName[]
}

const contentOf = (file: SnapshotFile): readonly Content[] | null => {
  if (file.manifest === null) return null
  const bytes = Buffer.from(file.manifest.blobs, 'base64')
  const described = describedIn(file)
  const entries = ({ blocks, pages = 0 }: Described): number => blocks - pages * (PAGE_ENTRIES - 1)
  const wanted = described.reduce((sum, growth) => sum + entries(growth), 0)
  if (bytes.length !== wanted * ENTRY_BYTES)
    return refuse(`names ${bytes.length / ENTRY_BYTES} blobs and has ${wanted} blocks`)
  if (file.manifest.store !== IN_TOPIC && !/^[0-9a-f]{32}\/\d{1,10}$/.test(file.manifest.store))
    return refuse(`says that its blobs lie in ${JSON.stringify(file.manifest.store)}`)
  const all = unpacked(bytes)
  let at = 0
  return described.map((growth) => {
    const own = all.slice(at, at + entries(growth))
    at += own.length
    return { growth, pages: own.slice(0, growth.pages ?? 0), rest: own.slice(growth.pages ?? 0) }
  })
}

/**
 * The blobs that a snapshot file names; null: it is whole. `pages`: the bytes of its pages by their hashes, which were
 * checked. Throws REFUSED for a file that contradicts itself.
 */
export const readManifest = (
  file: SnapshotFile,
  pages: ReadonlyMap<string, Uint8Array> = new Map(),
): Manifest | null => {
  const content = contentOf(file)
  if (content === null) return null
  const names = content.map(({ growth: { first }, pages: own, rest }) => {
    const paged = own.flatMap(({ hash }) => {
      const bytes = pages.get(hash)
      if (bytes?.length !== PAGE_BYTES)
        return refuse(`has a page of ${bytes?.length ?? 0} bytes, expected ${PAGE_BYTES}`)
      return unpacked(Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length))
    })
    return [...paged, ...rest].map((name, block): RunName => ({ ...name, run: first + block }))
  })
  return {
    head: file.head,
    store: file.manifest!.store,
    names,
    sizes: names.map((own, g) => own.map(({ run }) => blockBytes(content[g]!.growth, run))),
    pages: content.map(({ pages: own }) => own),
    growth: content.map(({ growth }) => inWords(growth)),
  }
}

/**
 * Whether the file has the tensors and the blocks of this layout. Then a context loads block by block, and only rings
 * have to be put together first.
 */
export const isOfLayout = (file: SnapshotFile, { names }: Manifest, layout: StateLayout): boolean => {
  const described = describedIn(file).map(({ places, block, tables }) => [
    places,
    block,
    tables.map(({ entry, axis }) => [entry.name, axis]),
  ])
  const known = layout.growth.map(({ places, block, tables }) => [
    places,
    block,
    tables.map(({ name, axis }) => [name, axis]),
  ])
  if (JSON.stringify(described) !== JSON.stringify(known)) return false
  const text = (entries: readonly LayoutEntry[]): string =>
    JSON.stringify(entries.map(({ name, dtype, shape, offset, bytes }) => [name, dtype, shape, offset, bytes]))
  try {
    return text(hotTensors(layout, file.state, names)) === text(file.tensors)
  } catch {
    return false
  }
}

/** The same file with other places of its blobs, and so other pages, as many as it had. */
export const withNames = (
  file: SnapshotFile,
  names: readonly (readonly BlobName[])[],
  pages: PageNames,
): ReturnType<typeof filePieces> =>
  filePieces(file.head, file.state, file.tensors, file.stats ?? undefined, {
    ...file.manifest!,
    blobs: packNames(names, pages),
  })

/** What a reference to a manifest says of its blobs, which lie in `store`. Blocks with the same bytes are one blob. */
export const namedIn = (
  { growth }: StateLayout,
  names: BlobNames,
  store: string,
  pages: PageNames = [],
): SnapshotRef['blobs'] => {
  const sizes = new Map([
    ...names.flatMap((own, g) => own.map(({ hash, run }) => [hash, blockBytes(growth[g]!, run)] as const)),
    ...pages.flat().map(({ hash }) => [hash, PAGE_BYTES] as const),
  ])
  return {
    count: sizes.size,
    bytes: [...sizes.values()].reduce((sum, bytes) => sum + bytes, 0),
    ...(store === IN_TOPIC && { in: IN_TOPIC }),
  }
}
