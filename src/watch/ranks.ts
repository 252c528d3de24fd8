import { search } from '../search.ts'

/** How a number stands among the last ones. */
export interface Ranks {
  /** The share of the last numbers that are smaller, 0 to 1; then the number is one of them. null: there were too few. */
  rank(number: number): number | null
}

/** `window`: how many numbers are kept; `least`: with fewer than these none is ranked. */
export const createRanks = (window: number, least: number): Ranks => {
  /** The numbers in the order in which they came, a ring. */
  const came = new Float64Array(window)
  /** The same by size. */
  const sorted: number[] = []
  let next = 0
  const placeOf = (number: number): number => search(0, sorted.length, (at) => sorted[at]! < number)
  return {
    rank(number) {
      const share = sorted.length < Math.max(least, 1) ? null : placeOf(number) / sorted.length
      if (sorted.length === window) sorted.splice(placeOf(came[next]!), 1)
      sorted.splice(placeOf(number), 0, number)
      came[next] = number
      next = (next + 1) % window
      return share
    },
  }
}
