/**
 * Messages of chats and items of responses, as clients send them: also those that this gateway or another server of the
 * protocol returned, with all members that it put beside the text.
 */
import { z } from 'zod'
import type { Message } from '../../models/chat/index.ts'
import { textsOf } from '../../models/chat/types.ts'
import { Refusal } from '../refusal.ts'
import { argumentsText, toolName } from './tools.ts'

/** A template takes some hundred steps for each, while everybody waits. */
export const MOST_MESSAGES = 1000

/**
 * What stands beside an answer and asks for nothing: notes of its maker, and members of answers of other kinds that it
 * does not have.
 */
const beside = {
  annotations: z.array(z.unknown()).nullish(),
  audio: z.null('expected null: the model gives and takes text').optional(),
  function_call: z.null('expected null: calls stand in "tool_calls"').optional(),
}

const asSystem = <T extends string>(name: T) =>
  name === 'developer' ? ('system' as const) : (name as Exclude<T, 'developer'>)
const speaker = z.enum(['system', 'developer', 'user', 'assistant'])
const role = z.enum([...speaker.options, 'tool']).transform(asSystem)

const refused = z.strictObject({ type: z.literal('refusal'), refusal: z.string() })
type Part = { readonly text: string } | z.output<typeof refused>
const joined = (parts: readonly Part[]): string =>
  parts.map((part) => ('text' in part ? part.text : part.refusal)).join('')

/** Of an answer without text its refusal; null: it has neither. */
const answered = (content: string | null | undefined, refusal: string | null | undefined): string | null =>
  content ?? refusal ?? null

/** The id of a call, as its maker gave it. */
export const callId = z.string().min(1).max(512)
/** Of one message. */
export const MOST_CALLS = 128
const call = z.strictObject({
  ...{ id: callId, type: z.literal('function'), index: z.int().optional() },
  function: z.strictObject({ name: toolName, arguments: argumentsText }),
})

/**
 * The Agents SDK gives an answer back with what stood beside its text in the part; calls stand in the message once
 * more.
 */
const answeredPart = {
  role: z.literal('assistant').optional(),
  refusal: z.null('expected null: a refusal is a part of its own').optional(),
  reasoning_content: z.string().nullish(),
  tool_calls: z.array(call).max(MOST_CALLS).nullish(),
}
const part = z.union([
  z.strictObject({ type: z.literal('text'), text: z.string(), ...answeredPart, ...beside }),
  refused,
])
const members = z.strictObject({
  role,
  content: z.union([z.string(), z.array(part).transform(joined)]).nullish(),
  refusal: z.string().nullish(),
  /** Who speaks, and what was thought before the answer: for templates that show it. */
  name: z.string().min(1).max(64).nullish(),
  reasoning_content: z.string().nullish(),
  /** Of an answer, its calls; of a result, the id of its call. */
  tool_calls: z.array(call).max(MOST_CALLS).nullish(),
  tool_call_id: callId.nullish(),
  ...beside,
})
export const message = members.transform((given, context): Message => {
  const { role: by, content, refusal, name, reasoning_content, tool_calls: calls, tool_call_id } = given
  const fault = (member: string, message: string): never => {
    context.addIssue({ code: 'custom', path: [member], message })
    return z.NEVER
  }
  const text = by === 'assistant' ? (answered(content, refusal) ?? '') : content
  if (text == null) return fault('content', 'expected string or array')
  const hasCalls = calls != null && calls.length > 0
  if (hasCalls && by !== 'assistant') return fault('tool_calls', 'expected calls in messages of the assistant alone')
  if (by === 'tool' && tool_call_id == null)
    return fault('tool_call_id', 'expected the id of the call that this is the result of')
  return {
    ...{ role: by, content: text },
    ...(name != null && { name }),
    ...(reasoning_content != null && { reasoning_content }),
    ...(hasCalls && {
      tool_calls: calls.map(({ id: of, type, function: called }) => ({ id: of, type, function: called })),
    }),
    ...(tool_call_id != null && { tool_call_id }),
  }
})

const id = z.string().min(1).max(512)
const status = z.enum(['in_progress', 'completed', 'incomplete']).nullish()
/** Text of a message's item; of an answer with its notes and logprobs. */
const written = z.union([
  z.strictObject({ type: z.literal('input_text'), text: z.string() }),
  z.strictObject({
    ...{ type: z.literal('output_text'), text: z.string() },
    ...{ annotations: z.array(z.unknown()).nullish(), logprobs: z.array(z.unknown()).nullish() },
  }),
  refused,
])
const messageItem = z.strictObject({
  ...{ type: z.literal('message').optional(), id: id.nullish(), status },
  role: speaker.transform(asSystem),
  content: z.union([z.string(), z.array(written).transform(joined)]),
})
const itemReference = z.strictObject({ type: z.literal('item_reference'), id })
const callItem = z.strictObject({
  ...{ type: z.literal('function_call'), id: id.nullish(), status, call_id: callId },
  ...{ name: toolName, arguments: argumentsText },
})
const outputItem = z.strictObject({
  ...{ type: z.literal('function_call_output'), id: id.nullish(), status, call_id: callId },
  output: z.union([z.string(), z.array(written).transform(joined)]),
})
/** What was thought before the answer that follows. A summary of it is for people. */
const thoughtItem = z.strictObject({
  ...{ type: z.literal('reasoning'), id: id.nullish(), status },
  summary: z.array(z.strictObject({ type: z.literal('summary_text'), text: z.string() })).default([]),
  content: z
    .array(z.strictObject({ type: z.literal('reasoning_text'), text: z.string() }))
    .nullish()
    .transform((parts) => (parts ?? []).map(({ text }) => text).join('')),
  encrypted_content: z.null('expected null: thoughts are given as text').optional(),
})
/** An item of a conversation, or the id of one that the log has. */
export const inputItem = z.union([messageItem, itemReference, callItem, outputItem, thoughtItem])
export type InputItem = z.output<typeof inputItem>
/** A conversation so far, in one item (compaction-log.ts). */
const MOST_CONTENT = 512
export const compactionItem = z.strictObject({
  ...{ type: z.literal('compaction'), id: z.string().max(MOST_CONTENT).nullish() },
  encrypted_content: z.string().min(1).max(MOST_CONTENT),
  created_by: z.string().nullish(),
})
export type CompactionItem = z.output<typeof compactionItem>
/** What the log has by an id. */
export type Said = Exclude<InputItem, { type: 'item_reference' }>

/** Adds a call to the answer before it, or as an answer without text. */
const withCall = (messages: Message[], call: NonNullable<Message['tool_calls']>[number]): void => {
  const before = messages.at(-1)
  if (before?.role === 'assistant')
    messages[messages.length - 1] = { ...before, tool_calls: [...(before.tool_calls ?? []), call] }
  else messages.push({ role: 'assistant', content: '', tool_calls: [call] })
}

/**
 * The messages of a request's items. `said` finds those of an item by its id; it rejects with a Refusal that names
 * `param`.
 */
export const messagesOf = async (
  items: readonly InputItem[],
  said: (id: string, param: string) => Promise<Said>,
): Promise<readonly Message[]> => {
  const messages: Message[] = []
  /** A message of thoughts alone, so far. */
  let thoughts: Message | undefined
  for (const [at, item] of items.entries()) {
    const found = item.type === 'item_reference' ? await said(item.id, `input.${at}.id`) : item
    if ('role' in found) {
      const { role: by, content } = found
      const thought = messages.at(-1)
      // What was thought is a member of the message that it is before.
      if (by === 'assistant' && thought !== undefined && thought === thoughts)
        messages[messages.length - 1] = { ...thought, content }
      else messages.push({ role: by, content })
    } else if (found.type === 'reasoning') {
      if (found.content === '') continue
      thoughts = { role: 'assistant', content: '', reasoning_content: found.content }
      messages.push(thoughts)
    } else if (found.type === 'function_call_output')
      messages.push({ role: 'tool', content: found.output, tool_call_id: found.call_id })
    else
      withCall(messages, {
        id: found.call_id,
        type: 'function',
        function: { name: found.name, arguments: found.arguments },
      })
  }
  return messages
}

/** Throws a Refusal (400), naming the place, for half a surrogate pair. */
export const checkText = (text: string, param: string): void => {
  if (!text.isWellFormed())
    throw new Refusal(400, 'The message has half a surrogate pair; it is to be text in Unicode.', { param })
}

/** Throws a Refusal (400) for messages that nothing answers or goes on, and for half a surrogate pair. */
export const checkMessages = (messages: readonly Message[], param: string): void => {
  const last = messages.at(-1)
  if (last === undefined)
    throw new Refusal(400, 'Nothing is said here: expected a message, received thoughts without a text alone.', {
      param,
    })
  if (last.role === 'system')
    throw new Refusal(
      400,
      'The last message is the one that is answered (its role is "user"), or an answer that is to go on ("assistant"); this one\'s role is "system".',
      { param },
    )
  if (last.tool_calls !== undefined)
    throw new Refusal(
      400,
      'The last message calls tools, and nothing follows from that. Send the results of its calls behind it.',
      { param },
    )
  for (const [at, one] of messages.entries())
    for (const [name, member] of Object.entries(one))
      for (const text of textsOf({ [name]: member } as unknown as Message)) checkText(text, `${param}.${at}.${name}`)
}
