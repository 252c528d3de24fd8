/**
 * tokenize and infer: when its turn in its session has come, an event becomes tokens, and these become steps. Each session hands the
 * engine one item of work at a time; the engine shares its steps among all items that it has.
 */
import { from, type Observable } from 'rxjs'
import { ContinuoError } from '../errors.ts'
import { failpoint } from '../failpoint.ts'
import { SpillLost } from '../state/spill.ts'
import { advance } from './advance.ts'
import type { Backlog } from './backlog.ts'
import { spillLostOf } from './forks.ts'
import type { Sessions } from './sessions.ts'
import { type Bounded, tokenizeEvent } from './tokenize.ts'
import { copiedBytes, type Rejected, type Step, type Tokenized, type Valid } from './types.ts'

export interface InferDeps {
  readonly sessions: Pick<Sessions, 'engine' | 'newest' | 'acquire' | 'fork' | 'began' | 'capture' | 'rest'>
  readonly model: Bounded
  /** Partitions of the input. */
  readonly partitions: number
  /** Pulses after which a session's state is captured. */
  readonly snapshotEvery: number
  /** Resolves when the stages behind have room for another step; undefined when they have it now. */
  readonly room: () => Promise<void> | undefined
  /** Counts the bytes of states whose commit waits for them. */
  readonly copies: Pick<Backlog, 'add'>
  /** No step begins after it fires. */
  readonly stopping: AbortSignal
  /** Called for every session that is set aside. */
  readonly warn: (message: string) => void
}

const rejectedStep = ({ record, session, reason }: Rejected): Step => ({
  record,
  session,
  outputs: [{ to: 'deadletters', reason }],
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

/** The steps of one event. */
async function* run(deps: InferDeps, event: Valid): AsyncGenerator<Step> {
  const { sessions, model, snapshotEvery, room, copies, stopping, warn } = deps
  const { engine } = sessions
  const work = tokenizeEvent(event, sessions.newest(event.session), engine.tokenizer, model, {
    newest: sessions.newest,
    partitions: deps.partitions,
  })
  if (work.kind === 'rejected') {
    yield rejectedStep(work)
    return
  }
  const { parent } = work
  const acquired = await (parent === undefined ? sessions.acquire(work) : sessions.fork({ ...work, parent }))
  if (acquired === null) return
  const { session, fresh, aside } = acquired
  // A new context on an old clock: save it at once, so that no replay has to begin before it.
  if (session.head.status !== 'open' || parent !== undefined) session.captured = Number.NEGATIVE_INFINITY
  // Where a session was set aside because its past is lost, no replay could lead to what it does from here on. A fork must not need the
  // past of its parent, which goes on and may be closed: neither when it begins nor when it begins anew.
  const { head } = session
  const isFork = parent !== undefined || (head.from !== undefined && head.status === 'closed')
  const needsSnapshot = (head.stopped !== undefined || isFork) && aside === undefined
  let failed = false
  try {
    if (aside !== undefined) {
      warn(aside.head!.stopped!.reason)
      yield aside
      return
    }
    for await (const step of advance(session, work, fresh, engine)) {
      const pulse = step.head!.conductor.globalStep
      const since = session.captured === -1 ? 0 : session.captured
      sessions.began(work.session, work.record.offset)
      if (step.failure !== undefined) warn(`${step.head!.stopped!.reason} (${step.failure.message})`)
      if (pulse - since >= snapshotEvery && step.head!.status === 'open') {
        const capture = await sessions.capture(session)
        failpoint('snapshot.captured')
        if (needsSnapshot) copies.add(copiedBytes(capture))
        yield { ...step, capture, ...(needsSnapshot && { needsSnapshot }) }
      } else yield step
      await room()
      if (stopping.aborted) return
    }
  } catch (error) {
    // The task is over: the context that a failed call has left must not be captured.
    failed = true
    throw named(error, work)
  } finally {
    if (!failed) sessions.rest(session)
  }
}

const stepsOf = (deps: InferDeps, item: Valid | Rejected): AsyncIterable<Step> | readonly Step[] => {
  // A stop may have left the event before this one unfinished: whatever this one is, it waits for that.
  if (deps.stopping.aborted) return []
  return item.kind === 'rejected' ? [rejectedStep(item)] : run(deps, item)
}

export const infer =
  (deps: InferDeps) =>
  (item: Valid | Rejected): Observable<Step> =>
    from(stepsOf(deps, item))
