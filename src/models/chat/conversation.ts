/**
 * A conversation turn by turn on one session. A template is a function of the whole conversation, and a session cannot
 * unread: what is fed for a turn is what the template puts behind the last answer, up to where the next one begins.
 */
import { ContinuoError } from '../../errors.ts'
import type { Turns } from '../tokenizer/types.ts'
import type { ChatTemplate, Rendering } from './template.ts'
import { freeMarks, turnWriter } from './turns.ts'
import type { Chat, ChatOptions, Message } from './types.ts'

/** Tokens that the template may name; absent: the package names none. */
export type NamedTokens = Pick<Rendering, 'bosToken' | 'eosToken'>

export const templateChat = (
  template: ChatTemplate,
  turns: Turns,
  { system, ...rest }: ChatOptions & NamedTokens,
): Chat => {
  const writer = turnWriter(turns)
  const said: Message[] = system === undefined ? [] : [{ role: 'system', content: system }]
  /** What the session holds, as text. */
  let fed = ''
  const render = (messages: readonly Message[]): string => template({ ...rest, messages, addGenerationPrompt: true })
  return {
    stops: [],
    ask(content) {
      const messages: readonly Message[] = [...said, { role: 'user', content }]
      const [guard, place] = freeMarks(2, [fed, ...messages.map((message) => message.content)])
      if (guard === undefined || place === undefined)
        throw new ContinuoError(
          'INVALID',
          'The conversation has every noncharacter from U+FDD0 to U+FDEF. Leave them out.',
        )
      // The assistant's words were never read as special tokens, and are not encoded again.
      const guarded = messages.map(({ role, content: own }) => ({
        role,
        content: role === 'assistant' ? own : writer.guarded(own, guard),
      }))
      const whole = render(guarded)
      const last = guarded.findLastIndex(({ role }) => role === 'assistant')
      let fresh = whole
      if (last >= 0) {
        const [, behind, ...more] = render(guarded.with(last, { role: 'assistant', content: place })).split(place)
        if (behind === undefined || more.length > 0)
          throw new ContinuoError(
            'INVALID',
            `The chat template renders the last answer ${behind === undefined ? 0 : more.length + 1} times, expected once. Such a template cannot be followed turn by turn.`,
          )
        fresh = behind
      }
      const ids = writer.ids(fresh, guard, last >= 0)
      const plain = (text: string): string => text.replaceAll(guard, '')
      fed += plain(fresh)
      said.push({ role: 'user', content })
      return { ids, exact: plain(whole) === fed }
    },
    answered(text) {
      said.push({ role: 'assistant', content: text })
      fed += text
    },
  }
}

/** A part of RWKV's format: an empty line inside would end it. */
export const collapsed = (text: string): string =>
  text
    .replaceAll('\r\n', '\n')
    .replace(/\n{2,}/g, '\n')
    .trim()

/** Ends an answer in RWKV's format: the next message begins. */
export const RWKV_STOP = '\n\nUser:'

/** What opens an answer with thoughts, and without: the model writes the last letter of the tag. */
export const THINKING = { true: ' <think', false: ' <think>\n</think' } as const

/**
 * RWKV's World and G1 models, which have no template file: "System: …", "User: …" and "Assistant:" with an empty line
 * between them. (BlinkDL/RWKV-LM, the chat format of RWKV-7 World and G1.)
 */
export const rwkvChat = (turns: Turns, { system, thinking }: ChatOptions): Chat => {
  const begin = thinking === undefined ? '' : THINKING[`${thinking}`]
  let state: 'new' | 'open' | 'asked' = 'new'
  return {
    stops: [RWKV_STOP],
    ask(content) {
      const user = `User: ${collapsed(content)}\n\nAssistant:${begin}`
      const first = system === undefined ? user : `System: ${collapsed(system)}\n\n${user}`
      // Where the answer ended with the stop text, the session has read "User:" already.
      const text = { new: first, open: `\n\n${user}`, asked: user.slice('User:'.length) }[state]
      const ids = turns.encode(text, state === 'new' ? 'nothing' : 'text')
      return { ids, exact: true }
    },
    answered(_, ended) {
      state = ended === RWKV_STOP ? 'asked' : 'open'
    },
  }
}
