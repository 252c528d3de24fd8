/** What a model is asked to do for a context, and what comes of it. */
import type { MemoryEvent } from '../../topics/observations.ts'
import type { Context, ContextHead } from './context.ts'

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

/** Strings of bytes that end a generation, looked for across tokens and across items. */
export interface StopStrings {
  /** None is empty. */
  readonly strings: readonly Uint8Array[]
  /** The last bytes generated before this item: those of the longest string are enough. */
  readonly tail: Uint8Array
  /**
   * The bytes of each token. The engine asks once for each id of the vocabulary; the same object each time is the same
   * vocabulary.
   */
  readonly vocabulary: {
    /** The bytes of one id; empty where it has none. */
    bytesOf(id: number): Uint8Array
  }
}

/**
 * One piece of work for one context: first `tokens` are fed, then up to `generate.count` tokens are sampled and fed.
 */
export interface WorkItem {
  /** Whose work it is; busy until the item is answered. */
  readonly context: Context
  /** Ids to feed; may be empty. */
  readonly tokens: Int32Array
  /** Ask for the surprisal of each fed token (costs the output projection for every token). */
  readonly nats: boolean
  /** Ask for the sum of the hidden vectors of the fed tokens, and for the last one. Default false. */
  readonly hidden?: boolean
  /** What to generate behind them; missing: nothing. */
  readonly generate?: Generate
  /** Ask what each draw found, and which experts the generated tokens went to (perspective models). */
  readonly perspectives?: boolean
  /** In place of tokens and a generation: what is asked of the external memory, or an adaptation. */
  readonly request?: MemoryRequest | AdaptRequest | { readonly type: 'importPlain'; readonly plain: PlainCache }
}

/**
 * Asks a perspective model to adapt the session to the tokens that it read last, with a budget of so many evaluations
 * (docs/perspective.md).
 */
export interface AdaptRequest {
  readonly type: 'adapt'
  readonly evaluations: number
  /** Default 0. */
  readonly seed?: bigint
  /** Ends it between two evaluations: the context is as it was then, and the result has no `adapted`. */
  readonly signal?: AbortSignal
  /** Called when it has one of the engine's threads. */
  readonly onBegin?: () => void
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

/** What a plain decoder's context has, for a context with an external memory that has read nothing yet. */
export interface PlainCache {
  /** Turned by their positions, and values: [layers, positions, key heads · channels]. */
  readonly keys: Float32Array
  readonly values: Float32Array
  /** Of the last token: [channels of the model]. */
  readonly hidden: Float32Array
}

/**
 * Asks an external memory to archive what the window has, or to bring blocks back; without `blocks`, those that its
 * policy chooses.
 */
export type MemoryRequest =
  | { readonly type: 'archive' }
  | { readonly type: 'retrieve'; readonly blocks?: readonly number[] }

export interface Generate extends Sampling {
  /**
   * Fewer where a token of `endTokens` is drawn, which is not fed; where a stop string ends in a token, which is fed;
   * or where the context has no position left.
   */
  readonly count: number
  /** Default: none. */
  readonly penalties?: Penalties
  /** Is added to the logits of these ids. Default: none. */
  readonly logitBias?: ReadonlyMap<number, number>
  /**
   * Which tokens may be drawn, the same for all of the item: id 64 i + j at bit j of word i, [⌈vocabulary / 64⌉]; one
   * at least. Default: all. Others lose their logits before temperature, top-k, top-p and min-p.
   */
  readonly allowed?: BigUint64Array
  /** How many of the likeliest tokens are told with each; default 0. */
  readonly topLogprobs?: number
  /** Default: none. */
  readonly endTokens?: readonly number[]
  /** Default: none. */
  readonly stop?: StopStrings
  /**
   * The caller submits the next item of this context at once unless this one ends early. Default false. The result is
   * the same; the engine may wait a moment.
   */
  readonly more?: boolean
}

/** What came of an item of work. */
export interface WorkResult {
  /**
   * −ln p(token) for each of `tokens`, in nats; NaN for the first token of a context, which nothing predicts. Empty
   * unless asked for.
   */
  readonly nats: Float32Array
  /**
   * Of the hidden vectors of `tokens` [channels of the model], those from which block "predict" computes logits: their
   * sum, added in the order of the tokens, and the last one. Missing unless asked for, and where no token was fed.
   */
  readonly hidden?: { readonly sum: Float64Array; readonly last: Float32Array }
  /** Ids that were sampled and fed, in order. */
  readonly generated: Int32Array
  /** ln p of each generated token under the model itself (temperature 1, nothing cut off). */
  readonly logprobs: Float32Array
  /** [generated][topLogprobs]: ids, the likeliest first; of a smaller vocabulary all. Missing unless asked for. */
  readonly top?: Int32Array
  /** [generated][topLogprobs]: ln p of each of them under the model itself. */
  readonly topLogprobs?: Float32Array
  /**
   * The cause that ended the generation before its `count`. An end token (`eos`) that was drawn is in none of the
   * results.
   */
  readonly ended: 'eos' | 'stop' | 'positions' | null
  /** Of each generated token, where it was asked for. */
  readonly draws?: readonly DrawNote[]
  /** [generated][layers with experts][rank], where it was asked for. */
  readonly experts?: Int32Array
  /** What the adaptation did, where one was asked for and not ended by its signal. */
  readonly adapted?: Adapted
  /** What its external memory did; missing where it did nothing, or there is none. */
  readonly events?: readonly MemoryEvent[]
  /** State after the work. */
  readonly head: ContextHead
}
