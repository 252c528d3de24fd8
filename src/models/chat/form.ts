/**
 * The form of conversations without a conversation: what a context is fed for messages that are all given, as HTTP clients give them. A context
 * that is empty gets the whole; one that has read an answer gets what stands behind it.
 */
import { ContinuoError } from '../../errors.ts'
import type { Turns } from '../tokenizer/types.ts'
import { collapsed, type NamedTokens, RWKV_STOP } from './conversation.ts'
import type { ChatTemplate } from './template.ts'
import { freeMarks, turnWriter } from './turns.ts'
import type { ChatOptions, Message } from './types.ts'

export interface ChatForm {
  /** Texts that end an answer, beside the model's ends of text; they are fed, but are no part of the answer. */
  readonly stops: readonly string[]
  /** What an empty context is fed, up to where the answer begins. Throws INVALID for messages that cannot be rendered. */
  begin(messages: readonly Message[]): Int32Array
  /** What a context is fed that has read an answer; `stopped`: one of `stops` ended it. Throws INVALID as `begin` does. */
  goOn(messages: readonly Message[], stopped: boolean): Int32Array
}

/** Stands for the turn before, of which a template sees nothing but that it was there. */
const BEFORE = '.'

export const templateForm = (
  template: ChatTemplate,
  turns: Turns,
  options: Omit<ChatOptions, 'system'> & NamedTokens,
): ChatForm => {
  const writer = turnWriter(turns)
  const render = (messages: readonly Message[]): string => template({ ...options, messages, addGenerationPrompt: true })
  const marked = (messages: readonly Message[]) => {
    const [guard, place] = freeMarks(
      2,
      messages.map(({ content }) => content),
    )
    if (guard === undefined || place === undefined)
      throw new ContinuoError(
        'INVALID',
        'The conversation has every noncharacter from U+FDD0 to U+FDEF. Leave them out.',
      )
    const guarded = messages.map(({ role, content }) => ({ role, content: writer.guarded(content, guard) }))
    return { guard, place, guarded }
  }
  return {
    stops: [],
    begin(messages) {
      const { guard, guarded } = marked(messages)
      return writer.ids(render(guarded), guard, false)
    },
    goOn(messages) {
      const { guard, place, guarded } = marked(messages)
      const before: readonly Message[] = [
        { role: 'user', content: BEFORE },
        { role: 'assistant', content: place },
      ]
      const [, behind, ...more] = render([...before, ...guarded]).split(place)
      if (behind === undefined || more.length > 0)
        throw new ContinuoError(
          'INVALID',
          `The chat template renders an earlier answer ${behind === undefined ? 0 : more.length + 1} times, expected once. Such a template cannot be followed turn by turn: leave the session out, and send the whole conversation with each request.`,
        )
      return writer.ids(behind, guard, true)
    },
  }
}

const ROLES = { system: 'System', user: 'User', assistant: 'Assistant' } as const

/** See `rwkvChat`. */
export const rwkvForm = (turns: Turns): ChatForm => {
  const written = (messages: readonly Message[]): string =>
    [...messages.map(({ role, content }) => `${ROLES[role]}: ${collapsed(content)}`), 'Assistant:'].join('\n\n')
  return {
    stops: [RWKV_STOP],
    begin: (messages) => turns.encode(written(messages), 'nothing'),
    goOn(messages, stopped) {
      const text = written(messages)
      // Where the stop text ended the answer, the context has read "User:" already.
      const rest = stopped && messages[0]?.role === 'user' ? text.slice('User:'.length) : `\n\n${text}`
      return turns.encode(rest, 'text')
    },
  }
}
