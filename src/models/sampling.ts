/** How a package recommends that its tokens are drawn; used only where it is asked for. */
import { ContinuoError } from '../errors.ts'
import type { SamplingDefaults } from './generation.ts'

export interface Recommended {
  readonly temperature: number
  readonly topK?: number
  readonly topP?: number
}

/** Settings that the engine does not have, as generation_config.json names them, with the value that changes nothing. */
const OTHERS = { minP: ['min_p', 0], repetitionPenalty: ['repetition_penalty', 1] } as const

/**
 * What generation_config.json recommends, with the defaults of that format: without do_sample the likeliest token. Throws INVALID where
 * it says nothing, and for settings that the engine does not have, by name.
 */
export const recommendedSampling = (dir: string, sampling: SamplingDefaults | null): Recommended => {
  const refuse = (why: string): never => {
    throw new ContinuoError('INVALID', `${dir} ${why} Say --temperature, --top-k and --top-p instead.`)
  }
  if (sampling === null) return refuse('has no generation_config.json that recommends how to draw tokens.')
  for (const [name, [written, neutral]] of Object.entries(OTHERS) as [keyof typeof OTHERS, readonly [string, number]][])
    if ((sampling[name] ?? neutral) !== neutral)
      refuse(`recommends ${written} ${sampling[name]} in generation_config.json, which the engine does not have.`)
  if (sampling.doSample !== true) return { temperature: 0 }
  const { temperature = 1, topK = 50, topP = 1 } = sampling
  return { temperature, topK, topP }
}
