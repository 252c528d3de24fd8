/** One timeline of a model, and what is kept of it. */
import { ContinuoError } from '../errors.ts'
import type { GateStatistics, HeldBlocks, KnownParts, Runs, StateParts, StateSource } from '../memory.ts'

/**
 * The clock and fingerprint of a context; small enough to read after every call. While a call runs: those before it.
 */
export interface ContextHead {
  /** Tokens fed since the session began; never resets. */
  readonly pulse: bigint
  /** The pulse at which the current context began (0, or the pulse of the last reset). */
  readonly origin: bigint
  /** 128-bit running fingerprint, 32 hex digits. */
  readonly chain: string
}

/**
 * One timeline, wherever its state lies. What touches the whole state is done on another thread and answers with a
 * promise; until it settles the context is busy, as with any other call.
 */
export interface Context extends ContextHead {
  /**
   * Memory that its persistents take, in bytes; a block that forks share is counted by one of them. While a call runs:
   * before it.
   */
  readonly bytes: number
  /** For people to look at: no part of the state. Empty for models without a matrix memory. */
  gates(): readonly GateStatistics[]
  /** A copy of every persistent, laid out as `layout` says. Rejects while another call has the context. */
  state(): Promise<Uint8Array>
  /**
   * The same copy in parts, without the blocks that are known. Rejects likewise, and with MISUSE at another pulse than
   * `known` says.
   */
  capture(known: KnownParts): Promise<StateParts>
  /**
   * Replaces state and head; null: by the first state. Rejects for a wrong length and non-finite numbers, and as the
   * source of a state in parts does; then the context is as it was. `state` must not change before the promise settles.
   */
  load(state: Uint8Array | StateSource | null, head: ContextHead): Promise<void>
  /**
   * Returns the state to its first values; the clock goes on and `origin` becomes `pulse`. The chain folds the reset
   * in.
   */
  restart(): Promise<void>
  /** Gives its memory back. Every later call throws MISUSE. */
  close(): void
}

/** A context of the engine's own. A program may have the calling thread do the work, and wait for it. */
export interface EngineContext extends Context {
  /** As `restart`. */
  reset(): void
  /** As `state`. */
  serialize(): Uint8Array
  /** As `load`. */
  restore(state: Uint8Array, head: ContextHead): void
  /** Of each growth of the layout, the runs that are frozen now. Throws MISUSE while a call has the context. */
  frozen(): readonly Runs[]
  /** The numbers of its full blocks that may sleep. */
  numbers(): Float64Array
  /**
   * The same blocks, to be given to another context with the rest of the state; they stay until `drop`. null where none
   * may sleep.
   */
  held(): {
    readonly blocks: HeldBlocks
    /** Lets them go. */
    drop(): void
  } | null
}

/**
 * A context's state stopped being finite, or a node of its graph met a value it cannot use. It takes load, restart and
 * close only.
 */
export class ContextBroken extends ContinuoError {
  constructor(message: string) {
    super('REFUSED', message)
    this.name = 'ContextBroken'
  }
}
