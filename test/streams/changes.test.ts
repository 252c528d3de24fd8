import { afterEach, describe, expect, onTestFinished, test, vi } from 'vitest'
import { type Changes, watchChanges } from '../../src/streams/embedded/changes.ts'

describe('changes', () => {
  let version = 1
  let polls = 0
  let changes: Changes
  const watch = (): Changes => {
    polls = 0
    changes = watchChanges(() => {
      polls++
      return version
    })
    return changes
  }
  afterEach(() => changes.close())
  /** Time that goes on only when the test says so. */
  const fakeTime = (): void => {
    vi.useFakeTimers()
    onTestFinished(() => void vi.useRealTimers())
  }

  test('between mark and wait are not missed', async () => {
    const { mark, notify, wait } = watch()
    const before = mark()
    notify()
    await wait(before)
  })

  test('of other connections wake all waiters, and one poll serves them all', async () => {
    fakeTime()
    const { mark, wait } = watch()
    let woken = 0
    const waits = Array.from({ length: 200 }, () => wait(mark()).then(() => woken++))
    await vi.advanceTimersByTimeAsync(1000)
    // Five quick ones, then one every 25 ms.
    expect(polls).toBeGreaterThan(30)
    expect(polls).toBeLessThanOrEqual(45)
    expect(woken).toBe(0)
    version++
    await vi.advanceTimersByTimeAsync(25)
    await Promise.all(waits)
  })

  test('are not looked for while nobody waits', async () => {
    fakeTime()
    const { mark, wait, notify } = watch()
    const waiting = wait(mark())
    await vi.advanceTimersByTimeAsync(100)
    expect(polls).toBeGreaterThan(0)
    notify()
    await waiting
    const before = polls
    await vi.advanceTimersByTimeAsync(10_000)
    // One was under way.
    expect(polls).toBeLessThanOrEqual(before + 1)
  })

  test('end with the watch: waiters wake, new ones do not wait', async () => {
    const { mark, wait, close } = watch()
    const waiting = wait(mark())
    close()
    await waiting
    await wait(mark())
  })

  test('wake a waiter whose signal fires', async () => {
    const { mark, wait } = watch()
    const stop = new AbortController()
    const waiting = wait(mark(), stop.signal)
    stop.abort()
    await waiting
  })
})
