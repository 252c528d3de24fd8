/** Responses: what is asked, and what is answered (responses/shape.ts, items.ts, compact.ts). */
import { z } from 'zod'
import { compactionItem, inputItem } from '../openai/messages.ts'
import { countRequest, responseRequest } from '../openai/schema.ts'
import { compactRequest } from '../responses/compact.ts'
import { itemsQuery } from '../responses/items.ts'
import { responseQuery } from '../responses/routes.ts'
import { tokenLogprob } from './openai.ts'
import { count, errorBody, errorMembers, type Section, seconds, WAITING, WAITING_ONCE } from './operation.ts'

const nullableText = z.string().nullable()
const state = z.enum(['in_progress', 'completed', 'incomplete'])
const logprobs = z.array(z.strictObject({ ...tokenLogprob, top_logprobs: z.array(z.strictObject(tokenLogprob)) }))

const textPart = z.strictObject({
  ...{ type: z.literal('output_text'), text: z.string(), annotations: z.tuple([]), logprobs },
})
const thoughtPart = z.strictObject({ type: z.literal('reasoning_text'), text: z.string() })
const messageItem = z.strictObject({
  ...{ type: z.literal('message'), id: z.string(), role: z.literal('assistant'), status: state },
  content: z.array(textPart),
})
const thoughtItem = z.strictObject({
  ...{ type: z.literal('reasoning'), id: z.string(), status: state },
  ...{ summary: z.tuple([]), content: z.array(thoughtPart) },
})
const callItem = z.strictObject({
  ...{ type: z.literal('function_call'), id: z.string(), status: state },
  ...{ call_id: z.string(), name: z.string(), arguments: z.string() },
})
const outputItem = z.discriminatedUnion('type', [messageItem, thoughtItem, callItem])

const usage = z.strictObject({
  ...{ input_tokens: count, output_tokens: count, total_tokens: count },
  input_tokens_details: z.strictObject({ cached_tokens: count }),
  output_tokens_details: z.strictObject({ reasoning_tokens: count }),
})
const format = z.discriminatedUnion('type', [
  z.strictObject({ type: z.literal('text') }),
  z.strictObject({ type: z.literal('json_object') }),
  z.strictObject({
    ...{ type: z.literal('json_schema'), name: z.string(), description: nullableText },
    ...{ schema: z.unknown(), strict: z.boolean() },
  }),
])
const mode = z.enum(['none', 'auto', 'required'])
const named = z.strictObject({ type: z.literal('function'), name: z.string() })
const tool = z.strictObject({
  ...{ type: z.literal('function'), name: z.string(), description: nullableText },
  ...{ parameters: z.record(z.string(), z.unknown()).nullable(), strict: z.boolean().nullable() },
})

const response = z.strictObject({
  ...{ id: z.string(), object: z.literal('response'), created_at: seconds, completed_at: seconds.nullable() },
  status: z.enum(['queued', 'in_progress', 'completed', 'incomplete', 'cancelled', 'failed']),
  error: z.strictObject({ code: z.string(), message: z.string() }).nullable(),
  incomplete_details: z.strictObject({ reason: z.literal('max_output_tokens') }).nullable(),
  ...{ model: z.string(), output: z.array(outputItem), usage: usage.nullable() },
  ...{ previous_response_id: nullableText, instructions: nullableText, tools: z.array(tool) },
  tool_choice: z.union([
    mode,
    named,
    z.strictObject({ type: z.literal('allowed_tools'), tools: z.array(named), mode: z.enum(['auto', 'required']) }),
  ]),
  ...{ truncation: z.enum(['auto', 'disabled']), parallel_tool_calls: z.boolean() },
  text: z.strictObject({ format }),
  ...{ top_p: z.number(), presence_penalty: z.number(), frequency_penalty: z.number(), temperature: z.number() },
  ...{ top_logprobs: count, reasoning: z.null() },
  ...{ max_output_tokens: count.nullable(), max_tool_calls: count.nullable() },
  ...{ store: z.boolean(), background: z.boolean(), service_tier: z.literal('default') },
  ...{ metadata: z.record(z.string(), z.string()), safety_identifier: nullableText, prompt_cache_key: nullableText },
})

const event = <T extends string, S extends z.ZodRawShape>(type: T, shape: S) =>
  z.strictObject({ type: z.literal(type), sequence_number: count, ...shape })
const standing = (type: string) => event(type, { response })
const about = { item_id: z.string(), output_index: count }
const within = { ...about, content_index: count }
const part = z.discriminatedUnion('type', [textPart, thoughtPart])
const responseEvent = z.union([
  z.discriminatedUnion('type', [
    standing('response.created'),
    standing('response.queued'),
    standing('response.in_progress'),
    standing('response.completed'),
    standing('response.incomplete'),
    standing('response.failed'),
    event('response.output_item.added', { output_index: count, item: outputItem }),
    event('response.output_item.done', { output_index: count, item: outputItem }),
    event('response.content_part.added', { ...within, part }),
    event('response.content_part.done', { ...within, part }),
    event('response.output_text.delta', { ...within, delta: z.string(), logprobs }),
    event('response.output_text.done', { ...within, text: z.string(), logprobs }),
    event('response.reasoning_text.delta', { ...within, delta: z.string() }),
    event('response.reasoning_text.done', { ...within, text: z.string() }),
    event('response.reasoning.delta', { ...within, delta: z.string() }),
    event('response.reasoning.done', { ...within, text: z.string() }),
    event('response.function_call_arguments.delta', { ...about, delta: z.string() }),
    event('response.function_call_arguments.done', { ...about, name: z.string(), arguments: z.string() }),
    event('error', { error: errorMembers }),
  ]),
  errorBody,
])

/** Items as a client sent them, each with an id: they can be sent again as they are. */
const given = z.intersection(z.looseObject({ type: z.string(), id: z.string() }), z.union([inputItem, compactionItem]))
const items = z.strictObject({
  ...{ object: z.literal('list'), data: z.array(given) },
  ...{ first_id: nullableText, last_id: nullableText, has_more: z.boolean() },
})
const counted = z.strictObject({ object: z.literal('response.input_tokens'), input_tokens: count })
const deleted = z.strictObject({ id: z.string(), object: z.literal('response'), deleted: z.literal(true) })
const compaction = z.strictObject({
  ...{ id: z.string(), object: z.literal('response.compaction'), created_at: seconds },
  output: z.tuple([z.strictObject({ type: z.literal('compaction'), id: z.string(), encrypted_content: z.string() })]),
  usage,
})

export const responses: Section = {
  schemas: {
    ...{ ResponseRequest: responseRequest, Response: response, ResponseEvent: responseEvent, OutputItem: outputItem },
    ...{
      InputItem: inputItem,
      CompactionItem: compactionItem,
      InputItems: items,
      DeletedResponse: deleted,
      CompactRequest: compactRequest,
      Compaction: compaction,
    },
    ...{ InputTokensRequest: countRequest, InputTokens: counted },
  },
  operations: [
    {
      ...{ id: 'createResponse', method: 'post', path: '/v1/responses', tag: 'Responses' },
      summary: 'Makes a response, which can be had later by its id.',
      headers: ['Session', 'IdempotencyKey', 'OpenResponsesVersion'],
      ...{ body: responseRequest, nullIsAbsent: true },
      answers: {
        200: {
          description: 'The response, whole, in the background or as a stream.',
          ...{ json: response, events: responseEvent, headers: ['Session', 'Seed', 'Replayed'] },
        },
      },
      errors: WAITING_ONCE,
    },
    {
      ...{ id: 'openResponseSocket', method: 'get', path: '/v1/responses', tag: 'Responses' },
      summary: 'Opens a WebSocket, whose messages "response.create" are answered by the events of their streams.',
      headers: ['Session', 'OpenResponsesVersion'],
      answers: { 101: { description: 'The connection is a WebSocket.' } },
      errors: [426],
    },
    {
      ...{ id: 'getResponse', method: 'get', path: '/v1/responses/{id}', tag: 'Responses' },
      summary: 'Gives a response as far as it is made, or its events.',
      ...{ query: responseQuery, headers: ['OpenResponsesVersion'] },
      answers: {
        200: { description: 'The response, or the stream of its events.', json: response, events: responseEvent },
      },
      errors: [404, 503],
    },
    {
      ...{ id: 'deleteResponse', method: 'delete', path: '/v1/responses/{id}', tag: 'Responses' },
      summary: 'Deletes a response with its session, where nothing else was made there.',
      answers: { 200: { description: 'It is deleted.', json: deleted } },
      errors: WAITING,
    },
    {
      ...{ id: 'cancelResponse', method: 'post', path: '/v1/responses/{id}/cancel', tag: 'Responses' },
      summary: 'Ends a response, and gives it as soon as it is over.',
      answers: { 200: { description: 'The response.', json: response } },
      errors: WAITING,
    },
    {
      ...{ id: 'listInputItems', method: 'get', path: '/v1/responses/{id}/input_items', tag: 'Responses' },
      ...{ summary: 'Lists the items of the input of a response.', query: itemsQuery },
      answers: { 200: { description: 'A page of items.', json: items } },
      errors: [404, 503],
    },
    {
      ...{ id: 'compactResponses', method: 'post', path: '/v1/responses/compact', tag: 'Responses' },
      summary: 'Makes one small item of a conversation, to go on from in later requests.',
      ...{ body: compactRequest, nullIsAbsent: true },
      answers: { 200: { description: 'The item.', json: compaction } },
      errors: WAITING,
    },
    {
      ...{ id: 'countInputTokens', method: 'post', path: '/v1/responses/input_tokens', tag: 'Tokens' },
      summary: 'Counts the tokens that a response would read.',
      ...{ body: countRequest, nullIsAbsent: true },
      answers: { 200: { description: 'The count.', json: counted } },
      errors: [404],
    },
  ],
}
