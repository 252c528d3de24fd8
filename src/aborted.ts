/** Waiting for work, for a signal or for a time. */

/**
 * What the work resolves or rejects with; undefined once the signal fires: the work goes on then, and nobody waits for
 * it.
 */
export const orAborted = async <T>(work: Promise<T>, signal: AbortSignal | undefined): Promise<T | undefined> => {
  if (signal === undefined) return work
  work.catch(() => undefined)
  if (signal.aborted) return undefined
  const settled = new AbortController()
  const aborted = new Promise<undefined>((resolve) => {
    signal.addEventListener('abort', () => resolve(undefined), { once: true, signal: settled.signal })
  })
  return Promise.race([work, aborted]).finally(() => settled.abort())
}

/** Resolves when the work is done or so many ms are over; rejects when the work fails before. The work goes on. */
export const within = async (patience: number, work: Promise<unknown> | undefined): Promise<void> => {
  let timer: NodeJS.Timeout | undefined
  const over = new Promise<void>((resolve) => {
    timer = setTimeout(resolve, patience)
  })
  try {
    await Promise.race([work, over])
  } finally {
    clearTimeout(timer)
  }
}
