import { describe, expect, test } from 'vitest'
import { createFair } from '../../../src/operators/sessions/fair.ts'

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

const numbered = (name: string, count: number): readonly string[] =>
  Array.from({ length: count }, (_, at) => `${name}-${at}`)

describe('fair', () => {
  test('sessions that are alike fill the engine, and the rest go in the order of their coming', async () => {
    const { call, end, running } = stage()
    const names = numbered('session', 200)
    for (const name of names) await call(name, 16)
    expect(running()).toEqual(names.slice(0, 192))
    await end(names[5]!)
    expect(running().at(-1)).toBe(names[192])
  })

  test('a group alone fills the engine; while another calls, it has a few calls at a time, and the other goes at once', async () => {
    const { call, end, running, pass } = stage()
    const forks = numbered('fork', 40)
    for (const name of forks) await call(name, 16, 'root')
    expect(running()).toHaveLength(40)
    await call('other', 4)
    expect(running()).toContain('other')
    await end('other')
    const again = numbered('again', 40)
    for (const [at, name] of again.entries()) {
      await end(forks[at]!)
      await call(name, 16, 'root')
    }
    expect(running()).toEqual(again.slice(0, 4))
    pass(1500)
    await end(again[0]!)
    expect(running()).toEqual(again.slice(1))
  })

  test('two groups that both call for many have more calls at a time than one beside which others ask for little', async () => {
    const { call, end, running } = stage()
    const of = (who: string) => running().filter((name) => name.startsWith(who)).length
    await call('other', 4)
    for (const name of numbered('left', 40)) await call(name, 16, 'left')
    expect(of('left')).toBe(4)
    for (const name of numbered('right', 40)) await call(name, 16, 'right')
    expect([of('left'), of('right')]).toEqual([8, 8])
    // Once the right one calls for no more than others do, the left one has as few as before.
    while (of('right') > 0) await end(running().find((name) => name.startsWith('right'))!)
    for (const left of [7, 6, 5, 4, 4, 4]) {
      await end(running().find((name) => name.startsWith('left'))!)
      expect(of('left')).toBe(left)
    }
  })

  test('many groups that call fill the engine, however often others come', async () => {
    const { call, end, running } = stage()
    const names = numbered('session', 64)
    for (const name of names) await call(name, 16)
    expect(running()).toEqual(names)
    for (const name of names) {
      await end(name)
      await call(`${name}-again`, 16, name)
    }
    expect(running()).toHaveLength(64)
  })

  test('who has had less goes first, and of those alike who asks for less', async () => {
    const { call, end, running } = stage()
    const many = numbered('call', 192)
    for (const name of many) await call(name, 100)
    for (const name of numbered('next', 8)) await call(name, 100)
    await call('small', 10)
    expect(running()).not.toContain('small')
    await end(many[0]!)
    expect(running().at(-1)).toBe('small')
    // Back at once, it has had less than those that wait still.
    await end('small')
    await call('back', 10, 'small')
    await end(many[1]!)
    expect(running()).toContain('back')
  })

  test('a call that fails makes room as one that ends', async () => {
    const fair = createFair(() => 0)
    for (let at = 0; at < 400; at += 1)
      await expect(fair.run({}, 1, () => Promise.reject(new Error('broken')))).rejects.toThrow('broken')
    expect(await fair.run({}, 1, async () => 'done')).toBe('done')
  })
})
