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
  /** Throws REFUSED when the state has another length than its counters ask for. */
  tensors(state: Uint8Array): readonly LayoutEntry[]
}

export interface StateLayout extends StateTensors {
  /** Of a context before its first token. */
  readonly first: readonly LayoutEntry[]
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
