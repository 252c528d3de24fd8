/** A file of tokens: a JSON array of ids, or text. */
import { z } from 'zod'
import type { ModelInfo } from '../engine/types.ts'
import { ContinuoError } from '../errors.ts'

const idList = z.array(z.int().min(0))

/** A JSON array of whole numbers is ids; anything else is text: null. */
export const idsIn = (bytes: Buffer): readonly number[] | null => {
  if (!/^\s*\[/.test(bytes.subarray(0, 64).toString('latin1'))) return null
  try {
    const parsed = idList.safeParse(JSON.parse(bytes.toString('utf8')))
    return parsed.success ? parsed.data : null
  } catch {
    return null
  }
}

/** The ids of an array. Throws INVALID for one that the model does not have. */
export const checkedIds = (ids: readonly number[], { vocabSize }: Pick<ModelInfo, 'vocabSize'>): Int32Array => {
  const at = ids.findIndex((id) => id >= vocabSize)
  if (at < 0) return Int32Array.from(ids)
  throw new ContinuoError(
    'INVALID',
    `Token ids go from 0 to ${vocabSize - 1} for this model; number ${at} is ${ids[at]}.`,
  )
}
