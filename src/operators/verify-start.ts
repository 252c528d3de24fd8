/** Where `verify` begins with a session whose first events are gone, or whose parent is. */
import type { Cause } from '../../topics/common.ts'
import type { Context } from '../engine/context.ts'
import { historyIn, withHistory } from '../state/history.ts'
import type { StoredRecord } from '../streams/log.ts'
import { textOf } from '../text.ts'
import { clockOf } from './advance.ts'
import { BlockLost, keepIn } from './manifests.ts'
import { readSnapshot } from './snapshots.ts'
import { storedState } from './stored-state.ts'
import type { Scene, Subject } from './verify-scene.ts'
import type { StoredSnapshot } from './verify-snapshots.ts'
import { placeOf } from './verify-stored.ts'

const NOTHING = new Uint8Array(0)

/** The members of output events that say where in the input they belong. */
interface Placed {
  readonly type: string
  readonly cause: Cause
  readonly toPulse?: number
  readonly pulse?: number
  readonly finish?: string | null
}
const placedOf = ({ value }: StoredRecord): Placed => JSON.parse(textOf(value ?? NOTHING)) as Placed

const startOf =
  (pulse: number, offset: number, complete: boolean) =>
  (record: StoredRecord): boolean => {
    const value = placedOf(record)
    if (value.cause.offset !== offset) return value.cause.offset > offset
    // The end of a generation may come without tokens, at the pulse where the head before it stands.
    return !complete && ((value.toPulse ?? value.pulse ?? 0) > pulse || typeof value.finish === 'string')
  }

/** Nothing more is said of the session. */
export const giveUp = (subject: Subject): void => {
  subject.session?.context.close()
  subject.session = null
  subject.finished = true
  subject.begins = Number.POSITIVE_INFINITY
}

/** The context that a snapshot stands for; null: a blob of it is missing or damaged, which is a finding. */
const contextAt = async (
  subject: Subject,
  { head, by }: StoredSnapshot,
  { options, partition, model, found }: Scene,
): Promise<Context | null> => {
  const { log, names } = options
  const where = `${names.snapshots}, partition ${partition}`
  const lost = ({ message }: BlockLost): void => {
    subject.isLost = true
    found({ kind: 'blob', session: head.session, where, message })
  }
  const context = model.createContext()
  try {
    const file = await readSnapshot(log, names.snapshots, partition, by)
    const { state } = await storedState(log, file, model.layout, keepIn(log, partition, model.layout, lost))
    await context.load(state, clockOf(head))
    return context
  } catch (error) {
    context.close()
    if (!(error instanceof BlockLost)) throw error
    lost(error)
    return null
  }
}

const beginAt = async (subject: Subject, snapshot: StoredSnapshot, scene: Scene): Promise<void> => {
  const { target } = subject
  const { totals } = scene
  const { head } = snapshot
  const context = await contextAt(subject, snapshot, scene)
  if (context === null) {
    giveUp(subject)
    return
  }
  subject.session?.context.close()
  subject.session = { head, context, history: historyIn(withHistory(head, snapshot.recent), scene.model.vocabSize) }
  subject.begins = head.cursor.offset
  const later = startOf(head.cursor.pulse, head.cursor.offset, head.cursor.complete)
  for (const topic of ['tokens', 'observations'] as const) subject.outputs[topic] = subject.outputs[topic].filter(later)
  for (const map of [subject.heads, subject.snapshots]) {
    for (const [place] of map) {
      const [offset, token] = place.split('/').map(Number) as [number, number]
      if (offset > head.cursor.offset || (offset === head.cursor.offset && token > head.cursor.token)) continue
      // The end of an event may come without a token of its own.
      const ends = place === placeOf({ ...head, cursor: { ...head.cursor, complete: true } })
      if (!ends || head.cursor.complete) map.delete(place)
    }
  }
  totals.partial.push({ session: target.session, fromPulse: head.conductor.globalStep })
  if (placeOf(head) === placeOf(target)) subject.finished = true
}

const oldest = (subject: Subject, isUsable: (snapshot: StoredSnapshot) => boolean): StoredSnapshot | undefined =>
  [...subject.snapshots.values()]
    .flat()
    .map(({ what }) => what)
    .filter(isUsable)
    .sort((a, b) => a.head.cursor.pulse - b.head.cursor.pulse)[0]

const beginNowhere = (subject: Subject, { options, found }: Scene, why: string): void => {
  found({
    kind: 'input',
    session: subject.target.session,
    where: options.names.chunks,
    message: `Session "${subject.target.session}" ${why}, and no snapshot is left to start from. It cannot be recomputed.`,
  })
  subject.finished = true
  subject.begins = Number.POSITIVE_INFINITY
}

/** Where the first events are gone: the oldest snapshot from which the events that are left lead on. */
export const beginAtSnapshot = async (subject: Subject, scene: Scene): Promise<void> => {
  const { begin } = scene
  const base = oldest(subject, ({ head: { cursor } }) => cursor.offset + (cursor.complete ? 1 : 0) >= begin)
  if (base === undefined) beginNowhere(subject, scene, `began before offset ${begin}, where the log now begins`)
  else await beginAt(subject, base, scene)
}

/** Whether the state of the session before this record cannot be had: it was deleted since, or erased. */
export const isGone = (
  { deleted, firsts, deadLetters }: Scene,
  session: string | null,
  subject: Subject | undefined,
  { offset }: StoredRecord,
): boolean => {
  if (session === null) return false
  if (offset < (subject?.begins ?? 0) || offset <= (deleted.get(session) ?? -1)) return true
  // A fork that was accepted, of a session whose events were erased.
  return offset < (firsts.get(session) ?? -1) && !deadLetters.has(offset)
}

/** Leaves out what the session did before this offset. */
export const leaveOut = (subject: Subject, offset: number): void => {
  subject.begins = offset
  for (const topic of ['tokens', 'observations'] as const)
    subject.outputs[topic] = subject.outputs[topic].filter((record) => placedOf(record).cause.offset >= offset)
  for (const map of [subject.heads, subject.snapshots])
    for (const [place] of map) if (Number(place.split('/')[0]) < offset) map.delete(place)
}

/** Leaves out what the session did before it was born anew as a fork at this offset, and counts it as partial. */
export const skipTo = (subject: Subject, offset: number, { totals }: Scene): void => {
  subject.session?.context.close()
  subject.session = null
  leaveOut(subject, offset)
  totals.partial.push({ session: subject.target.session, fromPulse: subject.target.from?.pulse ?? 0 })
}

/**
 * Whether the session was closed and forked since, and this record belongs to a life of it whose first events are gone or in another log:
 * then no `opened` stands for the first record that it would accept.
 */
export const isOfLostLife = ({ target, session, outputs }: Subject, record: StoredRecord): boolean => {
  if (session !== null || target.from === undefined || record.offset >= target.born) return false
  const [first] = outputs.observations
  const opened = first && placedOf(first)
  return opened?.type !== 'opened' || opened.cause.offset !== record.offset
}

/** At a fork whose parent cannot be had: the oldest snapshot of the life that begins there; unless the event was refused. */
export const beginWithoutParent = async (scene: Scene, subject: Subject, { offset }: StoredRecord): Promise<void> => {
  const { target } = subject
  const letter = scene.deadLetters.get(offset)
  if (subject.finished || (letter !== undefined && letter.stopped === null)) return
  const base = oldest(subject, ({ head }) => head.born === offset && head.from !== undefined)
  if (base !== undefined) await beginAt(subject, base, scene)
  else if (target.born > offset) skipTo(subject, target.born, scene)
  else beginNowhere(subject, scene, `was forked at offset ${offset} from a session that cannot be computed up to there`)
}
