/**
 * The sessions of one partition whose contexts are in memory. A context is rebuilt on its session's first event and
 * given back when too many are in memory; what a given-back context knew is in its snapshot, or in so few records of
 * the input that they are read again. idle-sessions.ts decides which context may be given back, context-slots.ts which
 * session gets the next place. Heads, and the captures that are taken here, are in the table (session-table.ts).
 */
import type { Context } from '../../engine/context.ts'
import type { ModelInfo } from '../../engine/types.ts'
import { messageOf } from '../../errors.ts'
import { type Head, samePlace } from '../../state/head.ts'
import { type Inference, initialSession } from '../advance/session-state.ts'
import { reasonOf, SessionLost, setAside } from '../advance/set-aside.ts'
import type { PartitionBlobs } from '../blobs/blobs.ts'
import type { InputLife } from '../pipeline/input-life.ts'
import { createQueue, type Queue } from '../pipeline/queue.ts'
import { shareOf } from '../pipeline/shares.ts'
import { captureIfThere, captureOf } from '../snapshots/capture.ts'
import { MAX_CAPTURES } from '../snapshots/captures.ts'
import { blankSession, Disagreement, type Restored } from '../snapshots/restore.ts'
import type { Capture, Tokenized } from '../types.ts'
import { createCalls } from './calls.ts'
import { createContextSlots } from './context-slots.ts'
import type { Contexts } from './context-store.ts'
import { type Acquired, type Brought, createForks, type Fork, type Take } from './forks.ts'
import { createIdleSessions, type LiveSession } from './idle-sessions.ts'
import { isSaved, type SessionTable } from './session-table.ts'

export interface LiveSessionsOptions {
  readonly table: Pick<SessionTable, 'heads' | 'unsaved' | 'captures' | 'position' | 'snapshotOf' | 'attach'>
  readonly model: ModelInfo & Contexts
  readonly engine: Inference
  /** Where frozen blocks lie; null: snapshots are whole. */
  readonly blobs: PartitionBlobs | null
  readonly snapshotEvery: number
  /**
   * Records of the partition after which an idle session is saved, too, so that the input need not be kept for longer.
   */
  readonly snapshotRecords: number
  /** An input that keeps its records leaves the sessions with a short past as they are. */
  readonly input: InputLife
  /** Bytes of blocks that a capture copies at a time. */
  readonly captureBytes: number
  /** Contexts in memory at most. A session that finds no room waits until another's context was given back. */
  readonly maxContexts: number
  /** How long an event keeps its context while other sessions wait for one, ms; default `ROOM_TURN`. */
  readonly roomTurn?: number | undefined
  /** Rebuilds a session; rejects when `stopping` fires. */
  readonly restore: (head: Head) => Promise<Restored>
  /** No session is let in after it fires. */
  readonly stopping: AbortSignal
  /** Called for trouble that harms no session yet. */
  readonly warn: (message: string) => void
}

export interface LiveSessions {
  /**
   * The engine for these sessions: once the task is over it refuses work, and closes the contexts that it still had.
   */
  readonly engine: Inference
  /**
   * A session in memory, made or rebuilt where it is not; null when the task ends before there is room for it. One
   * event has it until `rest`, which is not called for a session whose call failed halfway.
   */
  acquire(work: Tokenized): Promise<Acquired | null>
  /** The same for an event that forks another session, whose events the caller holds back meanwhile. */
  readonly fork: Fork
  /**
   * A copy of the session's state, for the event that has the session. Its head is committed already, or commits with
   * the copy.
   */
  capture(session: LiveSession): Promise<Capture>
  rest(session: LiveSession): void
  /**
   * In place of `rest` where the context is ahead of all steps: it goes as it is, and the session is rebuilt from its
   * committed head.
   */
  drop(session: LiveSession): void
  /** Whether the event that has this session is to end between two steps, as others wait for its context. */
  isAskedToGo(session: LiveSession): boolean
  /**
   * For a session at rest whose event is to go on later: resolves when the session's context was given back, with false
   * when the task ends before.
   */
  away(session: LiveSession): Promise<boolean>
  /** The session is deleted: its context goes as it is, nothing of it is saved. False: the task ends before. */
  forget(id: string): Promise<boolean>
  /**
   * Spill files have no room for this context any more: it goes at once where it is saved, and else as soon as it is.
   * False: it is in use.
   */
  release(context: Context): boolean
  /** Contexts in memory. */
  readonly live: number
  /** Memory of their contexts. */
  readonly liveBytes: number
  /**
   * Gives every context back. Resolves when no call to the engine and no rebuild is under way: then the model may be
   * closed.
   */
  close(): Promise<void>
}

/** A session on its way to a context. */
interface Arrival {
  /** Its unsaved input came of age meanwhile. */
  due: boolean
  readonly over: Promise<unknown>
}

/**
 * Sessions set aside in a row because their events do not lead to their heads. One is a session whose records were
 * altered; several one after the other are a machine or an input that is not to be trusted, and then the partition is
 * refused before more are touched.
 */
const MAX_DISAGREEMENTS = 3

/** Each reads the input from its snapshot on, so more at a time would only slow each other down. */
const MAX_RESTORES = 4
/** How long an event keeps its context while sessions of its own share wait for one, and while others do, ms. */
export const ROOM_TURN = 2000
const ROOM_TURN_OTHERS = 100
/** Of these, at most so many are for sessions without an event, which need only a snapshot. */
const MAX_REFRESHES = 2

export const createLiveSessions = (options: LiveSessionsOptions): LiveSessions => {
  const { table, model, blobs, snapshotEvery, snapshotRecords, input, maxContexts, restore, stopping } = options
  const { heads, unsaved, captures } = table
  const live = new Map<string, LiveSession>()
  const owners = new WeakMap<Context, LiveSession>()
  const coming = new Map<string, Arrival>()
  const idle = createIdleSessions({ heads, snapshotEvery, snapshotRecords })
  const { free, savable, overdue, capturing, put, isShort } = idle
  const calls = createCalls(options.engine)
  const { engine, alone, tracked } = calls
  /** Sessions out of memory that have to be rebuilt in order to be saved. */
  const lapsed = createQueue<string>()
  let refreshing = 0
  /** Position of the partition at which the input was asked last whether it keeps its records. */
  let asked = table.position
  const roomTurn = options.roomTurn ?? ROOM_TURN
  /** Sessions that an event has and that were not asked to go, by their shares, the longest first. */
  const working = new Map<string | undefined, Queue<LiveSession>>()
  /** Those asked to go whose contexts are still there, and who waits for that. */
  const going = new Set<LiveSession>()
  const leaving = new Map<LiveSession, (gone: boolean) => void>()
  const slots = createContextSlots({
    max: maxContexts,
    maxRestores: MAX_RESTORES,
    alive: () => live.size,
    giveBackOne() {
      if (free.first === undefined) return false
      giveBack(free.first)
      return true
    },
    onPressure: () => makeRoom(),
  })
  /** Nobody gets a context any more, neither those that wait for their first nor those that went for a while. */
  const closeSlots = (): void => {
    slots.close()
    for (const gone of leaving.values()) gone(false)
    leaving.clear()
  }
  stopping.addEventListener('abort', closeSlots)

  const own = (session: LiveSession): void => void owners.set(session.context, session)

  const startsWork = (session: LiveSession): void => {
    session.since = performance.now()
    const queue = working.get(session.share) ?? createQueue<LiveSession>()
    working.set(session.share, queue)
    queue.add(session)
  }
  const notWorking = (session: LiveSession): void => {
    going.delete(session)
    const queue = working.get(session.share)
    queue?.delete(session)
    if (queue?.size === 0) working.delete(session.share)
  }

  const giveBack = (session: LiveSession): void => {
    put(session, null)
    live.delete(session.head.session)
    blobs?.end(session.head.session)
    session.context.close()
    notWorking(session)
    slots.left(session.share)
    leaving.get(session)?.(true)
    leaving.delete(session)
  }

  const settle = (session: LiveSession): void => {
    idle.settle(session)
    if (session.list !== free) return
    if (session.parting) giveBack(session)
    slots.admit()
  }

  const occupy = (session: LiveSession): void => {
    session.busy = true
    session.parting = false
    put(session, null)
    startsWork(session)
  }

  const rest = (session: LiveSession): void => {
    session.busy = false
    notWorking(session)
    settle(session)
    if (session.list === overdue || (session.list === savable && slots.wanted > 0)) makeRoom()
  }

  const capture = (session: LiveSession): Promise<Capture> => {
    session.captured = session.head.conductor.globalStep
    session.beside = 0
    session.due = false
    unsaved.end(session.head.session)
    return alone(session.context, () => captureOf(session, blobs, options.captureBytes))
  }

  /** The same for a session at rest, which nobody else gets meanwhile. */
  const captureAtRest = async (session: LiveSession): Promise<Capture> => {
    put(session, capturing)
    const copying = capture(session)
    session.copying = copying.then(
      () => undefined,
      () => undefined,
    )
    try {
      return await copying
    } finally {
      session.copying = null
      if (!calls.isClosed) settle(session)
    }
  }

  /**
   * The snapshot that a head names may be compacted and trimmed while it is being read; then the newer head names it.
   */
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
  const rebuilt = async (id: string): Promise<Restored> => {
    const session = await tracked(rebuild(id))
    disagreements = 0
    return session
  }
  /** The substitute of a session that is lost: this head as it is set aside, and a memory in its first state. */
  const lost = async (error: unknown, work: Tokenized, head: Head): Promise<Brought> => {
    if (!(error instanceof SessionLost)) throw error
    if (error instanceof Disagreement) disagreements += 1
    if (disagreements >= MAX_DISAGREEMENTS) throw error
    const reason = reasonOf(work.session, error.message)
    const aside = setAside(head, work, { cause: 'storage', reason }, engine.tokenizer !== null)
    return { ...(await blankSession(model, aside.head)), aside: { ...aside, failure: error } }
  }

  /** Gets the session a context: for an event (`busy`), or only to be saved. null when the task ends before. */
  const bring = async (
    id: string,
    busy: boolean,
    make: (known: Head | undefined) => Promise<Brought>,
    share?: string,
  ): ReturnType<Take> => {
    let over = (): void => undefined
    const arrival: Arrival = { due: lapsed.delete(id), over: new Promise<void>((resolve) => (over = resolve)) }
    coming.set(id, arrival)
    const restores = heads.has(id)
    try {
      if (!(await slots.enter(restores, share))) return null
      let lives = false
      try {
        const made = await make(heads.get(id))
        const { head, context, history, blocks, aside, unsaved: stale = false, beside = 0 } = made
        if (calls.isClosed) context.close()
        calls.checkOpen()
        // In the place that was kept for it, before anybody else looks.
        const known = heads.get(id)
        // What took a long rebuild is saved as soon as it rests: the next crash must not make it longer.
        const due = !busy || arrival.due || stale || (known !== undefined && !isSaved(known) && !isShort(known, beside))
        const captured = stale ? Number.NEGATIVE_INFINITY : (known?.snapshot?.pulse ?? -1)
        const place = { parting: false, copying: null, list: null, share, since: 0 }
        const session: LiveSession = { head, context, history, busy, captured, beside, due, ...place }
        live.set(id, session)
        lives = true
        own(session)
        if (busy) startsWork(session)
        blobs?.begin(id, blocks)
        settle(session)
        return { session, ...(aside && { aside }) }
      } catch (error) {
        if (stopping.aborted && !calls.isClosed) return null
        throw error
      } finally {
        if (!lives) slots.left(share)
        slots.settled(restores)
      }
    } finally {
      coming.delete(id)
      over()
    }
  }

  /** The session in memory, where `make` brings it unless it is there. One event has it then. */
  const take: Take = async (id, make, share) => {
    for (;;) {
      const held = coming.get(id)?.over ?? live.get(id)?.copying
      if (held == null) break
      await held
    }
    const known = live.get(id)
    if (known === undefined) return bring(id, true, make, share)
    occupy(known)
    return { session: known }
  }

  const acquire = async (work: Tokenized): Promise<Acquired | null> => {
    let fresh = false
    const taken = await take(
      work.session,
      async (known) => {
        if (known !== undefined) {
          try {
            return await rebuilt(work.session)
          } catch (error) {
            return await lost(error, work, known)
          }
        }
        fresh = true
        return initialSession(work, model, model.createContext())
      },
      shareOf(work.record),
    )
    return taken === null ? null : { ...taken, fresh }
  }

  const forget = async (id: string): Promise<boolean> => {
    for (
      let held = coming.get(id)?.over ?? live.get(id)?.copying;
      held != null;
      held = coming.get(id)?.over ?? live.get(id)?.copying
    )
      await held
    if (stopping.aborted || calls.isClosed) return false
    lapsed.delete(id)
    unsaved.end(id)
    captures.drop(id)
    const known = live.get(id)
    if (known !== undefined) {
      giveBack(known)
      slots.admit()
    }
    return true
  }

  const forkContext = (parent: Context): Promise<Context> => alone(parent, async () => model.forkContext(parent))
  const fork = createForks({ forkContext, own, blobs, room: captures.room, stopping, take, rest, rebuilt, lost })

  /** Rebuilds a session only so that it can be saved. An event of the session waits until that is done. */
  const refresh = async (id: string): Promise<void> => {
    refreshing += 1
    try {
      await bring(id, false, () => tracked(rebuild(id)))
      refreshing -= 1
      makeRoom()
    } catch (error) {
      refreshing -= 1
      if (calls.isClosed || stopping.aborted) return
      // The next event of the session meets the same error; until then no session is harmed.
      options.warn(`Session "${id}" could not be rebuilt to be saved: ${messageOf(error)}`)
      unsaved.begin(id, table.position)
    }
  }

  /**
   * Sessions whose unsaved input begins too long ago are to be saved, wherever they are. Those with a short past are
   * looked at again after as many records where the input keeps its own: whether it still does was asked no more than
   * that many records ago.
   */
  const ripen = (): void => {
    const before = table.position - snapshotRecords
    if (before >= asked) {
      asked = table.position
      void input.ask()
    }
    for (let id = unsaved.takeUpTo(before); id !== undefined; id = unsaved.takeUpTo(before)) {
      const session = live.get(id)
      const arrival = coming.get(id)
      const head = heads.get(id)
      if (input.keeps && head !== undefined && isShort(head, session?.beside)) {
        unsaved.begin(id, table.position)
        continue
      }
      if (session !== undefined) {
        session.due = true
        settle(session)
      } else if (arrival !== undefined) arrival.due = true
      else lapsed.add(id)
    }
  }

  /**
   * Captures, as far as there are places, the states that need a snapshot: those whose unsaved input begins long before
   * the last commit, and those whose contexts others wait for. Only what is committed is captured or given back: a
   * session is restored from its committed head, and a snapshot must never be ahead of the head that names it. An event
   * of the session waits for the end of the copy. Costs nothing for sessions that are not captured.
   */
  const relieve = (): void => {
    ripen()
    askToGo()
    const takeFrom = (list: Queue<LiveSession>, count: number): void => {
      for (let left = count; left > 0 && captures.places > 0 && list.first !== undefined; left -= 1)
        captures.atRest(captureAtRest(list.first))
    }
    takeFrom(overdue, captures.places)
    takeFrom(savable, slots.wanted - capturing.size)
    while (refreshing < MAX_REFRESHES && overdue.size === 0 && lapsed.first !== undefined && !stopping.aborted)
      void refresh(lapsed.first)
  }

  /**
   * Events that have had their contexts for long are asked to go on later, while others wait: a few at a time, because
   * each leaves a snapshot.
   */
  const askToGo = (): void => {
    const now = performance.now()
    for (const { share, count, own } of slots.crowded()) {
      const queue = working.get(share)
      const least = own ? roomTurn : Math.min(roomTurn, ROOM_TURN_OTHERS)
      for (let left = count; left > 0 && going.size < MAX_CAPTURES; left -= 1) {
        const session = queue?.first
        if (session === undefined || now - session.since < least) break
        notWorking(session)
        going.add(session)
      }
    }
  }

  /** The same when a session waits for a context, or a state for its snapshot. An error ends the commit stage. */
  const makeRoom = (): void => {
    if (calls.isClosed) return
    try {
      relieve()
    } catch (error) {
      captures.fail(error)
    }
  }

  const noted = (head: Head): void => {
    const session = live.get(head.session)
    if (session === undefined) return
    // Its context may stay for long, and nothing of it is needed any more.
    if (head.status !== 'open' && samePlace(session.head, head)) blobs?.begin(head.session, undefined)
    settle(session)
  }

  table.attach({
    committed(committed) {
      for (const head of committed) noted(head)
      relieve()
    },
    async saveRest(written) {
      for (const session of live.values()) {
        const { session: id, status, conductor } = session.head
        const isUnsaved = session.due || unsaved.has(id) || table.snapshotOf(id)?.pulse !== conductor.globalStep
        if (status !== 'open' || !isUnsaved) continue
        const capture = await captureIfThere(session, blobs, options.captureBytes)
        if (capture === null) continue
        captures.queue(capture)
        await written()
      }
    },
  })

  const part = (session: LiveSession): void => {
    session.parting = true
    // A capture that is on its way will do.
    session.due ||= session.list !== free && session.captured !== session.head.conductor.globalStep
    settle(session)
    makeRoom()
  }

  return {
    engine,
    acquire,
    fork,
    capture,
    rest,
    drop: giveBack,
    isAskedToGo: (session) => going.has(session),
    away: (session) =>
      new Promise((resolve) => {
        if (stopping.aborted || calls.isClosed) {
          resolve(false)
          return
        }
        leaving.set(session, resolve)
        going.add(session)
        part(session)
      }),
    forget,
    release(context) {
      const session = owners.get(context)
      if (session === undefined || session.busy || calls.isClosed) return false
      // It was given back already.
      if (live.get(session.head.session) !== session) return true
      part(session)
      return true
    },
    get live() {
      return live.size
    },
    get liveBytes() {
      return [...live.values()].reduce((sum, { context }) => sum + context.bytes, 0)
    },
    async close() {
      const contexts = [...live.values()].map(({ context }) => context)
      live.clear()
      closeSlots()
      await calls.close(contexts)
    },
  }
}
