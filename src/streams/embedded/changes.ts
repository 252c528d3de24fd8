/**
 * "Something may have changed": what readers and members of this log wait for.
 *
 * Our own commits notify directly. Those of other connections are seen by one poll for all waiters: PRAGMA data_version
 * reads a counter in shared memory (microseconds) that moves when any other connection commits. The poll runs only
 * while there are waiters, and slows down to POLL_MAX while nothing happens.
 *
 * No wake-up is lost. A waiter takes a mark, then looks, then waits for a change since the mark: a commit of ours in
 * between moved the mark. One of another connection moved data_version away from what the poll saw last, which was
 * before the look or has already moved the mark.
 */
const POLL_MIN = 1 // ms
const POLL_MAX = 25

export interface Changes {
  mark(): number
  /**
   * Resolves after a change since the mark, sometimes without one; soon when closed or when `signal` fires. Keeps the
   * process alive.
   */
  wait(since: number, signal?: AbortSignal): Promise<void>
  /** Calls back after each change; does not keep the process alive. */
  subscribe(listener: () => void): () => void
  notify(): void
  close(): void
}

export const watchChanges = (dataVersion: () => number): Changes => {
  const waiters = new Set<() => void>()
  const listeners = new Set<() => void>()
  let count = 0
  let seen = dataVersion()
  let delay = POLL_MIN
  let timer: NodeJS.Timeout | null = null
  let closed = false

  const notify = (): void => {
    count++
    delay = POLL_MIN
    for (const wake of [...waiters]) wake()
    for (const listener of [...listeners]) listener()
  }

  const poll = (): void => {
    timer = null
    delay = Math.min(delay * 2, POLL_MAX)
    try {
      const version = dataVersion()
      if (version !== seen) notify()
      seen = version
    } catch {
      // The waiters look for themselves and report what is wrong.
      notify()
      delay = POLL_MAX
    }
    schedule()
  }

  const schedule = (): void => {
    if (closed || (waiters.size === 0 && listeners.size === 0)) return
    timer ??= setTimeout(poll, delay)
    if (waiters.size > 0) timer.ref()
    else timer.unref()
  }

  return {
    mark: () => count,
    wait: (since, signal) =>
      new Promise((resolve) => {
        if (closed || count !== since || signal?.aborted) return resolve()
        const wake = (): void => {
          waiters.delete(wake)
          signal?.removeEventListener('abort', wake)
          if (waiters.size === 0) timer?.unref()
          resolve()
        }
        waiters.add(wake)
        signal?.addEventListener('abort', wake)
        schedule()
      }),
    subscribe: (listener) => {
      listeners.add(listener)
      schedule()
      return () => listeners.delete(listener)
    },
    notify,
    close: () => {
      closed = true
      if (timer !== null) clearTimeout(timer)
      timer = null
      listeners.clear()
      notify()
    },
  }
}
