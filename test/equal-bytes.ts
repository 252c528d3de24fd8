/**
 * vitest compares arrays of bytes and of numbers a member at a time, some seconds for a megabyte. Those of one type
 * with the same bytes are equal by any of its rules; of others it says itself what differs.
 */
import { expect } from 'vitest'

const bytesOf = (array: unknown): Buffer | null =>
  ArrayBuffer.isView(array) ? Buffer.from(array.buffer, array.byteOffset, array.byteLength) : null

const sameBytes = (one: unknown, other: unknown): boolean | undefined => {
  const [mine, theirs] = [bytesOf(one), bytesOf(other)]
  if (mine === null || theirs === null || Object.getPrototypeOf(one) !== Object.getPrototypeOf(other)) return undefined
  return mine.equals(theirs) ? true : undefined
}

// Each of the test files that share a process loads this module, and their `expect` keeps one list.
const LOADED = Symbol.for('continuo.equal-bytes')
const here = globalThis as { [LOADED]?: boolean }
if (here[LOADED] !== true) expect.addEqualityTesters([sameBytes])
here[LOADED] = true
