/**
 * vitest compares arrays of bytes and of numbers a member at a time, some seconds for a megabyte. Those of one type with the same bytes are equal
 * by any of its rules; of others it says itself what differs.
 */
import { expect } from 'vitest'

const bytesOf = (array: unknown): Buffer | null =>
  ArrayBuffer.isView(array) ? Buffer.from(array.buffer, array.byteOffset, array.byteLength) : null

expect.addEqualityTesters([
  (one: unknown, other: unknown): boolean | undefined => {
    const [mine, theirs] = [bytesOf(one), bytesOf(other)]
    if (mine === null || theirs === null || Object.getPrototypeOf(one) !== Object.getPrototypeOf(other))
      return undefined
    return mine.equals(theirs) ? true : undefined
  },
])
