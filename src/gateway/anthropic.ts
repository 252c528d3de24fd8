/** /v1/messages and /v1/messages/count_tokens, as Anthropic's clients ask for them. */
import { randomUUID } from 'node:crypto'
import type { FastifyInstance } from 'fastify'
import type { Piece } from './answer.ts'
import {
  conversationOf,
  countRequest,
  MESSAGES_LACKING,
  type MessagesRequest,
  messagesRequest,
} from './anthropic-schema.ts'
import { type Answering, type Asking, answer, type Job, MOST_STOPS, type Shape } from './openai-answer.ts'
import { idEvents } from './openai-prompt.ts'
import { boundBy, drawingOf, drawingSchema, parsedBody } from './openai-schema.ts'
import { Refusal } from './refusal.ts'
import { checkModel } from './service.ts'
import type { ServerEvent } from './sse.ts'

const TYPES: Readonly<Record<number, string>> = {
  401: 'authentication_error',
  403: 'permission_error',
  404: 'not_found_error',
  408: 'timeout_error',
  413: 'request_too_large',
  429: 'rate_limit_error',
  503: 'overloaded_error',
  504: 'timeout_error',
}

/** What is refused, in the shape that Anthropic's clients read: the sentence names the parameter, for which there is no other place. */
const errorBody = ({ status, message, param }: Refusal) => ({
  type: 'error',
  error: {
    type: TYPES[status] ?? (status < 500 ? 'invalid_request_error' : 'api_error'),
    message: param === null || param === '' || message.includes(param) ? message : `${param}: ${message}`,
  },
})

const usageOf = (input: number, output: number) => ({
  input_tokens: input,
  output_tokens: output,
  cache_creation_input_tokens: 0,
  cache_read_input_tokens: 0,
})

/** Why an answer ended. The protocol has no word of its own for one that was cancelled. */
const endOf = (last: Piece | undefined, { stop_sequences: stops }: MessagesRequest) => {
  if (last === undefined || last.finish === null) return { stop_reason: null, stop_sequence: null }
  // A stop text of the form alone ends a turn.
  if (last.stop !== undefined && stops.includes(last.stop))
    return { stop_reason: 'stop_sequence', stop_sequence: last.stop }
  return { stop_reason: last.finish === 'length' ? 'max_tokens' : 'end_turn', stop_sequence: null }
}

/** The answer to a request as Anthropic's clients read it. */
export const messageShape = ({ promptTokens }: Pick<Asking, 'promptTokens'>, body: MessagesRequest): Shape => {
  const about = { id: `msg_${randomUUID()}`, type: 'message', role: 'assistant', model: body.model }
  let last: Piece | undefined
  const event = (type: string, more: object = {}): ServerEvent => ({ event: type, data: { type, ...more } })
  return {
    id: about.id,
    opening: () => [
      event('message_start', {
        message: { ...about, content: [], ...endOf(undefined, body), usage: usageOf(promptTokens ?? 0, 0) },
      }),
      event('content_block_start', { index: 0, content_block: { type: 'text', text: '' } }),
      event('ping'),
    ],
    piece(piece) {
      last = piece
      if (piece.text === '') return []
      return [event('content_block_delta', { index: 0, delta: { type: 'text_delta', text: piece.text } })]
    },
    closing: ({ prompt_tokens: input, completion_tokens: output }) => [
      event('content_block_stop', { index: 0 }),
      event('message_delta', { delta: endOf(last, body), usage: usageOf(input, output) }),
      event('message_stop'),
    ],
    whole: (pieces, { prompt_tokens: input, completion_tokens: output }) => ({
      ...about,
      content: [{ type: 'text', text: pieces.map(({ text }) => text).join('') }],
      ...endOf(pieces.at(-1), body),
      usage: usageOf(input, output),
    }),
  }
}

export const messageRoutes = (app: FastifyInstance, answering: Answering): void => {
  const { served } = answering.service
  const config = { errorBody }

  app.post('/v1/messages', { config }, async (request, reply) => {
    const body = parsedBody(messagesRequest, request.body, MESSAGES_LACKING)
    const messages = conversationOf(body)
    const form = await served.form()
    const most = MOST_STOPS - form.stops.length
    if (body.stop_sequences.length > most)
      throw new Refusal(400, `At most ${most} stop sequences can be given, ${body.stop_sequences.length} were.`, {
        param: 'stop_sequences',
      })
    const { temperature, top_p, top_k, output_config: { format } = {} } = body
    const job: Job = {
      model: body.model,
      session: undefined,
      prompt({ fresh, stopped }) {
        const ids = fresh ? form.begin(messages) : form.goOn(messages, stopped)
        return { events: idEvents(ids), tokens: ids.length }
      },
      formStops: form.stops,
      stop: body.stop_sequences,
      maxTokens: body.max_tokens,
      drawing: drawingOf(drawingSchema.parse({ temperature, top_p, top_k })),
      topLogprobs: 0,
      seed: undefined,
      calls: null,
      grammar: boundBy(format == null ? {} : { format: { ...format, name: '' } }, 'output_config.format'),
      stream: body.stream,
      keepsSession: false,
      shape: (asking) => messageShape(asking, body),
      failed: (refusal) => ({ event: 'error', data: errorBody(refusal) }),
    }
    return answer(request, reply, job, answering)
  })

  app.post('/v1/messages/count_tokens', { config }, async (request) => {
    const body = parsedBody(countRequest, request.body, MESSAGES_LACKING)
    checkModel(served, body.model)
    const messages = conversationOf(body)
    const form = await served.form()
    return { input_tokens: form.begin(messages).length }
  })
}
