/** Volatile tables: in each row what the file has, then what the row itself wrote, and nothing of any other row. */
import { join } from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'
import { buildGraph, type GraphBuilder } from '../../src/engine/builder.ts'
import { pattern, ref, type Value } from '../../src/engine/builder-types.ts'
import { openGraph } from '../../src/engine/engine.ts'
import type { Executor } from '../../src/engine/executor-types.ts'
import type { Graph } from '../../src/engine/graph.ts'
import { checkGraph, planGraph } from '../../src/engine/plan.ts'
import { printGraph } from '../../src/engine/print.ts'
import type { Model } from '../../src/engine/types.ts'
import { bits, errorOf, feed, sameBytes, testDevice } from './helpers.ts'
import { random, safetensors, type Tensor, writePackage } from './packages.ts'
import { insertRows } from './random-graphs.ts'

const [L, R, C, V] = [3, 5, 4, 7]
const next = random(17)
const tensor = (...shape: number[]): Tensor => ({
  shape,
  data: Float32Array.from({ length: shape.reduce((a, b) => a * b, 1) }, () => next() - 0.5),
})
const weights = new Map<string, Tensor>([
  ...[0, 1, 2].map((l): [string, Tensor] => [`W.${l}`, tensor(R, C)]),
  ['fast', tensor(1, C, C)],
  ['emb', tensor(V, C)],
  ['head', tensor(V, C)],
])
const file = (l: number, r: number): number[] => [...weights.get(`W.${l}`)!.data.subarray(r * C, (r + 1) * C)]

const open = async (graph: Graph, threads = 2): Promise<Model> => {
  const path = join(writePackage({}, safetensors(weights)), 'model.safetensors')
  const model = await openGraph(graph, path, { threads, ...testDevice })
  onTestFinished(() => model.close())
  return model
}

interface Inputs {
  readonly x: Value
  readonly yes: Value<'bool'>
  readonly at: Value<'i32'>
}
type Body = (g: GraphBuilder, inputs: Inputs) => Readonly<Record<string, Value>>
const graphOf = (body: Body): Graph => {
  const g = buildGraph()
  const inputs = { x: g.dynamic('x', [C], 'f32'), yes: g.dynamic('yes', [], 'bool'), at: g.dynamic('at', [], 'i32') }
  g.block('run', [inputs.x, inputs.yes, inputs.at], () => body(g, inputs))
  return g.finish()
}
interface Row {
  readonly x: readonly number[]
  readonly yes: number
  readonly at: number
}
const rows = (count: number): Row[] =>
  Array.from({ length: count }, () => ({
    x: Array.from({ length: C }, () => Math.fround(next() * 2 - 1)),
    yes: Math.floor(next() * 2),
    at: Math.floor(next() * R),
  }))
const step = async (executor: Executor, part: readonly Row[]): Promise<void> => {
  insertRows(executor, part)
  await executor.step()
}
const list = (executor: Executor, name: string): number[] => Array.from(executor.fetch(name).data, Number)
const sum = (a: readonly number[], b: readonly number[]): number[] => a.map((v, i) => Math.fround(v + b[i]!))

/**
 * In each layer: what stands at `at`, then that and x, written where `yes`, then the two rows 0 and `at` as they stand.
 */
const writing: Body = (g, { x, yes, at }) => {
  const l = g.index('l', L)
  const W = g.volatileTables('W', [R, C], pattern('W.{l}'), { over: l })
  const y = g.scale('y', x, 1)
  g.loop(l, {}, () => {
    const own = g.add('own', g.cacheRead('old', W(l, at)), y)
    g.branch(yes, () => g.cacheWrite(W(l, at), own))
    g.add('y', g.cacheRead('first', W(l, 0)), g.cacheRead('now', W(l, at)))
  })
  return { y }
}
const written = ({ x, yes, at }: Row): number[] => {
  let y = [...x]
  for (let l = 0; l < L; l += 1) {
    const own = sum(file(l, at), y)
    const now = (r: number): number[] => (yes && r === at ? own : file(l, r))
    y = sum(now(0), now(at))
  }
  return y
}

describe('volatile tables', () => {
  it('hold in every row what the file holds, and then what the row wrote, however rows are cut into steps', async () => {
    const graph = graphOf(writing)
    const all = rows(40)
    const want = all.flatMap(written)
    for (const [threads, cuts] of [
      [1, [1]],
      [2, [40]],
      [2, [7, 1, 13]],
    ] as const) {
      const executor = (await open(graph, threads)).createExecutor()
      const got: number[] = []
      for (let from = 0, i = 0; from < all.length; i += 1) {
        const part = all.slice(from, from + cuts[i % cuts.length]!)
        from += part.length
        await step(executor, part)
        got.push(...list(executor, 'y'))
      }
      expect(got).toEqual(want)
      expect(executor.context.serialize()).toHaveLength(0)
    }
  })

  it('are the file’s again for the host too, once the step is done', async () => {
    const executor = (await open(graphOf(writing))).createExecutor()
    await step(
      executor,
      rows(9).map((row) => ({ ...row, yes: 1 })),
    )
    for (let l = 0; l < L; l += 1) {
      const { shape, data } = weights.get(`W.${l}`)!
      for (const widened of [false, true])
        expect(executor.fetch(`W(${l})`, { widened })).toEqual({ dtype: 'F32', shape, data })
    }
    expect((await errorOf(() => executor.fetch('W'))).message).toContain('"W(0)" to "W(2)"')
  })

  it('go back to the file’s numbers where a node resets them, whole or in part', async () => {
    const executor = (
      await open(
        graphOf((g, { x, at }) => {
          const W = g.volatileTable('W', [R, C], ref('W.1'))
          g.cacheWrite(W(2), x)
          g.cacheWrite(W(at), x)
          g.cacheReset(W(at))
          const second = g.cacheRead('second', W(2))
          const at1 = g.cacheRead('at1', W(at))
          g.cacheReset(W())
          return { y: second, at1, whole: g.cacheRead('whole', W(2)) }
        }),
      )
    ).createExecutor()
    const all = rows(12)
    await step(executor, all)
    expect(list(executor, 'second')).toEqual(all.flatMap(({ x, at }) => (at === 2 ? file(1, 2) : x)))
    expect(list(executor, 'at1')).toEqual(all.flatMap(({ at }) => file(1, at)))
    expect(list(executor, 'whole')).toEqual(all.flatMap(() => file(1, 2)))
  })

  it('are weights that a row may change before it multiplies by them', async () => {
    const executor = (
      await open(
        graphOf((g, { x, yes }) => {
          const M = g.volatileTable('fast', [1, C, C], ref('fast'))
          g.branch(yes, () => g.cacheWrite(M(0, 1), x))
          return { y: g.cacheRecall('y', M(), x, 1), before: g.cacheShift('before', M(0, 3), x) }
        }),
      )
    ).createExecutor()
    const all = rows(11)
    const fast = [...weights.get('fast')!.data]
    await step(executor, all)
    const y = list(executor, 'y')
    for (const [i, { x, yes }] of all.entries()) {
      for (let a = 0; a < C; a += 1) {
        const want = x.reduce((s, v, b) => s + v * (yes && b === 1 ? x[a]! : fast[b * C + a]!), 0)
        expect(y[i * C + a]).toBeCloseTo(want, 5)
      }
    }
    expect(list(executor, 'before')).toEqual(all.flatMap(() => fast.slice(3 * C)))
  })

  it('a position outside the table fails its row and nothing stays written', async () => {
    const executor = (await open(graphOf(writing))).createExecutor()
    const [good, bad] = [rows(3).map((row) => ({ ...row, yes: 1 })), rows(2).map((row) => ({ ...row, at: R }))]
    const error = await errorOf(() => step(executor, [...good, ...bad]))
    expect(error).toMatchObject({ code: 'REFUSED', message: expect.stringContaining('position 5 of "W" is not there') })
    executor.context.reset()
    await step(executor, good)
    expect(list(executor, 'y')).toEqual(good.flatMap(written))
  })

  it('keep the contexts of one step apart', async () => {
    const g = buildGraph()
    const token = g.dynamic('token', [], 'i32')
    const emb = g.lookup('emb', [V, C], ref('emb'))
    const head = g.matrix('head', [V, C], ref('head'))
    const M = g.volatileTable('fast', [1, C, C], ref('fast'))
    const last = g.table('last', [C])
    g.block('step', [token], () => {
      const x = g.embed('x', token, emb)
      const n = g.remainder('n', token, C)
      const y = g.cacheRecall('y', M(), x, 1)
      g.cacheWrite(M(0, n), g.add('sum', x, y))
      const h = g.tanh('h', g.cacheRecall('again', M(), x, 1))
      return { hidden: h, previous: g.cacheShift('previous', last(), h) }
    })
    const hidden = g.dynamic('hidden', [C], 'f32')
    g.block('predict', [hidden], () => ({ logits: g.matmul('logits', hidden, head) }))
    const model = await open(g.finish())
    const streams = [3, 4, 5].map((seed) => {
      const draw = random(seed)
      return Array.from({ length: 20 }, () => Math.floor(draw() * V))
    })
    const alone = streams.map(() => model.createContext())
    const together = streams.map(() => model.createContext())
    for (const [i, ids] of streams.entries()) await feed(model, alone[i]!, ids)
    for (let at = 0; at < 20; at += 5) {
      await model.process(
        together.map((context, i) => ({
          context,
          tokens: Int32Array.from(streams[i]!.slice(at, at + 5)),
          nats: true,
        })),
      )
    }
    for (const [i, context] of together.entries()) {
      expect(context.chain).toBe(alone[i]!.chain)
      expect(sameBytes(context.serialize(), alone[i]!.serialize())).toBe(true)
      expect(bits(await model.logits(context))).toEqual(bits(await model.logits(alone[i]!)))
    }
  })

  it('hold up no row where a block only reads them, and only the members that it writes', () => {
    const orders = (body: Body) => planGraph(graphOf(body))[0]!.stages.map(({ order }) => order)
    const reading: Body = (g, { x, at }) => {
      const W = g.volatileTable('W', [R, C], ref('W.0'))
      return { y: g.add('y', x, g.cacheRead('w', W(at))) }
    }
    expect(orders(reading)).not.toContain('row_serial')
    const one: Body = (g, { x, at }) => {
      const l = g.index('l', L)
      const W = g.volatileTables('W', [R, C], pattern('W.{l}'), { over: l })
      g.cacheWrite(W(1, at), x)
      const w = g.cacheRead('w', W(1, 0))
      return { y: g.add('y', w, g.cacheRead('v', W(2, at))) }
    }
    expect(orders(one)).toEqual(['row_serial', 'row_parallel', 'row_parallel'])
  })

  it('are printed with what they are bound to', () => {
    const text = printGraph(graphOf(writing)).join('\n')
    expect(text).toContain('volatile tables\n  W(l)  [5, 4]  f32  W.{l}\n')
    expect(text).toContain('W(l,at)  ← cache.write(own)')
  })

  const declared = (change: object): Graph => {
    const graph = graphOf((g, { x, at }) => {
      const l = g.index('l', L)
      g.cacheWrite(g.volatileTables('W', [R, C], pattern('W.{l}'), { over: l })(0, at), x)
      return { y: g.tanh('y', x) }
    })
    const declarations = graph.declarations.map((d) => (d.name === 'W' ? { ...d, ...change } : d))
    return { ...graph, declarations } as Graph
  }
  const bent: Body = (g, { x }) => {
    const l = g.index('l', L)
    g.volatileTables('W', [R, C], pattern('W.{l}'), { over: l })
    g.volatileTable('fast', [1, C, C], ref('fast'))
    return { y: g.tanh('y', x) }
  }
  const node = (...nodes: object[]): Graph => {
    const graph = graphOf(bent)
    const [block] = graph.blocks
    return { ...graph, blocks: [{ ...block!, nodes: [...nodes, ...block!.nodes] }] } as Graph
  }
  it.each<[string, Graph, string]>([
    ['both bindings', declared({ ref: 'W.0' }), 'has both ref (one tensor) and pattern (a family)'],
    ['another dtype', declared({ dtype: 'f16' }), 'is f16, expected f32'],
    ['no axis', declared({ shape: [] }), 'has no axis'],
    ['no tensor', declared({ pattern: undefined, ref: '' }), 'names no tensor'],
    ['no index', declared({ over: undefined }), 'volatile "W" has a pattern but no index'],
    ['an index that its pattern lacks', declared({ pattern: 'W.0' }), 'its pattern "W.0" lacks {l}'],
    ['a view', declared({ view: { repeat: 1, step: 0, parts: [[0, R]] } }), 'has "view", which only constants have'],
    ['a transposition', declared({ transposed: true }), 'has "transposed", which only constants have'],
    ['a member outside its family', declared({ from: 1 }), 'picks 0 in "W(0,at)", expected 1 to 2'],
    ['a family without its member', node({ op: 'cache.reset', state: 'W' }), 'must pick one member of the family'],
    [
      'a family whose member a value picks',
      node({ op: 'cache.write', in: ['x'], state: 'W(at,0)' }),
      'must pick one member of the family, by a number',
    ],
    ['too many picks', node({ op: 'cache.write', in: ['x'], state: 'W(0,0,0,0)' }), 'picks along 4 axes'],
    ['a value of another shape', node({ op: 'cache.write', in: ['x'], state: 'W(0)' }), 'has shape [5, 4], expected'],
    ['a value in its place', node({ op: 'tanh', in: ['fast'], out: 'y' }), 'is a volatile table, expected a value'],
    ['a node that writes it as a value', node({ op: 'tanh', in: ['x'], out: 'fast' }), 'cache.write writes it'],
    [
      'an operation that mixes once for many rows',
      node({
        op: 'cache.memory.first',
        in: [],
        state: 'fast',
        groups: 1,
        rule: 'delta',
        retention: 'l2',
        periods: [1],
      }),
      'is a volatile table, which only cache.read, cache.write, cache.reset',
    ],
    ['a counter in its place', node({ op: 'cache.increment', state: 'fast' }), 'is no counter'],
  ])('%s is refused by a sentence', async (_, graph, says) => {
    expect(await errorOf(() => checkGraph(graph))).toMatchObject({
      code: 'INVALID',
      message: expect.stringContaining(says),
    })
  })

  it('tensors of another shape, and files that lack them, are refused when the model is loaded', async () => {
    const of = (shape: readonly number[], tensorName: string): Graph =>
      graphOf((g, { x }) => {
        const T = g.volatileTable('T', shape, ref(tensorName))
        g.cacheReset(T())
        return { y: g.tanh('y', x) }
      })
    expect((await errorOf(() => open(of([C, R], 'W.0')))).message).toContain('has shape [5, 4], expected [4, 5]')
    expect((await errorOf(() => open(of([R, C], 'W.9')))).message).toContain('"W.9" is missing')
    // Extents of 1 do not matter.
    await open(of([C, C], 'fast'))
  })

  it('results, inputs and types keep tables and values apart', async () => {
    const returned = node({ return: { y: 'fast' } })
    expect((await errorOf(() => checkGraph(returned))).message).toContain('is a volatile table: return what')
    const g = buildGraph()
    const x = g.dynamic('x', [C], 'f32')
    const W = g.volatileTables('W', [R, C], pattern('W.{l}'), { over: g.index('l', L) })
    // @ts-expect-error a table is read by cache operations only
    const one = () => g.tanh('y', W(0))
    // @ts-expect-error a family's member is picked by a number or an index
    const two = () => g.cacheWrite(W(x), x)
    expect([one, two]).toHaveLength(2)
  })
})
