/**
 * A queue in an array: taken from its front, added to at its end, read and replaced anywhere. An array's own `shift`
 * moves all behind it.
 */
export interface Line<T> {
  readonly length: number
  /** The one that has so many before it. */
  at(index: number): T | undefined
  replace(index: number, by: T): void
  push(one: T): void
  shift(): void
  /** Only those that are wanted stay. */
  keep(isWanted: (one: T) => boolean): void
}

/** Those that have left go once they are as many, and half of the array. */
const SPENT = 64

export const createLine = <T>(): Line<T> => {
  let all: (T | undefined)[] = []
  let front = 0
  return {
    get length() {
      return all.length - front
    },
    at: (index) => all[front + index],
    replace(index, by) {
      all[front + index] = by
    },
    push: (one) => void all.push(one),
    shift() {
      all[front] = undefined
      front += 1
      if (front < SPENT || front * 2 < all.length) return
      all = all.slice(front)
      front = 0
    },
    keep(isWanted) {
      all = all.slice(front).filter((one) => isWanted(one!))
      front = 0
    },
  }
}
