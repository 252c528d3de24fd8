/**
 * Messages of chats and items of responses, as clients send them: also those that this gateway gave, or another server of the protocol, with all
 * that it put beside the text.
 */
import { z } from 'zod'
import type { Message } from '../models/chat/index.ts'
import { Refusal } from './refusal.ts'

/** A template takes some hundred steps for each, while everybody waits. */
export const MOST_MESSAGES = 1000

const NO_TOOLS = 'no calls: there are no tools here'
/** What stands beside an answer and asks for nothing: notes of its maker, and members of answers of other kinds that it does not have. */
const beside = {
  annotations: z.array(z.unknown()).nullish(),
  audio: z.null('expected null: the model gives and takes text').optional(),
  tool_calls: z.array(z.unknown()).max(0, NO_TOOLS).nullish(),
  function_call: z.null(NO_TOOLS).optional(),
}

const role = z
  .enum(['system', 'developer', 'user', 'assistant'])
  .transform((name) => (name === 'developer' ? ('system' as const) : name))

const refused = z.strictObject({ type: z.literal('refusal'), refusal: z.string() })
type Part = { readonly text: string } | z.output<typeof refused>
const joined = (parts: readonly Part[]): string =>
  parts.map((part) => ('text' in part ? part.text : part.refusal)).join('')

/** Of an answer without text its refusal; null: it has neither. */
const answered = (content: string | null | undefined, refusal: string | null | undefined): string | null =>
  content ?? refusal ?? null

const part = z.union([z.strictObject({ type: z.literal('text'), text: z.string() }), refused])
const members = z.strictObject({
  role,
  content: z.union([z.string(), z.array(part).transform(joined)]).nullish(),
  refusal: z.string().nullish(),
  /** Who speaks, and what was thought before the answer: for templates that show it. */
  name: z.string().min(1).max(64).nullish(),
  reasoning_content: z.string().nullish(),
  ...beside,
})
export const message = members.transform((given, context): Message => {
  const { role: by, content, refusal, name, reasoning_content } = given
  const text = by === 'assistant' ? (answered(content, refusal) ?? '') : content
  if (text == null) {
    context.addIssue({ code: 'custom', path: ['content'], message: 'expected string or array' })
    return z.NEVER
  }
  return {
    ...{ role: by, content: text },
    ...(name != null && { name }),
    ...(reasoning_content != null && { reasoning_content }),
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
  role,
  content: z.union([z.string(), z.array(written).transform(joined)]),
})
const itemReference = z.strictObject({ type: z.literal('item_reference'), id })
/** A message, or the id of one that the log has. */
export const inputItem = z.union([messageItem, itemReference])
export type InputItem = z.output<typeof inputItem>

/** The messages of a request's items. `said` finds the text of an item by its id; it rejects with a Refusal that names `param`. */
export const messagesOf = async (
  items: readonly InputItem[],
  said: (id: string, param: string) => Promise<string>,
): Promise<readonly Message[]> => {
  const messages: Message[] = []
  for (const [at, item] of items.entries())
    messages.push(
      'role' in item
        ? { role: item.role, content: item.content }
        : { role: 'assistant', content: await said(item.id, `input.${at}.id`) },
    )
  return messages
}

/** Throws a Refusal (400) for messages that nothing answers or goes on, and for half a surrogate pair. */
export const checkMessages = (messages: readonly Message[], param: string): void => {
  const last = messages.at(-1)!
  if (last.role === 'system')
    throw new Refusal(
      400,
      'The last message is the one that is answered (its role is "user"), or an answer that is to go on ("assistant"); this one\'s role is "system".',
      { param },
    )
  for (const [at, one] of messages.entries())
    for (const member of ['content', 'name', 'reasoning_content'] as const)
      if (one[member]?.isWellFormed() === false)
        throw new Refusal(400, 'The message has half a surrogate pair; it is to be text in Unicode.', {
          param: `${param}.${at}.${member}`,
        })
}
