/**
 * tokenize and infer: when its turn in its session has come, an event becomes tokens, and these become steps. Each
 * session hands the engine one item of work at a time; the engine shares its steps among all items that it has.
 */
import { from, type Observable } from 'rxjs'
import { ContinuoError } from '../../errors.ts'
import { failpoint } from '../../failpoint.ts'
import { SpillLost } from '../../state/spill.ts'
import { AdaptingStopped, learntFrom } from '../advance/adapted.ts'
import { advance } from '../advance/advance.ts'
import { spillLostOf } from '../sessions/forks.ts'
import type { LiveSession } from '../sessions/idle-sessions.ts'
import type { LiveSessions } from '../sessions/live-sessions.ts'
import type { SessionTable } from '../sessions/session-table.ts'
import { causeOf, isCancel, type Rejected, type Step, type Tokenized, type Valid } from '../types.ts'
import type { Homes } from './input.ts'
import type { Requests } from './requests.ts'
import { type Bounded, idleCancel, tokenizeEvent } from './tokenize.ts'

export interface InferDeps {
  readonly table: Pick<SessionTable, 'newest' | 'stepped' | 'room' | 'captures' | 'removed'>
  readonly requests: Requests
  /** Reads the event at an offset again, which is one of this session; null where the task ends before. */
  readonly again: (offset: number, session: string) => Promise<Valid | Rejected | null>
  readonly sessions: Pick<
    LiveSessions,
    'engine' | 'acquire' | 'fork' | 'capture' | 'rest' | 'drop' | 'forget' | 'isAskedToGo' | 'away'
  >
  readonly model: Bounded
  /** Where sessions of the input belong. */
  readonly homes: Homes
  /** Pulses after which a session's state is captured; tokens that adaptations compute count too. */
  readonly snapshotEvery: number
  /** No step begins after it fires. */
  readonly stopping: AbortSignal
  /** Called for every session that is set aside. */
  readonly warn: (message: string) => void
}

const rejectedStep = ({ record, session, reason, first }: Rejected): Step => ({
  record,
  session,
  outputs: [{ to: 'deadletters', reason, ...(first !== undefined && { first }) }],
  head: null,
  done: true,
})

/** The same error with session and record in its message. */
const named = (error: unknown, { session, record }: Tokenized): unknown => {
  if (error instanceof SpillLost) return spillLostOf(session, error)
  return error instanceof ContinuoError && error.code === 'REFUSED' && !error.message.startsWith('Session ')
    ? new ContinuoError(
        'REFUSED',
        `Session "${session}", reading the record at offset ${record.offset} of ${record.topic}: ${error.message}`,
        { cause: error },
      )
    : error
}

/** The step with what follows from its end, where the request did not come to its own. */
const obeying = (step: Step, requests: Requests): Step => {
  for (const output of step.outputs) {
    if (output.to === 'tokens' && output.value.finish === 'cancelled')
      return { ...step, awaited: true, cancelled: requests.ended(step.record, output.value) }
    if (output.to === 'observations' && output.value.type === 'adapted' && output.value.endedBy !== undefined)
      return { ...step, awaited: true, cancelled: requests.ended(step.record, { ...output.value, index: 0 }) }
  }
  return step
}

/**
 * The deletion of a session needs nothing of its state. The next event of its id waits for the commit: to every part it
 * is a new session then.
 */
async function* remove({ table, sessions }: InferDeps, { session, record, event }: Tokenized): AsyncGenerator<Step> {
  const { pulse } = table.newest(session)!.cursor
  if (!(await sessions.forget(session))) return
  const value = { type: 'deleted', version: 1, session, cause: causeOf(record, event.id ?? null), pulse } as const
  const outputs: Step['outputs'] = [{ to: 'observations', value }]
  const committed = table.removed(session)
  yield { record, session, outputs, head: null, done: true, deleted: true }
  await committed
}

/** The steps of one event that has its turn in its session. */
async function* run(deps: InferDeps, event: Valid): AsyncGenerator<Step> {
  for (;;) {
    const session = yield* stretch(deps, event)
    if (session === null || !(await deps.sessions.away(session))) return
  }
}

/**
 * The steps of the event to its end, or up to where others want its context: then the session, from whose head the next
 * stretch goes on.
 */
async function* stretch(deps: InferDeps, event: Valid): AsyncGenerator<Step, LiveSession | null> {
  const { table, sessions, model, snapshotEvery, stopping, warn } = deps
  const { engine } = sessions
  const work = tokenizeEvent(event, table.newest(event.session), engine.tokenizer, model, {
    newest: table.newest,
    homes: deps.homes,
  })
  if (work.kind === 'rejected') {
    yield rejectedStep(work)
    return null
  }
  if (work.event.type === 'delete') {
    yield* remove(deps, work)
    return null
  }
  const { parent } = work
  const acquired = await (parent === undefined ? sessions.acquire(work) : sessions.fork({ ...work, parent }))
  if (acquired === null) return null
  const { session, fresh, aside } = acquired
  // A new context on an old clock: save it at once, so that no replay has to begin before it.
  if (session.head.status !== 'open' || parent !== undefined) session.captured = Number.NEGATIVE_INFINITY
  // Where a session was set aside because its past is lost, no replay could lead to what it does from here on. A fork
  // must not need the past of its parent, which goes on and may be closed: neither when it begins nor when it begins
  // anew.
  const { head } = session
  const isFork = parent !== undefined || (head.from !== undefined && head.status === 'closed')
  const needsSnapshot = (head.stopped !== undefined || isFork) && aside === undefined
  let failed = false
  try {
    if (aside !== undefined) {
      warn(aside.head!.stopped!.reason)
      table.stepped(aside.head!)
      yield aside
      return null
    }
    for await (const step of advance(session, work, fresh, engine)) {
      const head = step.head!
      const pulse = head.conductor.globalStep
      const since = session.captured === -1 ? 0 : session.captured
      table.stepped(head)
      if (step.failure !== undefined) warn(`${head.stopped!.reason} (${step.failure.message})`)
      session.beside += learntFrom(step)
      if (pulse - since + session.beside >= snapshotEvery && head.status === 'open') {
        const capture = await sessions.capture(session)
        failpoint('snapshot.captured')
        table.captures.ofStep(head, capture, needsSnapshot)
      }
      yield obeying(step, deps.requests)
      await table.room()
      if (stopping.aborted) return null
      if (!step.done && sessions.isAskedToGo(session)) return session
    }
    return null
  } catch (error) {
    // The task is over: the context that a failed call has left must not be captured.
    failed = true
    if (error instanceof AdaptingStopped) {
      sessions.drop(session)
      return null
    }
    throw named(error, work)
  } finally {
    if (!failed) sessions.rest(session)
  }
}

/** The steps of a request, and of a `cancel` that came too late for it. */
async function* answered(deps: InferDeps, event: Valid): AsyncGenerator<Step> {
  yield* run(deps, event)
  yield* late(deps, event)
}

/** The step of a `cancel` that came too late for this event. */
async function* late({ requests, again, stopping }: InferDeps, event: Valid | Rejected): AsyncGenerator<Step> {
  // A stop leaves both for the next start.
  if (stopping.aborted) return
  const offset = requests.over(event)
  if (offset === null) return
  const cancel = await again(offset, event.session!)
  if (cancel === null) return
  yield rejectedStep(cancel.kind === 'valid' && isCancel(cancel) ? idleCancel(cancel) : (cancel as Rejected))
}

/** The step of an event that cannot be used. It may be a request that was one when it was read first, and is gone. */
async function* refused(deps: InferDeps, item: Rejected): AsyncGenerator<Step> {
  yield rejectedStep(item)
  yield* late(deps, item)
}

const stepsOf = (deps: InferDeps, item: Valid | Rejected): AsyncIterable<Step> | readonly Step[] => {
  // A stop may have left the event before this one unfinished: whatever this one is, it waits for that.
  if (deps.stopping.aborted) return []
  if (item.kind === 'rejected') return item.record.value === null ? refused(deps, item) : [rejectedStep(item)]
  // One that finds its request has no step: the last step of the request finishes it.
  if (isCancel(item)) return deps.requests.cancel(item) ? [] : [rejectedStep(idleCancel(item))]
  const { type } = item.event
  return type === 'generate' || type === 'adapt' ? answered(deps, item) : run(deps, item)
}

export const infer =
  (deps: InferDeps) =>
  (item: Valid | Rejected): Observable<Step> =>
    from(stepsOf(deps, item))
