/** How a package recommends that its tokens are drawn; used only where it is asked for. */
import { join } from 'node:path'
import { z } from 'zod'
import { ContinuoError } from '../errors.ts'
import { MOST_CONFIG_BYTES, readJsonFile } from '../json.ts'

export interface Recommended {
  readonly temperature?: number
  readonly topK?: number
  readonly topP?: number
}

const number = z.number().nullish()
const schema = z.looseObject({
  do_sample: z.boolean().nullish(),
  temperature: number,
  top_k: number,
  top_p: number,
  min_p: number,
  typical_p: number,
  epsilon_cutoff: number,
  eta_cutoff: number,
  repetition_penalty: number,
  no_repeat_ngram_size: number,
  num_beams: number,
})

/** Settings that change what is drawn and that the engine does not have, with the value that changes nothing. */
const OTHERS = {
  ...{ min_p: 0, typical_p: 1, epsilon_cutoff: 0, eta_cutoff: 0 },
  ...{ repetition_penalty: 1, no_repeat_ngram_size: 0, num_beams: 1 },
} as const

/**
 * What generation_config.json of a folder recommends: do_sample (false: the likeliest token), temperature, top_k, top_p. Throws
 * INVALID where there is no such file, and for settings that the engine does not have, by name.
 */
export const recommendedSampling = async (dir: string): Promise<Recommended> => {
  const path = join(dir, 'generation_config.json')
  let json: unknown
  try {
    json = (await readJsonFile(path, MOST_CONFIG_BYTES)).json
  } catch (cause) {
    if (cause instanceof ContinuoError) throw cause
    throw new ContinuoError(
      'INVALID',
      `${dir} has no generation_config.json, so it recommends nothing. Say --temperature and the like.`,
      { cause },
    )
  }
  const parsed = schema.safeParse(json)
  if (!parsed.success) {
    const { path: where, message } = parsed.error.issues[0]!
    throw new ContinuoError('INVALID', `${path} has a malformed ${where.join('.')}: ${message}.`)
  }
  const found = parsed.data
  const other = (Object.keys(OTHERS) as (keyof typeof OTHERS)[]).find(
    (name) => (found[name] ?? OTHERS[name]) !== OTHERS[name],
  )
  if (other !== undefined)
    throw new ContinuoError(
      'INVALID',
      `${path} recommends ${other} ${found[other]}, which the engine does not have. Say --temperature, --top-k and --top-p instead.`,
    )
  // Without do_sample the likeliest token is taken: that is the default of the format.
  if (found.do_sample !== true) return { temperature: 0 }
  return {
    temperature: found.temperature ?? 1,
    topK: found.top_k ?? 50,
    topP: found.top_p ?? 1,
  }
}
