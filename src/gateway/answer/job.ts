/**
 * What a request of any protocol asks of a session (`Asking`), and how the answers of the protocols differ (`Shape`).
 */
import type { ChunkInput, Grammar } from '../../../topics/chunks.ts'
import { generateEvent } from '../../client/chunks.ts'
import type { CallForm } from '../../models/chat/calls.ts'
import type { Start } from '../../models/chat/thoughts.ts'
import type { Drawing } from '../openai/schema.ts'
import { Refusal } from '../refusal.ts'
import { checkModel, type OpenCounter, type Service } from '../service.ts'
import type { ServerEvent } from '../sse.ts'
import type { Begun } from './ask.ts'
import type { Answer, Piece } from './pieces.ts'
import type { Prefixes } from './prefixes.ts'
import type { Turns } from './turns.ts'

/** Where the session of a request stands. */
export interface Standing {
  /** Its context is empty. */
  readonly fresh: boolean
  /** A text that belongs to the form of the conversation ended the last answer. */
  readonly stopped: boolean
}

export interface Usage {
  readonly prompt_tokens: number
  readonly completion_tokens: number
  readonly total_tokens: number
  /** Of the prompt, what was not read for this request, as it had been read before. */
  readonly prompt_tokens_details: { readonly cached_tokens: number }
  /** Of an answer that may have thoughts. */
  readonly completion_tokens_details?: { readonly reasoning_tokens: number }
}

/** What an answer to a prompt cost; `cached`: of the prompt, what had been read before. */
export const usageOf = (
  prompt: number,
  cached: number,
  { completionTokens, thoughtTokens }: Omit<Answer, 'push'>,
): Usage => ({
  prompt_tokens: prompt,
  completion_tokens: completionTokens,
  total_tokens: prompt + completionTokens,
  prompt_tokens_details: { cached_tokens: cached },
  ...(thoughtTokens !== null && { completion_tokens_details: { reasoning_tokens: thoughtTokens } }),
})

/** How far a prompt was read, as llama.cpp's server tells it. */
export interface Progress {
  /** Tokens of the prompt; null: the worker knows. */
  readonly total: number | null
  /** Of these, what had been read before. */
  readonly cache: number
  /** What was read by now, the latter among it. */
  readonly processed: number
  /** Since the request was put into the log. */
  readonly time_ms: number
}

/** What the shapes of the protocol differ in. */
export interface Shape {
  readonly id: string
  /** A stream before its first piece, each piece, and what comes behind the last. */
  opening(): readonly ServerEvent[]
  piece(piece: Piece): readonly ServerEvent[]
  closing(usage: Usage): readonly ServerEvent[]
  /** How far the prompt was read, before the opening. Missing: that cannot be told. */
  progress?(progress: Progress): readonly ServerEvent[]
  whole(pieces: readonly Piece[], usage: Usage): unknown
}

/** What is known of an answer when it is asked for. */
export interface Asking extends Begun {
  /** Of the answer's id: one that no other has. */
  readonly nonce: string
  /** Seconds since the epoch. */
  readonly created: number
  readonly session: string
  /** See `Prompt`. */
  readonly promptTokens: number | null
  /** Of these, what the session has from one that read it before. */
  readonly cachedTokens: number
  readonly start: Start
}

/** What is fed before an answer. */
export interface Prompt {
  readonly events: readonly ChunkInput[]
  /** How many they are; null: the worker knows. */
  readonly tokens: number | null
  /** Where the answer begins; default: it is text alone. */
  readonly start?: Start
  /** The ids of all of it, where it may be the beginning of a session. */
  ids?(): Promise<Int32Array>
}

export interface Job {
  readonly model: string
  readonly session: string | undefined
  /** The name of a session of its own; default: one that nobody has. */
  readonly name?: string | undefined
  /** What is fed before the answer. Throws a Refusal, or INVALID. */
  prompt(standing: Standing): Prompt
  /** Ends of an answer that belong to the form, not to the request. */
  readonly formStops: readonly string[]
  readonly stop: readonly string[]
  readonly maxTokens: number
  readonly drawing: Drawing
  readonly topLogprobs: number
  readonly seed: number | undefined
  /** What binds the answer. */
  readonly grammar: Grammar | undefined
  /** How calls are written in it; null: it has none. */
  readonly calls: CallForm | null
  readonly stream: boolean
  /** A stream tells how far the prompt was read, before its first token. Default: it does not. */
  readonly tellsProgress?: boolean
  /** The answer that must be the session's last one. */
  readonly after?: string
  /**
   * A session of the request's own stays open after the answer, which can be had later: it goes on when its client goes
   * away.
   */
  readonly keepsSession: boolean
  /** Stands beside the event that asks, for who asks for the answer later. */
  readonly beside?: Uint8Array
  /** The client is answered as soon as the request is in the log, and the answer is made without it. It is kept. */
  readonly background?: boolean
  shape(asking: Asking): Shape
  /**
   * The last events of a stream that fails, of an answer that has a shape already. `over`: nothing more comes of the
   * request. Default: `failed`.
   */
  failing?(refusal: Refusal, shape: Shape | undefined, over: boolean): readonly ServerEvent[]
  /** The last event of a stream that fails. Default: as OpenAI's clients read it. */
  failed?(refusal: Refusal): ServerEvent
}

export interface Answering {
  readonly service: Service
  readonly counter: OpenCounter
  readonly turns: Turns
  readonly prefixes: Prefixes
}

/** Begins the name of a session that a request has for itself. */
export const OWN_SESSION = 'api-'

/** The most stop texts that an event takes. */
export const MOST_STOPS = 16

/** Tokens of a record that a client waits for in a stream. */
const STREAM_RUN = 1

/** The stop texts of a job. Throws a Refusal for another model, for too many tokens, and for too many of them. */
export const checkedStops = (job: Job, { served, limits }: Service): string[] => {
  checkModel(served, job.model)
  if (job.maxTokens > limits.tokens)
    throw new Refusal(
      400,
      `At most ${limits.tokens} tokens of one answer are given here, ${job.maxTokens} were asked for.`,
      {
        param: 'max_tokens',
      },
    )
  const stops = [...job.formStops, ...job.stop]
  if (stops.length > MOST_STOPS)
    throw new Refusal(400, `At most ${MOST_STOPS - job.formStops.length} stop texts can be given.`, { param: 'stop' })
  return stops
}

/**
 * What is fed before an answer, where a session stands so. Throws a Refusal (400) where there is nothing to continue.
 */
export const eventsBefore = (fresh: boolean, closed: boolean, { events }: Pick<Prompt, 'events'>): ChunkInput[] => {
  if (fresh && events.length === 0)
    throw new Refusal(400, 'The prompt is empty, and so is the session: there is nothing to continue.', {
      param: 'prompt',
    })
  return [...(closed ? [{ type: 'open' } as const] : []), ...events]
}

/** The event that asks for the answer. */
export const requestOf = (job: Job, requestId: string, stop: readonly string[], seed: number): ChunkInput =>
  generateEvent({
    type: 'generate',
    requestId,
    maxTokens: job.maxTokens,
    ...job.drawing,
    topLogprobs: job.topLogprobs,
    stop: [...stop],
    seed,
    ...(job.grammar && { grammar: job.grammar }),
    ...(job.stream && { run: STREAM_RUN }),
  })
