/** The backlog of the commit stage: what waits for its transaction, and the sessions that wait for room among it. */
/** Counts steps, or bytes; sessions wait while there are too many. */
export interface Backlog {
  add(more: number): void
  release(fewer: number): void
  room(): Promise<void> | undefined
}

export const createBacklog = (limit: number): Backlog => {
  const waiting: (() => void)[] = []
  let records = 0
  return {
    add(more) {
      records += more
    },
    release(fewer) {
      records -= fewer
      if (records >= limit) return
      for (const go of waiting.splice(0)) go()
    },
    room: () => (records < limit ? undefined : new Promise((resolve) => waiting.push(resolve))),
  }
}
