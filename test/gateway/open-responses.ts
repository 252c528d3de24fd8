/**
 * The Open Responses specification (version 2026-04-24) as far as the gateway answers by it, written down from its
 * schema: what must be there, and what may stand there. Strict: a member that the specification does not have is a
 * fault here, but for those that OpenAI's own types add.
 */
import { z } from 'zod'

const index = z.int().min(0)
const state = z.enum(['in_progress', 'completed', 'incomplete'])

const likely = { token: z.string(), logprob: z.number(), bytes: z.array(z.int().min(0).max(255)) }
const logprob = z.strictObject({ ...likely, top_logprobs: z.array(z.strictObject(likely)) })
const citation = z.strictObject({
  ...{ type: z.literal('url_citation'), url: z.string(), title: z.string() },
  ...{ start_index: z.int(), end_index: z.int() },
})
const part = z.discriminatedUnion('type', [
  z.strictObject({ type: z.literal('input_text'), text: z.string() }),
  z.strictObject({
    ...{ type: z.literal('output_text'), text: z.string(), annotations: z.array(citation) },
    logprobs: z.array(logprob).optional(),
  }),
  z.strictObject({ type: z.literal('summary_text'), text: z.string() }),
  z.strictObject({ type: z.literal('reasoning_text'), text: z.string() }),
  z.strictObject({ type: z.literal('refusal'), refusal: z.string() }),
])

/** An item of an input or of an output. */
export const item = z.discriminatedUnion('type', [
  z.strictObject({
    ...{ type: z.literal('message'), id: z.string().min(1), status: state },
    role: z.enum(['user', 'assistant', 'system', 'developer']),
    content: z.array(part),
  }),
  z.strictObject({
    ...{ type: z.literal('function_call'), id: z.string().min(1), status: state, call_id: z.string().min(1) },
    ...{ name: z.string(), arguments: z.string() },
  }),
  z.strictObject({
    ...{ type: z.literal('function_call_output'), id: z.string().min(1), status: state, call_id: z.string().min(1) },
    output: z.union([z.string(), z.array(part)]),
  }),
  z.strictObject({
    ...{
      type: z.literal('reasoning'),
      id: z.string().min(1),
      summary: z.array(part),
      content: z.array(part).optional(),
    },
    // By the prose of the specification every item has a state.
    status: state,
  }),
  z.strictObject({ type: z.literal('compaction'), id: z.string().min(1), encrypted_content: z.string().min(1) }),
])

const usage = z.strictObject({
  ...{ input_tokens: index, output_tokens: index, total_tokens: index },
  input_tokens_details: z.strictObject({ cached_tokens: index }),
  output_tokens_details: z.strictObject({ reasoning_tokens: index }),
})
const mode = z.enum(['none', 'auto', 'required'])
const choice = z.strictObject({ type: z.literal('function'), name: z.string().optional() })
const text = z.string().nullable()

export const response = z.strictObject({
  ...{ id: z.string().min(1), object: z.literal('response'), created_at: z.int(), completed_at: z.int().nullable() },
  status: z.enum(['queued', 'in_progress', 'completed', 'incomplete', 'cancelled', 'failed']),
  incomplete_details: z.strictObject({ reason: z.string() }).nullable(),
  ...{ model: z.string(), previous_response_id: text, instructions: text, output: z.array(item) },
  error: z.strictObject({ code: z.string(), message: z.string() }).nullable(),
  tools: z.array(
    z.strictObject({
      ...{ type: z.literal('function'), name: z.string(), description: text },
      ...{ parameters: z.record(z.string(), z.unknown()).nullable(), strict: z.boolean().nullable() },
    }),
  ),
  tool_choice: z.union([
    mode,
    choice,
    z.strictObject({ type: z.literal('allowed_tools'), tools: z.array(choice), mode }),
  ]),
  truncation: z.enum(['auto', 'disabled']),
  parallel_tool_calls: z.boolean(),
  text: z.strictObject({
    format: z.discriminatedUnion('type', [
      z.strictObject({ type: z.literal('text') }),
      z.strictObject({ type: z.literal('json_object') }),
      z.strictObject({
        ...{ type: z.literal('json_schema'), name: z.string(), description: text },
        ...{ schema: z.record(z.string(), z.unknown()).nullable(), strict: z.boolean() },
      }),
    ]),
    verbosity: z.enum(['low', 'medium', 'high']).optional(),
  }),
  ...{ top_p: z.number(), presence_penalty: z.number(), frequency_penalty: z.number(), temperature: z.number() },
  top_logprobs: index,
  reasoning: z.strictObject({ effort: text, summary: text }).nullable(),
  usage: usage.nullable(),
  ...{ max_output_tokens: z.int().nullable(), max_tool_calls: z.int().nullable() },
  ...{
    store: z.boolean(),
    background: z.boolean(),
    service_tier: z.string(),
    metadata: z.record(z.string(), z.string()),
  },
  ...{ safety_identifier: text, prompt_cache_key: text },
})
export type Resource = z.output<typeof response>

export const compaction = z.strictObject({
  ...{ id: z.string().min(1), object: z.literal('response.compaction'), created_at: z.int() },
  ...{ output: z.array(item), usage },
})

const event = <T extends string, S extends z.ZodRawShape>(type: T, shape: S) =>
  z.strictObject({ type: z.literal(type), sequence_number: index, ...shape })
const about = { item_id: z.string().min(1), output_index: index }
const within = { ...about, content_index: index }
const logprobs = z.array(logprob).optional()

/** An event of a stream, of those that the gateway sends. */
export const streamed = z.discriminatedUnion('type', [
  event('response.created', { response }),
  event('response.queued', { response }),
  event('response.in_progress', { response }),
  event('response.completed', { response }),
  event('response.failed', { response }),
  event('response.incomplete', { response }),
  event('response.output_item.added', { output_index: index, item }),
  event('response.output_item.done', { output_index: index, item }),
  event('response.content_part.added', { ...within, part }),
  event('response.content_part.done', { ...within, part }),
  event('response.output_text.delta', { ...within, delta: z.string(), logprobs }),
  event('response.output_text.done', { ...within, text: z.string(), logprobs }),
  event('response.reasoning.delta', { ...within, delta: z.string() }),
  event('response.reasoning.done', { ...within, text: z.string() }),
  event('response.function_call_arguments.delta', { ...about, delta: z.string() }),
  // OpenAI's types have the name of the function, too.
  event('response.function_call_arguments.done', { ...about, name: z.string(), arguments: z.string() }),
  event('error', {
    error: z.strictObject({ type: z.string(), code: text, message: z.string(), param: text }),
  }),
])
export type Streamed = z.output<typeof streamed>

/** What is sent over a WebSocket where something fails that is no event of a response. */
export const socketError = z.strictObject({
  ...{ type: z.literal('error'), status: z.int() },
  error: z.strictObject({ type: z.string(), code: z.string(), message: z.string(), param: text }),
})

const LAST: readonly string[] = ['response.completed', 'response.incomplete', 'response.failed']

/**
 * Checks a whole stream, event by event and as one: the numbers, the order in each item, and that it adds up to the
 * response at its end.
 */
export const checkStream = (events: readonly unknown[], first = 0): Resource => {
  const all = events.map((each) => streamed.parse(each))
  for (const [at, { sequence_number: number }] of all.entries())
    if (number !== first + at) throw new Error(`Event ${first + at} has the number ${number}.`)
  const last = all.at(-1)
  if (last === undefined || !LAST.includes(last.type)) throw new Error(`The last event is ${last?.type}.`)
  if (!('response' in last)) throw new Error('The last event has no response.')
  if (first === 0) checkItems(all, last.response)
  return last.response
}

const checkItems = (all: readonly Streamed[], { status, output }: Resource): void => {
  if (all[0]!.type !== 'response.created') throw new Error('The first event is not response.created.')
  if (status === 'failed') return
  const open: (z.output<typeof item> | null)[] = []
  const deltas = new Map<number, string>()
  for (const each of all) {
    if (each.type === 'response.output_item.added') {
      if (each.output_index !== open.length) throw new Error(`Item ${each.output_index} comes after ${open.length}.`)
      open.push(each.item)
    }
    if (each.type === 'response.output_item.done') {
      if (JSON.stringify(each.item) !== JSON.stringify(output[each.output_index]))
        throw new Error(`Item ${each.output_index} is another one in the response.`)
      open[each.output_index] = null
    }
    if ('delta' in each) deltas.set(each.output_index, `${deltas.get(each.output_index) ?? ''}${each.delta}`)
  }
  if (open.length !== output.length || open.some((each) => each !== null))
    throw new Error(`${open.length} items began, ${output.length} are in the response.`)
  for (const [at, each] of output.entries()) {
    const whole =
      each.type === 'function_call'
        ? each.arguments
        : 'content' in each
          ? (each.content ?? []).map((one) => ('text' in one ? one.text : '')).join('')
          : ''
    if ((deltas.get(at) ?? '') !== whole) throw new Error(`The deltas of item ${at} do not add up to it.`)
    // What is cut off is the last item, and the response is cut off with it.
    if ('status' in each && each.status === 'incomplete' && (at < output.length - 1 || status === 'completed'))
      throw new Error(`Item ${at} is incomplete in a response that is ${status}.`)
  }
}
