/**
 * Turns the messages of Anthropic's clients into messages of a conversation: calls are blocks of answers, their results
 * blocks of the user's messages.
 */
import { z } from 'zod'
import type { Message } from '../../models/chat/index.ts'
import type { Call } from '../../models/chat/types.ts'
import { callId, checkText, MOST_CALLS, MOST_MESSAGES } from '../openai/messages.ts'
import { shallow, toolName } from '../openai/tools.ts'
import { Refusal } from '../refusal.ts'
import { blocks, byMember, cache_control, type TextBlock, textBlock, texts } from './forms.ts'

/** The text of a result. The forms of conversation have no other place to say that a tool failed. */
const resultText = (text: string, failed: boolean | null | undefined): string =>
  failed !== true || /^\s*error\b/i.test(text) ? text : `Error: ${text}`

const resultBlock = z
  .strictObject({
    type: z.literal('tool_result'),
    tool_use_id: callId,
    content: texts.nullish(),
    is_error: z.boolean().nullish(),
    cache_control,
  })
  .transform(({ type, tool_use_id: of, content, is_error: failed }) => ({
    ...{ type, of },
    text: resultText(content ?? '', failed),
  }))

const callBlock = z
  .strictObject({
    ...{ type: z.literal('tool_use'), id: callId, name: toolName, input: shallow },
    /** Who called: the model. */
    caller: z.strictObject({ type: z.literal('direct', 'expected "direct": the model alone calls') }).nullish(),
    cache_control,
  })
  .transform(({ type, id, name, input }) => ({
    type,
    call: { id, type: 'function', function: { name, arguments: input } } satisfies Call,
  }))

type ResultBlock = z.output<typeof resultBlock>
type CallBlock = z.output<typeof callBlock>

/** What one message has: results, then a text, then calls. */
export interface Said {
  readonly role: 'user' | 'assistant'
  readonly results: readonly { readonly of: string; readonly text: string }[]
  /** null: it has none, not even an empty one. */
  readonly text: string | null
  readonly calls: readonly Call[]
}

const textIn = (all: readonly { readonly type: string }[]): string =>
  all.map((block) => (block.type === 'text' ? (block as TextBlock).text : '')).join('')

const ofUser = z
  .union([z.string(), blocks<TextBlock | ResultBlock>({ text: textBlock, tool_result: resultBlock })])
  .transform((content, context): Said => {
    if (typeof content === 'string') return { role: 'user', results: [], text: content, calls: [] }
    const late = content.findIndex(
      ({ type }, at) => type === 'tool_result' && content.slice(0, at).some((before) => before.type === 'text'),
    )
    if (late >= 0) {
      const message = 'expected results of calls before all text of their message, received one behind a text'
      context.addIssue({ code: 'custom', path: [late], message })
      return z.NEVER
    }
    const results = content.flatMap((block) => (block.type === 'tool_result' ? [block] : []))
    const text = textIn(content)
    return { role: 'user', results, text: results.length > 0 && text === '' ? null : text, calls: [] }
  })

const ofAssistant = z
  .union([z.string(), blocks<TextBlock | CallBlock>({ text: textBlock, tool_use: callBlock })])
  .transform((content, context): Said => {
    if (typeof content === 'string') return { role: 'assistant', results: [], text: content, calls: [] }
    const calls = content.flatMap((block) => (block.type === 'tool_use' ? [block.call] : []))
    const behind = content.slice(content.findIndex(({ type }) => type === 'tool_use') + 1)
    const fault = (message: string): never => {
      context.addIssue({ code: 'custom', path: [], message })
      return z.NEVER
    }
    if (calls.length > 0 && textIn(behind).trim() !== '')
      return fault('expected the text of an answer before its calls, received some behind a call')
    if (calls.length > MOST_CALLS) return fault(`expected at most ${MOST_CALLS} calls, received ${calls.length}`)
    return { role: 'assistant', results: [], text: textIn(content), calls }
  })

const message = byMember<Said>(
  'role',
  {
    user: z.strictObject({ role: z.literal('user'), content: ofUser }).transform(({ content }) => content),
    assistant: z
      .strictObject({ role: z.literal('assistant'), content: ofAssistant })
      .transform(({ content }) => content),
  },
  (fault) => `${fault}; what the system says is the parameter "system"`,
)
/** As a member of a request. */
export const messages = z.array(message).min(1).max(MOST_MESSAGES)

/** Throws a Refusal (400) where something else than the results of its calls follows an answer. */
const checkResults = (all: readonly Said[]): void => {
  for (const [at, { calls }] of all.entries()) {
    const given = new Set(all[at + 1]?.results.map(({ of }) => of))
    const open = calls.find(({ id }) => !given.has(id))
    if (open !== undefined)
      throw new Refusal(
        400,
        `The call "${open.id}" has no result. The next message is the user's, and begins with a block {"type":"tool_result","tool_use_id":…} for each call.`,
        { param: `messages.${at}` },
      )
  }
}

/** A turn is what one role says, in however many messages. */
const withTurn = (turns: Message[], { role, results, text, calls }: Said): void => {
  for (const { of, text: given } of results) turns.push({ role: 'tool', content: given, tool_call_id: of })
  if (text === null) return
  const last = turns.at(-1)
  const said = calls.length === 0 ? { role } : { role, tool_calls: calls }
  if (last?.role !== role) turns.push({ ...said, content: text })
  // A call alone has no line of its own.
  else
    turns[turns.length - 1] = {
      ...said,
      content: text === '' && calls.length > 0 ? last.content : `${last.content}\n${text}`,
    }
}

export interface Conversation {
  readonly system?: string | undefined
  readonly messages: readonly Said[]
}

/**
 * The conversation of a request. Throws a Refusal (400) that names the place of half a surrogate pair, or of a call
 * without a result.
 */
export const conversationOf = ({ system, messages: all }: Conversation): readonly Message[] => {
  if (system?.isWellFormed() === false)
    throw new Refusal(400, 'The system prompt has half a surrogate pair; it is to be text in Unicode.', {
      param: 'system',
    })
  for (const [at, { text, results }] of all.entries())
    for (const each of [text ?? '', ...results.map((result) => result.text)]) checkText(each, `messages.${at}.content`)
  checkResults(all)
  const turns: Message[] = system === undefined ? [] : [{ role: 'system', content: system }]
  for (const said of all) withTurn(turns, said)
  if (turns.length > MOST_MESSAGES + 1)
    throw new Refusal(
      400,
      `At most ${MOST_MESSAGES} messages can be given, each result of a call among them; ${turns.length} were.`,
      { param: 'messages' },
    )
  return turns
}
