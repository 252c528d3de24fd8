/**
 * The pre-tokenizer of a tokenizer.json as stages (pretokens.ts). Where @huggingface/tokenizers and the reference (the
 * Rust library) differ, this is the reference: Whitespace knows Unicode letters, Digits Unicode numbers, Punctuation
 * its behaviour, and Metaspace splits before each word unless `split` is false.
 */
import { z } from 'zod'
import { schemaFault } from '../../issues.ts'
import { inAlphabet } from './alphabet.ts'
import { MOST_GROWTH, MOST_INSTRUCTIONS, MOST_STAGES } from './limits.ts'
import type { NormalizerPlan } from './normalize.ts'
import { type Stage, splitWhole } from './pretokens.ts'
import { compilePattern, UnsupportedPattern } from './regex.ts'
import { Unstreamable } from './unstreamable.ts'

export interface Pipeline {
  /** Put before the first text of a part, unless it begins with one of `unless`; '' for none. */
  readonly prefix: string
  readonly unless: readonly string[]
  /** Whether the prefix is put before the first part of a text only. */
  readonly prefixFirstOnly: boolean
  /** Replaces characters by others of as many UTF-16 units. */
  readonly translate: (text: string) => string
  readonly stages: readonly Stage[]
  /** Turns a whole piece into pre-tokens. */
  readonly finish: (piece: string) => readonly string[]
}

const P = '\\p{P}\\u0021-\\u002F\\u003A-\\u0040\\u005B-\\u0060\\u007B-\\u007E'
const WORD = '\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\p{Join_Control}'
/** GPT-2's. */
const BYTE_LEVEL = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"

const byteLevel = z.looseObject({ add_prefix_space: z.boolean().default(true), use_regex: z.boolean().default(true) })
const metaspace = z.looseObject({
  replacement: z.string().refine((text) => text.length === 1, 'expected one character'),
  prepend_scheme: z.enum(['always', 'first', 'never']).optional(),
  add_prefix_space: z.boolean().optional(),
  split: z.boolean().optional(),
})
const splitter = z.looseObject({
  pattern: z.union([z.strictObject({ Regex: z.string() }), z.strictObject({ String: z.string().min(1) })]),
  behavior: z.string(),
  invert: z.boolean().default(false),
})
const digits = z.looseObject({ individual_digits: z.boolean().default(false) })
const punctuation = z.looseObject({ behavior: z.string().default('Isolated') })
const typed = z.looseObject({ type: z.string() })

const read = <T>(schema: z.ZodType<T>, json: unknown, where: string): T => {
  const parsed = schema.safeParse(json)
  if (parsed.success) return parsed.data
  const { path, message } = schemaFault(parsed.error)
  throw new Unstreamable(`a malformed ${[where, ...path].join('.')}: ${message}`)
}

const stageOf = (source: string, keepRest: boolean): Stage => {
  try {
    return { pattern: compilePattern(source), keepRest }
  } catch (error) {
    if (error instanceof UnsupportedPattern) throw new Unstreamable(error.message)
    throw error
  }
}

const quoted = (text: string): string => [...text].map((char) => `\\x{${char.codePointAt(0)!.toString(16)}}`).join('')

const splitStage = (json: unknown): Stage => {
  const { pattern, behavior, invert } = read(splitter, json, 'pre_tokenizer')
  const source = 'Regex' in pattern ? pattern.Regex : quoted(pattern.String)
  if (behavior === 'Isolated' && !invert) return stageOf(source, true)
  if (behavior === 'Removed' && invert) return stageOf(source, false)
  throw new Unstreamable(
    `a Split with behavior ${behavior}${invert ? ' and invert' : ''}; Isolated, or Removed with invert, can be streamed`,
  )
}

const flattened = (json: unknown): { readonly type: string }[] => {
  const item = read(typed, json, 'pre_tokenizer')
  if (item.type !== 'Sequence') return [item]
  return read(z.looseObject({ pretokenizers: z.array(z.unknown()) }), json, 'pre_tokenizer').pretokenizers.flatMap(
    flattened,
  )
}

interface Plan {
  /** Of all patterns. */
  instructions: number
  /** How many times as long the last steps make a piece at most. */
  growth: number
  prefix: string
  unless: string[]
  prefixFirstOnly: boolean
  translate: (text: string) => string
  stages: Stage[]
  finish: ((piece: string) => readonly string[])[]
}

const count = (plan: Plan, stage: Stage): void => {
  plan.instructions += stage.pattern.size
  if (plan.instructions > MOST_INSTRUCTIONS)
    throw new Unstreamable(
      `patterns of ${plan.instructions} parts in all, with their repetitions written out; at most ${MOST_INSTRUCTIONS} are taken`,
    )
}

/**
 * Adds a stage to those that split text as it streams in. Behind a step that changes the text of pieces, it splits
 * whole pieces instead.
 */
const addStage = (plan: Plan, stage: Stage): void => {
  count(plan, stage)
  if (plan.finish.length === 0) plan.stages.push(stage)
  else plan.finish.push((piece) => splitWhole([stage], piece))
}

/** A step makes a piece up to `times` as long. */
const grow = (plan: Plan, times: number): void => {
  plan.growth *= times
  if (plan.growth > MOST_GROWTH.pretokenizer)
    throw new Unstreamable(
      `pre_tokenizers that make a text ${plan.growth} times as long; at most ${MOST_GROWTH.pretokenizer} times is taken`,
    )
}

const addByteLevel = (plan: Plan, json: unknown): void => {
  const options = read(byteLevel, json, 'pre_tokenizer')
  if (options.add_prefix_space) {
    if (plan.stages.length === 0 && plan.finish.length === 0) {
      plan.prefix = ' '
      plan.unless = [' ']
    } else {
      grow(plan, 2)
      plan.finish.push((piece) => [piece.startsWith(' ') ? piece : ` ${piece}`])
    }
  }
  if (options.use_regex) addStage(plan, stageOf(BYTE_LEVEL, false))
  // A UTF-16 unit is up to three bytes of UTF-8.
  grow(plan, 3)
  plan.finish.push((piece) => [inAlphabet(piece)])
}

/** Splits before each word: a word is a run of marks ("▁") and the characters up to the next mark. */
const wordStage = (mark: string): Stage => {
  const char = quoted(mark)
  return stageOf(`${char}*[^${char}]+|${char}+`, true)
}

const addMetaspace = (plan: Plan, json: unknown): void => {
  const { replacement, split, ...options } = read(metaspace, json, 'pre_tokenizer')
  const scheme = options.prepend_scheme ?? (options.add_prefix_space === false ? 'never' : 'always')
  const translate = (text: string): string => text.replaceAll(' ', replacement)
  const char = quoted(replacement)
  const stage = split === false ? wordStage(replacement) : stageOf(`${char}[^${char}]*|[^${char}]+`, true)
  if (plan.stages.length === 0 && plan.finish.length === 0) {
    if (scheme !== 'never') {
      plan.prefix = replacement
      plan.unless = [' ', replacement]
      plan.prefixFirstOnly = scheme === 'first'
    }
    plan.translate = translate
    addStage(plan, stage)
    return
  }
  if (scheme === 'first') throw new Unstreamable('a Metaspace with prepend_scheme first behind another pre-tokenizer')
  grow(plan, 2)
  count(plan, stage)
  plan.finish.push((piece) => {
    const marked = translate(piece)
    return splitWhole([stage], scheme === 'never' || marked.startsWith(replacement) ? marked : replacement + marked)
  })
}

/** The pre-tokenizers that only split. */
const splitting = (json: { readonly type: string }): Stage => {
  switch (json.type) {
    case 'Split':
      return splitStage(json)
    case 'Whitespace':
      return stageOf(`[${WORD}]+|[^${WORD}\\s]+`, false)
    case 'WhitespaceSplit':
      return stageOf('\\S+', false)
    case 'Digits': {
      const { individual_digits } = read(digits, json, 'pre_tokenizer')
      return stageOf(individual_digits ? '\\p{N}' : '\\p{N}+', true)
    }
    case 'Punctuation': {
      const { behavior } = read(punctuation, json, 'pre_tokenizer')
      if (behavior === 'Isolated') return stageOf(`[${P}]`, true)
      if (behavior === 'Contiguous') return stageOf(`[${P}]+`, true)
      throw new Unstreamable(`a Punctuation with behavior ${behavior}; Isolated and Contiguous can be streamed`)
    }
  }
  throw new Unstreamable(`a pre_tokenizer of type ${json.type}, which is not known here`)
}

const add = (plan: Plan, json: { readonly type: string }): void => {
  if (json.type === 'ByteLevel') addByteLevel(plan, json)
  else if (json.type === 'Metaspace') addMetaspace(plan, json)
  else addStage(plan, splitting(json))
}

/** A Split of a text with a space in it, which does nothing where the normalizer leaves no space. */
const splitsAtSpaces = (json: { readonly type: string }): boolean => {
  if (json.type !== 'Split') return false
  const { pattern, behavior, invert } = read(splitter, json, 'pre_tokenizer')
  return 'String' in pattern && pattern.String.includes(' ') && behavior !== 'Removed' && !invert
}

const wholeWords = (json: { readonly type: string }): boolean => 'split' in json && json.split === false

/**
 * Throws Unstreamable. `crossing(mark)` names a token of the vocabulary that has `mark` behind something else: without
 * pre-tokens, words are units only where there is none.
 */
export const pipelineOf = (
  json: unknown,
  normalizer: Pick<NormalizerPlan, 'spaceMark' | 'leavesNoSpace'> | null,
  crossing: (mark: string) => string | null,
): Pipeline => {
  const plan: Plan = {
    instructions: 0,
    growth: 1,
    prefix: '',
    unless: [],
    prefixFirstOnly: false,
    translate: (text) => text,
    stages: [],
    finish: [],
  }
  const separable = (mark: string, what: string): void => {
    const token = crossing(mark)
    if (token === null) return
    throw new Unstreamable(
      `${what}, and ${JSON.stringify(token)} keeps words from being encoded one by one: the ids of a word would depend on text of any length`,
    )
  }
  const spaceMark = normalizer?.spaceMark ?? null
  const listed = json === null || json === undefined ? [] : flattened(json)
  const items = normalizer?.leavesNoSpace ? listed.filter((item) => !splitsAtSpaces(item)) : listed
  if (items.length > MOST_STAGES)
    throw new Unstreamable(`${items.length} pre_tokenizers one after the other; at most ${MOST_STAGES} are taken`)
  for (const item of items) {
    if (item.type === 'Metaspace' && wholeWords(item))
      separable(read(metaspace, item, 'pre_tokenizer').replacement, 'a Metaspace that does not split')
    add(plan, item)
  }
  if (items.length === 0 && spaceMark !== null) {
    separable(spaceMark, 'no pre_tokenizer')
    plan.stages.push(wordStage(spaceMark))
  }
  if (plan.stages.length === 0)
    throw new Unstreamable('no pre_tokenizer that splits text, and no normalizer that marks its words')
  const { finish, ...rest } = plan
  return {
    ...rest,
    finish: (piece) => finish.reduce<readonly string[]>((pieces, step) => pieces.flatMap(step), [piece]),
  }
}
