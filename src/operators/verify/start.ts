/** Where `verify` begins with a session whose first events are gone, or whose parent is. */
import type { Context } from '../../engine/context.ts'
import { codeOf } from '../../errors.ts'
import type { Head } from '../../state/head.ts'
import { historyIn, withHistory } from '../../state/history.ts'
import { readSnapshotFile } from '../../state/snapshot.ts'
import type { StoredRecord } from '../../streams/log.ts'
import { clockOf } from '../advance/session-state.ts'
import { wrongBlobs } from '../blobs/check.ts'
import { BlockLost, keepIn, manifestIn } from '../snapshots/manifests.ts'
import { blankSession } from '../snapshots/restore.ts'
import { readSnapshot } from '../snapshots/snapshots.ts'
import { storedState } from '../snapshots/stored-state.ts'
import type { Audit, NotRecomputed, Subject } from './audit.ts'
import type { StoredSnapshot } from './snapshots.ts'
import { OUTPUTS, type Placed, placedOf, placeOf } from './stored.ts'

/** The pulse at which the step of an output ended, at least. */
const endOf = ({ toPulse, pulse, events }: Placed): number => toPulse ?? pulse ?? (events?.at(-1)?.pulse ?? -1) + 1

const startOf =
  (pulse: number, offset: number, complete: boolean) =>
  (record: StoredRecord): boolean => {
    const value = placedOf(record)
    if (value.cause.offset !== offset) return value.cause.offset > offset
    // The end of a generation may come without tokens, at the pulse where the head before it stands.
    return !complete && (endOf(value) > pulse || typeof value.finish === 'string')
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
  { options, partition, model, found }: Audit,
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

/**
 * A state in the log from which a session can be computed on. `snapshot` is null for a head of a session that was
 * closed or set aside: the memory behind it is in its first state, so the head is all that there is. A worker takes it
 * up in the same way (restore.ts).
 */
interface Start {
  readonly head: Head
  readonly snapshot: StoredSnapshot | null
}

/** All of a session, oldest first. */
const startsOf = ({ heads, snapshots }: Subject): readonly Start[] => {
  const saved = [...snapshots.values()].flat().map(({ what }): Start => ({ head: what.head, snapshot: what }))
  const ended = [...heads.values()]
    .flat()
    .filter(({ what }) => what.status !== 'open')
    .map(({ what }): Start => ({ head: what, snapshot: null }))
  return [...saved, ...ended].sort((a, b) => comparePlaces(a.head, b.head))
}

const comparePlaces = ({ cursor: a }: Head, { cursor: b }: Head): number =>
  a.offset - b.offset || a.token - b.token || Number(a.complete) - Number(b.complete)

/**
 * Whether the blobs are there that only this snapshot names. Those of older snapshots are garbage, which goes at any
 * time. What the newest names ought to be there: where it is not, that shows when it is wanted.
 */
const hasItsOwn = async (
  { by }: StoredSnapshot,
  { target }: Subject,
  { options, partition }: Audit,
): Promise<boolean> => {
  if (by === target || by.snapshot?.blobs === undefined) return true
  const { log, names } = options
  const manifestOf = async (head: Head) =>
    manifestIn(log, await readSnapshotFile(await readSnapshot(log, names.snapshots, partition, head)))
  const living = new Set<string>()
  if (target.snapshot?.blobs !== undefined) {
    const newest = await manifestOf(target).catch((error: unknown) => {
      // That it cannot be read is a finding already.
      if (codeOf(error) !== 'REFUSED') throw error
      return null
    })
    for (const { hash, place } of newest?.names.flat() ?? []) living.add(`${newest!.store}/${hash}.${place}`)
  }
  const manifest = await manifestOf(by)
  return manifest === null || (await wrongBlobs(log, manifest, living)).length === 0
}

/** What the log told at the end of a session that is taken up behind it. */
const compareFarewell = ({ outputs }: Subject, head: Head, { options, partition, begin, found }: Audit): void => {
  const { offset } = head.cursor
  if (head.status !== 'closed' || offset < begin) return
  const { conductor, chain, totals } = head
  const expected = { pulse: conductor.globalStep, chain, ...totals }
  const told = outputs.observations
    .map((record) => placedOf(record) as Placed & Partial<typeof expected>)
    .find(({ type, cause }) => type === 'closed' && cause.offset === offset)
  const differs = Object.entries(expected).some(([name, value]) => told?.[name as keyof typeof expected] !== value)
  if (!differs) return
  const message =
    told === undefined
      ? `${options.names.observations} lacks that the session was closed at offset ${offset}.`
      : `The head of the closed session differs from what was told at its close: pulse ${expected.pulse}, chain ${chain} against pulse ${told.pulse}, chain ${told.chain}, or other sums.`
  found({ kind: 'head', session: head.session, where: `${options.names.state}, partition ${partition}`, message })
}

const beginAt = async (
  subject: Subject,
  { head, snapshot }: Start,
  audit: Audit,
  because: NotRecomputed['because'],
): Promise<void> => {
  const { target } = subject
  const { totals, model } = audit
  if (snapshot === null) {
    compareFarewell(subject, head, audit)
    subject.session?.context.close()
    subject.session = await blankSession(model, head)
  } else {
    const context = await contextAt(subject, snapshot, audit)
    if (context === null) {
      giveUp(subject)
      return
    }
    subject.session?.context.close()
    subject.session = { head, context, history: historyIn(withHistory(head, snapshot.kept), model.vocabSize) }
  }
  subject.begins = head.cursor.offset
  const later = startOf(head.cursor.pulse, head.cursor.offset, head.cursor.complete)
  for (const topic of OUTPUTS) subject.outputs[topic] = subject.outputs[topic].filter(later)
  for (const map of [subject.heads, subject.snapshots]) {
    for (const [place] of map) {
      const [offset, token] = place.split('/').map(Number) as [number, number]
      if (offset > head.cursor.offset || (offset === head.cursor.offset && token > head.cursor.token)) continue
      // The end of an event may come without a token of its own.
      const ends = place === placeOf({ ...head, cursor: { ...head.cursor, complete: true } })
      if (!ends || head.cursor.complete) map.delete(place)
    }
  }
  if (placeOf(head) === placeOf(target)) subject.finished = true
  if (subject.finished && snapshot === null) totals.notRecomputed.push({ session: target.session, because })
  else totals.partial.push({ session: target.session, fromPulse: head.conductor.globalStep })
}

/** Begins at the first of these that can be had. False: there is none. */
const beginAtOldest = async (
  subject: Subject,
  isUsable: (head: Head) => boolean,
  audit: Audit,
  because: NotRecomputed['because'],
): Promise<boolean> => {
  for (const start of startsOf(subject)) {
    if (!isUsable(start.head)) continue
    if (start.snapshot !== null && !(await hasItsOwn(start.snapshot, subject, audit))) continue
    await beginAt(subject, start, audit, because)
    return true
  }
  return false
}

const beginNowhere = (subject: Subject, { options, found }: Audit, why: string): void => {
  found({
    kind: 'input',
    session: subject.target.session,
    where: options.names.chunks,
    message: `Session "${subject.target.session}" ${why}, and no snapshot is left to start from. It cannot be recomputed.`,
  })
  subject.finished = true
  subject.begins = Number.POSITIVE_INFINITY
}

/**
 * Where the first events are gone: the oldest state from which the events that are left lead on, or which needs none.
 */
export const beginAtState = async (subject: Subject, audit: Audit): Promise<void> => {
  const { begin } = audit
  const { target } = subject
  const isUsable = (head: Head): boolean =>
    head.cursor.offset + (head.cursor.complete ? 1 : 0) >= begin || placeOf(head) === placeOf(target)
  if (!(await beginAtOldest(subject, isUsable, audit, 'input')))
    beginNowhere(subject, audit, `began before offset ${begin}, where the log now begins`)
}

/** Whether the state of the session before this record cannot be had: it was deleted since, or erased. */
export const isGone = (
  { begin, deleted, firsts, deadLetters, gap }: Audit,
  session: string | null,
  subject: Subject | undefined,
  { offset }: StoredRecord,
): boolean => {
  if (session === null) return false
  if (offset < (subject?.begins ?? 0) || offset <= (deleted.get(session) ?? -1)) return true
  // A fork that was accepted, of an earlier life that began before the log does.
  const isEarlier = subject?.session === null && subject.target.from !== undefined && offset < subject.target.born
  if (begin > 0 && isEarlier && !deadLetters.has(offset)) return true
  // A fork that was accepted, of a session whose events were erased.
  return gap < offset && offset < (firsts.get(session) ?? -1) && !deadLetters.has(offset)
}

/** Leaves out what the session did before this offset. */
export const leaveOut = (subject: Subject, offset: number): void => {
  subject.begins = offset
  for (const topic of OUTPUTS)
    subject.outputs[topic] = subject.outputs[topic].filter((record) => placedOf(record).cause.offset >= offset)
  for (const map of [subject.heads, subject.snapshots])
    for (const [place] of map) if (Number(place.split('/')[0]) < offset) map.delete(place)
}

/** Leaves out what the session did before it was born anew as a fork at this offset, and counts it as partial. */
export const skipTo = (subject: Subject, offset: number, { totals }: Audit): void => {
  subject.session?.context.close()
  subject.session = null
  leaveOut(subject, offset)
  totals.partial.push({ session: subject.target.session, fromPulse: subject.target.from?.pulse ?? 0 })
}

/**
 * Whether the session was closed and forked since, and this record belongs to a life of it whose first events are gone
 * or in another log: then no `opened` of a session that begins stands for the first record that it would accept.
 */
export const isOfLostLife = ({ target, session, outputs }: Subject, record: StoredRecord, isFork: boolean): boolean => {
  if (session !== null || target.from === undefined || record.offset >= target.born) return false
  const [first] = outputs.observations
  const opened = first && placedOf(first)
  // That of a session which goes on has the pulse at which it was closed.
  return opened?.type !== 'opened' || opened.cause.offset !== record.offset || (!isFork && opened.pulse !== 0)
}

/**
 * At a fork whose parent cannot be had: the oldest state of the life that begins there; unless the event was refused.
 */
export const beginWithoutParent = async (audit: Audit, subject: Subject, { offset }: StoredRecord): Promise<void> => {
  const { target } = subject
  const letter = audit.deadLetters.get(offset)
  if (subject.finished || (letter !== undefined && letter.stopped === null)) return
  const isUsable = (head: Head): boolean => head.born === offset && head.from !== undefined
  if (await beginAtOldest(subject, isUsable, audit, 'parent')) return
  if (target.born > offset) skipTo(subject, target.born, audit)
  else beginNowhere(subject, audit, `was forked at offset ${offset} from a session that cannot be computed up to there`)
}
