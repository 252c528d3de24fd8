/** Tells the engine how a request's tokens are drawn, and reads from its result the likeliest other tokens. */
import type { Generated } from '../../../topics/tokens.ts'
import type { Generate, WorkResult } from '../../engine/work.ts'
import type { Generate as Request } from '../types.ts'

type Counts = NonNullable<Generate['penalties']>['counts']

/** null: they change nothing. */
const penaltiesOf = ({
  repetitionPenalty: repetition,
  presencePenalty: presence,
  frequencyPenalty: frequency,
}: Request): Omit<NonNullable<Generate['penalties']>, 'counts'> | null =>
  repetition === 1 && presence === 0 && frequency === 0 ? null : { repetition, presence, frequency }

/**
 * Whether the request asks for its own ids as long as it runs, also after a restart: then its session's history has
 * them.
 */
export const followsItself = (event: Request): boolean => penaltiesOf(event) !== null || event.grammar !== undefined

/** `counted`: how often each id counts, for a request with penalties. */
export const drawing = (event: Request, counted: () => Counts): Omit<Generate, 'count'> => {
  const { temperature, topK, topP, minP, seed, topLogprobs } = event
  const penalties = penaltiesOf(event)
  const logitBias = Object.entries(event.logitBias).map(([id, bias]) => [Number(id), bias] as const)
  return {
    ...{ temperature, topK, topP, minP, seed: BigInt(seed), topLogprobs },
    ...(logitBias.length > 0 && { logitBias: new Map(logitBias) }),
    ...(penalties && { penalties: { ...penalties, counts: counted() } }),
  }
}

/** The likeliest tokens in the place of each that was generated. */
export const alternativesIn = ({
  generated,
  top = new Int32Array(0),
  topLogprobs = new Float32Array(0),
}: WorkResult): NonNullable<Generated['topLogprobs']> => {
  const each = top.length / Math.max(1, generated.length)
  return Array.from(generated, (_, at) =>
    Array.from(top.subarray(at * each, (at + 1) * each), (id, i) => ({ id, logprob: topLogprobs[at * each + i]! })),
  )
}
