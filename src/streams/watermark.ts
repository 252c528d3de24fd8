/**
 * Which records of an input partition are finished. Sessions finish out of order (a long generation at offset 5 does
 * not hold up offset 6 of another session), so the position is a watermark, below which all is finished, and the
 * finished ranges beyond it. Both go into the partition cursor; a record that they cover is never handled twice.
 *
 * What is kept are the runs of records that are not finished: a backlog of a million records of one session is one run.
 */
import { search } from '../search.ts'

export interface Position {
  /** Every record below is finished. */
  readonly offset: number
  /** Finished ranges [from, to) beyond `offset`, ascending. */
  readonly done: readonly (readonly [from: number, to: number])[]
}

export interface Watermark {
  /** Whether the record was finished before this worker began. */
  wasDone(offset: number): boolean
  /** A record was read, in order. */
  begin(offset: number): void
  finish(offset: number): void
  /** The log has nothing more below `next` (markers, trimmed records): the watermark may move on. */
  reach(next: number): void
  position(): Position
  /** That of `position`. */
  readonly offset: number
  /** Records that were read and are not finished, and the ranges that the position has to remember. */
  readonly load: { readonly records: number; readonly ranges: number }
}

/**
 * Records at the offsets [from, to), none of them finished. `after`: finished records lie between this run and the next
 * run.
 */
interface Run {
  from: number
  to: number
  after: boolean
}

/**
 * Runs that were finished and still stand before the others: they leave by the thousand, since each removal moves all
 * behind it.
 */
const SPENT = 1024

/** Whether the record is finished at this position. */
export const isFinished = ({ offset, done }: Position, at: number): boolean => {
  if (at < offset) return true
  const range = done[search(0, done.length, (each) => done[each]![1] <= at)]
  return range !== undefined && at >= range[0]
}

export const createWatermark = (start: Position): Watermark => {
  const runs: Run[] = []
  let front = 0
  let next = start.offset
  let records = 0
  let ranges = 0

  /** The first range of the former owner that ends behind the offset. */
  const formerAt = (offset: number): number => search(0, start.done.length, (at) => start.done[at]![1] <= offset)
  const wasDone = (offset: number): boolean => isFinished(start, offset)
  const indexOf = (offset: number): number => search(front, runs.length, (at) => runs[at]!.to <= offset)
  /** Finished records lie behind this run; behind what is no run all is finished anyway. */
  const finishedAfter = (at: number): void => {
    const run = at >= front ? runs[at] : undefined
    if (run === undefined || run.after) return
    run.after = true
    ranges += 1
  }
  const remove = (at: number): void => {
    if (runs[at]!.after) ranges -= 1
    if (at > front) {
      runs.splice(at, 1)
      finishedAfter(at - 1)
      return
    }
    front += 1
    if (front < SPENT && front < runs.length) return
    runs.splice(0, front)
    front = 0
  }
  const first = (): number => runs[front]?.from ?? next

  return {
    wasDone,
    begin(offset) {
      if (offset < next) throw new RangeError(`record ${offset} delivered after position ${next}`)
      next = offset + 1
      if (wasDone(offset)) {
        finishedAfter(runs.length - 1)
        return
      }
      records += 1
      const last = front < runs.length ? runs.at(-1) : undefined
      if (last !== undefined && !last.after && last.to === offset) last.to = next
      else runs.push({ from: offset, to: next, after: false })
    },
    finish(offset) {
      const at = indexOf(offset)
      const run = runs[at]
      if (run === undefined || offset < run.from) throw new RangeError(`record ${offset} finished but not in work`)
      records -= 1
      if (run.to - run.from === 1) remove(at)
      else if (offset === run.from) {
        run.from += 1
        finishedAfter(at - 1)
      } else if (offset === run.to - 1) {
        run.to -= 1
        finishedAfter(at)
      } else {
        runs.splice(at + 1, 0, { from: offset + 1, to: run.to, after: run.after })
        run.to = offset
        run.after = true
        ranges += 1
      }
    },
    reach(position) {
      next = Math.max(next, position)
    },
    position() {
      const done: [number, number][] = []
      for (let at = front; at < runs.length; at += 1)
        if (runs[at]!.after) done.push([runs[at]!.to, runs[at + 1]?.from ?? next])
      // Ranges the former owner finished and this one has not met yet still count.
      for (const [from, to] of start.done.slice(formerAt(next))) done.push([Math.max(from, next), to])
      return { offset: first(), done }
    },
    get offset() {
      return first()
    },
    get load() {
      return { records, ranges: ranges + start.done.length - formerAt(next) }
    },
  }
}
