/**
 * Schemas of the requests that OpenAI's clients send. A parameter that the engine does not have is refused with a
 * sentence, unless its value has no effect; an unknown parameter is refused, too. Nothing is ignored.
 */
import { isDeepStrictEqual } from 'node:util'
import { z } from 'zod'
import { type Grammar, type GrammarInput, generate, grammar } from '../../../topics/chunks.ts'
import { faultOfGrammar } from '../../grammar/index.ts'
import { schemaFault } from '../../issues.ts'
import { thinkingMembers } from '../answer/thinking.ts'
import { Refusal } from '../refusal.ts'
import { compactionItem, inputItem, MOST_MESSAGES, message } from './messages.ts'
import { chatTools, responseTools } from './tools.ts'

/** Values of a parameter that ask for nothing, and why others are refused. */
export interface Lack {
  readonly neutral: readonly unknown[]
  readonly why: string
  /** For programs, where the protocol has a word of its own. */
  readonly code?: string
}
export const lack = (why: string, ...neutral: readonly unknown[]): Lack => ({ why, neutral })

const ONE = 'One request gives one answer. Send as many requests as answers are wanted.'
/** Answers to one prompt. */
const MOST_CHOICES = 8
const TOOLS = 'Functions are "tools" of chats.'
const PROMPT = 'A prompt is continued as it is; chats and responses have tools.'

const LACKING: Readonly<Record<string, Lack>> = {
  n: lack(ONE, 1),
  best_of: lack('Answers are given as they are, none chosen among them. "n" gives several.', 1),
  suffix: lack('The model continues a text; it does not fill in.', ''),
  tools: lack(PROMPT, []),
  tool_choice: lack(PROMPT, 'none', 'auto'),
  parallel_tool_calls: lack(PROMPT, true, false),
  functions: lack(TOOLS, []),
  function_call: lack(TOOLS, 'none', 'auto'),
  response_format: lack('A prompt is continued as it is; "grammar" binds the answer.', { type: 'text' }),
  modalities: lack('The model gives text.', ['text']),
  audio: lack('The model gives text.'),
  prediction: lack('Answers are not predicted by the client.'),
  reasoning_effort: lack('The effort of a model cannot be set.'),
  verbosity: lack('The length of an answer is bounded by max_tokens alone.'),
  web_search_options: lack('The model searches nothing.'),
  service_tier: lack('There is one tier.', 'auto', 'default'),
  include: lack('There is nothing more to include.', []),
  truncation: lack('The messages of the request are counted as they are.', 'disabled'),
  reasoning: lack('The effort of a model cannot be set.', {}),
  conversation: lack('Name the session by the header x-session, or go on by previous_response_id.'),
}

/** `null` means absent, as OpenAI has it. */
const withoutLacking = (
  body: unknown,
  schema: z.ZodType,
  lackingHere: Readonly<Record<string, Lack>>,
): Record<string, unknown> => {
  const known = schema instanceof z.ZodObject ? schema.shape : {}
  if (typeof body !== 'object' || body === null || Array.isArray(body))
    throw new Refusal(400, 'The body is a JSON object with a "model" and what it is to answer.')
  const kept: [string, unknown][] = []
  for (const [name, value] of Object.entries(body)) {
    if (value === null) continue
    const lacking = Object.hasOwn(lackingHere, name) && !Object.hasOwn(known, name) ? lackingHere[name] : undefined
    if (lacking === undefined) kept.push([name, value])
    else if (!lacking.neutral.some((neutral) => isDeepStrictEqual(neutral, value)))
      throw new Refusal(400, `"${name}" is not supported. ${lacking.why}`, {
        code: lacking.code ?? 'unsupported_parameter',
        param: name,
      })
  }
  return Object.fromEntries(kept)
}

const { shape } = generate
const tokens = z.int().min(1)
/** Sampling parameters. Those that OpenAI's protocol lacks have the names that vLLM and llama.cpp give them. */
const drawing = {
  temperature: shape.temperature,
  top_p: shape.topP,
  top_k: shape.topK,
  min_p: shape.minP,
  presence_penalty: shape.presencePenalty,
  frequency_penalty: shape.frequencyPenalty,
  repetition_penalty: shape.repetitionPenalty,
  repeat_last_n: shape.penaltyLast.unwrap().optional(),
  logit_bias: shape.logitBias,
  stop_token_ids: shape.stopTokens,
  ignore_eos: shape.ignoreEnd,
}
export const drawingSchema = z.strictObject(drawing)
const DEFAULT_LAST = shape.penaltyLast.parse(undefined)

/**
 * The same as members of a `generate` event. Presence and frequency penalties count tokens of the answer alone, as
 * OpenAI's do; a repetition penalty counts those before it, too (vLLM), and an event has one length for all three.
 */
export const drawingOf = (body: z.output<typeof drawingSchema>) => ({
  temperature: body.temperature,
  topP: body.top_p,
  topK: body.top_k,
  minP: body.min_p,
  presencePenalty: body.presence_penalty,
  frequencyPenalty: body.frequency_penalty,
  repetitionPenalty: body.repetition_penalty,
  penaltyLast: body.repeat_last_n ?? (body.repetition_penalty === 1 ? 0 : DEFAULT_LAST),
  logitBias: body.logit_bias,
  stopTokens: body.stop_token_ids,
  ignoreEnd: body.ignore_eos,
})
export type Drawing = ReturnType<typeof drawingOf>

/** Of the client's books: they ask for nothing of the answer, and the log has every request and answer anyway. */
const hints = {
  user: z.string().optional(),
  safety_identifier: z.string().optional(),
  prompt_cache_key: z.string().optional(),
  prompt_cache_retention: z.string().optional(),
  metadata: z.record(z.string(), z.string()).optional(),
  store: z.boolean().optional(),
}

const padding = z.literal(false, 'expected false: no padding is put into streams').optional()
const common = {
  model: z.string(),
  stream: z.boolean().default(false),
  stream_options: z
    .strictObject({
      include_usage: z.boolean().default(false),
      include_obfuscation: padding,
    })
    .optional(),
  /** llama.cpp's: a stream tells how far the prompt was read, until its first token. */
  return_progress: z.boolean().default(false),
  max_tokens: tokens.optional(),
  ...drawing,
  seed: z.int().min(0).optional(),
  n: z.int().min(1).max(MOST_CHOICES).default(1),
  stop: z
    .union([
      z
        .string()
        .min(1)
        .max(256)
        .transform((one) => [one]),
      shape.stop,
    ])
    .default([]),
  ...hints,
  /**
   * Not OpenAI's: a text in GBNF, as other servers of their protocol have it, or an object as in a `generate` event.
   */
  grammar: z.union([z.string().transform((text) => ({ type: 'gbnf' as const, text })), shape.grammar]).optional(),
}

const anyJson = z.strictObject({ type: z.literal('json_object') })
const plainText = z.strictObject({ type: z.literal('text') })
/** `strict` changes nothing: what is asked for is kept, or refused. */
const named = {
  name: z.string().max(64),
  description: z.string().nullish(),
  schema: z.unknown(),
  strict: z.boolean().nullish(),
}
const responseFormat = z.discriminatedUnion('type', [
  plainText,
  anyJson,
  z.strictObject({ type: z.literal('json_schema'), json_schema: z.strictObject(named) }),
])
const textFormat = z.discriminatedUnion('type', [
  plainText,
  anyJson,
  z.strictObject({ type: z.literal('json_schema'), ...named }),
])

const id = z.int().min(0)
/** Ids of tokens. A prompt has tens of thousands, which zod takes a millisecond or two to look at, and this a tenth. */
export const tokenIds = z
  .unknown()
  .check((context) => {
    const { value } = context
    if (!Array.isArray(value)) {
      context.issues.push({ code: 'invalid_type', expected: 'array', input: value })
      return
    }
    const wrong = value.findIndex((each) => !Number.isSafeInteger(each) || each < 0)
    if (wrong < 0) return
    for (const issue of id.safeParse(value[wrong]).error?.issues ?? [])
      context.issues.push({ ...issue, path: [wrong], input: value[wrong] } as z.core.$ZodRawIssue)
  })
  // As JSON Schema says it.
  .meta({ type: 'array', items: { type: 'integer', minimum: 0 } }) as z.ZodType<readonly number[]>
export const completionRequest = z.strictObject({
  ...common,
  prompt: z.union([z.string(), z.array(z.string()).length(1), z.array(tokenIds).length(1), tokenIds]).default(''),
  logprobs: z.int().min(0).max(5).optional(),
  /** The prompt stands before the answer, which may have no token then. */
  echo: z.boolean().default(false),
  max_tokens: z.int().min(0).optional(),
})
export type CompletionRequest = z.output<typeof completionRequest>

export const chatRequest = z.strictObject({
  ...common,
  max_completion_tokens: tokens.optional(),
  messages: z.array(message).min(1).max(MOST_MESSAGES),
  response_format: responseFormat.default({ type: 'text' }),
  ...chatTools,
  ...thinkingMembers,
  logprobs: z.boolean().default(false),
  top_logprobs: shape.topLogprobs,
})
export type ChatRequest = z.output<typeof chatRequest>

export const responseRequest = z.strictObject({
  model: common.model,
  input: z.union([
    z.string().transform((text) => [{ role: 'user' as const, content: text }]),
    z
      .array(z.union([inputItem, compactionItem]))
      .min(1)
      .max(MOST_MESSAGES),
  ]),
  instructions: z.string().optional(),
  max_output_tokens: tokens.optional(),
  ...drawing,
  seed: common.seed,
  stream_options: z.strictObject({ include_obfuscation: padding }).optional(),
  /** Without alternatives there are no logprobs: whether a response has some must follow from its records. */
  top_logprobs: shape.topLogprobs,
  include: z.array(z.literal('message.output_text.logprobs')).default([]),
  stream: common.stream,
  text: z
    .strictObject({
      format: textFormat.nullish().transform((format) => format ?? { type: 'text' as const }),
      verbosity: z
        .literal('medium', 'expected "medium": the length of an answer is bounded by max_output_tokens alone')
        .optional(),
    })
    .default({ format: { type: 'text' } }),
  ...hints,
  grammar: common.grammar,
  ...responseTools,
  ...thinkingMembers,
  /** Whether another request may go on where this one ends. */
  store: z.boolean().default(true),
  /** The work goes on without a client. */
  background: z.boolean().default(false),
  /** `auto`: the oldest turns are left out of a conversation that is too long. */
  truncation: z.enum(['auto', 'disabled']).default('disabled'),
  max_tool_calls: z.int().min(1).optional(),
  previous_response_id: z.string().optional(),
})
export type ResponseRequest = z.output<typeof responseRequest>

const { input, instructions, text } = responseRequest.shape
/** How many tokens a response would read. `text` binds the answer and is not read. */
export const countRequest = z.strictObject({
  ...{ model: common.model.optional(), input, instructions, text },
  ...responseTools,
  ...thinkingMembers,
})
export const COUNT_LACKING: Readonly<Record<string, Lack>> = {
  ...LACKING,
  previous_response_id: lack('The messages of the request are counted, not what a session has read before.'),
}

/**
 * Throws a Refusal (400) that names the parameter. `lacking`: parameters of the protocol that the engine does not have.
 */
export const parsedBody = <T>(schema: z.ZodType<T>, body: unknown, lacking = LACKING): T => {
  const given = withoutLacking(body, schema, lacking)
  const parsed = schema.safeParse(given)
  if (parsed.success) return parsed.data
  const issue = schemaFault(parsed.error)
  if (issue.unknown.length > 0)
    throw new Refusal(
      400,
      `The parameter ${issue.unknown.map((key) => JSON.stringify(key.slice(0, 64))).join(', ')} is not known here.`,
      {
        code: 'unknown_parameter',
        param: [...issue.path, issue.unknown[0]!].join('.').slice(0, 256),
      },
    )
  const param = issue.path.join('.')
  throw new Refusal(400, `${param === '' ? 'The body' : `"${param}"`} cannot be taken: ${issue.message}.`, { param })
}

/** What binds the answer. Throws a Refusal (400), naming the parameter, for what cannot be kept. */
export const boundBy = (
  given: {
    readonly format?: z.output<typeof responseFormat | typeof textFormat>
    readonly grammar?: GrammarInput | undefined
  },
  param: string,
): Grammar | undefined => {
  const { format = { type: 'text' }, grammar: own } = given
  if (format.type !== 'text' && own !== undefined)
    throw new Refusal(400, `"${param}" and "grammar" cannot bind an answer both.`, { param: 'grammar' })
  const { schema = {} } = format.type !== 'json_schema' ? {} : 'json_schema' in format ? format.json_schema : format
  const asked: GrammarInput | undefined =
    format.type === 'text' ? own : format.type === 'json_object' ? { type: 'json' } : { type: 'jsonSchema', schema }
  if (asked === undefined) return undefined
  const parsed = grammar.safeParse(asked)
  const fault = parsed.success ? faultOfGrammar(parsed.data) : `${schemaFault(parsed.error).message}.`
  if (fault !== null) throw new Refusal(400, fault, { param: format.type === 'text' ? 'grammar' : param })
  return parsed.data
}

/** Alternatives belong to logprobs. Throws a Refusal. */
export const checkAlternatives = (top: number, logprobs: boolean): void => {
  if (top > 0 && !logprobs)
    throw new Refusal(400, '"top_logprobs" needs "logprobs": true.', {
      code: 'unsupported_value',
      param: 'top_logprobs',
    })
}
