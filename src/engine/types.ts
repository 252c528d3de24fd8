/**
 * The engine as the rest of Continuo sees it: two nouns, Model (immutable, shared) and Context (one mutable timeline).
 * `native/` implements them; `src/engine/engine.ts` validates, explains and hands over.
 */
import type { MemoryDeclaration, SleepyBlocks, StateLayout, StateSource } from '../memory.ts'
import type { Context, ContextHead, EngineContext } from './context.ts'
import type { Executor, ExecutorOptions } from './executor-types.ts'
import type { DeviceKind, Speculation } from './options.ts'
import type { WorkItem, WorkResult } from './work.ts'

/** What is known of a model before its weights are read. */
export interface ModelInfo {
  /** The folder or file that it was opened from. */
  readonly dir: string
  /** Its family, as config.json says: `rwkv7`. */
  readonly modelType: string
  /** Token ids go from 0 to `vocabSize` − 1. */
  readonly vocabSize: number
  /**
   * Numbers of the hidden vector behind a token, from which logits are computed; with an ngram memory those logits
   * themselves.
   */
  readonly channels: number
  /** Numbers in its weights. */
  readonly parameters: number
  /** Pulses between two firings of each memory level, level 0 first; empty for a model without levels. */
  readonly levels: readonly number[]
  /** Window and tables of the memory, as the family declares them; for statistics. */
  readonly memory: MemoryDeclaration
  /**
   * The ids that end a generation, in ascending order, where the package names others than its tokenizer's end of text;
   * null: that one alone, if there is one.
   */
  readonly endTokens: readonly number[] | null
  /**
   * sha256 (hex) over config.json's parsed content and every tensor (name, dtype, shape, bytes): what the model
   * computes.
   */
  readonly fingerprint: string
  /** sha256 (hex) over the persistent declarations: which checkpoints fit. */
  readonly layoutFingerprint: string
  /** Where its persistents stand in a serialised context. */
  readonly layout: StateLayout
  /** Bytes of a context before its first token; tables that grow add to it. */
  readonly contextBytes: number
  /** How many tokens one context takes; null: there is no bound. A reset begins anew. */
  readonly positions: number | null
  /** Its external memory: how many blocks may be brought back at a time; null: it has none. */
  readonly outerMemory: { readonly blockSize: number; readonly mostBlocks: number } | null
  /**
   * Whether its sessions learn what they read last, where they are asked to: it has adapters, or a hyperdimensional
   * memory.
   */
  readonly adapts: boolean
  /**
   * Where its tokens are drawn from several perspectives: how many of its layers have experts, and how many of these a
   * token goes to in each; null: they are not.
   */
  readonly perspectives: { readonly layers: number; readonly ranks: number } | null
  /** The caches that `statefulDecoder` presents; null for a model that is no decoder over growing caches. */
  readonly decoder: DecoderShape | null
  /** Where its weights and contexts lie. The bits are the same on both. */
  readonly device: DeviceKind
}

/** The sizes of a decoder's key and value caches: [layers, 1, heads, positions, channels]. */
export interface DecoderShape {
  /** Layers that attend to a cache. */
  readonly layers: number
  /** Heads of keys and values. */
  readonly heads: number
  /** The most positions. */
  readonly positions: number
  /** Channels of one head. */
  readonly channels: number
}

/** Counts of a model's expert store since it was opened; bytes are those of records with their padding. */
export interface ExpertStatistics {
  /**
   * Experts that a layer's rows were routed to, each once for a step; and of these, those that were in memory by then,
   * the host's or a device's.
   */
  readonly uses: number
  readonly hits: number
  /** Of the hits, those that look-ahead or warm-up had brought, at their first use. */
  readonly prefetched: number
  /** Records read, by what they were asked for first; and deltas, whatever for. */
  readonly demandBytes: number
  readonly aheadBytes: number
  readonly warmBytes: number
  readonly deltaBytes: number
  readonly reads: number
  /** In which computing waited for a record; and in which at least one read was on its way. */
  readonly waitSeconds: number
  readonly readSeconds: number
  readonly retries: number
  readonly failedChecks: number
  readonly failedReads: number
  readonly deltasUsed: number
  readonly deltasRefused: number
  readonly evictions: number
  /** Requests of look-ahead and warm-up that found no room. */
  readonly dropped: number
  readonly residentBytes: number
  readonly resident: number
  readonly bound: number
  /** Of look-ahead by one layer, and by two. */
  readonly ahead: readonly {
    readonly predictions: number
    readonly right: number
    readonly alreadyResident: number
    readonly inTime: number
    readonly useless: number
  }[]
}

/** The experts of a model that lie in a store. */
export interface ExpertPort {
  readonly folder: string
  readonly statistics: ExpertStatistics
  /** Gives up what is in memory: for measurements and checks. */
  forget(): void
  /**
   * Writes frequencies.bin into the store's folder: how often each expert is used, so that the next start reads the
   * most frequent experts first. Throws UNAVAILABLE.
   */
  saveFrequencies(): void
}

/** Counts since a model was opened. */
export interface EngineStats {
  /** Steps of the language model: passes over its weights. */
  readonly steps: number
  /** Tokens fed in them, read or generated. */
  readonly tokens: number
  /** Items answered. */
  readonly items: number
  /** Tokens that were guessed (`Speculation`), and how many of them were drawn. */
  readonly drafted: number
  readonly kept: number
  /** How often an item stood still until archived blocks of its context were in memory, and for how long in all. */
  readonly blockWaits: number
  readonly blockWaitSeconds: number
}

/** A model: immutable, shared by all of its contexts. */
export interface Model extends ModelInfo {
  /** Blocks of its contexts that may sleep; null where none does. */
  readonly blocks: SleepyBlocks | null
  /** A context at its first state. Throws UNAVAILABLE where there is no memory for it. */
  createContext(): EngineContext
  /**
   * A new context with this state (null: the first one) and head, made on another thread. Rejects as `Context.load`.
   */
  openContext(state: Uint8Array | StateSource | null, head: ContextHead): Promise<EngineContext>
  /**
   * A context that goes on from where this one stands, each by itself: state, clock and chain are copied, gates are
   * not. Tables that grow share their full blocks of 256 positions until one of the contexts changes them, so a fork
   * costs O(blocks). Throws MISUSE while a call has the context, and for one whose state is not usable.
   */
  forkContext(context: Context): EngineContext
  /**
   * Why its device, which was lost, could not be had again, and what to do; null unless that is so. Contexts cannot be
   * had until it can: most often only by another process.
   */
  unavailableReason(): string | null
  /** Counts of the engine since the model was opened. */
  readonly stats: EngineStats
  /** From one of its next steps on. Throws INVALID for a number of tokens that cannot be. */
  speculate(speculation: Speculation): void
  /** Its experts, where they lie in a store; else null. */
  readonly experts: ExpertPort | null
  /**
   * Takes one item, and answers when that item is done, whatever else the engine does. All items that the engine has at
   * one time share its passes over the weights: a step has a row for each that generates, and those that read share the
   * rest in turn. A result does not depend on what shares a step, on how tokens are cut into items, or on the number of
   * threads.
   *
   * Rejects before anything is written when the item is invalid (INVALID) or its context closed, busy or another
   * model's (MISUSE). INVALID: the item's tokens exceed the positions that its context has left; nothing of it was fed.
   * `ContextBroken` (REFUSED): its state stopped being finite; its context takes nothing but `load`, `restart` and
   * `close` from then on. UNAVAILABLE: memory or the device was lost, and the context's state with it.
   */
  submit(item: WorkItem): Promise<WorkResult>
  /**
   * Submits several items together and waits for all of them; the results stand in the order of the items. If one item
   * is invalid, or its context closed, busy or another model's, no item is submitted. If one item fails later, the
   * others finish all the same, and the call rejects with the error of the first item that failed. A context may appear
   * once.
   */
  process(items: readonly WorkItem[]): Promise<readonly WorkResult[]>
  /** An executor over any block of the model's graph, for one context. */
  createExecutor(options?: ExecutorOptions): Executor
  /** Logits [vocabSize] that follow the last token of the context; refused before its first token. */
  logits(context: Context): Promise<Float32Array>
  /**
   * Reads the weights' file once more: nothing writes weights while a model serves, and this is the proof. Rejects with
   * REFUSED when the file is gone or its fingerprint is another than the model's, and where packed weights that are
   * mapped were changed.
   */
  verifyWeights(): Promise<void>
  /**
   * Σ x xᵀ [inputs, inputs] of all rows x that the matrices in the tensor were multiplied with since the model was
   * opened, in f32; null where nothing multiplies with it. Throws MISUSE for a tensor that `OpenModelOptions.moments`
   * did not name, and while calls are in flight.
   */
  moments(tensor: string): Float32Array | null
  /** The file that its packed weights are mapped from; null: they were packed when it was opened. */
  readonly packed: string | null
  /**
   * Writes its packed weights for the next time, atomically: to a file that is named, or into Continuo's cache where
   * there are none yet. null: nothing was written, because they are on a device or being written by another process;
   * nor into the cache where they have less than 8 MiB. INVALID where the file cannot be written, or where the weights'
   * own file changed within the last two seconds.
   */
  keepPacked(path?: string): Promise<{ readonly path: string; readonly bytes: number } | null>
  /** Ends the engine's threads; its contexts can only be closed then. Refused while calls are in flight. */
  close(): void
}
