/**
 * Calls on the contexts of a task. A context is closed only when no call has it: when the task closes, those in a call
 * are closed at the end of it.
 */
import type { Context } from '../../engine/context.ts'
import type { WorkItem, WorkResult } from '../../engine/work.ts'
import { ContinuoError } from '../../errors.ts'
import type { Inference } from '../advance/session-state.ts'

export interface Calls {
  /** The engine for the task's sessions: once the task is over it refuses work. */
  readonly engine: Inference
  /** A call that the context has to itself. */
  readonly alone: <T>(context: Context, call: () => Promise<T>) => Promise<T>
  /** `close` waits for the work. */
  tracked<T>(work: Promise<T>): Promise<T>
  readonly isClosed: boolean
  /** Throws FENCED when the task is over. */
  checkOpen(): void
  /** Closes these contexts. Resolves when no call and no tracked work is under way: then the model may be closed. */
  close(contexts: Iterable<Context>): Promise<void>
}

export const createCalls = (engine: Inference): Calls => {
  /** Contexts that a call has, or that wait for it. */
  const inWork = new Set<Context>()
  const pending = new Set<Promise<unknown>>()
  let closed = false

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

  const withContext = async <T>(context: Context, call: () => Promise<T>): Promise<T> => {
    inWork.add(context)
    try {
      return await call()
    } finally {
      inWork.delete(context)
      if (closed) context.close()
    }
  }

  const submitted = async (item: WorkItem, share?: string): Promise<WorkResult> => {
    checkOpen()
    try {
      return await withContext(item.context, () => engine.submit(item, share))
    } finally {
      checkOpen()
    }
  }

  const alone: Calls['alone'] = (context, call) => tracked(withContext(context, call))

  return {
    engine: { ...engine, submit: (item, share) => tracked(submitted(item, share)), alone },
    alone,
    tracked,
    get isClosed() {
      return closed
    },
    checkOpen,
    async close(contexts) {
      closed = true
      for (const context of contexts) if (!inWork.has(context)) context.close()
      await Promise.allSettled(pending)
    },
  }
}
