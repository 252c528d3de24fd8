/** A conversation as text: what stands before each answer of the model. */
import { isRaw } from './exact.ts'

/** The longest source of a chat template, in UTF-16 units; published ones have up to 20,000. */
export const MOST_TEMPLATE = 1 << 16

/**
 * A call as templates show it: arguments are JSON's values, or the text of what is no JSON, as of an answer that was
 * cut off.
 */
export interface CallOf {
  readonly name: string
  readonly arguments: unknown
}
/** As it stands in an answer. */
export interface Call {
  readonly id: string
  readonly type: 'function'
  readonly function: CallOf
}
export interface Message {
  readonly role: 'system' | 'user' | 'assistant' | 'tool'
  readonly content: string
  /** Who speaks, for templates that show it; of a result the tool. */
  readonly name?: string
  /** What the model thought before an earlier answer, for templates that show it. */
  readonly reasoning_content?: string
  /** Of an answer. */
  readonly tool_calls?: readonly Call[]
  /** Of a result. */
  readonly tool_call_id?: string
}

/** A tool as templates show it. */
export interface Tool {
  readonly type: 'function'
  readonly function: { readonly name: string; readonly description?: string; readonly parameters: unknown }
}

/** A value of JSON with each of its texts replaced, names of members among them. */
const replacedIn = (value: unknown, replaced: (text: string) => string): unknown => {
  if (typeof value === 'string') return replaced(value)
  if (Array.isArray(value)) return value.map((each) => replacedIn(each, replaced))
  if (typeof value !== 'object' || value === null || isRaw(value)) return value
  return Object.fromEntries(
    Object.entries(value).map(([name, member]) => [replaced(name), replacedIn(member, replaced)]),
  )
}

/** The message, or tool, with each text in it replaced that its writer chose; `role` and `type` are none. */
export const withTexts = <T extends Message | Tool | Call>(value: T, replaced: (text: string) => string): T =>
  Object.fromEntries(
    Object.entries(value).map(([name, member]) => {
      if (name === 'role' || name === 'type') return [name, member]
      if (name === 'tool_calls')
        return [name, (member as NonNullable<Message['tool_calls']>).map((call) => withTexts(call, replaced))]
      return [name, name === 'function' ? functionOf(member, replaced) : replacedIn(member, replaced)]
    }),
  ) as T

/** The names of its members are ours. */
const functionOf = (value: unknown, replaced: (text: string) => string): unknown =>
  Object.fromEntries(Object.entries(value as object).map(([name, member]) => [name, replacedIn(member, replaced)]))

/** These texts. */
export const textsOf = (value: Message | Tool): readonly string[] => {
  const texts: string[] = []
  withTexts(value, (text) => {
    texts.push(text)
    return text
  })
  return texts
}

/** How a conversation begins. */
export interface ChatOptions {
  /** The first message, with the role `system`; default: none. */
  readonly system?: string | undefined
  /** Whether a model that can think before it answers shall; default: what its template does by itself. */
  readonly thinking?: boolean | undefined
  /** The day that a template may ask for, as YYYY-MM-DD; without it such a template is refused. */
  readonly date?: string | undefined
}

/** The tokens of one turn. */
export interface Asked {
  /** What is fed before the answer: the rest of the turn before, and the message. */
  readonly ids: Int32Array
  /**
   * The session holds what a rendering of the whole conversation has; false: earlier turns would be rendered otherwise
   * by now.
   */
  readonly exact: boolean
}

/** One conversation; `ask` and `answered` take turns. */
export interface Chat {
  /** Texts that end an answer, beside the model's ends of text; they are fed, but are no part of the answer. */
  readonly stops: readonly string[]
  /** Throws INVALID where the message cannot be rendered; the conversation stands as before then. */
  ask(content: string): Asked
  /** The answer without the stop text that ended it, if one did. */
  answered(text: string, stop: string | null): void
}
