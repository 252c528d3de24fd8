/**
 * The sessions of one partition: every head, and the contexts of those in use. A context is rebuilt on its session's first
 * event and given back when too many are in memory; what a given-back context knew is in its snapshot.
 */
import type { Context, Model } from '../engine/types.ts'
import { ContinuoError } from '../errors.ts'
import { failpoint } from '../observe/failpoint.ts'
import { type Head, samePlace } from '../state/head.ts'
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
  /**
   * `heads` has moved: contexts beyond the limit may go. Returns the states that need a snapshot first; each is handed out
   * once. Only what is committed is given back or captured: a session is restored from its committed head, and a
   * snapshot must never be ahead of the head that names it.
   */
  committed(): readonly Capture[]
  readonly live: number
  close(): void
}

interface Live extends Session {
  busy: boolean
  /** Pulse of the last state captured; −1 before the first. */
  captured: number
}

const rejectedStep = ({ record, session, reason }: Rejected): Step => ({
  record,
  session,
  outputs: [{ to: 'deadletters', reason }],
  head: null,
  done: true,
})

export const createSessions = (options: SessionsOptions): Sessions => {
  const { model, snapshotEvery, maxContexts, restore, room, stopping } = options
  const heads = new Map<string, Head>()
  /** In order of last use. */
  const live = new Map<string, Live>()
  /** Contexts that the engine has, or that wait for it. */
  const inWork = new Set<Context>()
  let closed = false

  const checkOpen = (): void => {
    if (closed) throw new ContinuoError('FENCED', 'The task of this session is over.')
  }

  /**
   * The engine, until the task is over. A context that waits for its turn is closed only after it: the batch is shared with
   * other tasks, and one closed context in it would be the end of all of them.
   */
  const engine: Engine = {
    ...options.engine,
    async process(item) {
      checkOpen()
      inWork.add(item.context)
      try {
        return await options.engine.process(item)
      } finally {
        inWork.delete(item.context)
        if (closed) item.context.close()
        checkOpen()
      }
    },
  }

  const drop = (id: string, session: Live): void => {
    live.delete(id)
    session.context.close()
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
    } else {
      base = await restore(head)
      if (closed) base.context.close()
      checkOpen()
    }
    const session: Live = { ...base, busy: true, captured: pulse }
    live.set(work.session, session)
    return { session, fresh: head === undefined }
  }

  /** The engine knows contexts only; a person needs the session and the record. */
  const named = (error: unknown, { session, record }: Tokenized): unknown =>
    error instanceof ContinuoError && error.code === 'REFUSED' && !error.message.startsWith('Session ')
      ? new ContinuoError(
          'REFUSED',
          `Session "${session}", reading the record at offset ${record.offset} of ${record.topic}: ${error.message}`,
          { cause: error },
        )
      : error

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
    } catch (error) {
      throw named(error, work)
    } finally {
      session.busy = false
    }
  }

  return {
    heads,
    steps: (item) => (item.kind === 'rejected' ? [rejectedStep(item)] : run(item)),
    unsaved() {
      const captures: Capture[] = []
      for (const session of live.values()) {
        const pulse = session.head.conductor.globalStep
        if (session.head.status === 'closed' || heads.get(session.head.session)?.snapshot?.pulse === pulse) continue
        captures.push({ head: session.head, state: session.context.serialize() })
      }
      return captures
    },
    committed() {
      const captures: Capture[] = []
      let surplus = live.size - maxContexts
      for (const [id, session] of live) {
        if (surplus <= 0) break
        if (session.busy) continue
        surplus -= 1
        const head = heads.get(id)
        if (head === undefined || !samePlace(head, session.head)) continue
        const pulse = session.head.conductor.globalStep
        if (head.status === 'closed' || head.snapshot?.pulse === pulse) drop(id, session)
        else if (session.captured !== pulse) {
          session.captured = pulse
          captures.push({ head: session.head, state: session.context.serialize() })
        }
      }
      return captures
    },
    get live() {
      return live.size
    },
    close() {
      closed = true
      for (const { context } of live.values()) if (!inWork.has(context)) context.close()
      live.clear()
    },
  }
}
