/**
 * Forks on the stream: an `open` event with `from` begins its session with the state of another session of the
 * partition, the parent, as it is when the event has its turn. That is after all earlier records of both sessions, and
 * before all later ones (by-session.ts): so what the child gets follows from the order of the partition alone.
 */
import { ContinuoError } from '../../errors.ts'
import type { Fingerprints, Head } from '../../state/head.ts'
import type { Homes } from '../pipeline/input.ts'
import type { Contexts } from '../sessions/context-store.ts'
import type { Rejected, SessionEvent, Tokenized, Valid } from '../types.ts'
import { initialSession, type SessionState, settingsOf } from './session-state.ts'
import { cursorAt, spanFrom } from './spans.ts'

/** The other sessions of a partition. */
export interface Others {
  /** The newest head of a session. */
  readonly newest: (session: string) => Head | undefined
  /** Where sessions belong; absent where nobody judges that. */
  readonly homes?: Homes
}

export const NOBODY: Others = { newest: () => undefined }

type ForkOf = NonNullable<Extract<SessionEvent['event'], { type: 'open' }>['from']>

/** The parent that an event names; null where it is no fork. */
export const parentOf = ({ event }: SessionEvent): string | null =>
  event.type === 'open' && event.from !== undefined ? event.from.session : null

/**
 * The sessions whose order an event stands in: its own, and the one that it forks; none for a `cancel`, which goes past
 * all that waits.
 */
export const sessionsOf = (item: Valid | Rejected): readonly (string | null)[] => {
  if (item.kind === 'valid' && item.event.type === 'cancel') return []
  const parent = item.kind === 'valid' ? parentOf(item) : null
  return parent === null || parent === item.session ? [item.session] : [item.session, parent]
}

/** Why `session` cannot begin as a fork of `from`, as a sentence; null: it can. */
export const faultOfFork = (
  { record, session }: Pick<SessionEvent, 'record' | 'session'>,
  { session: from, pulse }: ForkOf,
  head: Head | undefined,
  parent: Head | undefined,
  home: Homes['home'] = () => null,
): string | null => {
  const what = `Session "${session}" cannot begin as a fork of session "${from}"`
  if (from === session) return `${what}: that is the session itself. Name another one in "from", or leave it out.`
  if (head?.status === 'open')
    return `${what}: expected a session that is new or closed, and it is open, at pulse ${head.conductor.globalStep}. Send "close" first, or use another id.`
  if (parent === undefined) {
    const to = home(from)
    if (to !== null && to !== record.partition)
      return `${what}: a session and its fork are in one partition of the input, and this record is in partition ${record.partition}, while records with the key "${from}" belong to partition ${to}. Use an id for the fork that belongs to partition ${to} too, or send the record to that partition.`
    return `${what}: partition ${record.partition} has no such session before this record. Send the parent's events first, or correct its id.`
  }
  if (parent.status === 'closed')
    return `${what}: expected one that is open, and it is closed. Fork it before its "close".`
  if (parent.status === 'stopped')
    return `${what}: expected one that is open. ${parent.stopped?.reason ?? 'It was set aside.'}`
  const { globalStep } = parent.conductor
  return pulse === undefined || pulse === globalStep
    ? null
    : `${what}: expected it at pulse ${pulse}, as the event says, and it stands at ${globalStep}. Fork a session that stands there, or leave out "pulse".`
}

/**
 * The head of a session that begins with this record as a fork: that of its parent, with a place and a birth of its
 * own.
 */
export const forkedHead = ({ session, record, event, hash }: Tokenized, parent: Head): Head => {
  const { claims, ...past } = parent
  const { conductor, chain, cursor } = parent
  return {
    ...past,
    session,
    settings: settingsOf(event),
    cursor: { ...cursor, ...cursorAt({ record, session, event, hash }) },
    born: record.offset,
    from: { session: parent.session, pulse: conductor.globalStep, chain },
    span: spanFrom(conductor.globalStep),
    generation: null,
    snapshot: null,
  }
}

/**
 * The session that an event finds when it is computed again, and whether it begins there: the known one; where there is
 * none, a new one; and in place of either a fork of `parent`, where the event was accepted as one.
 */
export const sessionFor = async (
  work: Tokenized,
  known: SessionState | undefined,
  model: Fingerprints & Contexts,
  parent: SessionState | undefined,
): Promise<{ readonly session: SessionState; readonly fresh: boolean }> => {
  if (work.parent !== undefined) {
    if (parent === undefined) throw new ContinuoError('INTERNAL', `Session "${work.parent.session}" has no context.`)
    const context = await model.forkContext(parent.context)
    known?.context.close()
    const history = parent.history.copy()
    return { session: { head: forkedHead(work, parent.head), context, history }, fresh: true }
  }
  if (known !== undefined) return { session: known, fresh: false }
  return { session: initialSession(work, model, model.createContext()), fresh: true }
}
