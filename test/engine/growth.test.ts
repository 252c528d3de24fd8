/** Which tables are cut into blocks, and whether the engine cuts them where the slow reference does. */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, describe, expect, test } from 'vitest'
import { buildGraph, type GraphBuilder } from '../../src/engine/builder.ts'
import { autoDim, type Counter, plus, type Table, type Value } from '../../src/engine/builder-types.ts'
import { cutParts } from '../../src/engine/growth.ts'
import { stateLayout } from '../../src/engine/layout.ts'
import { codeOf } from '../../src/errors.ts'
import { openPackage } from '../../src/models/open.ts'
import { createContextStore } from '../../src/operators/context-store.ts'
import { type FamilyKey, openFamily } from '../families.ts'

const dir = mkdtempSync(join(tmpdir(), 'continuo-growth-'))
afterAll(() => rmSync(dir, { recursive: true, force: true }))

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
    ['qwen35', ['positions']],
    ['gpt2-refuse', ['pastLen']],
    ['gpt2-window', []],
    ['titans', []],
    ['rwkv7', []],
  ] as const)('of %s: %j', async (key: FamilyKey, counters) => {
    const family = await openFamily(key, dir)
    const { model } = await openPackage(family.dir, { threads: 1, device: 'cpu', overflow: family.overflow })
    const { growth } = model.layout
    expect(growth.length).toBe(counters.length)
    for (const { reach, tables } of growth) {
      expect(reach).toBe(1)
      expect(tables.map(({ name }) => name)).toEqual(['keyCache', 'valueCache'])
    }
    model.close()
  })
})

test.each([
  'qwen3',
  'qwen35',
  'rwkv7',
] as const)('the engine takes a state of %s apart as the slow reference does, in memory and spilled', async (key) => {
  const { dir: path } = await openFamily(key, dir)
  const { model } = await openPackage(path, { threads: 2, device: 'cpu' })
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
    for (const known of [[], [1], [9]]) {
      const wanted = await cutParts(model.layout, state, known)
      expect(await context.capture(known)).toEqual(wanted)
    }
  }
  // The other one drives it out of memory.
  const wanted = await context.capture([])
  await contexts.submit({ context: other, tokens: Int32Array.of(1), nats: false })
  expect(contexts.stats.spilled).toBe(1)
  expect(await context.capture([])).toEqual(wanted)
  context.close()
  await expect(context.capture([])).rejects.toThrow(/closed/)
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
    await context.capture([])
    expect.unreachable()
  } catch (error) {
    expect(codeOf(error)).toBe('MISUSE')
  }
  await busy
  context.close()
  model.close()
})
