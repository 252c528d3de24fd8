/** Messages: what is asked, and what is answered (anthropic/shape.ts, routes.ts). */
import { z } from 'zod'
import { countRequest, messagesRequest } from '../anthropic/schema.ts'
import { count, type Section, WAITING_ONCE } from './operation.ts'

/** An error of these routes, and the data of an event `error`. */
export const messagesError = z.strictObject({
  type: z.literal('error'),
  error: z.strictObject({
    type: z.enum([
      'invalid_request_error',
      'authentication_error',
      'permission_error',
      'not_found_error',
      'timeout_error',
      'request_too_large',
      'rate_limit_error',
      'overloaded_error',
      'api_error',
    ]),
    message: z.string(),
    details: z.strictObject({ error_code: z.string() }).optional(),
  }),
})

const textBlock = z.strictObject({ type: z.literal('text'), text: z.string() })
const callBlock = z.strictObject({
  ...{ type: z.literal('tool_use'), id: z.string(), name: z.string() },
  input: z.record(z.string(), z.unknown()),
  caller: z.strictObject({ type: z.literal('direct') }),
})
const block = z.discriminatedUnion('type', [textBlock, callBlock])
const usage = z.strictObject({
  input_tokens: count.describe('Without those that were read before.'),
  output_tokens: count,
  cache_creation_input_tokens: count,
  cache_read_input_tokens: count,
})
const end = {
  stop_reason: z.enum(['end_turn', 'max_tokens', 'stop_sequence', 'tool_use']).nullable(),
  stop_sequence: z.string().nullable(),
}
const message = z.strictObject({
  ...{ id: z.string(), type: z.literal('message'), role: z.literal('assistant'), model: z.string() },
  ...{ content: z.array(block), ...end, usage },
})

const event = <T extends string, S extends z.ZodRawShape>(type: T, shape: S) =>
  z.strictObject({ type: z.literal(type), ...shape })
const messageEvent = z.discriminatedUnion('type', [
  event('message_start', { message }),
  event('ping', {}),
  event('content_block_start', { index: count, content_block: block }),
  event('content_block_delta', {
    index: count,
    delta: z.discriminatedUnion('type', [
      event('text_delta', { text: z.string() }),
      event('input_json_delta', { partial_json: z.string() }),
    ]),
  }),
  event('content_block_stop', { index: count }),
  event('message_delta', { delta: z.strictObject(end), usage }),
  event('message_stop', {}),
  messagesError,
])
const counted = z.strictObject({ input_tokens: count })

export const anthropic: Section = {
  schemas: {
    ...{ MessagesRequest: messagesRequest, Message: message, MessageEvent: messageEvent, MessagesError: messagesError },
    ...{ CountTokensRequest: countRequest, CountedTokens: counted },
  },
  operations: [
    {
      ...{ id: 'createMessage', method: 'post', path: '/v1/messages', tag: 'Anthropic' },
      summary: "Answers a conversation, in the protocol of Anthropic's clients.",
      ...{ headers: ['Session', 'IdempotencyKey'], body: messagesRequest, nullIsAbsent: true },
      answers: {
        200: {
          description: 'The answer, whole or as a stream.',
          ...{ json: message, events: messageEvent, headers: ['Session', 'Seed', 'Replayed'] },
        },
      },
      ...{ errors: WAITING_ONCE, errorForm: 'anthropic' },
    },
    {
      ...{ id: 'countMessageTokens', method: 'post', path: '/v1/messages/count_tokens', tag: 'Tokens' },
      summary: 'Counts the tokens that a message would read.',
      ...{ body: countRequest, nullIsAbsent: true },
      answers: { 200: { description: 'The count.', json: counted } },
      ...{ errors: [404], errorForm: 'anthropic' },
    },
  ],
}
