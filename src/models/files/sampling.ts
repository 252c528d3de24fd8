/** How a package recommends that its tokens are drawn; used only where it is asked for. */
import { generate } from '../../../topics/chunks.ts'
import { ContinuoError } from '../../errors.ts'
import { schemaFault } from '../../issues.ts'
import type { SamplingDefaults } from './generation.ts'

export interface Recommended {
  readonly temperature: number
  readonly topK?: number
  readonly topP?: number
  readonly minP?: number
  readonly repetitionPenalty?: number
}

const NAMES = {
  temperature: 'temperature',
  topK: 'top_k',
  topP: 'top_p',
  minP: 'min_p',
  repetitionPenalty: 'repetition_penalty',
} as const

/**
 * What generation_config.json recommends, with the defaults of that format: without do_sample the likeliest token,
 * which penalties change too. Throws INVALID where it says nothing, and for numbers that a request cannot have.
 */
export const recommendedSampling = (dir: string, sampling: SamplingDefaults | null): Recommended => {
  const refuse = (why: string): never => {
    throw new ContinuoError('INVALID', `${dir} ${why} Say --temperature, --top-k and --top-p instead.`)
  }
  if (sampling === null) return refuse('has no generation_config.json that recommends how to draw tokens.')
  const { temperature = 1, topK = 50, topP = 1, minP, repetitionPenalty } = sampling
  const penalty = repetitionPenalty === undefined ? {} : { repetitionPenalty }
  const all: Recommended =
    sampling.doSample === true
      ? { temperature, topK, topP, ...(minP !== undefined && { minP }), ...penalty }
      : { temperature: 0, ...penalty }
  for (const name of Object.keys(NAMES) as (keyof typeof NAMES)[]) {
    const { error } = generate.shape[name].safeParse(all[name])
    if (error !== undefined)
      refuse(
        `recommends ${NAMES[name]} ${all[name]} in generation_config.json, which cannot be had: ${schemaFault(error).message}.`,
      )
  }
  return all
}
