/**
 * The backlog of the commit stage: steps that wait for their transaction, and the sessions that wait until there is
 * room for more.
 */
/** Counts steps, or bytes; sessions wait while there are too many. */
export interface Backlog {
  add(more: number): void
  release(fewer: number): void
  room(): Promise<void> | undefined
  /** What was added and not released. */
  readonly size: number
}

export const createBacklog = (limit: number): Backlog => {
  const waiting: (() => void)[] = []
  let size = 0
  return {
    add(more) {
      size += more
    },
    release(fewer) {
      size -= fewer
      if (size >= limit) return
      for (const go of waiting.splice(0)) go()
    },
    room: () => (size < limit ? undefined : new Promise((resolve) => waiting.push(resolve))),
    get size() {
      return size
    },
  }
}
