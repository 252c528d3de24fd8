import { afterEach, describe, expect, test } from 'vitest'
import { type Changes, watchChanges } from '../../src/streams/embedded/changes.ts'
import { eventually } from './helpers.ts'

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

  test('between mark and wait are not missed', async () => {
    const { mark, notify, wait } = watch()
    const before = mark()
    notify()
    await wait(before)
  })

  test('of other connections wake all waiters, and one poll serves them all', async () => {
    const { mark, wait } = watch()
    const start = performance.now()
    let woken = 0
    const waits = Array.from({ length: 200 }, () => wait(mark()).then(() => woken++))
    await eventually(() => expect(polls).toBeGreaterThan(10))
    // Five quick ones, then one every 25 ms; timers may round down by 1 ms.
    expect(polls).toBeLessThanOrEqual(8 + (performance.now() - start) / 24)
    expect(woken).toBe(0)
    version++
    await Promise.all(waits)
  })

  test('are not looked for while nobody waits', async () => {
    const { mark, wait, notify } = watch()
    const waiting = wait(mark())
    notify()
    await waiting
    await eventually(() => expect(polls).toBeGreaterThan(0))
    const before = polls
    for (let turn = 0; turn < 5; turn++) await new Promise((resolve) => setTimeout(resolve, 30))
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
