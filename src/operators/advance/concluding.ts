/** What an event does beside the tokens that it gives to read: it opens, closes, begins anew, archives, adapts. */
import type { EndedBy } from '../../../topics/common.ts'
import type { WorkResult } from '../../engine/work.ts'
import { codeOf, messageOf } from '../../errors.ts'
import { failpoint } from '../../failpoint.ts'
import * as conductor from '../../state/conductor.ts'
import type { Head } from '../../state/head.ts'
import { claimsBehind } from '../pipeline/once.ts'
import { causeOf, type Output, type Tokenized } from '../types.ts'
import { AdaptingStopped, adaptedIn } from './adapted.ts'
import { memoryObservations } from './memory-observations.ts'
import { alone, type Inference, moved, NO_TOKENS, type SessionState, settingsOf } from './session-state.ts'

/**
 * The head behind the last step of an event: its text may count for a request by a rule, which begins the count anew,
 * and what is done once is done.
 */
export const finished = ({ unanswered, claims, ...head }: Head, work: Tokenized): Head => {
  const { event, rule, held } = work
  const count = event.type === 'generate' || !rule?.counts ? 0 : (unanswered ?? 0) + 1
  return {
    ...head,
    ...(count > 0 && { unanswered: count }),
    ...claimsBehind(work, claims),
    cursor: { ...head.cursor, complete: true, held },
  }
}

/** The event's own act, after its tokens were read. */
export const conclude = async (
  session: SessionState,
  work: Tokenized,
  outputs: Output[],
  engine: Inference,
): Promise<Head> => {
  const { event, record } = work
  let { head } = session
  const common = { version: 1, session: head.session, cause: causeOf(record, event.id ?? null) } as const
  if (event.type === 'boundary' && event.reset) {
    await alone(engine, session.context, () => session.context.restart())
    session.history.clear()
    const next = conductor.reset(head.conductor)
    const { archived, novelty, ...rest } = head
    head = { ...rest, conductor: next, chain: session.context.chain }
  }
  if (event.type === 'archive' || event.type === 'retrieve') {
    const request =
      event.type === 'archive'
        ? { type: event.type }
        : { type: event.type, ...(event.blocks && { blocks: event.blocks }) }
    try {
      const result = await engine.submit({ context: session.context, tokens: NO_TOKENS, nats: false, request })
      outputs.push(...memoryObservations(head, work, result))
      head = moved(head, result, 0)
    } catch (error) {
      // The engine changed nothing. Text that was held back before the event has been read by now, which any event
      // does.
      if (codeOf(error) !== 'INVALID') throw error
      outputs.push({ to: 'deadletters', reason: `The memory refused a "${event.type}" event: ${messageOf(error)}` })
    }
  }
  if (event.type === 'adapt') {
    const ended = (): EndedBy | null => engine.endedBy?.(record.offset, 0) ?? null
    let learnt: WorkResult | null = null
    if (ended() === null) {
      const watched = engine.adapting?.(record, event.id ?? null) ?? {}
      const { type, evaluations, seed } = event
      const request = { type, evaluations, seed: BigInt(seed), ...watched }
      failpoint('adapt.begun')
      learnt = await engine.submit({ context: session.context, tokens: NO_TOKENS, nats: false, request })
      const isBroken = learnt.adapted === undefined && watched.signal?.aborted === true
      if (isBroken && ended() === null) throw new AdaptingStopped()
      if (isBroken) learnt = null
      failpoint('adapt.done')
    }
    outputs.push(adaptedIn(head, work, learnt ?? {}, learnt === null ? ended() : null))
    if (learnt !== null) head = moved(head, learnt, 0)
  }
  if (event.type === 'open') {
    const { novelty, ...rest } = head
    const settings = settingsOf(event)
    if (!settings.novelty) session.history.forgetLines()
    head = { ...rest, ...(settings.novelty && novelty && { novelty }), settings }
  }
  if (event.type === 'close') {
    head = { ...head, status: 'closed' }
    const { tokens, generated, nats, predictions } = head.totals
    const pulse = head.conductor.globalStep
    outputs.push({
      to: 'observations',
      value: { type: 'closed', ...common, pulse, chain: head.chain, tokens, generated, nats, predictions },
    })
  }
  return head
}
