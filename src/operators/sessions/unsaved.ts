/**
 * From where on each session's input would have to be read again, oldest first: what the retention of the input depends
 * on. A binary heap, because sessions do not come to their records in the order of the partition. The entry of a
 * session that was saved meanwhile stays until it comes up, so there are at most as many as records behind the offset
 * that is asked for.
 */
export interface Unsaved {
  /** The session has unsaved input from this offset on, if it had none before. */
  begin(session: string, offset: number): void
  /** All its input is saved. */
  end(session: string): void
  has(session: string): boolean
  /** Takes out a session whose unsaved input begins at this offset or before; undefined when there is none. */
  takeUpTo(offset: number): string | undefined
}

interface Entry {
  readonly session: string
  readonly offset: number
}

export const createUnsaved = (): Unsaved => {
  const begins = new Map<string, number>()
  const heap: Entry[] = []

  const push = (entry: Entry): void => {
    let at = heap.length
    while (at > 0) {
      const parent = (at - 1) >> 1
      if (heap[parent]!.offset <= entry.offset) break
      heap[at] = heap[parent]!
      at = parent
    }
    heap[at] = entry
  }

  const pop = (): void => {
    const entry = heap.pop()!
    if (heap.length === 0) return
    let at = 0
    for (let child = 1; child < heap.length; child = 2 * at + 1) {
      if (child + 1 < heap.length && heap[child + 1]!.offset < heap[child]!.offset) child += 1
      if (entry.offset <= heap[child]!.offset) break
      heap[at] = heap[child]!
      at = child
    }
    heap[at] = entry
  }

  return {
    begin(session, offset) {
      if (begins.has(session)) return
      begins.set(session, offset)
      push({ session, offset })
    },
    end: (session) => void begins.delete(session),
    has: (session) => begins.has(session),
    takeUpTo(offset) {
      for (let [entry] = heap; entry !== undefined && entry.offset <= offset; [entry] = heap) {
        pop()
        if (begins.get(entry.session) !== entry.offset) continue
        begins.delete(entry.session)
        return entry.session
      }
      return undefined
    },
  }
}
