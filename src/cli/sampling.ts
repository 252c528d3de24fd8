/** How tokens are drawn: as flags say, and where it was asked for as the package recommends. */
import { readFileSync, statSync } from 'node:fs'
import {
  type ChunkInput,
  type Grammar,
  type GrammarInput,
  generate,
  grammar,
  MAX_PENALTY_LAST,
  MAX_TOP_LOGPROBS,
} from '../../topics/chunks.ts'
import { generateEvent as sent } from '../client/chunks.ts'
import { messageOf } from '../errors.ts'
import { faultOfGrammar } from '../grammar/index.ts'
import { schemaFault } from '../issues.ts'
import { parseJson } from '../json.ts'
import { recommendedSampling } from '../models/files/sampling.ts'
import type { ModelPackage } from '../models/open.ts'
import { isUsage, list, on, optional, real, usage, type Values, whole } from './flags.ts'

/** Schemas and grammars take 64 KiB without white space. */
const MOST_GRAMMAR_FILE = 1 << 20

/** What binds what is generated; one of them. */
const grammarFlags = {
  'json-schema': optional('FILE', 'generate JSON that this JSON Schema describes'),
  grammar: optional('FILE', 'generate what this grammar in GBNF reads'),
  regex: optional('PATTERN', 'generate what this regular expression matches as a whole'),
}

/** How generated tokens are drawn. */
export const samplingFlags = {
  temperature: real('T', '0 always takes the likeliest token', 1, { min: 0, max: 100 }),
  'top-p': real('P', 'draw from the likeliest tokens that together reach P', 1, { min: 0, max: 1 }),
  'top-k': whole('K', 'draw from the K likeliest tokens; 0 from all', 0, { min: 0, max: 0x7fffffff }),
  'min-p': real('P', 'draw from tokens with at least P of the probability of the likeliest one', 0, { min: 0, max: 1 }),
  'repetition-penalty': real('R', 'divide positive logits of tokens that were there by R, multiply others', 1, {
    min: 0.01,
    max: 100,
  }),
  'presence-penalty': real('A', 'subtract A from the logits of tokens that were there', 0, { min: -2, max: 2 }),
  'frequency-penalty': real('A', 'subtract A as often as a token was there', 0, { min: -2, max: 2 }),
  'penalty-last': whole('N', 'tokens before the request that penalties count, besides its own', 64, {
    min: 0,
    max: MAX_PENALTY_LAST,
  }),
  'logit-bias': list('ID=B', 'add B, from -100 to 100, to the logit of the token with this id'),
  seed: whole('N', 'of the random numbers', 0, { min: 0 }),
  stop: list('TEXT', 'end after this text was generated'),
  'stop-token': list('ID', 'end where the token with this id is drawn'),
  'ignore-end': on('do not end where the model ends a text: its ends are tokens like others'),
  ...grammarFlags,
}

export const topLogprobsFlag = whole('N', 'list the N likeliest tokens beside each token', 0, {
  min: 0,
  max: MAX_TOP_LOGPROBS,
})

type Drawing = Values<typeof samplingFlags>

const biasesOf = (given: readonly string[]): Record<string, number> =>
  Object.fromEntries(
    given.map((text) => {
      const found = /^(\d+)=([+-]?\d+\.?\d*)$/.exec(text)
      if (found === null) throw usage(`--logit-bias takes a token id and a number, 42=-1.5; "${text}" is none.`)
      return [String(Number(found[1])), Number(found[2])]
    }),
  )

const idsOf = (given: readonly string[]): number[] =>
  given.map((text) => {
    if (!/^\d{1,10}$/.test(text)) throw usage(`--stop-token takes a token id; "${text}" is none.`)
    return Number(text)
  })

/** Texts by path: commands make the event twice, before the model is opened and after, and a pipe can be read once. */
const texts = new Map<string, string>()

/** The text of the file that --json-schema or --grammar names. */
const read = (path: string, flag: string): string => {
  const known = texts.get(path)
  if (known !== undefined) return known
  const check = (size: number): void => {
    if (size > MOST_GRAMMAR_FILE)
      throw usage(`--${flag} takes a file of at most ${MOST_GRAMMAR_FILE} bytes; ${path} has ${size}.`)
  }
  try {
    check(statSync(path).size)
    const bytes = readFileSync(path)
    // The size of a pipe is not known before.
    check(bytes.length)
    const text = bytes.toString('utf8')
    texts.set(path, text)
    return text
  } catch (error) {
    if (isUsage(error)) throw error
    throw usage(`--${flag}: ${path} cannot be read: ${messageOf(error)}.`)
  }
}

/** Throws a usage error for what no answer can be bound by. */
const grammarIn = (flags: Values<typeof grammarFlags>): Grammar | undefined => {
  const given = (Object.keys(grammarFlags) as (keyof typeof grammarFlags)[]).filter((flag) => flags[flag] !== undefined)
  const [flag] = given
  if (flag === undefined) return undefined
  if (given.length > 1) throw usage(`One grammar binds what is generated: --${given.join(' or --')}.`)
  const value = flags[flag]!
  const grammarOf = (): GrammarInput => {
    if (flag === 'regex') return { type: 'regex', pattern: value }
    const text = read(value, flag)
    if (flag === 'grammar') return { type: 'gbnf', text }
    try {
      return { type: 'jsonSchema', schema: parseJson(text, value) }
    } catch (error) {
      throw usage(`--json-schema: ${value} is not JSON that can be read: ${messageOf(error)}`)
    }
  }
  const parsed = grammar.safeParse(grammarOf())
  if (!parsed.success) throw usage(`--${flag}: ${schemaFault(parsed.error).message}.`)
  const fault = faultOfGrammar(parsed.data)
  if (fault !== null) throw usage(`--${flag}: ${fault}`)
  return parsed.data
}

/** The event; what the schema does not take is a usage error. */
export const generateEvent = (
  requestId: string,
  maxTokens: number,
  flags: Drawing & { readonly run?: number; readonly 'top-logprobs'?: number },
): ChunkInput => {
  const { temperature, seed, run } = flags
  const bound = grammarIn(flags)
  const parsed = generate.safeParse({
    ...{ type: 'generate', requestId, maxTokens, temperature, seed },
    topP: flags['top-p'],
    topK: flags['top-k'],
    minP: flags['min-p'],
    repetitionPenalty: flags['repetition-penalty'],
    presencePenalty: flags['presence-penalty'],
    frequencyPenalty: flags['frequency-penalty'],
    penaltyLast: flags['penalty-last'],
    logitBias: biasesOf(flags['logit-bias']),
    topLogprobs: flags['top-logprobs'],
    stop: [...flags.stop],
    stopTokens: idsOf(flags['stop-token']),
    ignoreEnd: flags['ignore-end'],
    ...(bound !== undefined && { grammar: bound }),
    ...(run !== undefined && { run }),
  })
  if (parsed.success) return sent(parsed.data)
  const issue = schemaFault(parsed.error)
  throw usage(`This request to generate cannot be sent: ${issue.path.join('.')}: ${issue.message}.`)
}

export const recommendedFlag = on(
  'draw as generation_config.json of the package recommends, where no flag says otherwise',
)

/** The flags, with what the package recommends in place of their defaults; a flag that the user set counts. */
export const drawn = <F extends Drawing & { readonly recommended: boolean }>(
  flags: F,
  set: ReadonlySet<string>,
  { model, sampling }: Pick<ModelPackage, 'model' | 'sampling'>,
): F => {
  if (!flags.recommended) return flags
  const { temperature, topK, topP, minP, repetitionPenalty } = recommendedSampling(model.dir, sampling)
  const all = {
    temperature,
    'top-k': topK,
    'top-p': topP,
    'min-p': minP,
    'repetition-penalty': repetitionPenalty,
  }
  const used = Object.entries(all).filter(([name, value]) => value !== undefined && !set.has(name))
  return { ...flags, ...Object.fromEntries(used) }
}
