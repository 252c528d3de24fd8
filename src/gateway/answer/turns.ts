/**
 * Requests to one named session take turns: what a conversation is fed depends on whether the session has begun, so the
 * next request waits until the one before was answered. Another gateway on the same log has turns of its own.
 */
import { type Bounded, bounded } from '../../bounded.ts'
import { Refusal } from '../refusal.ts'

/** Requests that wait for one session. */
const MOST_WAITING = 32
/** Sessions of which is remembered that something was sent to them. */
const MOST_BEGUN = 10_000

export interface Turns {
  /**
   * Resolves with the function that ends the turn. Throws a Refusal (429) where too many wait; rejects when the signal
   * fires.
   */
  enter(session: string, signal: AbortSignal): Promise<() => void>
  /** Something was sent to this session; the state topic may not say so yet. */
  readonly begun: Bounded<true>
}

export const openTurns = (): Turns => {
  const queues = new Map<string, (() => void)[]>()
  const leave = (session: string): void => {
    const next = queues.get(session)?.shift()
    if (next === undefined) queues.delete(session)
    else next()
  }
  return {
    async enter(session, signal) {
      signal.throwIfAborted()
      const queue = queues.get(session)
      if (queue === undefined) queues.set(session, [])
      else {
        if (queue.length >= MOST_WAITING)
          throw new Refusal(429, `${MOST_WAITING} requests wait for session "${session}" already. Try again later.`, {
            code: 'session_busy',
          })
        await new Promise<void>((resolve, reject) => {
          const enter = (): void => {
            signal.removeEventListener('abort', give)
            resolve()
          }
          const give = (): void => {
            queue.splice(queue.indexOf(enter), 1)
            reject(signal.reason)
          }
          queue.push(enter)
          signal.addEventListener('abort', give, { once: true })
        })
      }
      let left = false
      return () => {
        if (left) return
        left = true
        leave(session)
      }
    },
    begun: bounded(MOST_BEGUN),
  }
}
