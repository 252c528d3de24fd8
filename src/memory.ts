/**
 * The memory of a model as seen from outside the engine: where its tensors lie in a serialised context, and what its
 * gates did. The engine and `state/` both speak of these types, and neither needs the other for it.
 */

/** One persistent of the graph as a slice of a serialised context, little-endian. */
export interface LayoutEntry {
  /** As the graph names the persistent. */
  readonly name: string
  /** As safetensors names it; a counter is I64. */
  readonly dtype: string
  /** Axes, outermost first. */
  readonly shape: readonly number[]
  /** Byte offset in the serialised context; entries are dense and in declaration order. */
  readonly offset: number
  /** Its length in the serialised context. */
  readonly bytes: number
}

/**
 * Where the persistents stand in a serialised context. Tables that grow have as many positions as the counters inside
 * say.
 */
export interface StateTensors {
  /**
   * `skipped`: of a table in blocks, how many of its positions the state leaves out; default: none. Throws REFUSED when
   * the state has another length than its counters ask for.
   */
  tensors(state: Uint8Array, skipped?: (table: string) => number): readonly LayoutEntry[]
}

/**
 * Positions of a block of nearly all tables: what the arithmetic sums in one run, and what a blob of a snapshot holds.
 */
export const BLOCK_POSITIONS = 256

/**
 * Tables that follow one counter, where no token writes an earlier position again. So they are cut into blocks, each of
 * which holds a *run* of positions. Of tables that grow in blocks of B positions, run k is positions Bk … Bk + B − 1.
 * Of rings, see `runsOf`.
 */
export interface Growth {
  /** Of rings it may be the clock, which is no part of the state. */
  readonly counter: string
  /** How many of the last positions a later token may still write. */
  readonly reach: number
  /** Of rings: how many places they have, more than 256. Missing where the tables grow. */
  readonly places?: number
  /** Of tables that grow: positions of a block, where they are fewer than 256. */
  readonly block?: number
  /** Only the engine's host part reads the tables: full blocks may sleep (`SleepyBlocks`). */
  readonly sleeps?: true
  /** In order of declaration. */
  readonly tables: readonly GrowingTable[]
}

/** In a serialised context [outer, positions, row]. */
export interface GrowingTable {
  readonly name: string
  /** The axis that follows the counter. */
  readonly axis: number
  readonly outer: number
  /** Bytes of one position in one of the `outer` parts. */
  readonly row: number
}

/** Blocks of a ring: the last one is shorter where 256 does not divide its places. */
export const ringBlocks = (places: number): number => Math.ceil(places / BLOCK_POSITIONS)

/** Runs first … end − 1. */
export interface Runs {
  readonly first: number
  readonly end: number
}

/**
 * The runs that no later token can write, and that are still there, where the counter has this value.
 *
 * A ring of P places has n = ⌈P / 256⌉ blocks, and position p lies in place p mod P. Runs are counted through the laps:
 * run (L + 1)·n + b is what block b holds from lap L on, until the next lap reaches it; L = −1 is what it began with.
 * So each block holds one run at any time, and all stand but that of the last position. A ring has `reach` 1 at most:
 * with more, the last positions may lie in two blocks. After a reset a clock counts on, and the runs of the lap before
 * are what the reset left. Blocks with the same bytes are one blob, so what no token has reached costs one or two blobs
 * in all; the snapshot file would hold all these bytes.
 */
export const runsOf = (
  { reach, places, block = BLOCK_POSITIONS }: Omit<Growth, 'counter' | 'tables'>,
  positions: number,
): Runs => {
  if (places === undefined) return { first: 0, end: Math.max(0, Math.floor((positions - reach) / block)) }
  const last = Math.max(0, positions - 1)
  const blocks = ringBlocks(places)
  const end = (Math.floor(last / places) + 1) * blocks + Math.floor((last % places) / BLOCK_POSITIONS)
  return { first: end - blocks + 1, end }
}

/** The places of a block: from … to − 1. */
export const placesOf = (
  { places, block = BLOCK_POSITIONS }: Pick<Growth, 'places' | 'block'>,
  run: number,
): { readonly from: number; readonly to: number } => {
  const from = (places === undefined ? run : run % ringBlocks(places)) * block
  return { from, to: Math.min(from + block, places ?? Number.POSITIVE_INFINITY) }
}

/** Positions of the block of a run. */
export const positionsOf = (growth: Pick<Growth, 'places' | 'block'>, run: number): number => {
  const { from, to } = placesOf(growth, run)
  return to - from
}

/** Bytes of the block of a run. */
export const blockBytes = (
  growth: Pick<Growth, 'places' | 'block'> & { readonly tables: readonly Pick<GrowingTable, 'outer' | 'row'>[] },
  run: number,
): number => growth.tables.reduce((sum, { outer, row }) => sum + outer * row, 0) * positionsOf(growth, run)

/** Of an external memory: the table of its archived blocks, which no kernel reads. */
export const ARCHIVE = 'cold'

/** Where the persistents of a model stand in a serialised context, and which of them grow. */
export interface StateLayout extends StateTensors {
  /** Of a context before its first token. */
  readonly first: readonly LayoutEntry[]
  /** First of tables that grow, in order of the counters' declaration; then of rings, in order of theirs. */
  readonly growth: readonly Growth[]
}

/**
 * A copy of a state in parts. `hot` is the state without its frozen blocks: growing tables begin with the first
 * position behind them, and rings have the places of one block. A block holds the places of one run in all tables of
 * one growth: table after table, [outer, places, row] each.
 */
export interface StateParts {
  readonly hot: Uint8Array
  /** Of each growth: the runs in frozen blocks. */
  readonly frozen: readonly Runs[]
  /** Of each growth: the last of these, all but those that the caller has. */
  readonly fresh: readonly (readonly FreshBlock[])[]
  /** Of the growth that sleeps: the numbers of its blocks, one for each frozen run. Missing where there is none. */
  readonly numbers?: readonly number[]
  /**
   * Of the fresh blocks only the first were copied, and `hot` is empty: another capture at the same pulse goes on
   * behind them.
   */
  readonly more?: true
}

/** A block that no snapshot holds yet. */
export interface FreshBlock {
  readonly run: number
  readonly bytes: Uint8Array
}

/** What the caller of a capture has of the frozen blocks. */
export interface KnownParts {
  /** Where the context stands. */
  readonly pulse: number
  /** Of each growth: one past the last run that it has; it has all those before it that are still there. */
  readonly ends: readonly number[]
  /** Bytes of fresh blocks that are copied at most, though one block in any case. Default: all. */
  readonly most?: number
}

/** The first of these, of so many bytes together, though one in any case. */
export const firstBytes = <T>(
  all: readonly T[],
  bytesOf: (each: T) => number,
  most = Number.POSITIVE_INFINITY,
): readonly T[] => {
  let bytes = 0
  const end = all.findIndex((each) => {
    bytes += bytesOf(each)
    return bytes > most
  })
  return end < 0 ? all : all.slice(0, Math.max(1, end))
}

/** A block of growth `g`, by its number there. */
export interface BlockPlace {
  readonly g: number
  readonly block: number
}

/** A file that holds a block, with the sha256 that its bytes should have. */
export interface BlockFile extends BlockPlace {
  readonly path: string
  readonly hash: string
}

/** A block in the blob store, which the context that has it may need at any time. */
export interface KeptBlock {
  /** Names this copy of it. */
  readonly key: string
  /** Reading it is reading a file of this machine. */
  readonly isNear: boolean
  /** Rejects, with a sentence that names block and session, where it is missing or damaged. */
  read(): Promise<Uint8Array>
}

/** Numbers of blocks that may sleep, as news comes of them. */
export interface BlockNews {
  /** Awake, and may sleep from now on. */
  readonly full: Float64Array
  /** Read, in this order. */
  readonly used: Float64Array
  /** Asleep, and somebody waits. */
  readonly wanted: Float64Array
  /** No context has them any more. */
  readonly gone: Float64Array
}

/**
 * The blocks of a model that may sleep: their bytes leave the engine, and come back when they are wanted. Who owns the
 * process's memory decides which (state/block-cache.ts). Where nobody does, no block ever sleeps.
 */
export interface SleepyBlocks {
  /** Bytes of each. */
  readonly blockBytes: number
  /**
   * Resolves when there is news: none at all when `stop` was called, or another listens. Does not keep the process
   * alive.
   */
  news(): Promise<BlockNews>
  /** No news comes any more: who waits for some gets none. */
  stop(): void
  /** Whether the block sleeps now: not where it is being read, or somebody waits for it. */
  sleep(number: number): boolean
  /** Its bytes are back. */
  wake(number: number, bytes: Uint8Array): void
  /** It cannot be had: who waits is told why. */
  refuse(number: number, reason: string): void
  /** Its bytes; null where it sleeps or is gone. */
  copy(number: number): Uint8Array | null
}

declare const heldBrand: unique symbol
/** Blocks of a context that may sleep, while the context is elsewhere. */
export interface HeldBlocks {
  readonly [heldBrand]: true
}

/** Where the blocks of a state are put. */
export interface BlockSink {
  /** Blocks of growths that sleep are not put: the context's owner knows where they lie. */
  readonly rests: boolean
  /**
   * Takes a block. Returns the sha256 of the bytes, for the caller to compare. They must not change before the promise
   * settles.
   */
  bytes(place: BlockPlace, bytes: Uint8Array): Promise<string>
  /**
   * Takes blocks from their files; false for each that is not there or has another length or hash, which may be put
   * again.
   */
  files(files: readonly BlockFile[]): Promise<readonly boolean[]>
}

/** A state that comes in parts: `hot` as `StateParts` has it, and of each growth so many blocks before it. */
export interface StateSource {
  readonly hot: Uint8Array
  readonly blocks: readonly number[]
  /**
   * Of each growth, how many of the first blocks the context that loads the state has already: they are not put.
   * Default: none.
   */
  readonly kept?: readonly number[]
  /** In place of `kept` of a growth that sleeps: these blocks, all that it has. */
  readonly held?: HeldBlocks
  /** Of the growth that sleeps, where its blocks lie; default: they are put like the others. */
  readonly resting?: readonly KeptBlock[]
  /** Puts every other block once. Who loads the state rejects with what this rejects with. */
  fill(sink: BlockSink): Promise<void>
}

/** Averages of the gates of one level of a matrix memory, over heads and the tokens since its context is in memory. */
export interface GateStatistics {
  /** The table of the memory, as the layout names it. */
  readonly table: string
  readonly layer: number
  readonly level: number
  /** Learning rate, momentum, retention; 0 where the memory has no such gate. */
  readonly theta: number
  readonly eta: number
  readonly alpha: number
}

/**
 * What a family says of its memory, so that statistics can be taken without knowing the family. Names are those of the
 * layout; a table with levels has one place for each of `levels` on its second axis, layers on its first.
 */
export interface MemoryDeclaration {
  /**
   * Positions that attention sees. `sliding`: the last `places` of the context; `segment`: those since the last pulse
   * that `places` divides. null: it sees the whole context, or there is no attention.
   */
  readonly window: { readonly kind: 'sliding' | 'segment'; readonly places: number } | null
  /**
   * Tables with levels: matrix memories, their momentum, and the errors that they are yet to write. Indices into the
   * model's levels.
   */
  readonly tables: readonly MemoryTable[]
}

/** A table of a memory, and the levels on its second axis. */
export interface MemoryTable {
  readonly name: string
  readonly role: 'memory' | 'momentum' | 'buffer'
  readonly levels: readonly number[]
}

/** The declaration of a model without windows and levels. */
export const PLAIN_MEMORY: MemoryDeclaration = { window: null, tables: [] }
