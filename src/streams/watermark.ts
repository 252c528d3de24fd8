/**
 * Which records of an input partition are finished. Sessions finish out of order (a long generation at offset 5 does not
 * hold up offset 6 of another session), so the position is a watermark, below which all is finished, and the finished
 * ranges beyond it. Both go into the partition cursor; a record that they cover is never handled twice.
 */
export interface Position {
  /** Every record below is finished. */
  readonly offset: number
  /** Finished ranges [from, to) beyond `offset`, ascending. */
  readonly done: readonly (readonly [from: number, to: number])[]
}

export interface Watermark {
  /** Whether the record was finished before this worker began. */
  wasDone(offset: number): boolean
  /** A record was delivered, in order. */
  begin(offset: number, bytes: number): void
  finish(offset: number): void
  /** The log has nothing more below `next` (markers, trimmed records): the watermark may move on. */
  reach(next: number): void
  position(): Position
  /** Records and bytes delivered and not finished; `span` counts the records the position has to remember. */
  readonly load: { readonly records: number; readonly bytes: number; readonly span: number }
}

interface Entry {
  readonly offset: number
  readonly bytes: number
  done: boolean
}

export const createWatermark = (start: Position): Watermark => {
  const entries: Entry[] = []
  const index = new Map<number, Entry>()
  let front = 0
  let next = start.offset
  let records = 0
  let bytes = 0

  const wasDone = (offset: number): boolean =>
    offset < start.offset || start.done.some(([from, to]) => offset >= from && offset < to)

  return {
    wasDone,
    begin(offset, size) {
      if (offset < next) throw new RangeError(`record ${offset} delivered after position ${next}`)
      next = offset + 1
      const entry = { offset, bytes: size, done: wasDone(offset) }
      entries.push(entry)
      if (entry.done) return
      index.set(offset, entry)
      records += 1
      bytes += size
    },
    finish(offset) {
      const entry = index.get(offset)
      if (entry === undefined) throw new RangeError(`record ${offset} finished but not in work`)
      index.delete(offset)
      entry.done = true
      records -= 1
      bytes -= entry.bytes
    },
    reach(position) {
      next = Math.max(next, position)
    },
    position() {
      while (front < entries.length && entries[front]!.done) front += 1
      if (front > 1024 || front === entries.length) {
        entries.splice(0, front)
        front = 0
      }
      const first = entries[front]
      const done: [number, number][] = []
      let open: [number, number] | null = null
      for (let at = front; at < entries.length; at += 1) {
        const { offset, done: finished } = entries[at]!
        if (!finished) open = null
        else if (open === null) {
          open = [offset, offset + 1]
          done.push(open)
        } else open[1] = offset + 1
      }
      // Ranges the former owner finished and this one has not met yet still count.
      for (const [from, to] of start.done) if (to > next) done.push([Math.max(from, next), to])
      return { offset: first?.offset ?? next, done }
    },
    get load() {
      return { records, bytes, span: entries.length - front }
    },
  }
}
