/** Tools as Anthropic's clients declare them, and the input of a call as they read it. */
import { z } from 'zod'
import type { Tool } from '../../models/chat/types.ts'
import { type AskedTools, type Choice, listOfTools, shallow, toolName } from '../openai/tools.ts'
import { byMember, cache_control, shown } from './forms.ts'

const tool = z
  .strictObject({
    type: z
      .literal('custom', {
        error: ({ input }) =>
          `expected "custom" or nothing, received ${shown(input)}: only tools of the client are called, by a "name" and an "input_schema"`,
      })
      .nullish(),
    name: toolName,
    description: z.string().nullish(),
    input_schema: shallow.refine(
      ({ type }) => type === 'object',
      'expected the schema of an object, {"type":"object",…}: an input is one',
    ),
    cache_control,
    /** Inputs are always held to the schema, and always come in pieces. */
    strict: z.boolean().nullish(),
    eager_input_streaming: z.boolean().nullish(),
    /** All tools are told at once, and the model alone calls them. */
    defer_loading: z.literal(false, 'expected false: all tools are told at once').nullish(),
    allowed_callers: z.array(z.literal('direct', 'expected "direct": the model alone calls')).nullish(),
    input_examples: z.tuple([], 'expected no examples: write them into the "description"').nullish(),
  })
  .transform(
    ({ name, description, input_schema: parameters }): Tool => ({
      type: 'function',
      function: { name, ...(description != null && { description }), parameters },
    }),
  )

type Chosen = Pick<AskedTools, 'tool_choice' | 'parallel_tool_calls'>
const disable_parallel_tool_use = z.boolean().nullish()
const chosen = (choice: Choice, disabled: boolean | null | undefined): Chosen => ({
  tool_choice: choice,
  parallel_tool_calls: disabled !== true,
})
const choiceOf = <T extends string>(type: T, mode: Choice['mode']) =>
  z
    .strictObject({ type: z.literal(type), disable_parallel_tool_use })
    .transform(({ disable_parallel_tool_use: disabled }) => chosen({ mode, names: null }, disabled))

/** As members of a request. */
export const messageTools = {
  tools: listOfTools(tool),
  tool_choice: byMember(
    'type',
    {
      auto: choiceOf('auto', 'auto'),
      any: choiceOf('any', 'required'),
      none: choiceOf('none', 'none'),
      tool: z
        .strictObject({ type: z.literal('tool'), name: toolName, disable_parallel_tool_use })
        .transform(({ name, disable_parallel_tool_use: disabled }) =>
          chosen({ mode: 'required', names: [name] }, disabled),
        ),
    },
    (fault) => fault,
  ).default(chosen({ mode: 'auto', names: null }, false)),
}

/** The tools of a request as those of chats are asked for. */
export const askedTools = ({
  tools,
  tool_choice,
}: {
  readonly tools: readonly Tool[]
  readonly tool_choice: Chosen
}): AskedTools => ({ tools, ...tool_choice })

const WORDS: ReadonlySet<string> = new Set(['true', 'false', 'null'])

/** Of the JSON of an object that was cut off, the JSON of what of it is whole. */
const wholeOf = (json: string): string => {
  /** What closes the brackets that are open, the innermost first. */
  let closing = ''
  let whole = { end: 0, closing: '' }
  /** Where a number or a word began; -1: in none. */
  let scalar = -1
  let quoted = false
  let escaped = false
  /** What stands here is a value, not the name of a member. */
  let value = true
  const ends = (end: number): void => {
    whole = { end, closing }
  }
  for (let at = 0; at < json.length; at += 1) {
    const char = json[at]!
    if (quoted) {
      if (escaped) escaped = false
      else if (char === '\\') escaped = true
      else if (char === '"') {
        quoted = false
        if (value) ends(at + 1)
      }
      continue
    }
    if (scalar >= 0 && /[\s,\]}]/.test(char)) {
      ends(at)
      scalar = -1
    }
    if (char === '"') quoted = true
    else if (char === '{' || char === '[') {
      closing = `${char === '{' ? '}' : ']'}${closing}`
      value = char === '['
      ends(at + 1)
    } else if (char === '}' || char === ']') {
      closing = closing.slice(1)
      ends(at + 1)
    } else if (char === ',') value = closing.startsWith(']')
    else if (char === ':') value = true
    else if (scalar < 0 && /\S/.test(char)) scalar = at
  }
  // Of a number that the end cuts, more digits may be missing.
  if (scalar >= 0 && WORDS.has(json.slice(scalar))) ends(json.length)
  return `${json.slice(0, whole.end)}${whole.closing}`
}

const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value)

/** The input of a call; of one that was cut off what is whole of it, as the client reads it from a stream. */
export const inputOf = (json: string): Readonly<Record<string, unknown>> => {
  for (const text of [json, wholeOf(json)])
    try {
      const value: unknown = JSON.parse(text)
      if (isObject(value)) return value
    } catch {
      // It was cut off.
    }
  return {}
}
