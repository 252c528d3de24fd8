/**
 * The engine as the rest of Continuo sees it: two nouns, Model (immutable, shared) and Context (one mutable timeline).
 * `native/` implements them; `src/engine/engine.ts` validates, explains and hands over.
 */
import type { MemoryEvent } from '../../topics/observations.ts'
import { ContinuoError } from '../errors.ts'
import type {
  GateStatistics,
  HeldBlocks,
  KnownParts,
  MemoryDeclaration,
  Runs,
  SleepyBlocks,
  StateLayout,
  StateParts,
  StateSource,
} from '../memory.ts'

/** What is known of a model before its weights are read. */
export interface ModelInfo {
  /** The folder or file that it was opened from. */
  readonly dir: string
  /** Its family, as config.json says: `rwkv7`. */
  readonly modelType: string
  /** Token ids go from 0 to `vocabSize` − 1. */
  readonly vocabSize: number
  /** Numbers in its weights. */
  readonly parameters: number
  /** Pulses between two firings of each memory level, level 0 first; empty for a model without levels. */
  readonly levels: readonly number[]
  /** Window and tables of the memory, as the family declares them; for statistics. */
  readonly memory: MemoryDeclaration
  /**
   * The ids that end a generation, in ascending order, where the package names others than its tokenizer's end of text; null: that one
   * alone, if there is one.
   */
  readonly endTokens: readonly number[] | null
  /** sha256 (hex) over config.json's parsed content and every tensor (name, dtype, shape, bytes): what the model computes. */
  readonly fingerprint: string
  /** sha256 (hex) over the persistent declarations: which checkpoints fit. */
  readonly layoutFingerprint: string
  /** Where its persistents stand in a serialised context. */
  readonly layout: StateLayout
  /** Bytes of a context before its first token; tables that grow add to it. */
  readonly contextBytes: number
  /** How many tokens one context takes; null: there is no bound. A reset begins anew. */
  readonly positions: number | null
  /** Its memory outside of its contexts: how many blocks may be brought back at a time; null: it has none. */
  readonly outerMemory: { readonly blockSize: number; readonly mostBlocks: number } | null
  /** Whether its sessions learn what they read last, where they are asked to: it has adapters, or a hyperdimensional memory. */
  readonly adapts: boolean
  /**
   * Where its tokens are drawn from several perspectives: how many of its layers have experts, and how many of these a token goes to in
   * each; null: they are not.
   */
  readonly perspectives: { readonly layers: number; readonly ranks: number } | null
  /** The caches that `statefulDecoder` presents; null for a model that is no decoder over growing caches. */
  readonly decoder: DecoderShape | null
  /** Where its weights and contexts lie. The bits are the same on both. */
  readonly device: DeviceKind
}

/** Where a model runs; its numbers are the same bits on both. */
export type DeviceKind = 'cpu' | 'cuda'

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

/** The clock and fingerprint of a context; small enough to read after every call. While a call runs: those before it. */
export interface ContextHead {
  /** Tokens fed since the session began; never resets. */
  readonly pulse: bigint
  /** The pulse at which the current context began (0, or the pulse of the last reset). */
  readonly origin: bigint
  /** 128-bit running fingerprint, 32 hex digits. */
  readonly chain: string
}

/**
 * One timeline, wherever its state lies. What touches the whole state is done on another thread and answers with a promise; until it
 * settles the context is busy, as with any other call.
 */
export interface Context extends ContextHead {
  /** Memory that its persistents take, in bytes; a block that forks share is counted by one of them. While a call runs: before it. */
  readonly bytes: number
  /** For people to look at: no part of the state. Empty for models without a matrix memory. */
  gates(): readonly GateStatistics[]
  /** A copy of every persistent, laid out as `layout` says. Rejects while another call has the context. */
  state(): Promise<Uint8Array>
  /** The same copy in parts, without the blocks that are known. Rejects likewise, and with MISUSE at another pulse than `known` says. */
  capture(known: KnownParts): Promise<StateParts>
  /**
   * Replaces state and head; null: by the first state. Rejects for a wrong length and non-finite numbers, and as the source of a state in
   * parts does; then the context is as it was. `state` must not change before the promise settles.
   */
  load(state: Uint8Array | StateSource | null, head: ContextHead): Promise<void>
  /** Returns the state to its first values; the clock goes on and `origin` becomes `pulse`. The chain folds the reset in. */
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
  /** The same blocks, to be given to another context with the rest of the state; they stay until `drop`. null where none may sleep. */
  held(): {
    readonly blocks: HeldBlocks
    /** Lets them go. */
    drop(): void
  } | null
}

/** How a token is drawn from logits (docs/formats.md). */
export interface Sampling {
  /** 0 is greedy: the largest logit, the lowest id on a tie. */
  readonly temperature: number
  /** 0 keeps all. */
  readonly topK: number
  /** 1 keeps all. */
  readonly topP: number
  /** Philox4x32-10 key; the counter is the pulse. */
  readonly seed: bigint
  /** 0 keeps all; default. */
  readonly minP?: number
}

/** What tokens that were there before lose of their logits (docs/formats.md, Surprisal and sampling). */
export interface Penalties {
  /** 1 changes nothing. */
  readonly repetition: number
  /** Subtracted from the logit of each id that counts; 0 changes nothing. */
  readonly presence: number
  /** Subtracted once for each time that it counts; 0 changes nothing. */
  readonly frequency: number
  /** How often each id counts, before this item; those that it generates count too. */
  readonly counts: ReadonlyMap<number, number>
}

/** What happens at a model's last position: refuse, or go on over the last positions. */
export type Overflow = 'refuse' | 'window'
/** How keys and values of a cache are kept. */
export type CacheDtype = 'f32' | 'f16' | 'bf16'

/** A context's state stopped being finite, or a node of its graph met a value it cannot use. It takes load, restart and close only. */
export class ContextBroken extends ContinuoError {
  constructor(message: string) {
    super('REFUSED', message)
    this.name = 'ContextBroken'
  }
}

/** Strings of bytes that end a generation, looked for across tokens and across items. */
export interface StopStrings {
  /** None is empty. */
  readonly strings: readonly Uint8Array[]
  /** The last bytes generated before this item: those of the longest string are enough. */
  readonly tail: Uint8Array
  /** The bytes of each token. The engine asks once for each id of the vocabulary; the same object each time is the same vocabulary. */
  readonly vocabulary: {
    /** The bytes of one id; empty where it has none. */
    bytesOf(id: number): Uint8Array
  }
}

/** One piece of work for one context: first `tokens` are fed, then up to `generate.count` tokens are sampled and fed. */
export interface WorkItem {
  /** Whose work it is; busy until the item is answered. */
  readonly context: Context
  /** Ids to feed; may be empty. */
  readonly tokens: Int32Array
  /** Ask for the surprisal of each fed token (costs the output projection for every token). */
  readonly nats: boolean
  /** What to generate behind them; missing: nothing. */
  readonly generate?: Generate
  /** Ask what each draw found, and which experts the generated tokens went to (perspective models). */
  readonly perspectives?: boolean
  /** In place of tokens and a generation: what is asked of the memory outside, or an adaptation. */
  readonly request?: MemoryRequest | AdaptRequest | { readonly type: 'takeOver'; readonly plain: PlainCache }
}

/** Asks a perspective model to adapt the session to the tokens that it read last, with a budget of so many evaluations (docs/perspective.md). */
export interface AdaptRequest {
  readonly type: 'adapt'
  readonly evaluations: number
  /** Default 0. */
  readonly seed?: bigint
}

/** What an adaptation did. Losses are mean surprisals of the window's tokens, in nats. */
export interface Adapted {
  /** Of the window. Below 2 nothing happened. */
  readonly tokens: number
  /** Evaluations used. */
  readonly evaluations: number
  readonly stages: readonly {
    readonly stage: 'adapters' | 'router'
    /** Loss and anchor of the parameters before, and of those tried. */
    readonly was: number
    readonly now: number
    readonly accepted: boolean
    /** Slopes along the directions; of the router the fitness of both sides of each pair. */
    readonly probes: readonly number[]
  }[]
  readonly before: number
  readonly after: number
  /** Tokens that went into the hyperdimensional memory. */
  readonly bound: number
}

/** What a draw found; null: it was not computed. */
export interface DrawNote {
  /** Whether the model was unsure, so that its perspectives were asked. */
  readonly fired: boolean
  /** Of the model's own distribution, in nats. */
  readonly entropy: number
  /** The largest divergence of two perspectives. */
  readonly jsd: number | null
  readonly agreed: boolean | null
  readonly hdm: {
    readonly token: number
    readonly distance: number
    readonly bank: number
    readonly hit: boolean
  } | null
  /** Of the recalled token in what was drawn from. */
  readonly weight: number | null
}

/** What a plain decoder's context has, for a context with a memory outside that has read nothing yet. */
export interface PlainCache {
  /** Turned by their positions, and values: [layers, positions, key heads · channels]. */
  readonly keys: Float32Array
  readonly values: Float32Array
  /** Of the last token: [channels of the model]. */
  readonly hidden: Float32Array
}

/** Asks a memory outside to archive what the window has, or to bring blocks back; without `blocks`, those that its policy chooses. */
export type MemoryRequest =
  | { readonly type: 'archive' }
  | { readonly type: 'retrieve'; readonly blocks?: readonly number[] }

export interface Generate extends Sampling {
  /**
   * Fewer where a token of `endTokens` is drawn, which is not fed; where a stop string ends in a token, which is fed; or where the
   * context has no position left.
   */
  readonly count: number
  /** Default: none. */
  readonly penalties?: Penalties
  /** Is added to the logits of these ids. Default: none. */
  readonly logitBias?: ReadonlyMap<number, number>
  /**
   * Which tokens may be drawn, the same for all of the item: id 64 i + j at bit j of word i, [⌈vocabulary / 64⌉]; one at least. Default: all.
   * Others lose their logits before temperature, top-k, top-p and min-p.
   */
  readonly allowed?: BigUint64Array
  /** How many of the likeliest tokens are told with each; default 0. */
  readonly topLogprobs?: number
  /** Default: none. */
  readonly endTokens?: readonly number[]
  /** Default: none. */
  readonly stop?: StopStrings
  /** The caller submits the next item of this context at once unless this one ends early. Default false. The result is the same; the engine may wait a moment. */
  readonly more?: boolean
}

/** What came of an item of work. */
export interface WorkResult {
  /** −ln p(token) for each of `tokens`, in nats; NaN for the first token of a context, which nothing predicts. Empty unless asked for. */
  readonly nats: Float32Array
  /** Ids that were sampled and fed, in order. */
  readonly generated: Int32Array
  /** ln p of each generated token under the model itself (temperature 1, nothing cut off). */
  readonly logprobs: Float32Array
  /** [generated][topLogprobs]: ids, the likeliest first; of a smaller vocabulary all. Missing unless asked for. */
  readonly top?: Int32Array
  /** [generated][topLogprobs]: ln p of each of them under the model itself. */
  readonly topLogprobs?: Float32Array
  /** The cause that ended the generation before its `count`. An end token (`eos`) that was drawn is in none of the results. */
  readonly ended: 'eos' | 'stop' | 'positions' | null
  /** Of each generated token, where it was asked for. */
  readonly draws?: readonly DrawNote[]
  /** [generated][layers with experts][rank], where it was asked for. */
  readonly experts?: Int32Array
  /** What the adaptation did, where one was asked for. */
  readonly adapted?: Adapted
  /** What its memory outside did; missing where it did nothing, or there is none. */
  readonly events?: readonly MemoryEvent[]
  /** State after the work. */
  readonly head: ContextHead
}

/** Work of one node in a step. */
export interface TraceEntry {
  /** Its name in the graph. */
  readonly node: string
  /** Shape of one row of its result. */
  readonly shape: readonly number[]
  /** Rows of the step. */
  readonly rows: number
  /** Time it took. */
  readonly microseconds: number
  /** Bytes of the values and constants that it read and wrote, without state. */
  readonly bytes: number
}

/** How an executor runs a graph. */
export interface ExecutorOptions {
  /** A context of this model; default: a new one. */
  readonly context?: EngineContext
  /** Plan volatile memory by liveness; default true. Without it every volatile keeps its own memory and can be fetched. */
  readonly memoryReuse?: boolean
  /** Time every node. */
  readonly trace?: boolean
  /** Look after every node whether it gave a number that is not finite; a step then rejects, naming the first. */
  readonly watch?: boolean
}

/** Numbers of a variable: floats narrower than f32 as their bits. */
export type Numbers = Float32Array | Uint16Array | Uint8Array | Int8Array | Int32Array | BigInt64Array

/** Numbers of a variable, with dtype and shape. */
export interface Fetched {
  /** As safetensors names it; of a tensor in blocks as GGUF does: Q4_K. */
  readonly dtype: string
  /** Of a volatile: rows first. */
  readonly shape: readonly number[]
  /** Blocks, and dtypes that have no array here, as bytes. */
  readonly data: Numbers
  /** Of a quantised constant as the file has it: its scales. */
  readonly scales?: Fetched
}

/** How a constant is fetched. */
export interface FetchOptions {
  /** Constants only: the numbers that operations compute with, in f32, in the shape that the graph declares. Default false: as the file has them. */
  readonly widened?: boolean
}

/** Runs a graph step by step, under the caller's eyes: `insert`, `step`, `fetch`. */
export interface Executor {
  /** The context that its steps move. */
  readonly context: EngineContext
  /** One or more rows of a dynamic, one after the other. Throws MISUSE for what the host may not write, INVALID for a wrong length or type. */
  insert(name: string, rows: Numbers | readonly number[]): void
  /**
   * Runs a block (default: the first) over the inserted rows. Rejects with INVALID when an input is missing or their numbers of
   * rows differ, with REFUSED when a row cannot be done.
   */
  step(block?: string): Promise<void>
  /**
   * A persistent, a volatile of the last step, or a constant: of a family a member, `W(2)`. A constant comes as its tensor stands in the
   * file, which is read again; or `widened`, from the engine's memory. Throws MISUSE for a dynamic, for a volatile whose memory was given
   * on and for a family without its member; INVALID for a member that is not there or a constant above 2 GiB; REFUSED where the file is
   * gone or lacks the tensor.
   */
  fetch(name: string, options?: FetchOptions): Fetched
  /** Each node of the last step: op, shape, rows, time, bytes. Throws MISUSE unless the executor traces. */
  trace(): readonly TraceEntry[]
}

/** Counts of a model's expert store since it was opened; bytes are those of records with their padding. */
export interface ExpertStatistics {
  /** Experts that a layer's rows were routed to, each once for a step; and of these, those that were in memory by then, the host's or a device's. */
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
  /** Writes frequencies.bin into the store's folder: how often each expert is used, so that the next start reads the most frequent experts first. Throws UNAVAILABLE. */
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
  /** A new context with this state (null: the first one) and head, made on another thread. Rejects as `Context.load`. */
  openContext(state: Uint8Array | StateSource | null, head: ContextHead): Promise<EngineContext>
  /**
   * A context that goes on from where this one stands, each by itself: state, clock and chain are copied, gates are not. Tables that
   * grow share their full blocks of 256 positions until one of the contexts changes them, so a fork costs O(blocks). Throws MISUSE while
   * a call has the context, and for one whose state is not usable.
   */
  forkContext(context: Context): EngineContext
  /**
   * Why its device, which was lost, could not be had again, and what to do; null unless that is so. Contexts cannot be had until it can: most
   * often only by another process.
   */
  unavailableReason(): string | null
  /** Counts of the engine since the model was opened. */
  readonly stats: EngineStats
  /** From one of its next steps on. Throws INVALID for a number of tokens that cannot be. */
  speculate(speculation: Speculation): void
  /** Its experts, where they lie in a store; else null. */
  readonly experts: ExpertPort | null
  /**
   * Takes one item, and answers when that item is done, whatever else the engine does. All items that the engine has at one time share
   * its passes over the weights: a step has a row for each that generates, and those that read share the rest in turn. A result does not
   * depend on what shares a step, on how tokens are cut into items, or on the number of threads.
   *
   * Rejects before anything is written when the item is invalid (INVALID) or its context closed, busy or another model's (MISUSE).
   * INVALID: the item's tokens exceed the positions that its context has left; nothing of it was fed. `ContextBroken` (REFUSED): its
   * state stopped being finite; its context takes nothing but `load`, `restart` and `close` from then on. UNAVAILABLE: memory or the
   * device was lost, and the context's state with it.
   */
  submit(item: WorkItem): Promise<WorkResult>
  /**
   * Submits several items together and waits for all of them; the results stand in the order of the items. If one item is invalid, or
   * its context closed, busy or another model's, no item is submitted. If one item fails later, the others finish all the same, and the
   * call rejects with the error of the first item that failed. A context may appear once.
   */
  process(items: readonly WorkItem[]): Promise<readonly WorkResult[]>
  /** An executor over any block of the model's graph, for one context. */
  createExecutor(options?: ExecutorOptions): Executor
  /** Logits [vocabSize] that follow the last token of the context; refused before its first token. */
  logits(context: Context): Promise<Float32Array>
  /**
   * Reads the weights' file once more: nothing writes weights while a model serves, and this is the proof. Rejects with REFUSED
   * when the file is gone or its fingerprint is another than the model's, and where packed weights that are mapped were changed.
   */
  verifyWeights(): Promise<void>
  /**
   * Σ x xᵀ [inputs, inputs] of all rows x that the matrices in the tensor were multiplied with since the model was opened, in f32; null
   * where nothing multiplies with it. Throws MISUSE for a tensor that `OpenModelOptions.moments` did not name, and while calls are in flight.
   */
  moments(tensor: string): Float32Array | null
  /** The file that its packed weights are mapped from; null: they were packed when it was opened. */
  readonly packed: string | null
  /**
   * Writes its packed weights for the next time, atomically: to a file that is named, or into Continuo's cache where there are none yet. null: nothing
   * was written, because they are on a device or being written by another process; nor into the cache where they have less than 8 MiB. INVALID where
   * the file cannot be written, or where the weights' own file changed within the last two seconds.
   */
  keepPacked(path?: string): Promise<{ readonly path: string; readonly bytes: number } | null>
  /** Ends the engine's threads; its contexts can only be closed then. Refused while calls are in flight. */
  close(): void
}

/** Bounds of `stepTarget`, and what it is where nothing is said. */
export const STEP_TARGET = { min: 1.1, max: 1000, usual: 2 } as const

/** Bounds of `Speculation.tokens`, and what it is where a draft model is given and nothing is said. */
export const SPECULATION = { min: 0, max: 64, drafting: 8 } as const

/** Bounds of `OpenModelOptions.draftBytes`, and what it is where nothing is said. */
export const DRAFT_BYTES = { min: 0, max: 2 ** 40, usual: 2 ** 28 } as const

/**
 * Guesses of the tokens that sessions draw next: a step judges them all in one pass over the weights, and keeps those that are drawn. No
 * result depends on it (docs/speculation.md).
 */
export interface Speculation {
  /** Guesses of a session in a step, at most; 0: none. Bounds: `SPECULATION`. */
  readonly tokens: number
  /** Default true: as many as raise the tokens per second, by what was measured. False: as many as there are, whatever they cost. */
  readonly adapt?: boolean
}

/** How the experts of a store are kept in memory and read. */
export interface ExpertOptions {
  /** Where a mixture of others has a store beside its weights: `store` (default) reads its experts from there, `weights` keeps them in memory. */
  readonly from?: 'store' | 'weights'
  /** Bound of the records in memory; default: half of the memory that is available. At least two of the largest. */
  readonly bytes?: number
  /** On a device with memory of its own: bound of the experts that it keeps there; default: half of its memory that is free when the model is open. Two of the largest are there in any case. */
  readonly deviceBytes?: number
  /** `direct` (default): past the page cache where the file system allows it. */
  readonly io?: 'direct' | 'buffered'
  /** `automatic` (default): io_uring where the kernel allows it, else threads. `mapped`: page faults, for comparison; with `io` buffered. */
  readonly backend?: 'automatic' | 'io_uring' | 'threads' | 'mapped'
  /** Reads of at most 1 MiB that are on their way at once, 8 to 32; default 16. */
  readonly depth?: number
  /** What leaves memory first; default `score` (docs/experts.md). */
  readonly policy?: 'score' | 'lfu' | 'lru'
  /** Whether an expert may be made of a neighbour in memory and their difference on disk; default true. */
  readonly deltas?: boolean
  /** Whether routes of the next layers are read ahead; default true. */
  readonly lookAhead?: boolean
  /** Whether frequencies.bin beside the store is read and written; default true. */
  readonly frequencies?: boolean
}

/** How a model is opened. */
export interface OpenModelOptions {
  /** Of a model whose experts lie in a store. */
  readonly experts?: ExpertOptions
  /**
   * What happens at the last position of a model that has one (GPT-2): `refuse` (the default), or `window`: attention sees the
   * last n_positions tokens, and position p takes the learned vector of p mod n_positions, for which the model was not trained.
   * Another model to all that checks fingerprints.
   */
  readonly overflow?: Overflow
  /**
   * How the keys and values that `attend` reads are kept: rounded to f16 or bf16 they take half the memory, and the model is another one to
   * all that checks fingerprints. Default: `cache_dtype` of config.json, else f32.
   */
  readonly cacheDtype?: CacheDtype
  /** The plain decoder, also where a memory.json lies beside its config.json. */
  readonly withoutMemory?: boolean
  /** Engine threads; default: the number of CPUs available, at most 16. */
  readonly threads?: number
  /**
   * Where the model runs; either way its numbers are the same bits. `auto` (the default) takes a CUDA device where there is one that
   * can be used (`cudaStatus`), else the CPU; `cuda` is UNAVAILABLE where there is none. The first device that CUDA shows is taken:
   * CUDA_VISIBLE_DEVICES chooses.
   */
  readonly device?: DeviceKind | 'auto'
  /**
   * While any context generates, a step takes at most about this many times what it takes without rows that read; without generating rows
   * steps are as large as they can be. More serves readers, less those that wait for tokens. Bounds and default: `STEP_TARGET`.
   */
  readonly stepTarget?: number
  /** Default: what the variable CONTINUO_SPECULATE says (`N` or `N,always`), else no guesses; with a `draftModel` 8. */
  readonly speculate?: Speculation
  /**
   * A smaller package with the same tokenizer, on the CPU as this one: it guesses what sessions draw next, where their own past does not
   * guess better. It changes no result, no fingerprint and no log (docs/speculation.md).
   */
  readonly draftModel?: string
  /** What its contexts take at most, in bytes; beyond it those go that were not used for longest. Bounds and default: `DRAFT_BYTES`. */
  readonly draftBytes?: number
  /**
   * Use packed weights that lie beside the model or in Continuo's cache, and keep them in the cache for the next time (`Model.keepPacked`);
   * default true.
   */
  readonly keepPacked?: boolean
  /** Told of each phase of opening, when it has ended, with its duration in ms. */
  readonly onPhase?: (phase: string, ms: number) => void
  /** Where to say that kept weights were of no use, or that tokenizer.json overrules config.json; default: process.emitWarning. */
  readonly warn?: (message: string) => void
  /** Look after every node whether it gave a number that is not finite, and name the first where a state breaks. Slower. */
  readonly watch?: boolean
  /** Tensors of matrices: `Model.moments` gives what was multiplied with them. Takes 4 · inputs² bytes for each; on the CPU alone. */
  readonly moments?: readonly string[]
}

/** Where a volatile lies while its block runs, and from which line to which it is alive. */
export interface PlannedValue {
  readonly name: string
  /** Bytes of one row. */
  readonly bytes: number
  readonly offset: number
  readonly first: number
  readonly last: number
}

/** A block as the engine will run it: loops unrolled, memory planned. */
export interface BlockPlan {
  /** Of the block. */
  readonly name: string
  /** Rows that a step may have. */
  readonly rows: number
  /** Instructions, loops unrolled. */
  readonly lines: number
  /** Bytes of one row: the arena with volatiles planned by liveness, and with memory of its own for each. */
  readonly peak: number
  /** Bytes of one row with memory of its own for each volatile. */
  readonly peakWithoutReuse: number
  /** Lines that run together: all rows at once, row by row, or rows one after the other. */
  readonly stages: readonly {
    readonly order: 'row_parallel' | 'row_local' | 'row_serial'
    readonly first: number
    readonly last: number
  }[]
  /** Where its volatiles lie. */
  readonly values: readonly PlannedValue[]
}
