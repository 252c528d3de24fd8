/**
 * The sessions of one partition: every head, and the contexts of those in use. A context is rebuilt on its session's first
 * event and given back when too many are in memory; what a given-back context knew is in its snapshot.
 */
import { type Observable, Subject } from 'rxjs'
import type { Context, Model, WorkItem, WorkResult } from '../engine/types.ts'
import { ContinuoError, codeOf } from '../errors.ts'
import { failpoint } from '../observe/failpoint.ts'
import { type Head, samePlace } from '../state/head.ts'
import { PageLost } from '../state/pages.ts'
import { advance, type Engine, newborn, type Session } from './advance.ts'
import { blankSession, Disagreement, type Restored } from './restore.ts'
import { reasonOf, SessionLost, setAside } from './set-aside.ts'
import { tokenizeEvent } from './tokenize.ts'
import type { Capture, Rejected, Step, Tokenized, Valid } from './types.ts'

export interface SessionsOptions {
  readonly model: Model
  readonly engine: Engine
  readonly snapshotEvery: number
  /** Records of the partition after which an idle session is saved, too: a rebuild reads all that came since. */
  readonly snapshotRecords: number
  /** Contexts in memory at most. A session that finds no room waits until another's state is in a snapshot. */
  readonly maxContexts: number
  /** Rebuilds a session; rejects when `stopping` fires. */
  readonly restore: (head: Head) => Promise<Restored>
  /** Resolves when the stages behind have room for another step; undefined when they have it now. */
  readonly room: () => Promise<void> | undefined
  /** No step begins after it fires. */
  readonly stopping: AbortSignal
  /** Told of every session that is set aside. */
  readonly warn: (message: string) => void
}

export interface Sessions {
  /** Committed heads, kept up to date by commit. */
  readonly heads: Map<string, Head>
  /** The steps of one event, to be asked for when those before it are done; a rejected one is a step of its own. */
  steps(item: Valid | Rejected): AsyncIterable<Step> | readonly Step[]
  /** States that no snapshot holds yet, for the farewell; each is copied when it is asked for, if it can be. Only while nothing runs. */
  unsaved(): Iterable<Capture>
  /**
   * Gives back contexts that others wait for. Returns, at most `limit`, the states that need a snapshot first; each is handed
   * out once. Only what is committed is given back or captured: a session is restored from its committed head, and a
   * snapshot must never be ahead of the head that names it. To be called when `heads` has moved, and on `pressure`.
   * `position` is where the partition stands; idle sessions that were saved long before it are handed out as well.
   */
  relieve(limit: number, position: number): readonly Capture[]
  /** Somebody waits for a context. */
  readonly pressure: Observable<void>
  readonly live: number
  /** Memory of their contexts. */
  readonly liveBytes: number
  /** Gives every context back. Resolves when no call to the engine and no rebuild is under way: then the model may be closed. */
  close(): Promise<void>
}

interface Live extends Session {
  busy: boolean
  /** Pulse of the last state captured; −1 before the first, −∞ where the next step must be saved. */
  captured: number
  /** Offset from which the input would have to be read again; null while nothing came since the last capture. */
  unsavedFrom: number | null
}

/** The engine knows contexts only; a person needs the session. */
const lostBy = (session: string, error: PageLost): PageLost =>
  new PageLost(`Session "${session}": ${error.message}`, { cause: error })

const captureOf = ({ head, context }: Session): Capture => {
  try {
    return { head, state: context.serialize(), gates: context.gates() }
  } catch (error) {
    throw error instanceof PageLost ? lostBy(head.session, error) : error
  }
}

/** null: the context is gone with its device, and a farewell is no reason to fail. The session is rebuilt from the log. */
const captureIfThere = (session: Session): Capture | null => {
  try {
    return captureOf(session)
  } catch (error) {
    if (codeOf(error) === 'UNAVAILABLE') return null
    throw error
  }
}

/**
 * Sessions set aside in a row because their events do not lead to their heads. One is a session whose records were altered; several
 * one after the other are a machine or an input that is not to be trusted, and then the partition is refused before more are touched.
 */
const MAX_DISAGREEMENTS = 3

/** Each reads the input from its snapshot on, so more at a time would only slow each other down. */
const MAX_RESTORES = 4

const rejectedStep = ({ record, session, reason }: Rejected): Step => ({
  record,
  session,
  outputs: [{ to: 'deadletters', reason }],
  head: null,
  done: true,
})

export const createSessions = (options: SessionsOptions): Sessions => {
  const { model, snapshotEvery, snapshotRecords, maxContexts, restore, room, stopping } = options
  const heads = new Map<string, Head>()
  /** In order of last use. */
  const live = new Map<string, Live>()
  /** Contexts that the engine has, or that wait for it. */
  const inWork = new Set<Context>()
  /** Calls to the engine and rebuilds under way. */
  const pending = new Set<Promise<unknown>>()
  let closed = false
  /** Contexts being made, and among them those being rebuilt. */
  let arriving = 0
  let restoring = 0
  let waiting: (() => void)[] = []
  const pressure = new Subject<void>()
  const wake = (): void => {
    const all = waiting
    waiting = []
    for (const go of all) go()
  }
  stopping.addEventListener('abort', wake)

  const checkOpen = (): void => {
    if (closed) throw new ContinuoError('FENCED', 'The task of this session is over.')
  }

  const tracked = async <T>(work: Promise<T>): Promise<T> => {
    pending.add(work)
    try {
      return await work
    } finally {
      pending.delete(work)
    }
  }

  /**
   * The engine, until the task is over. A context that waits for its turn is closed only after it: the batch is shared with
   * other tasks, and one closed context in it would be the end of all of them.
   */
  const processed = async (item: WorkItem): Promise<WorkResult> => {
    checkOpen()
    inWork.add(item.context)
    try {
      return await options.engine.process(item)
    } finally {
      inWork.delete(item.context)
      if (closed) item.context.close()
      checkOpen()
    }
  }
  const engine: Engine = { ...options.engine, process: (item) => tracked(processed(item)) }

  const drop = (id: string, session: Live): void => {
    live.delete(id)
    session.context.close()
  }

  /** Whether a session's context can be given back now: everything it knows is committed and in a snapshot. */
  const isSaved = (id: string, { busy, head }: Live): boolean => {
    const committed = heads.get(id)
    if (busy || committed === undefined || !samePlace(committed, head)) return false
    return committed.status !== 'open' || committed.snapshot?.pulse === head.conductor.globalStep
  }

  /** A copy of the state as it stands; the caller knows that its head is committed, or goes with it. */
  const take = (session: Live): Capture => {
    session.captured = session.head.conductor.globalStep
    session.unsavedFrom = null
    return captureOf(session)
  }

  const giveBackOne = (): boolean => {
    for (const [id, session] of live) {
      if (!isSaved(id, session)) continue
      drop(id, session)
      return true
    }
    return false
  }

  /** Waits for room for one more context; false when the task ends before there is any. */
  const place = async (restores: boolean): Promise<boolean> => {
    for (;;) {
      if (closed || stopping.aborted) return false
      const mayRestore = !restores || restoring < MAX_RESTORES
      const hasRoom = mayRestore && (live.size + arriving < maxContexts || giveBackOne())
      if (hasRoom) {
        arriving += 1
        if (restores) restoring += 1
        return true
      }
      const woken = new Promise<void>((resolve) => waiting.push(resolve))
      if (mayRestore) pressure.next()
      await woken
    }
  }

  /** The snapshot that a head names may be forwarded and trimmed while it is being read; then the newer head names it. */
  const rebuild = async (id: string): Promise<Restored> => {
    for (;;) {
      const head = heads.get(id)!
      try {
        return await restore(head)
      } catch (error) {
        if (heads.get(id) === head) throw error
      }
    }
  }

  let disagreements = 0
  /** What takes the place of a session that is lost: its head as it is set aside, and a memory that nothing was read into. */
  const lost = (error: unknown, work: Tokenized): Session & { readonly aside: Step } => {
    if (!(error instanceof SessionLost)) throw error
    if (error instanceof Disagreement) disagreements += 1
    if (disagreements >= MAX_DISAGREEMENTS) throw error
    const head = heads.get(work.session)!
    const reason = reasonOf(work.session, error.message)
    const aside = setAside(head, work, { cause: 'storage', reason }, engine.tokenizer !== null)
    return { ...blankSession(model, aside.head), aside: { ...aside, failure: error } }
  }

  const begin = async (work: Tokenized): Promise<{ readonly session: Live; readonly aside?: Step } | null> => {
    const id = work.session
    const restores = heads.has(id)
    if (!(await place(restores))) return null
    try {
      let base: Restored & { readonly aside?: Step }
      if (restores) {
        base = await tracked(rebuild(id)).then(
          (session) => {
            disagreements = 0
            return session
          },
          (error: unknown) => lost(error, work),
        )
      } else {
        const context = model.createContext()
        base = { head: newborn(work, model, context.chain), context }
      }
      if (closed) base.context.close()
      checkOpen()
      // In the place that was kept for it, before anybody else looks.
      const { snapshot = null, conductor } = heads.get(id) ?? {}
      // What took a rebuild is saved as soon as it rests: the next crash must not make it longer.
      const from = conductor === undefined || snapshot?.pulse === conductor.globalStep ? null : Number.NEGATIVE_INFINITY
      const { head, context, aside, unsaved } = base
      const captured = unsaved ? Number.NEGATIVE_INFINITY : (snapshot?.pulse ?? -1)
      const session: Live = { head, context, busy: true, captured, unsavedFrom: from }
      live.set(id, session)
      return { session, ...(aside && { aside }) }
    } catch (error) {
      if (stopping.aborted && !closed) return null
      throw error
    } finally {
      arriving -= 1
      if (restores) {
        restoring -= 1
        wake()
      }
    }
  }

  const acquire = async (work: Tokenized): Promise<{ session: Live; fresh: boolean; aside?: Step } | null> => {
    const known = live.get(work.session)
    if (known !== undefined) {
      live.delete(work.session)
      live.set(work.session, known)
      known.busy = true
      return { session: known, fresh: false }
    }
    const fresh = !heads.has(work.session)
    const begun = await begin(work)
    return begun === null ? null : { ...begun, fresh }
  }

  /** With the session and the record. */
  const named = (error: unknown, { session, record }: Tokenized): unknown => {
    if (error instanceof PageLost) return lostBy(session, error)
    return error instanceof ContinuoError && error.code === 'REFUSED' && !error.message.startsWith('Session ')
      ? new ContinuoError(
          'REFUSED',
          `Session "${session}", reading the record at offset ${record.offset} of ${record.topic}: ${error.message}`,
          { cause: error },
        )
      : error
  }

  async function* run(event: Valid): AsyncGenerator<Step> {
    const newest = live.get(event.session)?.head ?? heads.get(event.session)
    const work = tokenizeEvent(event, newest, engine.tokenizer, model)
    if (work.kind === 'rejected') {
      yield rejectedStep(work)
      return
    }
    const acquired = await acquire(work)
    if (acquired === null) return
    const { session, fresh, aside } = acquired
    // A new context on an old clock: save it at once, so that no replay has to begin before it.
    if (session.head.status !== 'open') session.captured = Number.NEGATIVE_INFINITY
    // Where a session was set aside because its past is lost, no replay could lead to what it does from here on.
    const needsSnapshot = session.head.stopped !== undefined && aside === undefined
    try {
      if (aside !== undefined) {
        options.warn(aside.head!.stopped!.reason)
        yield aside
        return
      }
      for await (const step of advance(session, work, fresh, engine)) {
        const pulse = step.head!.conductor.globalStep
        const since = session.captured === -1 ? 0 : session.captured
        session.unsavedFrom ??= work.record.offset
        if (step.failure !== undefined) options.warn(`${step.head!.stopped!.reason} (${step.failure.message})`)
        if (pulse - since >= snapshotEvery && step.head!.status === 'open') {
          const capture = take(session)
          failpoint('snapshot.captured')
          yield { ...step, capture, ...(needsSnapshot && { needsSnapshot }) }
        } else yield step
        await room()
        if (stopping.aborted) return
      }
    } catch (error) {
      throw named(error, work)
    } finally {
      session.busy = false
    }
  }

  return {
    heads,
    steps(item) {
      // A stop may have left the event before this one unfinished: whatever this one is, it waits for that.
      if (stopping.aborted) return []
      return item.kind === 'rejected' ? [rejectedStep(item)] : run(item)
    },
    *unsaved() {
      for (const session of live.values()) {
        const pulse = session.head.conductor.globalStep
        if (session.head.status !== 'open' || heads.get(session.head.session)?.snapshot?.pulse === pulse) continue
        const capture = captureIfThere(session)
        if (capture !== null) yield capture
      }
    },
    relieve(limit, position) {
      const captures: Capture[] = []
      for (const [id, session] of live) {
        if (captures.length >= limit) break
        if (session.busy || session.unsavedFrom === null || position - session.unsavedFrom < snapshotRecords) continue
        const head = heads.get(id)
        if (head?.status === 'open' && samePlace(head, session.head)) captures.push(take(session))
      }
      let surplus = live.size + arriving + waiting.length - maxContexts
      let gone = false
      for (const [id, session] of live) {
        if (surplus <= 0) break
        if (session.busy) continue
        surplus -= 1
        const head = heads.get(id)
        if (head === undefined || !samePlace(head, session.head)) continue
        const pulse = session.head.conductor.globalStep
        if (isSaved(id, session)) {
          drop(id, session)
          gone = true
        } else if (session.captured !== pulse && captures.length < limit) {
          captures.push(take(session))
        }
      }
      if (gone) wake()
      return captures
    },
    pressure,
    get live() {
      return live.size
    },
    get liveBytes() {
      return [...live.values()].reduce((sum, { context }) => sum + context.bytes, 0)
    },
    async close() {
      closed = true
      wake()
      for (const { context } of live.values()) if (!inWork.has(context)) context.close()
      live.clear()
      await Promise.allSettled(pending)
    },
  }
}
