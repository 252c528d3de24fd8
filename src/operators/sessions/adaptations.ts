/**
 * Lets adaptations into the engine: it computes four at a time, each on a thread of its own, and one may take hours.
 * The others wait here. The end of one that waits takes effect at once, and its time has not begun.
 */

/** Threads of the engine for adaptations (native/runtime/adapt/adapt.h). */
const THREADS = 4

export interface Adaptations {
  /** Resolves, in the order of the calls, with what ends the turn; null: the signal fired first. */
  enter(signal: AbortSignal | undefined): Promise<(() => void) | null>
}

export const createAdaptations = (): Adaptations => {
  const waiting: (() => void)[] = []
  let running = 0
  const leave = (): void => {
    const next = waiting.shift()
    if (next === undefined) running -= 1
    else next()
  }
  return {
    async enter(signal) {
      if (signal?.aborted === true) return null
      if (running < THREADS) running += 1
      else {
        const entered = await new Promise<boolean>((resolve) => {
          const go = (): void => {
            signal?.removeEventListener('abort', give)
            resolve(true)
          }
          const give = (): void => {
            waiting.splice(waiting.indexOf(go), 1)
            resolve(false)
          }
          waiting.push(go)
          signal?.addEventListener('abort', give, { once: true })
        })
        if (!entered) return null
      }
      return leave
    },
  }
}
