import { describe, expect, test } from 'vitest'
import { createFair } from '../../src/operators/fair.ts'

/** Calls that end when they are told to, by name. */
const stage = () => {
  let time = 0
  const fair = createFair(() => time)
  const running = new Map<string, () => void>()
  const groups = new Map<string, object>()
  const settled = () => new Promise(setImmediate)
  return {
    running: () => [...running.keys()],
    pass(ms: number): void {
      time += ms
    },
    async call(name: string, tokens: number, who = name): Promise<void> {
      const group = groups.get(who) ?? {}
      groups.set(who, group)
      void fair.run(group, tokens, () => new Promise<void>((resolve) => running.set(name, resolve)))
      await settled()
    },
    async end(name: string): Promise<void> {
      running.get(name)!()
      running.delete(name)
      await settled()
    },
  }
}

/** Sessions that have worked much, each with a call under way or waiting. */
const crowd = async (count: number) => {
  const on = stage()
  const names = Array.from({ length: count }, (_, at) => `much-${at}`)
  for (const name of names) {
    await on.call(`first of ${name}`, 1000, name)
    await on.end(`first of ${name}`)
  }
  on.pass(1500)
  return { ...on, names }
}

describe('fair', () => {
  test('without others, sessions that have worked much fill the engine, and the rest go in turn', async () => {
    const { call, end, running, names } = await crowd(200)
    for (const name of names) await call(name, 16)
    expect(running()).toEqual(names.slice(0, 192))
    await end(names[5]!)
    expect(running().at(-1)).toBe(names[192])
  })

  test('one that has worked little goes at once, and while it comes the others go a few at a time', async () => {
    const { call, end, running, names } = await crowd(40)
    await call('little', 4)
    for (const name of names) await call(name, 16)
    expect(running()).toEqual(['little', ...names.slice(0, 16)])
    await end('little')
    await end(names[0]!)
    expect(running()).toEqual(names.slice(1, 17))
  })

  test('once none came for a moment, all go', async () => {
    const { call, end, running, names, pass } = await crowd(40)
    await call('little', 4)
    for (const name of names) await call(name, 16)
    await end('little')
    pass(1500)
    await end(names[0]!)
    expect(running()).toEqual(names.slice(1))
  })

  test('what a session has worked is forgotten', async () => {
    const { call, running, names, pass } = await crowd(20)
    await call('little', 4)
    for (const name of names) await call(name, 16)
    expect(running()).not.toContain(names[19])
    pass(60_000)
    await call('again', 4, names[19])
    expect(running()).toContain('again')
  })

  test('forks count with the session that they began as: they share a group', async () => {
    const { call, end, running } = stage()
    await call('parent', 1000, 'kin')
    await end('parent')
    await call('little', 4)
    for (let at = 0; at < 17; at += 1) await call(`fork-${at}`, 16, 'kin')
    expect(running()).toEqual(['little', ...Array.from({ length: 16 }, (_, at) => `fork-${at}`)])
  })

  test('a call that fails makes room as one that ends', async () => {
    const fair = createFair(() => 0)
    const group = {}
    await fair.run(group, 1000, async () => undefined)
    for (let at = 0; at < 20; at += 1)
      await expect(fair.run(group, 1, () => Promise.reject(new Error('broken')))).rejects.toThrow('broken')
  })
})
