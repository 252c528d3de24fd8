/**
 * Chat templates: Jinja2 with trim_blocks and lstrip_blocks, as `apply_chat_template` of the transformers library renders them.
 * A template is a program from outside. It gets no clock, and what it does is bounded (bounded.ts).
 */
import { Environment, Template } from '@huggingface/jinja'
import { ContinuoError, messageOf } from '../../errors.ts'
import { Bounded } from './bounded.ts'
import { strftime } from './date.ts'
import { type Message, MOST_TEMPLATE } from './types.ts'

/** White space in a row in a source: the library looks for its ends from each of them. */
const MOST_BLANKS = 4096
/** Numbers that range() gives. */
const MOST_RANGE = 65_536

export interface Rendering {
  readonly messages: readonly Message[]
  readonly addGenerationPrompt: boolean
  readonly bosToken?: string | undefined
  readonly eosToken?: string | undefined
  readonly thinking?: boolean | undefined
  /** YYYY-MM-DD. */
  readonly date?: string | undefined
}

export type ChatTemplate = (rendering: Rendering) => string

const range = (start: number, stop?: number, step = 1): number[] => {
  const [from, to] = stop === undefined ? [0, start] : [start, stop]
  const length = Math.max(0, Math.ceil((to - from) / step))
  if (!(length <= MOST_RANGE))
    throw new Error(`range() is asked for ${length} numbers; at most ${MOST_RANGE} are given`)
  return Array.from({ length }, (_, at) => from + at * step)
}

/** What Llama's templates take where nothing says which day it is. */
const NO_DATE = '26 Jul 2024'

/**
 * `where` names the file, for messages. Throws INVALID for what is no template; so does the rendering where the template refuses a
 * conversation, asks for a day that was not given, or goes beyond a bound.
 */
export const chatTemplate = (source: string, where: string): ChatTemplate => {
  const invalid = (what: string, cause?: unknown): ContinuoError =>
    new ContinuoError('INVALID', `The chat template of ${where} ${what}`, { cause })
  if (source.length > MOST_TEMPLATE)
    throw invalid(`has ${source.length} characters, expected at most ${MOST_TEMPLATE}.`)
  if (new RegExp(`\\s{${MOST_BLANKS + 1}}`).test(source))
    throw invalid(`has more than ${MOST_BLANKS} white-space characters in a row. Leave some out.`)
  let program: unknown
  try {
    program = new Template(source).parsed
  } catch (cause) {
    throw invalid(
      `is not Jinja that @huggingface/jinja reads: ${messageOf(cause)}. Correct it, or take another.`,
      cause,
    )
  }
  return ({ messages, addGenerationPrompt, bosToken, eosToken, thinking, date }) => {
    const globals: Readonly<Record<string, unknown>> = {
      ...{ true: true, false: false, none: null, True: true, False: false, None: null },
      range,
      raise_exception: (text: unknown) => {
        throw invalid(`refuses this conversation: ${typeof text === 'string' ? text : 'it gives no text as a reason'}`)
      },
      strftime_now: (format: unknown) => {
        if (date !== undefined) return strftime(date, typeof format === 'string' ? format : '')
        throw invalid(
          'asks for the present date (strftime_now), and the same conversation must give the same text on any day. Name a day: --date YYYY-MM-DD.',
        )
      },
      messages: messages.map((message) => ({ ...message })),
      add_generation_prompt: addGenerationPrompt,
      // A template that prefers it does not ask for the clock then.
      ...(/\bdate_string\b/.test(source) && {
        date_string: date === undefined ? NO_DATE : strftime(date, '%d %b %Y'),
      }),
      ...(bosToken !== undefined && { bos_token: bosToken }),
      ...(eosToken !== undefined && { eos_token: eosToken }),
      ...(thinking !== undefined && { enable_thinking: thinking }),
    }
    try {
      const environment = new Environment()
      for (const [name, value] of Object.entries(globals)) environment.set(name, value)
      return String(new Bounded(environment, source).run(program).value)
    } catch (cause) {
      if (cause instanceof ContinuoError) throw cause
      throw invalid(`cannot be rendered: ${messageOf(cause)}. Correct it, or take another.`, cause)
    }
  }
}
