/** Options and results of a SessionManager. */
import type { z } from 'zod'
import type { adapt, generate } from '../../topics/chunks.ts'
import type { Adapted, MemoryEvent, Perspectives } from '../../topics/observations.ts'
import type { Generated } from '../../topics/tokens.ts'
import type { Tokenizer } from '../models/tokenizer/types.ts'
import type { Head } from '../state/head.ts'
import type { TensorHealth } from '../state/health.ts'
import type { MemoryStats } from '../state/memory-stats.ts'
import type { OnProbe } from './probe.ts'

/** Bounds, tokenizer and probes of a SessionManager. */
export interface SessionManagerOptions {
  /** Memory of all contexts together, bytes; those not in use go to files beyond it. Default: no bound. */
  readonly maxResidentBytes?: number
  /** Bytes of those files; beyond it contexts stay in memory, and `warn` says so. Default: no bound. */
  readonly maxSpillBytes?: number
  /** Where the folder for those files is made; default: the system's folder for temporary files. */
  readonly spillDir?: string
  /**
   * For models with a memory.json: bytes of archived blocks that stay in memory, besides blocks in use; other blocks go
   * to files. Default: 1 GiB.
   */
  readonly blockCacheBytes?: number
  /** Bytes of those files; beyond it blocks stay in memory, and `warn` says so. Default: no bound. */
  readonly blockDirBytes?: number
  /** Where the folder for those files is made; default: the system's folder for temporary files. */
  readonly blockDir?: string
  /** Reads and writes text; without it sessions take token ids only. */
  readonly tokenizer?: Tokenizer | null
  /** Sees the state before it moves: once before each call, or as `probeEvery` says. */
  readonly onProbe?: OnProbe
  /**
   * Probe before every token whose pulse is divisible by this, however the tokens are cut into calls; 1: before each.
   */
  readonly probeEvery?: number
  /**
   * Whether `close` checks that the weights have not changed meanwhile; default true. Reads the weights' file once
   * more.
   */
  readonly verifyWeights?: boolean
  /** Called for a memory that diverges and for spill files that cannot be written; default: process.emitWarning. */
  readonly warn?: (message: string) => void
}

/** How a session begins. */
export interface SessionOptions {
  /**
   * `stream` (the default) goes on until it is closed. `test` is a bounded stretch, ended by `assess`. What a token
   * does is the same in both.
   */
  readonly phase?: 'stream' | 'test'
  /** The most tokens that a test feeds, read and generated together; default: until the input ends. */
  readonly tokens?: number
  /** Seed of generations that name none; default 0. */
  readonly seed?: number
}

/** A session as its manager shows it; always as it stands now. */
export interface SessionHandle {
  /** The name that the program gave it. */
  readonly id: string
  /** `assessed`: a test that ended. Neither it nor a closed session takes tokens. */
  readonly status: 'open' | 'assessed' | 'closed'
  /** Conductor, cursor, chain and sums. */
  readonly head: Head
  /** Tokens fed since the session began. */
  readonly pulse: number
  /** 128-bit running fingerprint, 32 hex digits. */
  readonly chain: string
  /** Bytes of its context, in memory or spilled. */
  readonly bytes: number
}

/** What came of tokens that were fed. */
export interface Processed {
  /** −ln p(token) of each token fed, in nats; NaN for the first of a context, which nothing predicts. */
  readonly nats: Float32Array
  /** After the last of them. */
  readonly head: Head
  /** A test that has fed all its tokens: what did not fit was left out. Always false in phase `stream`. */
  readonly ended: boolean
  /** What the session's external memory did; missing where it did nothing, or there is none. */
  readonly events?: readonly MemoryEvent[]
}

/** What the session's external memory did when it was asked to. */
export interface Remembered {
  /** In the order in which they happened. */
  readonly events: readonly MemoryEvent[]
  /** After it. */
  readonly head: Head
}

/** The fields of an `adapt` event. */
export type AdaptOptions = Omit<z.input<typeof adapt>, 'type' | 'id' | 'requestId'> & {
  /** Ends the adaptation between two evaluations: nothing is learnt, and `endedBy` says so. */
  readonly signal?: AbortSignal
}

/** What an adaptation did: the members of an `adapted` event. */
export type Adaptation = Readonly<
  Pick<Adapted, 'pulse' | 'tokens' | 'evaluations' | 'stages' | 'bound' | 'loss' | 'endedBy'> & { head: Head }
>

/** The sampling options of a `generate` event. */
export type GenerateOptions = Omit<z.input<typeof generate>, 'type' | 'id' | 'requestId'> & {
  /** Of a model that draws from several perspectives: tell what each draw found. Default false. */
  readonly perspectives?: boolean
  /** Each run of at most 16 tokens as soon as it was fed; `text` is the characters that became whole with it. */
  readonly onTokens?: (run: Pick<Generated, 'index' | 'ids' | 'text' | 'logprobs' | 'topLogprobs' | 'finish'>) => void
  /** Ends the generation after the run in hand, as a `cancel` event does: `finish` is `cancelled`. */
  readonly signal?: AbortSignal
}

/** What was generated. */
export interface Generation {
  /** Tokens, in order. */
  readonly ids: readonly number[]
  /** Whole characters; empty without a tokenizer. */
  readonly text: string
  /** ln p of each id at temperature 1 and without cuts. */
  readonly logprobs: readonly number[]
  /** The likeliest tokens in the place of each, where `topLogprobs` asked. */
  readonly topLogprobs?: NonNullable<Generated['topLogprobs']>
  /** Why it ended, as in the tokens topic; `cancelled`: its signal fired. */
  readonly finish: NonNullable<Generated['finish']>
  /**
   * Of each token, where it was asked for: what its draw found, and the experts that it went to, [token][layer with
   * experts][rank].
   */
  readonly perspectives?: Readonly<Pick<Perspectives, 'draws' | 'experts'>>
  /** After the last token. */
  readonly head: Head
}

/** The end of a test: counts, surprisal and the state of the memory. */
export interface Assessment {
  /** Its id. */
  readonly session: string
  /** The phase that the session was in. */
  readonly phase: Head['conductor']['phase']
  /** Tokens read and generated since the session began. */
  readonly tokens: number
  /** Of them, tokens generated. */
  readonly generated: number
  /** Tokens read that something had predicted, and what they cost together. */
  readonly predictions: number
  /** Their surprisal together, nats. */
  readonly nats: number
  /** null where nothing was predicted. */
  readonly bitsPerToken: number | null
  /** Of the session at its end. */
  readonly pulse: number
  /** 128-bit fingerprint of the whole computation, 32 hex digits. */
  readonly chain: string
  /** Norms of every f32 tensor of the memory. */
  readonly health: readonly TensorHealth[]
  /** Window, levels and gates in a few numbers. */
  readonly memoryStats: MemoryStats
}
