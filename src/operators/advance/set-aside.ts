/**
 * Setting a session aside: it cannot go on, its partition can. Its head says so and why; the event at which it happened
 * is a dead letter, and so is everything that comes for the session until a `boundary` with `reset` begins a new
 * context on the same clock, or a `close` ends it. Clock, chain, sums and the snapshot stay as they were after its last
 * finished step.
 *
 * There are two causes. *computation*: the state stopped being finite. That follows from the events, and every replay
 * comes to it again. *storage*: the state that the log should hold is lost. That does not follow from the events, so it
 * is decided once, and the records that say so (the head, the dead letter) commit together and are obeyed from then on.
 */
import type { Stopped } from '../../../topics/state.ts'
import { ContinuoError } from '../../errors.ts'
import type { Head } from '../../state/head.ts'
import { faultOfSums } from '../../state/head-rules.ts'
import type { Output, SessionEvent, Step } from '../types.ts'
import { cursorAt, endOfRequest, observe, spanFrom } from './spans.ts'

/** Stored state of a session is missing or cannot be used. No other session of the partition is affected. */
export class SessionLost extends ContinuoError {
  constructor(message: string, options?: { cause?: unknown }) {
    super('REFUSED', message, options)
    this.name = 'SessionLost'
  }
}

/** Most characters of a reason: a head and a dead letter must stay small. */
const MOST_REASON = 1000
const WAY_BACK = ' Send a "boundary" with "reset": it begins a new context on the same clock. A "close" ends it.'

/** The sentence of the head and of the dead letter. `why` ends a sentence that begins "Session … was set aside: ". */
export const reasonOf = (session: string, why: string): string => {
  const sentence = `Session "${session}" was set aside: ${why.replace(/\.$/, '')}.`
  const room = MOST_REASON - WAY_BACK.length
  return (sentence.length > room ? `${sentence.slice(0, room - 1)}…` : sentence) + WAY_BACK
}

/**
 * The step that sets a session aside at this event. What the session read of the event before that is observed as
 * always.
 */
export const setAside = (
  committed: Head,
  event: SessionEvent,
  { cause, reason }: Pick<Stopped, 'cause' | 'reason'>,
  readsText: boolean,
): Step & { readonly head: Head } => {
  const inside = committed.cursor.offset === event.record.offset && !committed.cursor.complete
  const before = inside ? committed : { ...committed, span: spanFrom(committed.conductor.globalStep), generation: null }
  const observed = before.span.tokens > 0 ? observe(before, event, true, readsText) : null
  const { offset } = event.record
  const head: Head = {
    ...before,
    status: 'stopped',
    stopped: { cause, reason, offset },
    cursor: {
      ...before.cursor,
      ...cursorAt(event),
      token: inside ? before.cursor.token : 0,
      complete: true,
      held: '',
    },
    span: spanFrom(before.conductor.globalStep),
    generation: null,
  }
  const outputs: Output[] = [
    ...(observed === null ? [] : [observed.output]),
    ...(event.event.type === 'generate' ? [endOfRequest(before, event, event.event.requestId, 'stopped')] : []),
    { to: 'deadletters', reason, stopped: { cause, token: head.cursor.token } },
  ]
  return { record: event.record, session: before.session, outputs, head, done: true }
}

/**
 * A stored head that breaks a rule (state/head-rules.ts), as everybody is to see it: set aside, with a clock and sums
 * that can go on. It follows from what is stored, so nothing needs to be written.
 */
export const asStopped = (head: Head, fault: string): Head => {
  // The context is not gone on with, so nothing of it is archived.
  const { archived: _, ...rest } = head
  const { conductor, totals, cursor } = rest
  const { globalStep } = conductor
  return {
    ...rest,
    status: 'stopped',
    stopped: { cause: 'storage', reason: reasonOf(head.session, fault), offset: Math.max(0, cursor.offset) },
    conductor: { ...conductor, origin: Math.min(conductor.origin, globalStep) },
    cursor: { ...cursor, complete: true, held: '', rng: globalStep, pulse: globalStep },
    totals: faultOfSums(head) === null ? totals : { tokens: globalStep, predictions: 0, nats: 0, generated: 0 },
    span: spanFrom(globalStep),
    generation: null,
  }
}
