/**
 * The sessions of one partition: every head, and the contexts of those in use. A context is rebuilt on its session's first
 * event and given back when too many are in memory; what a given-back context knew is in its snapshot, or in so few records
 * of the input that they are read again. resting.ts decides which context may be given back, rooms.ts which session gets the next place.
 */
import { type Observable, Subject } from 'rxjs'
import type { Context, ModelInfo, WorkItem, WorkResult } from '../engine/types.ts'
import { ContinuoError, codeOf, messageOf } from '../errors.ts'
import type { Head } from '../state/head.ts'
import { endOf, within } from '../state/manifest.ts'
import { SpillLost } from '../state/spill.ts'
import { type Inference, initialHead, type SessionState } from './advance.ts'
import type { Backlog } from './backlog.ts'
import type { PartitionBlobs } from './blobs.ts'
import { type Acquired, type Brought, createForks, type Fork, spillLostOf, type Take } from './forks.ts'
import { createQueue, type Queue } from './queue.ts'
import type { Contexts } from './residency.ts'
import { createResting, isSaved, type LiveSession } from './resting.ts'
import { blankSession, Disagreement, type Restored } from './restore.ts'
import { createRooms } from './rooms.ts'
import { reasonOf, SessionLost, setAside } from './set-aside.ts'
import type { Capture, Tokenized } from './types.ts'
import { createUnsaved } from './unsaved.ts'

export interface SessionsOptions {
  readonly model: ModelInfo & Contexts
  readonly engine: Inference
  /** Where frozen blocks lie; null: snapshots are whole. */
  readonly blobs: PartitionBlobs | null
  /** Bytes of copied states that their commits wait for; a fork waits for room among them. */
  readonly copies: Pick<Backlog, 'room'>
  readonly snapshotEvery: number
  /** Records of the partition after which an idle session is saved, too: a rebuild reads all that came since. */
  readonly snapshotRecords: number
  /** Contexts in memory at most. A session that finds no room waits until another's context was given back. */
  readonly maxContexts: number
  /** Rebuilds a session; rejects when `stopping` fires. */
  readonly restore: (head: Head) => Promise<Restored>
  /** No session is let in after it fires. */
  readonly stopping: AbortSignal
  /** Called for trouble that harms no session yet. */
  readonly warn: (message: string) => void
}

export interface Sessions {
  /** The engine for these sessions: once the task is over it refuses work, and closes the contexts that it still had. */
  readonly engine: Inference
  /** The newest head of a session, committed or not; undefined for a session that has none yet. */
  newest(session: string): Head | undefined
  /**
   * A session in memory, made or rebuilt where it is not; null when the task ends before there is room for it. One event has it until
   * `rest`, which is not called for a session whose call failed halfway.
   */
  acquire(work: Tokenized): Promise<Acquired | null>
  /** The same for an event that forks another session, whose events the caller holds back meanwhile. */
  readonly fork: Fork
  /** The session has read input from this offset on; what came after its last capture is unsaved. */
  began(session: string, offset: number): void
  /** A copy of the session's state. To be called by the event that has the session; the session's head is committed already, or is committed with the copy. */
  capture(session: LiveSession): Promise<Capture>
  rest(session: LiveSession): void
  /** Committed heads. */
  readonly heads: ReadonlyMap<string, Head>
  /** A head of the log that the task begins with. */
  resume(head: Head): void
  /** A head was committed. */
  committed(head: Head): void
  /** States that no snapshot holds yet, for the farewell; each is copied when it is asked for, if it can be. Only while nothing runs. */
  unsaved(): AsyncIterable<Capture>
  /**
   * At most `limit` states that need a snapshot: those whose unsaved input begins long before `position`, where the partition
   * stands, and those whose contexts others wait for. Each is handed out once. Only what is committed is captured or given
   * back: a session is restored from its committed head, and a snapshot must never be ahead of the head that names it. Each is being copied
   * when it is handed out; an event of its session waits for the end of the copy. To be called after each commit, and on `pressure`. Costs
   * nothing for sessions that are not handed out.
   */
  relieve(limit: number, position: number): readonly Promise<Capture>[]
  /** Fires when a session waits for a context, or a state for its snapshot. */
  readonly pressure: Observable<void>
  readonly live: number
  /** Memory of their contexts. */
  readonly liveBytes: number
  /** Gives every context back. Resolves when no call to the engine and no rebuild is under way: then the model may be closed. */
  close(): Promise<void>
}

/** A session on its way to a context. */
interface Arrival {
  /** Its unsaved input came of age meanwhile. */
  due: boolean
  readonly over: Promise<unknown>
}

const captureOf = async ({ head, context }: SessionState, blobs: PartitionBlobs | null): Promise<Capture> => {
  try {
    const gates = context.gates()
    if (blobs === null) return { head, state: await context.state(), gates }
    const names = blobs.known(head.session, head.conductor.origin)
    const parts = { pulse: head.conductor.globalStep, ends: names.map(endOf) }
    const { hot, frozen, fresh } = await context.capture(parts)
    const known = names.map((own, g) => within(own, frozen[g]!))
    return { head, state: hot, blocks: { known, fresh }, gates }
  } catch (error) {
    throw error instanceof SpillLost ? spillLostOf(head.session, error) : error
  }
}

/** null: the context is gone with its device, and a farewell is no reason to fail. The session is rebuilt from the log. */
const captureIfThere = async (session: SessionState, blobs: PartitionBlobs | null): Promise<Capture | null> => {
  try {
    return await captureOf(session, blobs)
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
/** Of these, at most so many are for sessions without an event, which need only a snapshot. */
const MAX_REFRESHES = 2

export const createSessions = (options: SessionsOptions): Sessions => {
  const { model, blobs, copies, snapshotEvery, snapshotRecords, maxContexts, restore, stopping } = options
  const heads = new Map<string, Head>()
  const live = new Map<string, LiveSession>()
  const coming = new Map<string, Arrival>()
  const resting = createResting({ heads, snapshotEvery, snapshotRecords })
  const { free, savable, overdue, capturing, put, isShort } = resting
  const unsaved = createUnsaved()
  /** Sessions out of memory that have to be rebuilt in order to be saved. */
  const lapsed = createQueue<string>()
  let refreshing = 0
  let position = 0
  /** Contexts that the engine has, or that wait for it. */
  const inWork = new Set<Context>()
  /** Calls to the engine and rebuilds under way. */
  const pending = new Set<Promise<unknown>>()
  let closed = false
  const pressure = new Subject<void>()
  const rooms = createRooms({
    max: maxContexts,
    maxRestores: MAX_RESTORES,
    alive: () => live.size,
    giveBackOne() {
      const session = free.first
      if (session === undefined) return false
      put(session, null)
      live.delete(session.head.session)
      blobs?.end(session.head.session)
      session.context.close()
      return true
    },
    onPressure: () => pressure.next(),
  })
  stopping.addEventListener('abort', rooms.close)

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
   * Submits to the engine while the task runs. If the task closes meanwhile, the context is closed when the engine has answered.
   */
  const submitted = async (item: WorkItem): Promise<WorkResult> => {
    checkOpen()
    inWork.add(item.context)
    try {
      return await options.engine.submit(item)
    } finally {
      inWork.delete(item.context)
      if (closed) item.context.close()
      checkOpen()
    }
  }
  /** A call that the context has to itself; where the task closes meanwhile, the context is closed after it. */
  const alone = <T>(context: Context, call: () => Promise<T>): Promise<T> => {
    const running = async (): Promise<T> => {
      inWork.add(context)
      try {
        return await call()
      } finally {
        inWork.delete(context)
        if (closed) context.close()
      }
    }
    return tracked(running())
  }
  const engine: Inference = { ...options.engine, submit: (item) => tracked(submitted(item)), alone }

  const settle = (session: LiveSession): void => {
    resting.settle(session)
    if (session.list === free) rooms.admit()
  }

  const occupy = (session: LiveSession): void => {
    session.busy = true
    put(session, null)
  }

  const rest = (session: LiveSession): void => {
    session.busy = false
    settle(session)
    if (session.list === overdue || (session.list === savable && rooms.wanted > 0)) pressure.next()
  }

  const capture = (session: LiveSession): Promise<Capture> => {
    session.captured = session.head.conductor.globalStep
    session.due = false
    unsaved.end(session.head.session)
    return alone(session.context, () => captureOf(session, blobs))
  }

  /** The same of a session at rest, which nobody else gets meanwhile. */
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
      if (!closed) settle(session)
    }
  }

  /** The snapshot that a head names may be compacted and trimmed while it is being read; then the newer head names it. */
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
  ): ReturnType<Take> => {
    let over = (): void => undefined
    const arrival: Arrival = { due: lapsed.delete(id), over: new Promise<void>((resolve) => (over = resolve)) }
    coming.set(id, arrival)
    const restores = heads.has(id)
    try {
      if (!(await rooms.enter(restores))) return null
      try {
        const { head, context, blocks, aside, unsaved: stale = false } = await make(heads.get(id))
        if (closed) context.close()
        checkOpen()
        // In the place that was kept for it, before anybody else looks.
        const known = heads.get(id)
        // What took a long rebuild is saved as soon as it rests: the next crash must not make it longer.
        const due = !busy || arrival.due || stale || (known !== undefined && !isSaved(known) && !isShort(known))
        const captured = stale ? Number.NEGATIVE_INFINITY : (known?.snapshot?.pulse ?? -1)
        const session: LiveSession = { head, context, busy, captured, due, copying: null, list: null }
        live.set(id, session)
        blobs?.begin(id, blocks)
        settle(session)
        return { session, ...(aside && { aside }) }
      } catch (error) {
        if (stopping.aborted && !closed) return null
        throw error
      } finally {
        rooms.settled(restores)
      }
    } finally {
      coming.delete(id)
      over()
    }
  }

  /** The session in memory, where `make` brings it unless it is there. One event has it then. */
  const take: Take = async (id, make) => {
    for (;;) {
      const held = coming.get(id)?.over ?? live.get(id)?.copying
      if (held == null) break
      await held
    }
    const known = live.get(id)
    if (known === undefined) return bring(id, true, make)
    occupy(known)
    return { session: known }
  }

  const acquire = async (work: Tokenized): Promise<Acquired | null> => {
    let fresh = false
    const taken = await take(work.session, async (known) => {
      if (known !== undefined) {
        try {
          return await rebuilt(work.session)
        } catch (error) {
          return await lost(error, work, known)
        }
      }
      fresh = true
      const context = model.createContext()
      return { head: initialHead(work, model, context.chain), context }
    })
    return taken === null ? null : { ...taken, fresh }
  }

  const forkContext = (parent: Context): Promise<Context> => alone(parent, async () => model.forkContext(parent))
  const fork = createForks({ forkContext, blobs, copies, stopping, take, rest, rebuilt, lost })

  /** Rebuilds a session only so that it can be saved. An event of the session waits until that is done. */
  const refresh = async (id: string): Promise<void> => {
    refreshing += 1
    try {
      await bring(id, false, () => tracked(rebuild(id)))
      refreshing -= 1
      pressure.next()
    } catch (error) {
      refreshing -= 1
      if (closed || stopping.aborted) return
      // The next event of the session meets the same error; until then no session is harmed.
      options.warn(`Session "${id}" could not be rebuilt to be saved: ${messageOf(error)}`)
      unsaved.begin(id, position)
    }
  }

  /** Sessions whose unsaved input begins too long ago are to be saved, wherever they are. */
  const ripen = (): void => {
    const before = position - snapshotRecords
    for (let id = unsaved.takeUpTo(before); id !== undefined; id = unsaved.takeUpTo(before)) {
      const session = live.get(id)
      const arrival = coming.get(id)
      if (session !== undefined) {
        session.due = true
        settle(session)
      } else if (arrival !== undefined) arrival.due = true
      else lapsed.add(id)
    }
  }

  return {
    heads,
    engine,
    newest: (id) => live.get(id)?.head ?? heads.get(id),
    acquire,
    fork,
    began: unsaved.begin,
    capture,
    rest,
    resume(head) {
      heads.set(head.session, head)
      // What came after an older snapshot came before the head's own record, and where is not known.
      if (!isSaved(head)) unsaved.begin(head.session, head.snapshot === null ? head.born : head.cursor.offset)
    },
    committed(head) {
      heads.set(head.session, head)
      if (head.status !== 'open') unsaved.end(head.session)
      const session = live.get(head.session)
      if (session === undefined) return
      // Its context may stay for long, and nothing of it is needed any more.
      if (head.status !== 'open') blobs?.begin(head.session, undefined)
      settle(session)
    },
    async *unsaved() {
      for (const session of live.values()) {
        const pulse = session.head.conductor.globalStep
        const { session: id, status } = session.head
        const isUnsaved = session.due || unsaved.has(id) || heads.get(id)?.snapshot?.pulse !== pulse
        if (status !== 'open' || !isUnsaved) continue
        const captured = await captureIfThere(session, blobs)
        if (captured !== null) yield captured
      }
    },
    relieve(limit, at) {
      position = at
      ripen()
      const captures: Promise<Capture>[] = []
      const takeFrom = (list: Queue<LiveSession>, count: number): void => {
        for (let left = count; left > 0 && captures.length < limit && list.first !== undefined; left -= 1)
          captures.push(captureAtRest(list.first))
      }
      takeFrom(overdue, limit)
      takeFrom(savable, rooms.wanted - capturing.size)
      while (refreshing < MAX_REFRESHES && overdue.size === 0 && lapsed.first !== undefined && !stopping.aborted)
        void refresh(lapsed.first)
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
      rooms.close()
      for (const { context } of live.values()) if (!inWork.has(context)) context.close()
      live.clear()
      await Promise.allSettled(pending)
    },
  }
}
