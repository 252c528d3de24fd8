/**
 * The shape of a response on the wire, whole and in events. All of it follows from its records and its id, which says
 * where in the log they are, so every gateway returns the same.
 */
import type { FastifyRequest } from 'fastify'
import type { Shape, Usage } from '../answer/job.ts'
import {
  addCall,
  callId,
  type Piece,
  type ScoredToken,
  tokenLogprob,
  type WholeCall,
  wholeCalls,
} from '../answer/pieces.ts'
import { errorOf, type Refusal } from '../refusal.ts'
import type { ServerEvent } from '../sse.ts'
import type { About } from './asked.ts'
import { bodyOf, CALL, type Located, MESSAGE, THOUGHT } from './id.ts'

type Status = 'queued' | 'in_progress' | 'completed' | 'incomplete' | 'cancelled' | 'failed'

/** What an answer thought and says so far, the tokens with alternatives, and its calls. */
interface Told {
  readonly thought: string
  readonly text: string
  readonly tokens: readonly ScoredToken[]
  readonly calls: readonly WholeCall[]
}

/** Of tokens whose alternatives the request asked for. */
const logprobsOf = (tokens: readonly ScoredToken[]) =>
  tokens.flatMap(({ top, ...token }) =>
    top === undefined ? [] : [{ ...tokenLogprob(token), top_logprobs: top.map(tokenLogprob) }],
  )

/** What the end of a failed response was. */
export interface Failure {
  readonly code: string
  readonly message: string
}
export const failureIn = ({ code, message }: Refusal): Failure => ({ code: code ?? 'server_error', message })

/**
 * A response, with every member that the protocol asks for. `completed_at` is the time of the log: outputs have that of
 * the event that they follow from, for a clock is not in it.
 */
export const responseOf = (
  at: Located,
  model: string,
  about: About,
  status: Status,
  told: Told | null,
  usage: Usage | null,
  error: Failure | null = null,
) => ({
  id: at.id,
  object: 'response',
  created_at: at.created,
  completed_at: status === 'completed' ? at.created : null,
  status,
  error,
  incomplete_details: status === 'incomplete' ? { reason: 'max_output_tokens' } : null,
  model,
  output: told === null ? [] : itemsOf(at, status, told),
  ...about,
  usage:
    usage === null
      ? null
      : {
          input_tokens: usage.prompt_tokens,
          input_tokens_details: usage.prompt_tokens_details,
          output_tokens: usage.completion_tokens,
          output_tokens_details: { reasoning_tokens: usage.completion_tokens_details?.reasoning_tokens ?? 0 },
          total_tokens: usage.total_tokens,
        },
})

type Message = Pick<Told, 'thought' | 'text' | 'tokens'>
/** Those of a text before calls; with thoughts before it, those too. */
const tokensOf = ({ thought, text, tokens }: Message): readonly ScoredToken[] => {
  if (thought !== '') return tokens
  const length = Buffer.byteLength(text)
  let at = 0
  const end = tokens.findIndex(({ bytes }) => {
    at += bytes.length
    return at - bytes.length >= length
  })
  return end < 0 ? tokens : tokens.slice(0, end)
}
const partOf = (told: Message) => ({
  type: 'output_text',
  text: told.text,
  annotations: [],
  logprobs: logprobsOf(tokensOf(told)),
})
const messageId = (at: Located): string => `${MESSAGE}${bodyOf(at)}`
const itemId = (at: Located, index: number): string => `${CALL}${bodyOf(at)}_${index}`
/** An item has fewer states than its response. */
const stateOf = (status: Status) => (status === 'in_progress' || status === 'completed' ? status : 'incomplete')
const messageOf = (at: Located, status: Status, told: Message | null) => ({
  id: messageId(at),
  type: 'message' as const,
  role: 'assistant' as const,
  status: stateOf(status),
  content: told === null ? [] : [partOf(told)],
})
const thoughtPart = (text: string) => ({ type: 'reasoning_text' as const, text })
const thoughtOf = (at: Located, status: Status, thought: string | null) => ({
  id: `${THOUGHT}${bodyOf(at)}`,
  type: 'reasoning' as const,
  status: stateOf(status),
  summary: [],
  content: thought === null ? [] : [thoughtPart(thought)],
})
const callOf = (at: Located, status: Status, { index, name, json }: Told['calls'][number]) => ({
  id: itemId(at, index),
  type: 'function_call' as const,
  status: stateOf(status),
  call_id: callId(at.id, index),
  name,
  arguments: json,
})
/**
 * Without text, an answer has a message only where nothing else is its end: no call, and no thought that was cut off.
 */
const hasMessage = (status: Status, { thought, text, calls }: Told): boolean =>
  text !== '' || (calls.length === 0 && (thought === '' || status === 'completed'))
/** What is cut off is cut off in its last item. */
const itemsOf = (at: Located, status: Status, told: Told) => {
  const { thought, calls } = told
  const says = hasMessage(status, told)
  const last = calls.length - 1
  return [
    ...(thought === '' ? [] : [thoughtOf(at, says || last >= 0 ? 'completed' : status, thought)]),
    ...(says ? [messageOf(at, last < 0 ? status : 'completed', told)] : []),
    ...calls.map((call) => callOf(at, call.index === last ? status : 'completed', call)),
  ]
}

const ended = (finish: Piece['finish']): Status =>
  finish === null
    ? 'in_progress'
    : ({ length: 'incomplete', stop: 'completed', calls: 'completed', cancelled: 'cancelled' } as const)[finish]

/** The status of a response of which nothing was made so far. */
const waiting = ({ background }: About): Status => (background ? 'queued' : 'in_progress')

export const wholeOf = (at: Located, model: string, about: About, pieces: readonly Piece[], usage: Usage) => {
  const last = pieces.at(-1)
  if (last === undefined) return responseOf(at, model, about, waiting(about), null, null)
  const told = {
    thought: pieces.map(({ thought }) => thought ?? '').join(''),
    text: pieces.map(({ text }) => text).join(''),
    tokens: pieces.flatMap(({ tokens }) => tokens),
    calls: wholeCalls(pieces),
  }
  return responseOf(at, model, about, ended(last.finish), told, usage)
}

/** The last event of a stream, whatever it told. */
export const DONE: ServerEvent = { data: '[DONE]' }

export const errorEvent = (refusal: Refusal, sequence_number: number): ServerEvent => ({
  event: 'error',
  data: { type: 'error', sequence_number, error: errorOf(refusal) },
})

export interface ResponseShape extends Shape {
  /** What ends a stream that fails. `over`: the response has failed, not the telling of it alone. */
  failing(refusal: Refusal, over: boolean): readonly ServerEvent[]
}

/** The header by which a client of the Open Responses specification names its version. */
const VERSION_HEADER = 'openresponses-version'
/**
 * How events of thoughts are named: OpenAI's clients know `response.reasoning_text.delta` and end at any other, and the
 * Open Responses specification has `response.reasoning.delta`, which is for those who name it in a header.
 */
export const wordsFor = ({ headers }: Pick<FastifyRequest, 'headers'>): Words =>
  headers[VERSION_HEADER] === undefined ? 'reasoning_text' : 'reasoning'
type Words = 'reasoning' | 'reasoning_text'

export const responseShape = (at: Located, model: string, about: About, words: Words): ResponseShape => {
  let number = 0
  let thought = ''
  let text = ''
  const tokens: ScoredToken[] = []
  const calls: WholeCall[] = []
  /** How many tokens a delta listed. */
  let listed = 0
  let finish: Piece['finish'] = null
  let opened: 'none' | 'thought' | 'message' | 'call' = 'none'
  let items = 0
  let started = false
  const event = (type: string, more: object): ServerEvent => {
    const data = { type, sequence_number: number, ...more }
    number += 1
    return { event: type, data }
  }
  const begins = (item: object): ServerEvent => {
    items += 1
    return event('response.output_item.added', { output_index: items - 1, item })
  }
  /** Of the one part of the item that is open. */
  const partAt = (item_id: string) => ({ item_id, output_index: items - 1, content_index: 0 })
  const place = () => partAt(messageId(at))
  const thinks = (): readonly ServerEvent[] => {
    opened = 'thought'
    const item = thoughtOf(at, 'in_progress', null)
    return [begins(item), event('response.content_part.added', { ...partAt(item.id), part: thoughtPart('') })]
  }
  const message = (): readonly ServerEvent[] => {
    const before = closed('completed')
    opened = 'message'
    return [
      ...before,
      begins(messageOf(at, 'in_progress', null)),
      event('response.content_part.added', { ...place(), part: partOf({ thought: '', text: '', tokens: [] }) }),
    ]
  }
  /** Ends the item that is open. */
  const closed = (status: Status): readonly ServerEvent[] => {
    const was = opened
    opened = 'none'
    if (was === 'none') return []
    if (was === 'thought') {
      const item = thoughtOf(at, status, thought)
      return [
        event(`response.${words}.done`, { ...partAt(item.id), text: thought }),
        event('response.content_part.done', { ...partAt(item.id), part: thoughtPart(thought) }),
        event('response.output_item.done', { output_index: items - 1, item }),
      ]
    }
    if (was === 'call') {
      const call = calls.at(-1)!
      const item = callOf(at, status, call)
      const where = { item_id: item.id, output_index: items - 1 }
      return [
        event('response.function_call_arguments.done', { ...where, name: call.name, arguments: call.json }),
        event('response.output_item.done', { output_index: items - 1, item }),
      ]
    }
    const told = { thought, text, tokens }
    return [
      event('response.output_text.done', {
        ...place(),
        text,
        logprobs: logprobsOf(tokensOf(told)),
      }),
      event('response.content_part.done', { ...place(), part: partOf(told) }),
      event('response.output_item.done', { output_index: items - 1, item: messageOf(at, status, told) }),
    ]
  }
  const stands = (type: string, status: Status): ServerEvent =>
    event(type, { response: responseOf(at, model, about, status, null, null) })
  const starts = (): readonly ServerEvent[] => {
    started = true
    // Of an answer that may be a call, or have thoughts, it is not known yet.
    return [stands('response.in_progress', 'in_progress'), ...(at.calls || at.start !== 'plain' ? [] : message())]
  }
  return {
    id: at.id,
    opening: () => [
      stands('response.created', waiting(about)),
      ...(about.background ? [stands('response.queued', 'queued')] : starts()),
    ],
    piece(piece) {
      const events: ServerEvent[] = started ? [] : [...starts()]
      if (piece.thought !== undefined) {
        if (opened === 'none') events.push(...thinks())
        thought += piece.thought
        const where = partAt(thoughtOf(at, 'in_progress', null).id)
        events.push(event(`response.${words}.delta`, { ...where, delta: piece.thought }))
      }
      text += piece.text
      tokens.push(...piece.tokens.filter(({ top }) => top !== undefined))
      finish = piece.finish
      if (piece.text !== '') {
        if (opened !== 'message') events.push(...message())
        const logprobs = logprobsOf(tokens.slice(listed))
        listed = tokens.length
        events.push(event('response.output_text.delta', { ...place(), delta: piece.text, logprobs }))
      }
      for (const call of piece.calls) {
        const { index, name, json } = call
        if (name !== undefined) {
          // The item before ends with the calls as they were.
          events.push(...closed('completed'))
          opened = 'call'
          events.push(begins(callOf(at, 'in_progress', { index, name, json: '' })))
        }
        addCall(calls, call)
        if (json === '') continue
        const where = { item_id: itemId(at, index), output_index: items - 1 }
        events.push(event('response.function_call_arguments.delta', { ...where, delta: json }))
      }
      return events
    },
    closing(usage) {
      const status = ended(finish)
      return [
        ...(opened !== 'message' && hasMessage(status, { thought, text, tokens, calls }) ? message() : []),
        ...closed(status),
        // Clients know no event of a response that was cancelled; its status says so.
        event(`response.${status === 'cancelled' ? 'incomplete' : status}`, {
          response: responseOf(at, model, about, status, { thought, text, tokens, calls }, usage),
        }),
        DONE,
      ]
    },
    failing: (refusal, over) => [
      errorEvent(refusal, number++),
      ...(over
        ? [
            event('response.failed', {
              response: responseOf(at, model, about, 'failed', null, null, failureIn(refusal)),
            }),
          ]
        : []),
      DONE,
    ],
    whole: (pieces, usage) => wholeOf(at, model, about, pieces, usage),
  }
}
