/** Memory that is used again. */
import { describe, expect, it, vi } from 'vitest'
import { createSpare, giveBack, join, uninitialised } from '../../src/bulk.ts'

const KB = 1024
const MB = KB * KB

describe('large memory that was given back', () => {
  it('goes to the next that needs as much, or most of it; the smallest that does', () => {
    const { uninitialised, giveBack } = createSpare()
    const [small, large] = [uninitialised(3 * MB), uninitialised(5 * MB)]
    giveBack(large, small)
    const other = uninitialised(2 * MB)
    expect(other.buffer).toBe(small.buffer)
    expect([other.byteOffset, other.length]).toEqual([0, 2 * MB])
    // More than twice as much as is needed would lie idle.
    expect(uninitialised(2 * MB).buffer).not.toBe(large.buffer)
    expect(uninitialised(5 * MB).buffer).toBe(large.buffer)
  })

  it('goes to one only, also when it was given back twice', () => {
    const { uninitialised, giveBack } = createSpare()
    const memory = uninitialised(7 * MB)
    giveBack(memory, memory)
    giveBack(memory)
    const [one, two] = [uninitialised(7 * MB), uninitialised(7 * MB)]
    expect(one.buffer).toBe(memory.buffer)
    expect(two.buffer).not.toBe(memory.buffer)
  })

  it('goes back to the system when nobody has used any for a while', () => {
    vi.useFakeTimers()
    const own = createSpare()
    try {
      const memory = own.uninitialised(11 * MB)
      own.giveBack(memory)
      vi.advanceTimersByTime(9000)
      const again = own.uninitialised(11 * MB)
      expect(again.buffer).toBe(memory.buffer)
      own.giveBack(again)
      vi.advanceTimersByTime(9000)
      const third = own.uninitialised(11 * MB)
      expect(third.buffer).toBe(memory.buffer)
      own.giveBack(third)
      vi.advanceTimersByTime(11_000)
      expect(own.uninitialised(11 * MB).buffer).not.toBe(memory.buffer)
    } finally {
      vi.useRealTimers()
    }
  })

  it('is kept up to a bound, and only where it is large and whole', () => {
    const { uninitialised, giveBack } = createSpare()
    const few = uninitialised(KB)
    const part = uninitialised(9 * MB).subarray(MB)
    giveBack(few, part)
    expect(uninitialised(KB).buffer).not.toBe(few.buffer)
    expect(uninitialised(8 * MB).buffer).not.toBe(part.buffer)
    const many = Array.from({ length: 40 }, () => uninitialised(10 * MB))
    giveBack(...many)
    const again = new Set(Array.from({ length: 40 }, () => uninitialised(10 * MB).buffer))
    const kept = many.filter(({ buffer }) => again.has(buffer)).length
    expect(kept).toBeGreaterThan(20)
    expect(kept * 10 * MB).toBeLessThanOrEqual(256 * MB)
  })

  it('becomes an array of the length that was asked for', async () => {
    giveBack(uninitialised(100 * KB))
    expect(await join([Uint8Array.of(1, 2), new Uint8Array(80 * KB).fill(3)])).toHaveLength(80 * KB + 2)
  })
})
