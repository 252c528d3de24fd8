import { search } from '../search.ts'
import { type ByteReader, type ByteWriter, Unreadable } from './bytes.ts'

/** How a number stands among the last ones. */
export interface Ranks {
  /**
   * The share of the last numbers that are smaller, 0 to 1; then the number, as a number of 32 bits, is one of them.
   * null: there were too few.
   */
  rank(number: number): number | null
  write(to: ByteWriter): void
}

/** `window`: how many numbers are kept; `least`: with fewer than these none is ranked. `from`: what `write` wrote. */
export const createRanks = (window: number, least: number, from?: ByteReader): Ranks => {
  /** The numbers in the order in which they came, a ring. */
  const came = new Float32Array(window)
  let count = 0
  let next = 0
  if (from !== undefined) {
    count = from.count(window)
    next = from.count(window - 1)
    if (count < window && next !== count) throw new Unreadable(`has ${count} scores and its next one at ${next}`)
    for (let at = 0; at < count; at += 1) came[at] = from.f32()
  }
  /** The same by size. */
  const sorted = new Float32Array(window)
  sorted.set(came.subarray(0, count).toSorted())
  const placeOf = (number: number): number => search(0, count, (at) => sorted[at]! < number)
  return {
    rank(given) {
      const number = Math.fround(given)
      const share = count < Math.max(least, 1) ? null : placeOf(number) / count
      if (count === window) {
        const old = placeOf(came[next]!)
        sorted.copyWithin(old, old + 1, count)
        count -= 1
      }
      const at = placeOf(number)
      sorted.copyWithin(at + 1, at, count)
      sorted[at] = number
      count += 1
      came[next] = number
      next = (next + 1) % window
      return share
    },
    write(to) {
      to.u32(count)
      to.u32(next)
      for (const number of came.subarray(0, count)) to.f32(number)
    },
  }
}
