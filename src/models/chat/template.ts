/**
 * Chat templates: Jinja2 as `apply_chat_template` of the transformers library sets it up (jinja/).
 * A template is a program from outside. It gets no clock, and what it does is bounded (jinja/price.ts).
 */
import { ContinuoError, messageOf } from '../../errors.ts'
import { strftime } from './date.ts'
import { bind } from './jinja/calls.ts'
import { compile, type Template } from './jinja/render.ts'
import { Callable, fromJson, type Value } from './jinja/values.ts'
import { type Message, MOST_TEMPLATE, type Tool } from './types.ts'

export interface Rendering {
  readonly messages: readonly Message[]
  /** Default: none. */
  readonly tools?: readonly Tool[] | undefined
  readonly addGenerationPrompt: boolean
  readonly bosToken?: string | undefined
  readonly eosToken?: string | undefined
  readonly thinking?: boolean | undefined
  /** YYYY-MM-DD. */
  readonly date?: string | undefined
}

export type ChatTemplate = (rendering: Rendering) => string

/** What Llama's templates take where nothing says which day it is. */
const NO_DATE = '26 Jul 2024'

/** A message that a template shows somewhere, if it shows messages. */
const PROBE = 'What does it show?'
/** Steps to show it: a template from outside spends no more when it is opened. */
const PROBE_STEPS = 50_000

/**
 * Whether a template knows content only as a list of parts, `[{"type": "text", "text": …}]`: it shows a text that is
 * given so, and not one that is given as it is.
 */
const takesParts = (render: (rendering: Rendering, parts: boolean, most: number) => string): boolean => {
  const shows = (parts: boolean): boolean => {
    const messages = [{ role: 'user', content: PROBE }] as const
    try {
      const rendering = { messages, addGenerationPrompt: true, bosToken: '', eosToken: '', date: '2024-07-26' }
      return render(rendering, parts, PROBE_STEPS).includes(PROBE)
    } catch {
      return false
    }
  }
  return !shows(false) && shows(true)
}

/**
 * `where` names the file, for messages. Throws INVALID for what is no template; so does the rendering where the
 * template refuses a conversation, asks for a day that was not given, or goes beyond a bound.
 */
export const chatTemplate = (source: string, where: string): ChatTemplate => {
  const invalid = (what: string, cause?: unknown): ContinuoError =>
    new ContinuoError('INVALID', `The chat template of ${where} ${what}`, { cause })
  if (source.length > MOST_TEMPLATE)
    throw invalid(`has ${source.length} characters, expected at most ${MOST_TEMPLATE}.`)
  let template: Template
  try {
    template = compile(source)
  } catch (cause) {
    throw invalid(`is not Jinja that can be read: ${messageOf(cause)}. Correct it, or take another.`, cause)
  }
  const render = (
    { messages, tools, addGenerationPrompt, bosToken, eosToken, thinking, date }: Rendering,
    parts: boolean,
    most?: number,
  ): string => {
    const functions: Readonly<Record<string, readonly [string, (value: Value) => Value]>> = {
      raise_exception: [
        'message',
        (text) => {
          throw invalid(
            `refuses this conversation: ${typeof text === 'string' ? text : 'it gives no text as a reason'}`,
          )
        },
      ],
      strftime_now: [
        'format',
        (format) => {
          if (date !== undefined) return strftime(date, typeof format === 'string' ? format : '')
          throw invalid(
            'asks for the present date (strftime_now), and the same conversation must give the same text on any day. Name a day: --date YYYY-MM-DD.',
          )
        },
      ],
    }
    const given: Readonly<Record<string, unknown>> = {
      messages: messages.map(({ content, ...message }) => ({
        ...message,
        content: parts ? [{ type: 'text', text: content }] : content,
      })),
      // Given as None where there are none, as transformers does.
      ...{ tools: tools === undefined || tools.length === 0 ? null : tools, documents: null },
      add_generation_prompt: addGenerationPrompt,
      // A template that prefers it does not ask for the clock then.
      ...(/\bdate_string\b/.test(source) && {
        date_string: date === undefined ? NO_DATE : strftime(date, '%d %b %Y'),
      }),
      ...(bosToken !== undefined && { bos_token: bosToken }),
      ...(eosToken !== undefined && { eos_token: eosToken }),
      ...(thinking !== undefined && { enable_thinking: thinking }),
    }
    const context = new Map(Object.entries(given).map(([name, value]) => [name, fromJson(value)]))
    for (const [name, [signature, call]] of Object.entries(functions))
      context.set(name, new Callable(name, (args) => call(bind(name, signature, args)[0]!)))
    try {
      return template(context, most)
    } catch (cause) {
      if (cause instanceof ContinuoError) throw cause
      throw invalid(`cannot be rendered: ${messageOf(cause)}. Correct it, or take another.`, cause)
    }
  }
  const parts = takesParts(render)
  return (rendering) => render(rendering, parts)
}
