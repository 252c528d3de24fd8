/**
 * Tables that grow along several counters, against a table of arrays; their snapshots, their memory, and what is
 * refused.
 */
import { join } from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'
import { buildGraph, type GraphBuilder } from '../../src/engine/builder.ts'
import { autoDim, type Counter, plus, ring, type Table, type Value } from '../../src/engine/builder-types.ts'
import { openGraph } from '../../src/engine/engine.ts'
import type { Executor } from '../../src/engine/executor-types.ts'
import type { Graph } from '../../src/engine/graph.ts'
import { layoutText, stateLayout } from '../../src/engine/layout.ts'
import { checkGraph, planGraph } from '../../src/engine/plan.ts'
import { printGraph } from '../../src/engine/print.ts'
import { errorOf, sameBytes, testDevice } from './helpers.ts'
import { random, rawSafetensors, writePackage } from './packages.ts'

const [C, INIT] = [2, 0.5]

interface Parts {
  readonly g: GraphBuilder
  readonly x: Value
  readonly at: Value<'i32'>
  readonly row: Value<'i32'>
  readonly is: (name: string, op: number) => Value<'bool'>
  readonly rows: Counter
  readonly cols: Counter
  readonly M: Table
}
/** A block over x [C], `at` and `row` (positions) and `op`, with M [2, rows, cols, C]. */
const graphOf = (body: (parts: Parts) => Readonly<Record<string, Value>>): Graph => {
  const g = buildGraph()
  const x = g.dynamic('x', [C], 'f32')
  const [op, row, at] = ['op', 'row', 'at'].map((name) => g.dynamic(name, [], 'i32')) as [
    Value<'i32'>,
    Value<'i32'>,
    Value<'i32'>,
  ]
  const rows = g.counter('rows', { max: 40 })
  const cols = g.counter('cols', { max: 50 })
  const M = g.table('M', [2, autoDim(rows), autoDim(cols), C], { init: INIT })
  const is = (name: string, wanted: number): Value<'bool'> => g.equal(name, op, wanted)
  g.block('run', [x, op, row, at], () => body({ g, x, row, at, is, rows, cols, M }))
  return g.finish()
}
/**
 * What `op` says: a row more, a column more, a write, one less of either, a part back to its first value. Then a read.
 */
const table = graphOf(({ g, x, row, at, is, rows, cols, M }) => {
  g.branch(is('o0', 0), () => g.cacheIncrement(rows))
  g.branch(is('o1', 1), () => g.cacheIncrement(cols, 3))
  g.branch(is('o2', 2), () => g.cacheWrite(M(1, row, at), x))
  g.branch(is('o3', 3), () => g.cacheDecrement(rows))
  g.branch(is('o4', 4), () => g.cacheDecrement(cols))
  g.branch(is('o5', 5), () => g.cacheReset(M(1, row)))
  g.branch(is('o6', 6), () => g.cacheReset(rows))
  const y = g.scale('y', x, 0)
  g.branch(is('o7', 7), () => g.add('y', y, g.cacheRead('m', M(1, row, at))))
  return { y }
})

const opened = async (graph: Graph): Promise<Executor> => {
  const model = await openGraph(graph, join(writePackage({}, rawSafetensors('{}')), 'model.safetensors'), {
    threads: 2,
    ...testDevice,
  })
  onTestFinished(() => model.close())
  return model.createExecutor()
}
interface Row {
  readonly x: readonly number[]
  readonly op: number
  readonly row: number
  readonly at: number
}
const step = async (executor: Executor, part: readonly Row[]): Promise<number[]> => {
  executor.insert(
    'x',
    part.flatMap(({ x }) => x),
  )
  for (const name of ['op', 'row', 'at'] as const)
    executor.insert(
      name,
      part.map((each) => each[name]),
    )
  await executor.step()
  return [...(executor.fetch('y').data as Float32Array)]
}

/** Rows that a table of arrays allows, what they read, and the table as it is at their end. */
const played = (count: number, seed: number) => {
  const draw = random(seed)
  const below = (n: number): number => Math.floor(draw() * n)
  const fresh = (n: number): number[][] => Array.from({ length: n }, () => [INIT, INIT])
  let M: number[][][] = []
  let cols = 0
  const all: Row[] = []
  const reads: number[][] = []
  while (all.length < count) {
    const x = [Math.fround(draw()), Math.fround(draw())]
    const there = M.length > 0 && cols > 0
    const [row, at] = there ? [below(M.length), below(cols)] : [0, 0]
    const op = [0, 0, 0, 1, 1, 2, 2, 2, 2, 2, 7, 7, 7, 3, 4, 5, below(12) === 0 ? 6 : 2][below(17)]!
    if ((op === 2 || op === 5 || op === 7) && !there) continue
    if ((op === 0 && M.length === 40) || (op === 1 && cols > 47)) continue
    if ((op === 3 && M.length === 0) || (op === 4 && cols === 0)) continue
    all.push({ x, op, row, at })
    if (op === 0) M.push(fresh(cols))
    if (op === 1) for (const each of M) each.push(...fresh(3))
    if (op === 1) cols += 3
    if (op === 2) M[row]![at] = x
    if (op === 3) M.pop()
    if (op === 4) for (const each of M) each.pop()
    if (op === 4) cols -= 1
    if (op === 5) M[row] = fresh(cols)
    if (op === 6) M = []
    reads.push(op === 7 ? M[row]![at]!.map((v) => v) : [0, 0])
  }
  const plane = M.flat(2)
  return { all, reads: reads.flat(), rows: M.length, cols, data: [...plane.map(() => INIT), ...plane] }
}

describe('tables that grow along several counters', () => {
  it('hold what a table of arrays holds, through growth along either axis, resets and lowered counters', async () => {
    for (const seed of [1, 2, 3]) {
      const { all, reads, rows, cols, data } = played(400, seed)
      for (const cut of [1, 64]) {
        const executor = await opened(table)
        const got: number[] = []
        for (let from = 0; from < all.length; from += cut)
          got.push(...(await step(executor, all.slice(from, from + cut))))
        expect(got).toEqual(reads)
        expect(executor.fetch('M')).toEqual({ dtype: 'F32', shape: [2, rows, cols, C], data: Float32Array.from(data) })
      }
    }
  })

  it('are in snapshots with the extents that their counters say, and go on from them', async () => {
    const { all, rows, cols } = played(300, 4)
    const [executor, other] = [await opened(table), await opened(table)]
    for (let from = 0; from < 200; from += 50) await step(executor, all.slice(from, from + 50))
    const state = executor.context.serialize()
    other.context.restore(state, executor.context)
    expect(sameBytes(other.context.serialize(), state)).toBe(true)
    for (const each of [executor, other]) await step(each, all.slice(200, 300))
    expect(sameBytes(other.context.serialize(), executor.context.serialize())).toBe(true)
    const end = other.context.serialize()
    expect(end.length).toBe(16 + 4 * 2 * rows * cols * C)
    expect([...new BigInt64Array(end.slice(0, 16).buffer)]).toEqual([BigInt(rows), BigInt(cols)])
  })

  it('refuse snapshots whose counters, length or numbers cannot be, and stay as they are', async () => {
    const executor = await opened(table)
    const fill = Array.from({ length: 6 }, (_, i) => ({ x: [1, 2], op: i % 2, row: 0, at: 0 }))
    await step(executor, fill)
    const { context } = executor
    const state = context.serialize()
    const broken = (change: (view: DataView) => void): Uint8Array => {
      const copy = state.slice()
      change(new DataView(copy.buffer))
      return copy
    }
    const says = async (bytes: Uint8Array) => (await errorOf(() => context.restore(bytes, context))).message
    expect(await says(broken((view) => view.setBigInt64(0, 41n, true)))).toContain('"rows" is 41, expected 0 to 40')
    expect(await says(broken((view) => view.setBigInt64(8, -1n, true)))).toContain('"cols" is -1, expected 0 to 50')
    expect(await says(broken((view) => view.setBigInt64(0, 4n, true)))).toMatch(/has \d+ bytes, expected at least/)
    expect(await says(broken((view) => view.setBigInt64(8, 8n, true)))).toMatch(/has \d+ bytes, expected \d+ by/)
    expect(await says(broken((view) => view.setFloat32(16 + 4 * 7, Number.NaN, true)))).toContain('not finite')
    expect(await says(state.subarray(0, state.length - 1))).toContain('bytes, expected at least')
    expect(sameBytes(context.serialize(), state)).toBe(true)
    await step(executor, fill)
    expect(executor.fetch('M').shape).toEqual([2, 6, 18, C])
  })

  it('take memory in powers of two along each axis, at most up to the bounds, and give it back at a reset', async () => {
    const executor = await opened(table)
    const { context } = executor
    const empty = context.bytes
    const grow = async (op: number, count: number): Promise<number> => {
      await step(
        executor,
        Array.from({ length: count }, () => ({ x: [0, 0], op, row: 0, at: 0 })),
      )
      return context.bytes - empty
    }
    const each = 4 * 2 * C
    // Rows alone hold nothing.
    expect(await grow(0, 3)).toBe(0)
    expect(await grow(1, 1)).toBe(each * 4 * 4)
    expect(await grow(0, 1)).toBe(each * 4 * 4)
    expect(await grow(0, 1)).toBe(each * 8 * 4)
    expect(await grow(1, 1)).toBe(each * 8 * 8)
    expect(await grow(0, 35)).toBe(each * 40 * 8)
    expect(await grow(1, 14)).toBe(each * 40 * 50)
    expect(executor.fetch('M').shape).toEqual([2, 40, 48, C])
    expect((await errorOf(() => grow(0, 1))).message).toContain('the counter would become 41, expected 0 to 40')
    context.reset()
    expect(context.bytes).toBe(empty)
    expect(executor.fetch('M').shape).toEqual([2, 0, 0, C])
  })

  it('positions that are not there fail their row, along each axis', async () => {
    const grown = [0, 0, 1].map((op) => ({ x: [0, 0], op, row: 0, at: 0 }))
    for (const [row, at, says] of [
      [2, 0, 'position 2 of "M" is not there, expected 0 to 1'],
      [0, 3, 'position 3 of "M" is not there, expected 0 to 2'],
      [-1, 0, 'position -1 of "M" is not there'],
    ] as const) {
      const executor = await opened(table)
      await step(executor, grown)
      expect(await errorOf(() => step(executor, [{ x: [0, 0], op: 2, row, at }]))).toMatchObject({
        code: 'REFUSED',
        message: expect.stringContaining(says),
      })
    }
  })

  it('may grow twice with one counter, and rows that write what they entered go together', async () => {
    // A triangle: row i holds x_i · x_j at [i, j] for j = i, and at [j, i] nothing.
    const square = graphOf(({ g, x, rows, cols, M }) => {
      g.cacheIncrement(rows)
      g.cacheIncrement(cols, 2)
      g.cacheWrite(M(0, plus(rows, -1), plus(cols, -2)), x)
      return { y: g.cacheRead('y', M(0, plus(rows, -1), plus(cols, -1))) }
    })
    expect(planGraph(square)[0]!.stages.map(({ order }) => order)).not.toContain('row_serial')
    // What an earlier row still has to see: the serial order.
    const backwards = graphOf(({ g, x, rows, cols, M }) => {
      g.cacheIncrement(rows)
      g.cacheIncrement(cols)
      const y = g.cacheRead('y', M(0, 0, 0))
      g.cacheWrite(M(0, 0, plus(cols, -1)), x)
      return { y }
    })
    expect(planGraph(backwards)[0]!.stages.map(({ order }) => order)).toContain('row_serial')
    const both = buildGraph()
    const n = both.counter('n', { max: 30 })
    const x = both.dynamic('x', [], 'f32')
    const M = both.table('M', [autoDim(n), autoDim(n)], { init: -1 })
    both.block('run', [x], () => {
      both.cacheIncrement(n)
      both.cacheWrite(M(plus(n, -1), plus(n, -1)), x)
      return { y: both.cacheRead('y', M(0, plus(n, -1))) }
    })
    const executor = await opened(both.finish())
    executor.insert(
      'x',
      Array.from({ length: 20 }, (_, i) => i),
    )
    await executor.step()
    expect([...executor.fetch('y').data]).toEqual(Array.from({ length: 20 }, (_, i) => (i === 0 ? 0 : -1)))
    const want = Array.from({ length: 400 }, (_, i) => (i % 21 === 0 ? i / 21 : -1))
    expect(executor.fetch('M')).toEqual({ dtype: 'F32', shape: [20, 20], data: Float32Array.from(want) })
  })

  it('a number that is not finite is found where a row could have written it', async () => {
    const executor = await opened(table)
    await step(
      executor,
      [0, 0, 1].map((op) => ({ x: [0, 0], op, row: 0, at: 0 })),
    )
    // The state is judged when it is read back: what a row wrote is in it.
    await step(executor, [{ x: [Number.POSITIVE_INFINITY, 0], op: 2, row: 1, at: 1 }])
    const state = executor.context.serialize()
    expect((await errorOf(() => executor.context.restore(state, executor.context))).message).toContain('not finite')
  })

  it('are printed and fingerprinted with both counters', () => {
    expect(printGraph(table).join('\n')).toContain(
      'M     [2, grows with rows, grows with cols, 2]  f32  init 0.5  0 B  and 16 B for each of rows × cols',
    )
    expect(layoutText(table).at(-1)).toEqual(['M', [2, 'grows(rows)', 'grows(cols)', 2], 'f32'])
  })

  it('stay whole in snapshots that are cut into blocks, and are copied whole by a fork', async () => {
    const g = buildGraph()
    const x = g.dynamic('x', [C], 'f32')
    const [rows, cols] = [g.counter('rows', { max: 1000 }), g.counter('cols', { max: 1000 })]
    const K = g.table('K', [autoDim(rows), C])
    const M = g.table('M', [autoDim(rows), autoDim(cols), C])
    g.block('run', [x], () => {
      g.cacheIncrement(rows)
      g.cacheIncrement(cols)
      g.cacheWrite(K(plus(rows, -1)), x)
      g.cacheWrite(M(plus(rows, -1), 0), x)
      return { y: g.tanh('y', x) }
    })
    const graph = g.finish()
    const { growth } = stateLayout(graph)
    expect(growth.map(({ counter, tables }) => [counter, tables.map(({ name }) => name)])).toEqual([['rows', ['K']]])
    const path = join(writePackage({}, rawSafetensors('{}')), 'model.safetensors')
    const model = await openGraph(graph, path, { threads: 1, ...testDevice })
    onTestFinished(() => model.close())
    const executor = model.createExecutor()
    const grow = async (each: Executor, count: number): Promise<void> => {
      each.insert(
        'x',
        Array.from({ length: count * C }, (_, i) => i),
      )
      await each.step()
    }
    for (const count of [100, 100, 100]) await grow(executor, count)
    const state = executor.context.serialize()
    const child = model.createExecutor({ context: model.forkContext(executor.context) })
    expect(sameBytes(child.context.serialize(), state)).toBe(true)
    await grow(child, 3)
    expect(sameBytes(executor.context.serialize(), state)).toBe(true)
    await grow(executor, 3)
    expect(sameBytes(child.context.serialize(), executor.context.serialize())).toBe(true)
  })

  const refused = (axes: (a: Counter, b: Counter) => Parameters<GraphBuilder['table']>[1], max = 9): Graph => {
    const g = buildGraph()
    const x = g.dynamic('x', [4], 'f32')
    const [a, b] = [g.counter('a', { max }), g.counter('b', { max })]
    const M = g.table('M', axes(a, b))
    g.block('run', [x], () => {
      g.cacheReset(M())
      return { y: g.tanh('y', x) }
    })
    return g.finish()
  }
  const used = (body: (g: GraphBuilder, x: Value, M: Table, a: Counter) => Value): Graph => {
    const g = buildGraph()
    const x = g.dynamic('x', [4], 'f32')
    const [a, b] = [g.counter('a', { max: 9 }), g.counter('b', { max: 9 })]
    const M = g.table('M', [autoDim(a), autoDim(b), 4])
    g.block('run', [x], () => ({ y: body(g, x, M, a) }))
    return g.finish()
  }
  const reading = used((g, x, M, a) => {
    g.cacheRead('r', M(plus(a, -1)))
    return g.tanh('y', x)
  })
  const unpicked = {
    ...reading,
    declarations: reading.declarations.map((d) => (d.name === 'r' ? { ...d, shape: [9, 4] } : d)),
  } as Graph
  it.each<[string, Graph, string]>([
    ['a ring behind an axis that grows', refused((a, b) => [autoDim(a), ring(3, b)]), 'has a ring beside another axis'],
    ['a ring before one', refused((a, b) => [ring(3, a), autoDim(b)]), 'has a ring beside another axis'],
    ['two rings', refused((a, b) => [ring(3, a), ring(3, b)]), 'has a ring beside another axis'],
    [
      'five axes that grow',
      refused((a, b) => [autoDim(a), autoDim(b), autoDim(a), autoDim(b), autoDim(a)]),
      'grows along more than 4 axes',
    ],
    ['bounds whose product is too large', refused((a, b) => [autoDim(a), autoDim(b)], 2 ** 20), '"M" is too large'],
    ['a counter without a bound', refused((a, b) => [autoDim(a), autoDim(b)], 2 ** 40), 'give the counter a max'],
    ['a read of what grows', unpicked, 'still grows: pick a member'],
    [
      'attention to it',
      used((g, x, M, a) => g.attend('y', x, M(plus(a, -1)), M(plus(a, -1)), { heads: 1, scale: 1 })),
      'grows along several counters, expected a table that grows along one',
    ],
    [
      'a write of what grows',
      used((g, x, M, a) => {
        g.cacheWrite(M(plus(a, -1)), x)
        return g.tanh('y', x)
      }),
      'has shape [0, 4], expected [4]',
    ],
    [
      'a pick by another counter',
      used((g, _, M, a) => g.cacheRead('y', M(plus(a, -1), plus(a, -1)))),
      'that axis follows the counter "b"',
    ],
  ])('%s is refused by a sentence', async (_, graph, says) => {
    expect(await errorOf(() => checkGraph(graph))).toMatchObject({
      code: 'INVALID',
      message: expect.stringContaining(says),
    })
  })
})
