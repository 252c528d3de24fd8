/** What the routes share: the log with its readers, the model as far as it concerns texts, and the bounds. */
import type { FastifyReply, FastifyRequest } from 'fastify'
import type { Tail } from '../client/tail.ts'
import type { ChatForm } from '../models/chat/index.ts'
import type { Tokenizer } from '../models/tokenizer/index.ts'
import type { Topics } from './answer/ask.ts'
import { PREFIX_NAMES, type PrefixBounds } from './answer/prefixes.ts'
import type { Hello } from './console/types.ts'
import type { GenAi } from './genai.ts'
import type { GatewayMetrics } from './metrics.ts'
import { asRefusal, bodyOf, Refusal } from './refusal.ts'
import type { SessionsView } from './sessions-view.ts'

/** The model as clients see it. */
export interface Served {
  readonly id: string
  readonly vocabSize: number
  /** Tokens that a context holds; null: any number. */
  readonly positions: number | null
  /** For the console (console/types.ts has the words). */
  readonly about: Omit<Hello['model'], 'id' | 'vocabSize' | 'text'>
  /** null: the model reads token ids only. */
  readonly tokenizer: Tokenizer | null
  /** Rejects with INVALID where the package has no form of conversation. */
  form(): Promise<ChatForm>
}

export interface Limits {
  /** Bytes of a request. */
  readonly body: number
  /** Requests a minute of one key, or of one address where there are no keys; 0: any number. */
  readonly rate: number
  /** Answers that are under way at one time, streams among them. */
  readonly open: number
  /** How long an answer may take, ms. */
  readonly answer: number
  /** How long a reader of a stream may take nothing, ms. */
  readonly stall: number
  /** Events that are not finished, of a session and of a key, at which more are refused; 0: never. */
  readonly sessionBacklog: number
  readonly keyBacklog: number
  /** Tokens of one answer. */
  readonly tokens: number
  /** Sessions that are kept for later prompts which begin alike, and bytes of their snapshots. */
  readonly prefixes: PrefixBounds
}

export interface Service {
  readonly topics: Topics & { readonly observations: Tail }
  readonly sessions: SessionsView
  readonly served: Served
  readonly limits: Limits
  /** Whether a request ends whose client goes away before its answer was given. */
  readonly cancels: boolean
  /** Work that no client waits for; the gateway ends after it. A rejection is noted. */
  inBackground(work: Promise<void>): void
  readonly metrics: Pick<GatewayMetrics, 'began' | 'prompted' | 'sent'>
  readonly genai: GenAi
  /** Takes note of an error that no answer can carry any more. */
  noteFailure(error: unknown): void
  /** Fires when the gateway shall end: streams end at once. */
  readonly closing: AbortSignal
  /** Fires when answers that are under way have had their time. */
  readonly ended: AbortSignal
}

/** Answers under way, counted; one over the bound is refused. */
export const openCounter = (most: number) => {
  const open = { stream: 0, whole: 0 }
  return {
    open: open as Readonly<typeof open>,
    /** Throws a Refusal (503); the count goes down when the answer is over, however it ends. */
    enter(reply: FastifyReply, kind: keyof typeof open): void {
      if (open.stream + open.whole >= most)
        throw new Refusal(
          503,
          `The gateway has ${most} answers under way, as many as it gives at a time. Try again later.`,
          {
            code: 'overloaded',
          },
        )
      open[kind] += 1
      reply.raw.once('close', () => {
        open[kind] -= 1
      })
    },
  }
}
export type OpenCounter = ReturnType<typeof openCounter>

/** Aborted when the client disconnects, also where the connection closes after the response was sent. */
export const goneSignal = ({ raw }: FastifyReply): AbortSignal => {
  const gone = new AbortController()
  if (raw.destroyed) gone.abort()
  else raw.once('close', () => gone.abort())
  return gone.signal
}

/** A session id as a path or a header names it. Throws a Refusal (400). */
export const checkSession = (id: string, param: string): string => {
  if (id.length < 1 || id.length > 512)
    throw new Refusal(400, `A session id has 1 to 512 characters, this one has ${id.length}.`, { param })
  // Clients resolve these in a path before they send it (WHATWG URL, dot segments), so nobody could ask for such a
  // session again.
  if (id === '.' || id === '..')
    throw new Refusal(400, `A session id that stands in paths cannot be ${JSON.stringify(id)}. Choose another.`, {
      param,
    })
  if (!id.isWellFormed())
    throw new Refusal(400, 'A session id is text in Unicode, and this one has half a surrogate pair.', { param })
  return id
}

/** For streams: notes the error, and gives what the client is told. */
export const failureOf = ({ noteFailure }: Service, error: unknown): Refusal => {
  const refusal = asRefusal(error)
  if (refusal.status >= 500) noteFailure(error)
  return refusal
}

/** The same in the shape that OpenAI's clients read. */
export const failureBody = (service: Service, error: unknown) => bodyOf(failureOf(service, error))

/** Throws a Refusal (404) for the name of a model that is not this one. */
export const checkModel = ({ id }: Served, asked: string): void => {
  if (asked === id) return
  throw new Refusal(404, `The model "${asked.slice(0, 200)}" is not served here; "${id}" is.`, {
    code: 'model_not_found',
    param: 'model',
  })
}

/**
 * Throws a Refusal (400) for a session that stands at a prefix: what it was fed would be the beginning of other
 * requests.
 */
export const checkFed = (id: string, param: string): string => {
  if (!checkSession(id, param).startsWith(PREFIX_NAMES)) return id
  throw new Refusal(
    400,
    `Sessions whose ids begin with "${PREFIX_NAMES}" are the gateway's own, and take nothing more. Choose another id.`,
    { param },
  )
}

export const SESSION_HEADER = 'x-session'

/**
 * The session that the header names, percent-encoded, as a header cannot carry all of Unicode; undefined: it names
 * none.
 */
export const sessionInHeader = ({ headers }: FastifyRequest): string | undefined => {
  const given = headers[SESSION_HEADER]
  if (given === undefined) return undefined
  try {
    return checkFed(decodeURIComponent(String(given)), SESSION_HEADER)
  } catch (error) {
    if (error instanceof Refusal) throw error
    throw new Refusal(
      400,
      `The header ${SESSION_HEADER} takes a session id in percent-encoding (encodeURIComponent).`,
      {
        param: SESSION_HEADER,
      },
    )
  }
}
