/** How tokens are drawn: as flags say, and where it was asked for as the package recommends. */
import { type ChunkInput, generate, MAX_PENALTY_LAST, MAX_TOP_LOGPROBS } from '../../topics/chunks.ts'
import { generateEvent as sent } from '../client/chunks.ts'
import type { ModelPackage } from '../models/open.ts'
import { recommendedSampling } from '../models/sampling.ts'
import { list, on, real, usage, type Values, whole } from './flags.ts'

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

/** The event; what the schema does not take is a usage error. */
export const generateEvent = (
  requestId: string,
  maxTokens: number,
  flags: Drawing & { readonly run?: number; readonly 'top-logprobs'?: number },
): ChunkInput => {
  const { temperature, seed, run } = flags
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
    ...(run !== undefined && { run }),
  })
  if (parsed.success) return sent(parsed.data)
  const issue = parsed.error.issues[0]!
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
