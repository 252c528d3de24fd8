/** Waiting for work, or for a signal. */

/** What the work resolves or rejects with; undefined once the signal fires: the work goes on then, and nobody waits for it. */
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
