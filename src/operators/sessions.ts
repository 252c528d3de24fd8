/**
 * The sessions of one partition: every head, and the contexts of those in use. A context is rebuilt on its session's first
 * event and given back when too many are in memory; what a given-back context knew is in its snapshot.
 */
import type { Model } from '../engine/types.ts'
import { failpoint } from '../observe/failpoint.ts'
import type { Head } from '../state/head.ts'
import { advance, type Engine, newborn, type Session } from './advance.ts'
import type { Capture, Rejected, Step, Tokenized } from './types.ts'

export interface SessionsOptions {
  readonly model: Model
  readonly engine: Engine
  readonly snapshotEvery: number
  /** Contexts kept in memory. */
  readonly maxContexts: number
  readonly restore: (head: Head) => Promise<Session>
  /** Resolves when the stages behind have room for another step; undefined when they have it now. */
  readonly room: () => Promise<void> | undefined
  /** No step begins after it fires. */
  readonly stopping: AbortSignal
}

export interface Sessions {
  /** Committed heads, kept up to date by commit. */
  readonly heads: Map<string, Head>
  /** The steps of one event; rejected events pass through as a step of their own. */
  steps(item: Tokenized | Rejected): AsyncIterable<Step> | readonly Step[]
  /** States that no snapshot holds yet, for the farewell. Only while nothing runs. */
  unsaved(): readonly Capture[]
  /** States of contexts that must go once a snapshot holds them; each is handed out once. */
  takeEvicted(): readonly Capture[]
  /** A head that names this snapshot is committed; the context may go if nothing happened since. */
  saved(session: string, pulse: number): void
  readonly live: number
  close(): void
}

interface Live extends Session {
  busy: boolean
  /** Pulse of the last state captured; −1 before the first. */
  captured: number
  /** Pulse up to which a committed snapshot holds the state. */
  savedAt: number
  evicting: boolean
}

const rejectedStep = ({ record, session, reason }: Rejected): Step => ({
  record,
  session,
  outputs: [{ to: 'deadletters', reason }],
  head: null,
  done: true,
})

export const createSessions = (options: SessionsOptions): Sessions => {
  const { model, engine, snapshotEvery, maxContexts, restore, room, stopping } = options
  const heads = new Map<string, Head>()
  /** In order of last use. */
  const live = new Map<string, Live>()
  let evictions: Capture[] = []

  const drop = (id: string, session: Live): void => {
    live.delete(id)
    session.context.close()
  }

  /** Contexts beyond the limit: clean ones go at once, others when a snapshot holds them. */
  const evict = (): void => {
    let surplus = live.size - maxContexts
    for (const [id, session] of live) {
      if (surplus <= 0) return
      if (session.busy) continue
      surplus -= 1
      const pulse = session.head.conductor.globalStep
      if (session.head.status === 'closed' || session.savedAt === pulse) drop(id, session)
      else if (!session.evicting) {
        session.evicting = true
        session.captured = pulse
        evictions.push({ head: session.head, state: session.context.serialize() })
      }
    }
  }

  const acquire = async (work: Tokenized): Promise<{ session: Live; fresh: boolean }> => {
    const known = live.get(work.session)
    if (known !== undefined) {
      live.delete(work.session)
      live.set(work.session, known)
      known.busy = true
      return { session: known, fresh: false }
    }
    const head = heads.get(work.session)
    const pulse = head?.snapshot?.pulse ?? 0
    let base: Session
    if (head === undefined) {
      const context = model.createContext()
      base = { head: newborn(work, model, context.chain), context }
    } else base = await restore(head)
    const session: Live = { ...base, busy: true, captured: pulse, savedAt: pulse, evicting: false }
    live.set(work.session, session)
    return { session, fresh: head === undefined }
  }

  async function* run(work: Tokenized): AsyncGenerator<Step> {
    if (stopping.aborted) return
    const { session, fresh } = await acquire(work)
    // A new context on an old clock: save it at once, so that no replay has to begin before it.
    if (session.head.status === 'closed') session.captured = Number.NEGATIVE_INFINITY
    try {
      for await (const step of advance(session, work, fresh, engine)) {
        const pulse = step.head!.conductor.globalStep
        if (pulse - session.captured >= snapshotEvery && step.head!.status === 'open') {
          session.captured = pulse
          const capture = { head: step.head!, state: session.context.serialize() }
          failpoint('snapshot.captured')
          yield { ...step, capture }
        } else yield step
        await room()
        if (stopping.aborted) return
      }
    } finally {
      session.busy = false
      evict()
    }
  }

  return {
    heads,
    steps: (item) => (item.kind === 'rejected' ? [rejectedStep(item)] : run(item)),
    unsaved() {
      const captures: Capture[] = []
      for (const session of live.values()) {
        const pulse = session.head.conductor.globalStep
        if (session.head.status === 'closed' || session.savedAt === pulse) continue
        captures.push({ head: session.head, state: session.context.serialize() })
      }
      return captures
    },
    takeEvicted() {
      const taken = evictions
      evictions = []
      return taken
    },
    saved(id, pulse) {
      const session = live.get(id)
      if (session === undefined) return
      session.savedAt = Math.max(session.savedAt, pulse)
      if (!session.evicting) return
      session.evicting = false
      if (!session.busy && live.size > maxContexts && session.head.conductor.globalStep === pulse) drop(id, session)
    },
    get live() {
      return live.size
    },
    close() {
      for (const [id, session] of live) drop(id, session)
    },
  }
}
