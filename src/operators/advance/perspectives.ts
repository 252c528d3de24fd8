/** perspectives: how generated tokens were drawn and which experts they went to, as observations. */
import type { Perspectives } from '../../../topics/observations.ts'
import type { Generated } from '../../../topics/tokens.ts'
import type { ModelInfo } from '../../engine/types.ts'
import type { WorkResult } from '../../engine/work.ts'
import { ContinuoError } from '../../errors.ts'
import type { Output } from '../types.ts'

/** Ids of experts in an observation at most: they take some 500 kB, and a record of a log takes 1 MiB. */
export const MOST_IDS = 65_536

/** Ids of experts that one token has. */
export const idsOfToken = ({ layers, ranks }: NonNullable<ModelInfo['perspectives']>): number => layers * ranks

/** [token][layer with experts][rank] */
export const expertsOf = (
  { experts = new Int32Array(0), generated }: Pick<WorkResult, 'experts' | 'generated'>,
  shape: NonNullable<ModelInfo['perspectives']>,
): number[][][] => {
  const { layers, ranks } = shape
  const each = idsOfToken(shape)
  if (experts.length !== generated.length * each)
    throw new ContinuoError(
      'INTERNAL',
      `The engine names ${experts.length} experts for ${generated.length} tokens, expected ${each} for each.`,
    )
  return Array.from(generated, (_, token) =>
    Array.from({ length: layers }, (_, layer) => {
      const from = token * each + layer * ranks
      return [...experts.subarray(from, from + ranks)]
    }),
  )
}

/**
 * Of the tokens of `event`: as a rule one observation. Where they have more than `MOST_IDS` experts, some tokens in
 * each. None without a token.
 */
export const perspectivesIn = (
  { session, cause, requestId, index, fromPulse, ids }: Generated,
  result: WorkResult,
  shape: NonNullable<ModelInfo['perspectives']>,
): readonly Output[] => {
  const experts = expertsOf(result, shape)
  const { draws = [] } = result
  const most = Math.max(1, Math.floor(MOST_IDS / idsOfToken(shape)))
  return Array.from({ length: Math.ceil(ids.length / most) }, (_, run) => {
    const [from, to] = [run * most, Math.min(ids.length, (run + 1) * most)]
    const value: Perspectives = {
      type: 'perspectives',
      version: 1,
      session,
      cause,
      requestId,
      index: index + from,
      fromPulse: fromPulse + from,
      toPulse: fromPulse + to,
      experts: experts.slice(from, to),
      draws: draws.slice(from, to).map((note) => ({ ...note, hdm: note.hdm && { ...note.hdm } })),
    }
    return { to: 'observations', value }
  })
}
