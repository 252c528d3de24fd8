/**
 * The memory of a model as seen from outside the engine: where its tensors lie in a serialised context, and what its gates did. The
 * engine and `state/` both speak of these types, and neither needs the other for it.
 */

/** One persistent of the graph as a slice of a serialised context, little-endian. */
export interface LayoutEntry {
  readonly name: string
  /** As safetensors names it; a counter is I64. */
  readonly dtype: string
  readonly shape: readonly number[]
  /** Byte offset in the serialised context; entries are dense and in declaration order. */
  readonly offset: number
  readonly bytes: number
}

/** Where the persistents stand in a serialised context. Tables that grow have as many positions as the counters inside say. */
export interface StateTensors {
  /**
   * `skipped`: of a table that grows, how many of its first positions the state leaves out; default: none. Throws REFUSED when the
   * state has another length than its counters ask for.
   */
  tensors(state: Uint8Array, skipped?: (table: string) => number): readonly LayoutEntry[]
}

/** Positions of a block: what the arithmetic sums in one run, and what a blob of a snapshot holds. */
export const BLOCK_POSITIONS = 256

/** The tables that grow with one counter that nothing lowers. Their early positions never change again, so they are cut into blocks. */
export interface Growth {
  readonly counter: string
  /** How many of the last positions a later token may still write. */
  readonly reach: number
  /** In order of declaration. */
  readonly tables: readonly GrowingTable[]
}

/** In a serialised context [outer, positions, row]. */
export interface GrowingTable {
  readonly name: string
  /** The axis that grows. */
  readonly axis: number
  readonly outer: number
  /** Bytes of one position in one of the `outer` parts. */
  readonly row: number
}

/** How many blocks no later token can write, with so many positions. */
export const frozenBlocks = ({ reach }: Pick<Growth, 'reach'>, positions: number): number =>
  Math.max(0, Math.floor((positions - reach) / BLOCK_POSITIONS))

export interface StateLayout extends StateTensors {
  /** Of a context before its first token. */
  readonly first: readonly LayoutEntry[]
  /** In order of the counters' declaration; none for models without tables that grow. */
  readonly growth: readonly Growth[]
}

/**
 * A copy of a state in parts. `hot` is the state without its frozen blocks: growing tables begin with the first position behind them.
 * A block holds 256 positions of all tables of one growth: table after table, [outer, 256, row] each.
 */
export interface StateParts {
  readonly hot: Uint8Array
  /** Of each growth: how many blocks are frozen. */
  readonly frozen: readonly number[]
  /** Of each growth: the last of these blocks, all but those that the caller has. */
  readonly fresh: readonly (readonly Uint8Array[])[]
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

/** Where the blocks of a state are put. */
export interface BlockSink {
  /** Takes a block. Returns the sha256 of the bytes, for the caller to compare. They must not change before the promise settles. */
  bytes(place: BlockPlace, bytes: Uint8Array): Promise<string>
  /** Takes blocks of one growth from their files; false for each that is not there or has another length or hash, which may be put again. */
  files(files: readonly BlockFile[]): Promise<readonly boolean[]>
}

/** A state that comes in parts: `hot` as `StateParts` has it, and of each growth so many blocks before it. */
export interface StateSource {
  readonly hot: Uint8Array
  readonly blocks: readonly number[]
  /** Puts every block once. Who loads the state rejects with what this rejects with. */
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
 * What a family says of its memory, so that statistics can be taken without knowing the family. Names are those of the layout; a
 * table with levels has one place for each of `levels` on its second axis, layers on its first.
 */
export interface MemoryDeclaration {
  /**
   * Positions that attention sees. `sliding`: the last `places` of the context; `segment`: those since the last pulse that `places`
   * divides. null: it sees the whole context, or there is no attention.
   */
  readonly window: { readonly kind: 'sliding' | 'segment'; readonly places: number } | null
  /** Tables with levels: matrix memories, their momentum, and the errors that they are yet to write. Indices into the model's levels. */
  readonly tables: readonly MemoryTable[]
}

export interface MemoryTable {
  readonly name: string
  readonly role: 'memory' | 'momentum' | 'buffer'
  readonly levels: readonly number[]
}

/** The declaration of a model without windows and levels. */
export const PLAIN_MEMORY: MemoryDeclaration = { window: null, tables: [] }
