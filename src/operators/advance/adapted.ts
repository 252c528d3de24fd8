/** adapted: what an adaptation of a session did, as an observation. */
import type { EndedBy } from '../../../topics/common.ts'
import { type Adapted, MOST_STAGES } from '../../../topics/observations.ts'
import type { WorkResult } from '../../engine/work.ts'
import { ContinuoError } from '../../errors.ts'
import type { Head } from '../../state/head.ts'
import { causeOf, type Output, type Step, type Tokenized } from '../types.ts'

/** A stop ended the adaptation of an event: nothing was learnt, and the event is to be done again. */
export class AdaptingStopped extends Error {}

/** JSON has no numbers that are not finite. */
const finite = (value: number): number | null => (Number.isFinite(value) ? value : null)

/** An adaptation that was ended: nothing was learnt. */
const NOTHING = { tokens: 0, evaluations: 0, stages: [], bound: 0, before: 0, after: 0 } as const

/** `ended`: by whom, where it did not come to its end. */
export const adaptedIn = (
  { session, conductor }: Head,
  { record, event }: Tokenized,
  { adapted: report }: Pick<WorkResult, 'adapted'>,
  ended: EndedBy | null = null,
): Output => {
  if (report === undefined && ended === null)
    throw new ContinuoError('INTERNAL', 'The engine adapted and does not say what it did.')
  const { tokens, evaluations, stages, bound, before, after } = report ?? NOTHING
  const { requestId } = event as { readonly requestId?: string }
  const value: Adapted = {
    type: 'adapted',
    version: 1,
    session,
    cause: causeOf(record, event.id ?? null),
    ...(requestId !== undefined && { requestId }),
    ...(ended !== null && { endedBy: ended }),
    pulse: conductor.globalStep,
    tokens,
    evaluations,
    // What was tried on the way (slopes, fitnesses) is left out.
    stages: stages
      .slice(0, MOST_STAGES)
      .map(({ stage, was, now, accepted }) => ({ stage, was: finite(was), now: finite(now), accepted })),
    bound,
    loss: tokens < 2 ? null : { before: finite(before), after: finite(after) },
  }
  return { to: 'observations', value }
}

/** Tokens that an adaptation of the step computed. */
export const learntFrom = ({ outputs }: Pick<Step, 'outputs'>): number =>
  outputs.reduce((sum, output) => {
    if (output.to !== 'observations' || output.value.type !== 'adapted') return sum
    return sum + output.value.evaluations * output.value.tokens
  }, 0)
