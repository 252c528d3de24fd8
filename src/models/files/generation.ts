/**
 * generation_config.json: which tokens end a text, and how its publisher samples. The ends count before those of
 * config.json; the sampling is a default for whoever asks for it.
 */
import { join } from 'node:path'
import { z } from 'zod'
import { ContinuoError, messageOf } from '../../errors.ts'
import { schemaFault } from '../../issues.ts'
import { MOST_CONFIG_BYTES, parsePythonJson, readJsonFile } from '../../json.ts'

/** What the publisher of a model recommends; a member that the file lacks is absent. */
export interface SamplingDefaults {
  /** false: greedy, whatever the others say. */
  readonly doSample?: boolean
  readonly temperature?: number
  readonly topK?: number
  readonly topP?: number
  readonly minP?: number
  readonly repetitionPenalty?: number
}

export interface Generation {
  /** Tokens that end a text; null: the file says nothing of it, or is not there. */
  readonly endTokens: readonly number[] | null
  readonly sampling: SamplingDefaults | null
}

export const NO_GENERATION: Generation = { endTokens: null, sampling: null }

const id = z.int().min(0)
/** One id, a list of ids, or nothing. */
const endTokens = z.union([id, z.array(id).max(1024)]).nullish()

const schema = z.looseObject({
  eos_token_id: endTokens,
  do_sample: z.boolean().nullish(),
  temperature: z.number().min(0).nullish(),
  top_k: z.int().min(0).nullish(),
  top_p: z.number().min(0).max(1).nullish(),
  min_p: z.number().min(0).max(1).nullish(),
  repetition_penalty: z.number().positive().nullish(),
})

/** Each id once, ascending; null for none. */
const endTokensOf = (told: number | readonly number[] | null | undefined): readonly number[] | null => {
  const ids = [...new Set(told == null ? [] : typeof told === 'number' ? [told] : told)]
  return ids.length === 0 ? null : ids.sort((a, b) => a - b)
}

const present = <T extends object>(members: T): T | null => {
  const there = Object.entries(members).filter(([, value]) => value != null)
  return there.length === 0 ? null : (Object.fromEntries(there) as T)
}

/** Of a folder; a folder without the file says nothing. Throws INVALID for a file that cannot be read. */
export const readGeneration = async (dir: string): Promise<Generation> => {
  const path = join(dir, 'generation_config.json')
  let json: unknown
  try {
    json = (await readJsonFile(path, MOST_CONFIG_BYTES, parsePythonJson)).json
  } catch (cause) {
    if (cause instanceof ContinuoError) throw cause
    if ((cause as NodeJS.ErrnoException).code === 'ENOENT') return NO_GENERATION
    throw new ContinuoError('INVALID', `Cannot read ${path}: ${messageOf(cause)}.`, { cause })
  }
  const found = schema.safeParse(json)
  if (!found.success) {
    const issue = schemaFault(found.error)
    throw new ContinuoError(
      'INVALID',
      `${path} cannot be used: ${issue.path.join('.')}: ${issue.message}. Correct it, or take it away: then the model's own ends of text count.`,
    )
  }
  const { eos_token_id, do_sample, temperature, top_k, top_p, min_p, repetition_penalty } = found.data
  return {
    endTokens: endTokensOf(eos_token_id),
    sampling: present({
      doSample: do_sample,
      temperature,
      topK: top_k,
      topP: top_p,
      minP: min_p,
      repetitionPenalty: repetition_penalty,
    }) as SamplingDefaults | null,
  }
}
