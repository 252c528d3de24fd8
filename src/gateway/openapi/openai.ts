/**
 * Models, completions, chats, embeddings and tokens: what is asked, and what is answered (openai/routes.ts, choices.ts,
 * echo.ts).
 */
import { z } from 'zod'
import type { Progress, Usage } from '../answer/job.ts'
import { embeddingsRequest } from '../openai/embeddings.ts'
import { message } from '../openai/messages.ts'
import { chatRequest, completionRequest } from '../openai/schema.ts'
import { detokenizeRequest, tokenizeChatRequest, tokenizeRequest } from '../openai/tokens.ts'
import { count, errorBody, type Operation, type Section, seconds, WAITING, WAITING_ONCE } from './operation.ts'

const model = z.strictObject({
  id: z.string(),
  object: z.literal('model'),
  created: seconds.describe('When this gateway began.'),
  owned_by: z.literal('continuo'),
  max_model_len: count.optional().describe('Tokens that a context holds; missing where it has no end.'),
  context_length: count.optional(),
})
const modelList = z.strictObject({ object: z.literal('list'), data: z.array(model) })

const usage = z.strictObject({
  prompt_tokens: count,
  completion_tokens: count,
  total_tokens: count,
  prompt_tokens_details: z.strictObject({ cached_tokens: count }),
  completion_tokens_details: z.strictObject({ reasoning_tokens: count }).exactOptional(),
}) satisfies z.ZodType<Usage>
const progress = z.strictObject({
  total: count.nullable(),
  cache: count,
  processed: count,
  time_ms: count,
}) satisfies z.ZodType<Progress>

const ended = z.enum(['stop', 'length']).nullable()
const text = {
  object: z.literal('text_completion'),
  ...{ id: z.string(), created: seconds, model: z.string() },
}
const textChoice = z.strictObject({
  text: z.string(),
  index: count,
  logprobs: z
    .strictObject({
      tokens: z.array(z.string()),
      token_logprobs: z.array(z.number().nullable()).describe('Null for the first token of a prompt.'),
      top_logprobs: z.array(z.record(z.string(), z.number()).nullable()).nullable(),
      text_offset: z.array(count),
    })
    .nullable(),
  finish_reason: ended,
})
const completion = z.strictObject({ ...text, choices: z.array(textChoice), usage })
const completionEvent = z.union([
  z.strictObject({ ...text, choices: z.array(textChoice), usage: usage.optional() }),
  z.strictObject({ ...text, choices: z.tuple([]), prompt_progress: progress }),
  errorBody,
])

/** A token with its bytes, as chats and responses have it. */
export const tokenLogprob = { token: z.string(), logprob: z.number(), bytes: z.array(count.max(255)) }
const chatLogprobs = z
  .strictObject({
    content: z.array(z.strictObject({ ...tokenLogprob, top_logprobs: z.array(z.strictObject(tokenLogprob)) })),
    refusal: z.null(),
  })
  .nullable()
const answerCall = z.strictObject({
  id: z.string(),
  type: z.literal('function'),
  function: z.strictObject({ name: z.string(), arguments: z.string() }),
})
const chat = { id: z.string(), created: seconds, model: z.string() }
const chatEnded = z.enum(['stop', 'length', 'tool_calls']).nullable()
const chatCompletion = z.strictObject({
  ...chat,
  object: z.literal('chat.completion'),
  choices: z.array(
    z.strictObject({
      index: count,
      message: z.strictObject({
        role: z.literal('assistant'),
        content: z.string().nullable().describe('Null where the answer is calls alone.'),
        refusal: z.null(),
        reasoning_content: z.string().optional().describe('What was thought before the answer.'),
        tool_calls: z.array(answerCall).optional(),
      }),
      logprobs: chatLogprobs,
      finish_reason: chatEnded,
    }),
  ),
  usage,
})
const delta = z.strictObject({
  role: z.literal('assistant').optional(),
  content: z.string().optional(),
  reasoning_content: z.string().optional(),
  tool_calls: z
    .array(
      z.union([
        z.strictObject({ index: count, ...answerCall.shape }),
        z.strictObject({ index: count, function: z.strictObject({ arguments: z.string() }) }),
      ]),
    )
    .optional(),
})
const chunk = { ...chat, object: z.literal('chat.completion.chunk') }
const chatEvent = z.union([
  z.strictObject({
    ...chunk,
    choices: z.array(z.strictObject({ index: count, delta, logprobs: chatLogprobs, finish_reason: chatEnded })),
    usage: usage.optional(),
  }),
  z.strictObject({ ...chunk, choices: z.tuple([]), prompt_progress: progress }),
  errorBody,
])

const embeddings = z.strictObject({
  object: z.literal('list'),
  data: z.array(
    z.strictObject({
      object: z.literal('embedding'),
      index: count,
      embedding: z.union([
        z.array(z.number()),
        z.base64().describe('With "encoding_format": "base64": 32-bit floats, little-endian.'),
      ]),
    }),
  ),
  model: z.string(),
  usage: z.strictObject({ prompt_tokens: count, total_tokens: count }),
})
const tokenizeBody = z.union([tokenizeRequest, tokenizeChatRequest])
const tokenized = z.strictObject({
  count,
  max_model_len: count.nullable().describe('Tokens that a context holds; null where it has no end.'),
  tokens: z.array(count),
})
const detokenized = z.strictObject({ prompt: z.string() })

const answered = (id: string, path: string, summary: string, body: z.ZodType, json: z.ZodType, events: z.ZodType) =>
  ({
    ...{ id, method: 'post', path, tag: 'OpenAI', summary, body, nullIsAbsent: true },
    headers: ['Session', 'IdempotencyKey'],
    answers: {
      200: {
        description: 'The answer, whole or as a stream.',
        ...{ json, events, headers: ['Session', 'Seed', 'Replayed'] },
      },
    },
    errors: WAITING_ONCE,
  }) satisfies Operation

export const openai: Section = {
  schemas: {
    ...{ Error: errorBody, Model: model, ModelList: modelList, Usage: usage, PromptProgress: progress },
    ...{ CompletionRequest: completionRequest, Completion: completion, CompletionEvent: completionEvent },
    ...{
      ChatMessage: message,
      ChatRequest: chatRequest,
      ChatCompletion: chatCompletion,
      ChatCompletionEvent: chatEvent,
    },
    ...{ EmbeddingsRequest: embeddingsRequest, Embeddings: embeddings },
    ...{ TokenizeRequest: tokenizeBody, Tokenized: tokenized },
    ...{ DetokenizeRequest: detokenizeRequest, Detokenized: detokenized },
  },
  operations: [
    {
      ...{ id: 'listModels', method: 'get', path: '/v1/models', tag: 'OpenAI' },
      summary: 'Lists the one model that is served.',
      answers: { 200: { description: 'The list.', json: modelList } },
    },
    {
      ...{ id: 'getModel', method: 'get', path: '/v1/models/{model}', tag: 'OpenAI' },
      summary: 'Gives the model of this name, which may have slashes in it.',
      answers: { 200: { description: 'The model.', json: model } },
      errors: [404],
    },
    answered(
      ...(['createCompletion', '/v1/completions', 'Continues a text.'] as const),
      ...([completionRequest, completion, completionEvent] as const),
    ),
    answered(
      ...(['createChatCompletion', '/v1/chat/completions', 'Answers a conversation.'] as const),
      ...([chatRequest, chatCompletion, chatEvent] as const),
    ),
    {
      ...{ id: 'createEmbeddings', method: 'post', path: '/v1/embeddings', tag: 'OpenAI' },
      summary: 'Gives a vector for each text.',
      ...{ body: embeddingsRequest, nullIsAbsent: true },
      answers: { 200: { description: 'The vectors, in the order of the inputs.', json: embeddings } },
      errors: WAITING,
    },
    {
      ...{ id: 'tokenize', method: 'post', path: '/v1/tokenize', tag: 'Tokens' },
      summary: 'Gives the ids that a session reads of a text or of a conversation.',
      ...{ body: tokenizeBody, nullIsAbsent: true },
      answers: { 200: { description: 'The ids.', json: tokenized } },
      errors: [404],
    },
    {
      ...{ id: 'detokenize', method: 'post', path: '/v1/detokenize', tag: 'Tokens' },
      summary: 'Gives the text of ids.',
      ...{ body: detokenizeRequest, nullIsAbsent: true },
      answers: { 200: { description: 'The text.', json: detokenized } },
      errors: [404],
    },
  ],
}
