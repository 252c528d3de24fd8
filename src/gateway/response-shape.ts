/**
 * The shape of a response on the wire, whole and in events. All of it follows from its records and its id, which says where in the log they are, so
 * whoever tells it tells the same.
 */
import { randomBytes } from 'node:crypto'
import { z } from 'zod'
import { STARTS, type Start } from '../models/chat/thoughts.ts'
import { addCall, callId, type Piece, type ScoredToken, tokenLogprob, type WholeCall, wholeCalls } from './answer.ts'
import type { Asking, Shape, Usage } from './openai-answer.ts'
import { Refusal } from './refusal.ts'
import type { ServerEvent } from './sse.ts'

export const PREFIX = 'resp_'
/** Of the items of a response, its thoughts, its message and its calls: the rest is the response's, and the place of the call. */
export const THOUGHT = 'rs_'
export const MESSAGE = 'msg_'
export const CALL = 'fc_'
/** Of a `generate` event's requestId. */
const MOST_ID = 256

const count = z.int().min(0)
const located = z
  .tuple([z.string().regex(/^[0-9a-f]{16}$/), count, count, count, count, count, z.string().min(1)])
  .rest(count)
  .refine(({ length, 7: kind = 0 }) => length <= 9 && (kind as number) < 2 * STARTS.length)

export interface Located {
  readonly id: string
  readonly nonce: string
  readonly partition: number
  readonly tokensFrom: number
  readonly deadLettersFrom: number
  /** Seconds since the epoch. */
  readonly created: number
  readonly inputTokens: number
  /** Of these, what the session has from one that read it before. */
  readonly cachedTokens: number
  readonly session: string
  /** The answer may have calls. */
  readonly calls: boolean
  /** Where it begins. */
  readonly start: Start
}

export const locate = (
  { session, partition, tokensFrom, deadLettersFrom, promptTokens, cachedTokens, start }: Asking,
  calls: boolean,
): Located => {
  const nonce = randomBytes(8).toString('hex')
  const created = Math.floor(Date.now() / 1000)
  const inputTokens = promptTokens ?? 0
  // One number says of calls and thoughts; most answers have neither, and no number.
  const kind = (calls ? 1 : 0) + 2 * STARTS.indexOf(start)
  const place = [nonce, partition, tokensFrom, deadLettersFrom, created, inputTokens, session]
  const fields = [...place, ...(cachedTokens > 0 ? [kind, cachedTokens] : kind > 0 ? [kind] : [])]
  const id = `${PREFIX}${Buffer.from(JSON.stringify(fields)).toString('base64url')}`
  if (id.length > MOST_ID)
    throw new Refusal(
      400,
      'The id of a response has the name of its session in it; this one is too long. Take at most 60 characters.',
      {
        param: 'x-session',
      },
    )
  const from = { nonce, partition, tokensFrom, deadLettersFrom, created }
  return { id, ...from, inputTokens, cachedTokens, session, calls, start }
}

/** What such an id says; null: it is no id of a response. */
export const locatedIn = (id: string): Located | null => {
  if (!id.startsWith(PREFIX) || id.length > MOST_ID) return null
  let fields: unknown
  try {
    fields = JSON.parse(Buffer.from(id.slice(PREFIX.length), 'base64url').toString())
  } catch {
    return null
  }
  const parsed = located.safeParse(fields)
  if (!parsed.success) return null
  const [nonce, partition, tokensFrom, deadLettersFrom, created, inputTokens, session, kind = 0, cachedTokens = 0] =
    parsed.data
  const place = { nonce, partition, tokensFrom, deadLettersFrom, created, inputTokens, cachedTokens, session }
  return { id, ...place, calls: kind % 2 === 1, start: STARTS[kind >> 1]! }
}
type Status = 'in_progress' | 'completed' | 'incomplete' | 'cancelled' | 'failed'

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

/** The members that clients read, and those that their types ask for. */
export const responseOf = (
  at: Located,
  model: string,
  status: Status,
  told: Told | null,
  usage: Usage | null,
  error: { readonly code: string; readonly message: string } | null = null,
) => ({
  id: at.id,
  object: 'response',
  created_at: at.created,
  status,
  error,
  incomplete_details: status === 'incomplete' ? { reason: 'max_output_tokens' } : null,
  instructions: null,
  max_output_tokens: null,
  metadata: {},
  model,
  output: told === null ? [] : itemsOf(at, status, told),
  parallel_tool_calls: false,
  previous_response_id: null,
  temperature: null,
  tool_choice: 'none',
  tools: [],
  top_p: null,
  truncation: 'disabled',
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
const bodyOf = ({ id }: Located): string => id.slice(PREFIX.length)
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
/** Without text, an answer has a message only where nothing else is its end: no call, and no thought that was cut off. */
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

export const wholeOf = (at: Located, model: string, pieces: readonly Piece[], usage: Usage) => {
  const told = {
    thought: pieces.map(({ thought }) => thought ?? '').join(''),
    text: pieces.map(({ text }) => text).join(''),
    tokens: pieces.flatMap(({ tokens }) => tokens),
    calls: wholeCalls(pieces),
  }
  return responseOf(at, model, ended(pieces.at(-1)?.finish ?? null), told, usage)
}

export const responseShape = (at: Located, model: string): Shape => {
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
        event('response.reasoning_text.done', { ...partAt(item.id), text: thought }),
        event('response.content_part.done', { ...partAt(item.id), part: thoughtPart(thought) }),
        event('response.output_item.done', { output_index: items - 1, item }),
      ]
    }
    if (was === 'call') {
      const call = calls.at(-1)!
      const item = callOf(at, status, call)
      const about = { item_id: item.id, output_index: items - 1 }
      return [
        event('response.function_call_arguments.done', { ...about, name: call.name, arguments: call.json }),
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
  return {
    id: at.id,
    opening: () => [
      event('response.created', { response: responseOf(at, model, 'in_progress', null, null) }),
      event('response.in_progress', { response: responseOf(at, model, 'in_progress', null, null) }),
      // Of an answer that may be a call, or have thoughts, it is not known yet.
      ...(at.calls || at.start !== 'plain' ? [] : message()),
    ],
    piece(piece) {
      const events: ServerEvent[] = []
      if (piece.thought !== undefined) {
        if (opened === 'none') events.push(...thinks())
        thought += piece.thought
        const about = partAt(thoughtOf(at, 'in_progress', null).id)
        events.push(event('response.reasoning_text.delta', { ...about, delta: piece.thought }))
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
        const about = { item_id: itemId(at, index), output_index: items - 1 }
        events.push(event('response.function_call_arguments.delta', { ...about, delta: json }))
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
          response: responseOf(at, model, status, { thought, text, tokens, calls }, usage),
        }),
      ]
    },
    whole: (pieces, usage) => wholeOf(at, model, pieces, usage),
  }
}
