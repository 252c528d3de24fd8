/**
 * The form of conversations without a conversation: what a context is fed for messages that are all given, as HTTP
 * clients give them. A context that is empty gets the whole; one that has read an answer gets what stands behind it.
 */
import { ContinuoError } from '../../errors.ts'
import type { Turns } from '../tokenizer/types.ts'
import { type CallForm, inWords, PLAIN, withIds } from './calls.ts'
import { collapsed, type NamedTokens, RWKV_STOP, THINKING } from './conversation.ts'
import type { ChatTemplate } from './template.ts'
import { NO_THOUGHTS, opensThoughts } from './thoughts.ts'
import { freeMarks, turnWriter } from './turns.ts'
import { type ChatOptions, type Message, type Tool, textsOf, withTexts } from './types.ts'

export interface ChatForm {
  /** Texts that end an answer, beside the model's ends of text; they are fed, but are no part of the answer. */
  readonly stops: readonly string[]
  /**
   * What an empty context is fed, up to where the answer begins; where the last message is the assistant's, up to the
   * end of it: the answer goes on there. Throws INVALID for messages that cannot be rendered.
   */
  begin(messages: readonly Message[], tools?: Tools): Int32Array
  /**
   * What a context is fed that has read an answer, and the tools; `stopped`: one of `stops` ended it. Throws INVALID as
   * `begin` does.
   */
  goOn(messages: readonly Message[], stopped: boolean, tools?: Tools): Int32Array
  /** The messages alone, each to its end: nothing opens an answer behind them. Throws INVALID as `begin` does. */
  alone(messages: readonly Message[]): Int32Array
  /** How the model writes calls of tools. */
  readonly calls: CallForm
  /**
   * Whether the model thinks before it answers: it may by itself, only where it is told to, or nothing is known of
   * that.
   */
  readonly thinks: 'ever' | 'told' | 'never'
}

/** What an answer may call, and what may stand before it. */
export interface Tools {
  readonly tools: readonly Tool[]
  /** The answer is to begin with a call. */
  readonly mustCall: boolean
  /** Whether the model shall think before it answers; default: what the form does by itself. */
  readonly thinking?: boolean | undefined
}
const NO_TOOLS: Tools = { tools: [], mustCall: false }

/** Stands for the turn before, of which a template sees nothing but that it was there. */
const BEFORE = '.'

export const templateForm = (
  template: ChatTemplate,
  turns: Turns,
  options: Omit<ChatOptions, 'system'> & NamedTokens,
  calls: CallForm = PLAIN,
  thinks: ChatForm['thinks'] = 'never',
): ChatForm => {
  const writer = turnWriter(turns)
  const render = (
    messages: readonly Message[],
    { tools, thinking }: Pick<Tools, 'tools' | 'thinking'>,
    addGenerationPrompt = true,
  ): string =>
    template({ ...options, ...(thinking !== undefined && { thinking }), messages, tools, addGenerationPrompt })
  /** Some templates refuse a system message. */
  let system: boolean | null = null
  const takesSystem = (): boolean => {
    try {
      system ??=
        render(
          [
            { role: 'system', content: BEFORE },
            { role: 'user', content: BEFORE },
          ],
          NO_TOOLS,
        ) !== ''
    } catch {
      system = false
    }
    return system
  }
  const marked = (messages: readonly Message[], tools: readonly Tool[]) => {
    const [guard, place, end] = freeMarks(3, [...messages, ...tools].flatMap(textsOf))
    if (guard === undefined || place === undefined || end === undefined)
      throw new ContinuoError(
        'INVALID',
        'The conversation has every noncharacter from U+FDD0 to U+FDEF. Leave them out.',
      )
    const guardedText = (text: string): string => writer.guarded(text, guard)
    const guarded = messages.map((message) => withTexts(message, guardedText))
    return { guard, place, end, guarded, shown: tools.map((tool) => withTexts(tool, guardedText)) }
  }
  /** What the template is given: where it does not know tools, messages in words. */
  const given = (messages: readonly Message[], { tools }: Tools) =>
    calls.showsTools
      ? marked(
          messages.map((message) => withIds(message, calls.idLength)),
          tools,
        )
      : marked(inWords(messages, tools, tools.length === 0 || takesSystem()), [])
  /** The rendering up to where the answer begins, or goes on. */
  const opened = (messages: readonly Message[], asked: Tools, end: string): string => {
    const last = messages.at(-1)!
    if (last.role !== 'assistant') {
      const prompt = render(messages, asked)
      // Some templates open thoughts in any case.
      const closing = asked.thinking === false && opensThoughts(prompt) ? NO_THOUGHTS : ''
      return `${prompt}${closing}${asked.mustCall ? calls.opening : ''}`
    }
    const marked = messages.with(-1, { ...last, content: `${last.content}${end}` })
    const [before, ...more] = render(marked, asked, false).split(end)
    if (more.length === 1) return before!
    throw new ContinuoError(
      'INVALID',
      `The chat template renders the last answer ${more.length} times, expected once, so it cannot go on. Let the last message be the user's.`,
    )
  }
  return {
    stops: [],
    ...{ calls, thinks },
    begin(messages, asked = NO_TOOLS) {
      const { guard, end, guarded, shown } = given(messages, asked)
      return writer.ids(opened(guarded, { ...asked, tools: shown }, end), guard, false)
    },
    goOn(messages, _, asked = NO_TOOLS) {
      // The context has read the tools.
      const { guard, place, end, guarded } = given(messages, NO_TOOLS)
      const before: readonly Message[] = [
        { role: 'user', content: BEFORE },
        { role: 'assistant', content: place },
      ]
      const [, behind, ...more] = opened([...before, ...guarded], { ...asked, tools: [] }, end).split(place)
      if (behind === undefined || more.length > 0)
        throw new ContinuoError(
          'INVALID',
          `The chat template renders an earlier answer ${behind === undefined ? 0 : more.length + 1} times, expected once. Such a template cannot be followed turn by turn: leave the session out, and send the whole conversation with each request.`,
        )
      return writer.ids(behind, guard, true)
    },
    alone(messages) {
      const { guard, guarded } = given(messages, NO_TOOLS)
      return writer.ids(render(guarded, NO_TOOLS, false), guard, false)
    },
  }
}

const ROLES = { system: 'System', user: 'User', assistant: 'Assistant', tool: 'User' } as const

/** Of an answer that goes on, the spaces at its end: a word may begin there. */
const spaceBehind = (messages: readonly Message[]): string => {
  const { role, content } = messages.at(-1)!
  return role === 'assistant' ? / *$/.exec(content)![0] : ''
}

/** See `rwkvChat`. */
export const rwkvForm = (turns: Turns): ChatForm => {
  const lines = (messages: readonly Message[]): readonly string[] =>
    messages.map(({ role, content }) => `${ROLES[role]}: ${collapsed(content)}`)
  const written = (messages: readonly Message[], thinking: boolean | undefined): string =>
    [
      ...lines(messages),
      ...(messages.at(-1)?.role === 'assistant'
        ? []
        : [`Assistant:${thinking === undefined ? '' : THINKING[`${thinking}`]}`]),
    ].join('\n\n') + spaceBehind(messages)
  return {
    stops: [RWKV_STOP],
    calls: PLAIN,
    // Its G1 models can; its World models cannot, and nothing tells them apart.
    thinks: 'told',
    begin: (messages, { tools, thinking } = NO_TOOLS) =>
      turns.encode(written(inWords(messages, tools), thinking), 'nothing'),
    goOn(given, stopped, { thinking } = NO_TOOLS) {
      const messages = inWords(given, [])
      const text = written(messages, thinking)
      // Where the stop text ended the answer, the context has read "User:" already.
      const rest = stopped && messages[0]?.role === 'user' ? text.slice('User:'.length) : `\n\n${text}`
      return turns.encode(rest, 'text')
    },
    alone: (messages) => turns.encode(lines(messages).join('\n\n'), 'nothing'),
  }
}
