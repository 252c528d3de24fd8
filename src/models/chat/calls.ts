/**
 * How models write calls of tools. A template that shows tools says it: the form is known by what stands in its source.
 * For all other models the tools are told in words, with a plain form of JSON.
 */
import type { Grammar } from '../../../topics/chunks.ts'
import { sha256 } from '../../hash.ts'
import type { CallOf, Message, Tool } from './types.ts'

export type CallGrammar = Extract<Grammar, { type: 'calls' }>

export interface CallForm {
  /** Around all calls of an answer, and between two. */
  readonly open: string
  readonly close: string
  readonly between: string
  /** Of a call: before the name of the tool, between name and arguments, behind these. */
  readonly before: string
  readonly middle: string
  readonly after: string
  /** Calls of an answer at most. */
  readonly most: number
  /** Fed before an answer that is to call: a special token, which stands in no text. */
  readonly opening: string
  /** Whether the template shows tools; else they are told in words. */
  readonly showsTools: boolean
  /** Characters that the ids of calls must have for the template; 0: any. */
  readonly idLength: number
}

/** Of an answer without an own bound. */
const MANY = 16

const HERMES: CallForm = {
  ...{ open: '', close: '', between: '\n', most: MANY, opening: '', showsTools: true, idLength: 0 },
  before: '<tool_call>\n{"name": "',
  middle: '", "arguments": ',
  after: '}\n</tool_call>',
}
const LLAMA: CallForm = {
  ...{ open: '', close: '', between: '\n', most: 1, opening: '', showsTools: true, idLength: 0 },
  before: '{"name": "',
  middle: '", "parameters": ',
  after: '}',
}
const MISTRAL: CallForm = {
  ...{ open: '[', close: ']', between: ', ', most: MANY, opening: '[TOOL_CALLS]', showsTools: true, idLength: 9 },
  before: '{"name": "',
  middle: '", "arguments": ',
  after: '}',
}
export const PLAIN: CallForm = {
  ...{ open: '', close: '', between: '\n', most: MANY, opening: '', showsTools: false, idLength: 0 },
  before: '{"name": "',
  middle: '", "arguments": ',
  after: '}',
}

/**
 * Hermes' form (also Qwen 2.5 and 3), Llama 3's, Mistral's before its version 11, by what their templates have and
 * others lack; else the plain one.
 */
export const callFormOf = (source: string): CallForm => {
  if (!/\btools\b/.test(source)) return PLAIN
  // Some write the members of a call as elements of their own.
  if (source.includes('<tool_call>') && !/<function=|<arg_key>/.test(source)) return HERMES
  if (source.includes('[TOOL_CALLS]') && !source.includes('[ARGS]')) return MISTRAL
  if (source.includes('<|start_header_id|>') && source.includes('"parameters"')) return LLAMA
  return PLAIN
}

const callText = (form: CallForm, { name, arguments: given }: CallOf): string =>
  `${form.before}${name}${form.middle}${typeof given === 'string' ? given : JSON.stringify(given)}${form.after}`

const told = (tools: readonly Tool[]): string =>
  [
    'You can call these tools:',
    ...tools.map((tool) => JSON.stringify(tool.function)),
    'To call one, answer with nothing but {"name": its name, "arguments": {its arguments}}; for several with one such line each. What it gives comes as the next message.',
  ].join('\n')

/**
 * The messages in words alone, for templates that know neither tools nor calls; where they refuse a system message, the
 * first message has the tools.
 */
export const inWords = (
  messages: readonly Message[],
  tools: readonly Tool[],
  takesSystem = true,
): readonly Message[] => {
  const plain: Message[] = []
  /** Results, and what the user says behind them, are one message: such templates have turns of two. */
  let joins = false
  for (const { role, content, tool_calls: calls = [], tool_call_id, ...rest } of messages) {
    const before = plain.at(-1)
    const text = role === 'tool' ? `Result: ${content}` : content
    if (joins && before !== undefined && (role === 'tool' || role === 'user'))
      plain[plain.length - 1] = { ...before, content: `${before.content}\n${text}` }
    else if (role === 'tool') plain.push({ role: 'user', content: text })
    else {
      const lines = [...(content === '' ? [] : [content]), ...calls.map((call) => callText(PLAIN, call.function))]
      plain.push({ ...rest, role, content: calls.length === 0 ? content : lines.join('\n') })
    }
    joins = role === 'tool'
  }
  if (tools.length === 0) return plain
  const [first, ...others] = plain
  if (first?.role === 'system') return [{ ...first, content: `${first.content}\n\n${told(tools)}` }, ...others]
  if (!takesSystem && first !== undefined)
    return [{ ...first, content: `${told(tools)}\n\n${first.content}` }, ...others]
  return [{ role: 'system', content: told(tools) }, ...plain]
}

/** The message with ids of calls as the template wants them: letters and digits that follow from the id. */
export const withIds = (message: Message, length: number): Message => {
  if (length === 0) return message
  const shortened = (id: string): string => sha256(Buffer.from(id)).slice(0, length)
  const { tool_calls: calls, tool_call_id: of } = message
  return {
    ...message,
    ...(calls !== undefined && { tool_calls: calls.map((call) => ({ ...call, id: shortened(call.id) })) }),
    ...(of !== undefined && { tool_call_id: shortened(of) }),
  }
}

/** What stands in a piece of an answer. */
export interface CallPiece {
  /** Before the calls. */
  readonly text: string
  /** Pieces of calls, in their order; the first of each has its name. */
  readonly calls: readonly { readonly index: number; readonly name?: string; readonly json: string }[]
}

export interface CallReader {
  push(text: string): CallPiece
  /** The answer is over: what may yet have become a call is text. */
  end(): string
  /** Whether a call has begun that is not whole. */
  readonly isInside: boolean
}

/** Reads an answer that is bound by a grammar of calls in this form, piece by piece. */
export const readCalls = (form: CallForm): CallReader => {
  const { open, between, before, middle, after: behind } = form
  const trigger = `${open}${before}`
  let at: 'text' | 'name' | 'arguments' | 'behind' = 'text'
  let held = ''
  let index = -1
  /** Of the arguments: open brackets, and whether a string is open, and an escape in it. */
  let depth = 0
  let quoted = false
  let escaped = false

  /** Takes what is held of the arguments, which are an object; behind its last bracket they are over. */
  const takeJson = (): string => {
    for (let end = 0; end < held.length; end += 1) {
      const char = held[end]!
      if (quoted) {
        if (escaped) escaped = false
        else if (char === '\\') escaped = true
        else if (char === '"') quoted = false
      } else if (char === '"') quoted = true
      else if (char === '{' || char === '[') depth += 1
      else if (char === '}' || char === ']') {
        depth -= 1
        if (depth > 0) continue
        const json = held.slice(0, end + 1)
        held = held.slice(end + 1)
        at = 'behind'
        return json
      }
    }
    const json = held
    held = ''
    return json
  }

  return {
    push(text) {
      held += text
      let said = ''
      const calls: { index: number; name?: string; json: string }[] = []
      for (;;) {
        if (at === 'text') {
          const place = held.indexOf(trigger)
          let keep = Math.min(trigger.length - 1, held.length)
          while (place < 0 && !trigger.startsWith(held.slice(held.length - keep))) keep -= 1
          const until = place < 0 ? held.length - keep : place
          said += held.slice(0, until)
          held = held.slice(until)
          if (place < 0) break
          at = 'name'
        } else if (at === 'name') {
          const begin = (index < 0 ? open : between).length + before.length
          const end = held.indexOf(middle, begin)
          if (end < 0) break
          index += 1
          calls.push({ index, name: held.slice(begin, end), json: '' })
          held = held.slice(end + middle.length)
          at = 'arguments'
        } else if (at === 'arguments') {
          const json = takeJson()
          if (json !== '') calls.push({ index, json })
          if (at === 'arguments') break
        } else {
          if (!held.startsWith(behind)) break
          held = held.slice(behind.length)
          at = 'name'
        }
      }
      return { text: said, calls }
    },
    end() {
      const rest = at === 'text' ? held : ''
      held = ''
      return rest
    },
    get isInside() {
      return at === 'arguments'
    },
  }
}
