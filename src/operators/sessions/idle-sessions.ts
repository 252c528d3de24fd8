/**
 * Where a session stands while its context is in memory and nothing works on it: in the list of what may happen to it
 * next, the longest unused first, so that candidates need not be searched for.
 *
 *   absent ──event, or its unsaved input is old──▶ coming ──▶ busy ──done, and committed──┬─▶ free ──room wanted──▶ absent
 *                                                              ▲  │                       │    ▲
 *                                                              │  └─not yet committed:    │    └──the head names it──┐
 *                                                              │    in no list            └─▶ savable, overdue ──▶ capturing
 *                                                              └──event── from any of them
 *
 *   free       may go: it is in a snapshot, or its past is short, or it is closed
 *   savable    needs a snapshot in order to go
 *   overdue    needs one anyway
 *   capturing  its snapshot is on its way
 *
 * Only what is committed is given back or captured: a session is restored from its committed head, and a snapshot must
 * never be ahead of the head that names it.
 */
import { type Head, samePlace } from '../../state/head.ts'
import type { SessionState } from '../advance/session-state.ts'
import { createQueue, type Queue } from '../pipeline/queue.ts'
import { isSaved } from './session-table.ts'

/** A session whose context is in memory. */
export interface LiveSession extends SessionState {
  busy: boolean
  /** Pulse of the last state captured; −1 before the first, −∞ where the next step must be saved. */
  captured: number
  /** Tokens that adaptations computed since then, beside those of the clock: a replay computes them again. */
  beside: number
  /** To be saved as soon as it rests. */
  due: boolean
  /** To be given back as soon as it may go. */
  parting: boolean
  /** Whose room it has (shares.ts). */
  readonly share: string | undefined
  /** Since when one event has it, as `performance.now` tells it. */
  since: number
  /** Settles when the copy of its state is made that was begun while it was at rest. */
  copying: Promise<void> | null
  /** Where it stands at rest. */
  list: Queue<LiveSession> | null
}

/**
 * A session without a snapshot whose past is no longer than this, in pulses (those that its adaptations computed
 * included) and in records of the partition from its first to its newest, is given back as it is: reading that again
 * takes about the time of writing and reading a snapshot, takes no place in the log, and is done only for those that
 * come back. A longer one is saved, so that it is not read again and again. So is what came after a snapshot: a replay
 * would read everything in the partition since that snapshot.
 */
export const SHORT_PULSES = 64
export const SHORT_RECORDS = 256

export interface IdleSessions {
  readonly free: Queue<LiveSession>
  readonly savable: Queue<LiveSession>
  readonly overdue: Queue<LiveSession>
  readonly capturing: Queue<LiveSession>
  /** To be called whenever a session comes to rest, its head is committed, or it becomes due. */
  settle(session: LiveSession): void
  put(session: LiveSession, list: Queue<LiveSession> | null): void
  /** Whether a rebuild without a snapshot is short. `beside`: tokens that adaptations computed, as far as is known. */
  isShort(head: Head, beside?: number): boolean
}

export interface IdleSessionsOptions {
  /** Committed heads. */
  readonly heads: ReadonlyMap<string, Head>
  readonly snapshotEvery: number
  readonly snapshotRecords: number
}

export const createIdleSessions = ({ heads, snapshotEvery, snapshotRecords }: IdleSessionsOptions): IdleSessions => {
  const free = createQueue<LiveSession>()
  const savable = createQueue<LiveSession>()
  const overdue = createQueue<LiveSession>()
  const capturing = createQueue<LiveSession>()

  const put = (session: LiveSession, list: Queue<LiveSession> | null): void => {
    if (session.list === list) return
    session.list?.delete(session)
    list?.add(session)
    session.list = list
  }

  const isShort = ({ snapshot, born, from, cursor, conductor }: Head, beside = 0): boolean =>
    snapshot === null &&
    born >= 0 &&
    from === undefined &&
    conductor.globalStep + beside <= Math.min(SHORT_PULSES, snapshotEvery) &&
    cursor.offset - born < Math.min(SHORT_RECORDS, snapshotRecords)

  return {
    free,
    savable,
    overdue,
    capturing,
    put,
    isShort,
    settle(session) {
      const { busy, copying, captured, due, beside, head } = session
      const committed = heads.get(head.session)
      if (busy || copying !== null || committed === undefined || !samePlace(committed, head)) return
      if (due && committed.status === 'open') put(session, overdue)
      else if (isSaved(committed)) put(session, free)
      else if (captured === head.conductor.globalStep) put(session, capturing)
      else put(session, captured === -1 && isShort(committed, beside) ? free : savable)
    },
  }
}
