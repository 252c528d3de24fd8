/** Which tables and rings are cut into blocks, and whether the engine cuts them where the slow reference does. */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, describe, expect, test } from 'vitest'
import { buildGraph, type GraphBuilder } from '../../src/engine/builder.ts'
import { autoDim, type Counter, plus, ring, type Table, type Value } from '../../src/engine/builder-types.ts'
import type { Context } from '../../src/engine/context.ts'
import { stateLayout } from '../../src/engine/layout.ts'
import { codeOf } from '../../src/errors.ts'
import { sha256 } from '../../src/hash.ts'
import { blockBytes, type FreshBlock, type StateParts } from '../../src/memory.ts'
import { openPackage } from '../../src/models/open.ts'
import { createContextStore } from '../../src/operators/sessions/context-store.ts'
import { type FamilyKey, openFamily } from '../families.ts'
import { cutParts } from './cut-parts.ts'

const dir = mkdtempSync(join(tmpdir(), 'continuo-growth-'))
afterAll(() => rmSync(dir, { recursive: true, force: true }))

const heads = { heads: 1, scale: 1 }

interface Parts {
  readonly g: GraphBuilder
  readonly K: Table
  readonly len: Counter
  readonly x: Value
}

/** A graph over a table that grows, and another one with a counter of its own that nothing else touches. */
const growthOf = (nodes: (parts: Parts) => void) => {
  const g = buildGraph()
  const len = g.counter('len', { max: 1000 })
  const other = g.counter('len2', { max: 1000 })
  const K = g.table('K', [2, autoDim(len), 4])
  const O = g.table('O', [autoDim(other), 4])
  const x = g.dynamic('x', [4], 'f32')
  g.block('step', [x], () => {
    g.cacheIncrement(len)
    g.cacheIncrement(other)
    g.cacheWrite(O(plus(other, -1)), x)
    nodes({ g, K, len, x })
    return { y: g.add('y', x, x) }
  })
  const { growth } = stateLayout(g.finish())
  expect(growth.at(-1)).toMatchObject({
    counter: 'len2',
    reach: 1,
    tables: [{ name: 'O', axis: 0, outer: 1, row: 16 }],
  })
  return growth.find(({ counter }) => counter === 'len')
}

describe('a ring', () => {
  const ringsOf = (places: number, nodes: (parts: Parts & { readonly R: Table; readonly clock: Counter }) => void) => {
    const g = buildGraph()
    const clock = g.clock('clock')
    const len = g.counter('len', {})
    const K = g.table('K', [2, ring(places, len), 4])
    const R = g.table('R', [ring(places, clock), 4])
    const x = g.dynamic('x', [4], 'f32')
    g.block('step', [x], () => {
      g.cacheIncrement(len)
      nodes({ g, K, R, len, clock, x })
      return { y: g.add('y', x, x) }
    })
    return stateLayout(g.finish()).growth.map(({ counter, places: own, tables }) => [
      counter,
      own,
      ...tables.map(({ name }) => name),
    ])
  }
  const [byLen, byClock] = [
    ['len', 257, 'K'],
    ['clock', 257, 'R'],
  ]

  test('of more than one block is cut where it is written at its last position only, by a counter or the clock', () => {
    expect(ringsOf(257, () => undefined)).toEqual([byLen, byClock])
    expect(ringsOf(256, () => undefined)).toEqual([])
    const last = ({ g, K, R, len, clock, x }: Parameters<Parameters<typeof ringsOf>[1]>[0]): void => {
      g.cacheWrite(K(0, plus(len, -1)), x)
      g.cacheWrite(R(plus(clock, -1)), x)
    }
    expect(ringsOf(257, last)).toEqual([byLen, byClock])
    expect(
      ringsOf(257, ({ g, x, R }) => void g.cacheAttend('a', x, { k: x, v: x, keys: R(), values: R() }, heads)),
    ).toEqual([byLen, byClock])
  })

  test('is not where anything else may happen to it', () => {
    expect(ringsOf(257, ({ g, K, len, x }) => g.cacheWrite(K(0, plus(len, -2)), x))).toEqual([byClock])
    expect(ringsOf(257, ({ g, K, x }) => g.cacheWrite(K(0, 3), x))).toEqual([byClock])
    expect(ringsOf(257, ({ g, len }) => g.cacheDecrement(len))).toEqual([byClock])
    expect(ringsOf(257, ({ g, len }) => g.cacheReset(len))).toEqual([byClock])
    expect(ringsOf(257, ({ g, R }) => g.cacheReset(R()))).toEqual([byLen])
    expect(ringsOf(257, ({ g, R, clock, x }) => g.cacheWrite(R(clock), x))).toEqual([byLen])
  })
})

describe('a table that grows', () => {
  test('is cut into blocks where it is written at its last positions only', () => {
    const found = growthOf(({ g, K, len, x }) => g.cacheWrite(K(1, plus(len, -1)), x))
    expect(found).toEqual({ counter: 'len', reach: 1, tables: [{ name: 'K', axis: 1, outer: 2, row: 16 }] })
    expect(growthOf(({ g, K, len, x }) => g.cacheWrite(K(0, plus(len, -7)), x))!.reach).toBe(7)
    expect(growthOf(({ g, K, len }) => void g.cacheRead('r', K(0, plus(len, -300))))!.reach).toBe(0)
  })

  test('is not where anything else may happen to it', () => {
    expect(growthOf(({ g, K, x }) => g.cacheWrite(K(0, 3), x))).toBeUndefined()
    expect(growthOf(({ g, len }) => g.cacheDecrement(len))).toBeUndefined()
    expect(growthOf(({ g, len }) => g.cacheReset(len))).toBeUndefined()
    expect(growthOf(({ g, K }) => g.cacheReset(K(0)))).toBeUndefined()
  })

  test.each([
    ['qwen3', ['pastLen']],
    ['qwen35', ['pastLen']],
    ['gpt2-refuse', ['pastLen']],
    ['gpt2-window', ['pastLen']],
    ['titans', []],
    ['rwkv7', []],
  ] as const)('of %s: %j', async (key: FamilyKey, counters) => {
    const family = await openFamily(key, dir)
    const { model } = await openPackage(family.dir, { threads: 1, device: 'cpu', overflow: family.overflow })
    const { growth } = model.layout
    expect(growth.map(({ counter }) => counter)).toEqual(counters)
    for (const { reach, tables } of growth) {
      expect(reach).toBe(1)
      expect(tables.map(({ name }) => name)).toEqual(['keyCache', 'valueCache'])
    }
    model.close()
  })
})

/** A deep comparison of the bytes themselves would take seconds. */
const digestOf = ({ hot, frozen, fresh }: StateParts) => ({
  hot: sha256(hot),
  frozen,
  fresh: fresh.map((own) => own.map(({ run, bytes }) => [run, sha256(bytes)])),
})

/** The same by pieces of at most so many bytes of blocks. */
const inPieces = async (context: Context, pulse: number, growths: number, most: number): Promise<StateParts> => {
  const fresh = Array.from({ length: growths }, (): FreshBlock[] => [])
  for (;;) {
    const parts = await context.capture({ pulse, ends: fresh.map((own) => (own.at(-1)?.run ?? -1) + 1), most })
    const bytes = parts.fresh.flat().map((block) => block.bytes.length)
    if (bytes.length > 1) expect(bytes.reduce((a, b) => a + b)).toBeLessThanOrEqual(most)
    for (const [g, own] of parts.fresh.entries()) fresh[g]!.push(...own)
    if (parts.more !== true) return { ...parts, fresh }
    expect(parts.hot).toHaveLength(0)
    expect(bytes.length).toBeGreaterThan(0)
  }
}

test.each([
  'qwen3',
  'qwen35',
  'gpt2-window',
  'rwkv7',
] as const)('the engine takes a state of %s apart as the slow reference does, in memory and spilled', async (key) => {
  const { dir: path, overflow } = await openFamily(key, dir)
  const { model } = await openPackage(path, { threads: 2, device: 'cpu', overflow })
  const contexts = createContextStore(model, { maxBytes: 1, spillDir: dir, warn: () => undefined })
  const context = contexts.createContext()
  const other = contexts.createContext()
  const feed = (from: number, count: number) =>
    contexts.submit({
      context,
      tokens: Int32Array.from({ length: count }, (_, i) => (i * 7 + from) % 256),
      nats: false,
    })
  for (const count of [255, 1, 1, 300]) {
    await feed(count, count)
    const state = await context.state()
    const pulse = Number(context.pulse)
    for (const ends of [[], [1], [9]]) {
      const wanted = await cutParts(model.layout, state, { pulse, ends })
      expect(digestOf(await context.capture({ pulse, ends }))).toEqual(digestOf(wanted))
    }
  }
  const growths = model.layout.growth.length
  const pulse = Number(context.pulse)
  const whole = digestOf(await context.capture({ pulse, ends: [] }))
  const [block = 1] = model.layout.growth.map((each) => blockBytes(each, 0))
  for (const most of [1, block, 2 * block, 1e9])
    expect(digestOf(await inPieces(context, pulse, growths, most))).toEqual(whole)
  // The other one drives it out of memory.
  const known = { pulse: Number(context.pulse), ends: [] }
  const wanted = digestOf(await context.capture(known))
  await contexts.submit({ context: other, tokens: Int32Array.of(1), nats: false })
  expect(contexts.stats.spilled).toBe(1)
  expect(digestOf(await context.capture(known))).toEqual(wanted)
  expect(digestOf(await inPieces(context, pulse, growths, block))).toEqual(wanted)
  expect(contexts.stats.spilled).toBe(1)
  context.close()
  await expect(context.capture(known)).rejects.toThrow(/closed/)
  other.close()
  await contexts.close()
  model.close()
})

test('a context that a call has is not captured', async () => {
  const { dir: path } = await openFamily('qwen3', dir)
  const { model } = await openPackage(path, { threads: 1, device: 'cpu' })
  const context = model.createContext()
  const busy = model.submit({ context, tokens: Int32Array.of(1, 2, 3), nats: false })
  try {
    await context.capture({ pulse: 0, ends: [] })
    expect.unreachable()
  } catch (error) {
    expect(codeOf(error)).toBe('MISUSE')
  }
  await busy
  context.close()
  model.close()
})
