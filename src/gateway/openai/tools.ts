/**
 * Tools of chats and responses: what clients declare, which of them an answer may call, and the grammar that binds it
 * then.
 */
import { z } from 'zod'
import type { Grammar } from '../../../topics/chunks.ts'
import { faultOfGrammar } from '../../grammar/index.ts'
import type { CallForm, CallGrammar } from '../../models/chat/calls.ts'
import { parseExact } from '../../models/chat/exact.ts'
import type { Tools } from '../../models/chat/form.ts'
import { type Tool, textsOf } from '../../models/chat/types.ts'
import { Refusal } from '../refusal.ts'

/** JSON in JSON that clients send as text; a schema takes as much. */
const MOST_LEVELS = 64
const MOST_TOOLS = 128

const isShallow = (value: unknown): boolean => {
  let level: readonly unknown[] = [value]
  for (let depth = 0; level.length > 0; depth += 1) {
    if (depth > MOST_LEVELS) return false
    level = level.flatMap((each) => (typeof each === 'object' && each !== null ? Object.values(each) : []))
  }
  return true
}
const DEEP = `expected at most ${MOST_LEVELS} levels of JSON`

export const toolName = z.string().regex(/^[a-zA-Z0-9_-]{1,64}$/, 'expected 1 to 64 letters, digits, _ or -')

/** The arguments of a call, which the protocol has as text; a text they stay where the answer was cut off. */
export const argumentsText = z.string().transform((text, context): unknown => {
  const json = text === '' ? '{}' : text
  let plain: unknown
  try {
    plain = JSON.parse(json)
  } catch {
    return text
  }
  if (isShallow(plain)) return parseExact(json)
  context.addIssue({ code: 'custom', message: DEEP })
  return z.NEVER
})

/** An object of JSON that is not nested too deeply: a schema, or the arguments of a call. */
export const shallow = z.record(z.string(), z.unknown()).refine(isShallow, DEEP)

const declared = {
  name: toolName,
  description: z.string().nullish(),
  parameters: shallow.nullish(),
  /** Arguments are always held to the schema. */
  strict: z.boolean().nullish(),
}
type Declared = z.output<z.ZodObject<typeof declared>>

/** Without parameters a tool takes none. */
const NO_PARAMETERS = { type: 'object', properties: {} }

const toolOf = ({ name, description, parameters }: Declared): Tool => ({
  type: 'function',
  function: { name, ...(description != null && { description }), parameters: parameters ?? NO_PARAMETERS },
})

/** Whether all tools have different names. The schema asks this of tools with faults of their own, too. */
const unlike = (tools: readonly unknown[]): boolean => {
  const names = tools.flatMap((tool) => (tool as Partial<Tool> | null)?.function?.name ?? [])
  return new Set(names).size === names.length
}
/** Whether no text of a tool has half a surrogate pair. The schema asks this of tools with faults of their own, too. */
const isWhole = (tools: readonly unknown[]): boolean =>
  tools.every((tool) => !isShallow(tool) || textsOf(tool as Tool).every((text) => text.isWellFormed()))
/** Tools with different names. */
export const listOfTools = <T extends z.ZodType<Tool>>(one: T) =>
  z
    .array(one)
    .max(MOST_TOOLS)
    .refine(unlike, 'expected tools with different names')
    .refine(isWhole, 'expected text in Unicode, and a tool has half a surrogate pair')
    .default([])

const mode = z.enum(['none', 'auto', 'required'])
const allowed = <T extends z.ZodType<{ readonly name: string }>>(reference: T) => ({
  mode: z.enum(['auto', 'required']),
  tools: z.array(reference).min(1).max(MOST_TOOLS),
})

/** Which tools an answer may call, and whether it must. */
export interface Choice {
  readonly mode: z.output<typeof mode>
  /** null: all. */
  readonly names: readonly string[] | null
}
const AUTO: Choice = { mode: 'auto', names: null }
const byMode = mode.transform((chosen): Choice => ({ mode: chosen, names: null }))
const namesOf = (tools: readonly { readonly name: string }[]): readonly string[] => tools.map(({ name }) => name)

const inFunction = z.strictObject({ type: z.literal('function'), function: z.strictObject({ name: toolName }) })
const reference = inFunction.transform(({ function: { name } }) => ({ name }))
/** As members of a chat. */
export const chatTools = {
  tools: listOfTools(
    z.strictObject({
      type: z.literal('function'),
      function: z.strictObject(declared).transform((given) => toolOf(given).function),
    }),
  ),
  tool_choice: z
    .union([
      byMode,
      reference.transform(({ name }): Choice => ({ mode: 'required', names: [name] })),
      z
        .strictObject({ type: z.literal('allowed_tools'), allowed_tools: z.strictObject(allowed(reference)) })
        .transform(({ allowed_tools: { mode: chosen, tools } }): Choice => ({ mode: chosen, names: namesOf(tools) })),
    ])
    .default(AUTO),
  parallel_tool_calls: z.boolean().default(true),
}

const flat = z.strictObject({ type: z.literal('function'), name: toolName })
/** As members of a response. */
export const responseTools = {
  tools: listOfTools(z.strictObject({ type: z.literal('function'), ...declared }).transform(toolOf)),
  tool_choice: z
    .union([
      byMode,
      flat.transform(({ name }): Choice => ({ mode: 'required', names: [name] })),
      z
        .strictObject({ type: z.literal('allowed_tools'), ...allowed(flat) })
        .transform(({ mode: chosen, tools }): Choice => ({ mode: chosen, names: namesOf(tools) })),
    ])
    .default(AUTO),
  parallel_tool_calls: z.boolean().default(true),
}

export interface AskedTools {
  readonly tools: readonly Tool[]
  readonly tool_choice: Choice
  readonly parallel_tool_calls: boolean
  /** Calls of one answer at most; default: as many as the form has. */
  readonly max_tool_calls?: number | undefined
}

/**
 * What binds an answer that has tools; undefined: there are none. Throws a Refusal (400) for tools that are not there,
 * and for schemas that cannot be kept.
 */
export const callsOf = (
  { tools, tool_choice: choice, parallel_tool_calls: parallel, max_tool_calls: most = Infinity }: AskedTools,
  form: CallForm,
): CallGrammar | undefined => {
  const names = choice.names ?? namesOf(tools.map((tool) => tool.function))
  const missing = names.find((name) => !tools.some((tool) => tool.function.name === name))
  if (missing !== undefined)
    throw new Refusal(400, `"tool_choice" names "${missing}", which is not among the tools.`, { param: 'tool_choice' })
  if (tools.length === 0) {
    if (choice.mode === 'required')
      throw new Refusal(400, '"tool_choice" asks for a call, and there are no tools.', { param: 'tool_choice' })
    return undefined
  }
  const { open, close, between, before, middle, after } = form
  const grammar: CallGrammar = {
    ...{ type: 'calls', version: 1, open, close, between, before, middle, after },
    tools: tools
      .filter(({ function: { name } }) => names.includes(name))
      .map(({ function: { name, parameters } }) => ({ name, schema: parameters })),
    text: choice.mode !== 'required',
    most: choice.mode === 'none' ? 0 : Math.min(parallel ? form.most : 1, most),
  }
  const fault = faultOfGrammar(grammar)
  if (fault !== null) throw new Refusal(400, fault, { param: 'tools' })
  return grammar
}

/**
 * What binds an answer: its calls, or another form (`bound`); and what the form of a conversation is told of the tools.
 * Throws a Refusal (400) where both would bind it, and as `callsOf` does.
 */
export const boundTools = (asked: AskedTools, form: CallForm, bound: Grammar | undefined) => {
  const calls = callsOf(asked, form)
  const { mode: chosen } = asked.tool_choice
  if (calls !== undefined && bound !== undefined && chosen !== 'none')
    throw new Refusal(
      400,
      'Tools and another form cannot bind an answer both. Leave the tools out of this request, or say "tool_choice": "none".',
      { param: 'tools' },
    )
  const tools: Tools = { tools: asked.tools, mustCall: chosen === 'required' }
  return bound === undefined
    ? { grammar: calls, calls: calls === undefined ? null : form, tools }
    : { grammar: bound, calls: null, tools }
}
