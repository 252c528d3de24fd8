/** How rows find their experts: scores, the largest of them, their weights, and what is summed by them. */
import { join } from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'
import { buildGraph, type GraphBuilder } from '../../src/engine/builder.ts'
import type { Value } from '../../src/engine/builder-types.ts'
import { openGraph } from '../../src/engine/engine.ts'
import type { Dtype, Graph } from '../../src/engine/graph.ts'
import { errorOf, testDevice } from './helpers.ts'
import { random, safetensors, writePackage } from './packages.ts'

const path = (): string =>
  join(
    writePackage({}, safetensors(new Map([['b', { shape: [2], data: Float32Array.of(1, 2) }]]))),
    'model.safetensors',
  )

interface Inputs {
  readonly scores: Value
  readonly rows: Value
  readonly at: Value<'i32'>
}
type Body = (g: GraphBuilder, inputs: Inputs) => Readonly<Record<string, Value<Dtype>>>

/** A block over scores [E], rows [K, N] and places i32 [K]. */
const graphOf = (E: number, [K, N]: readonly [number, number], body: Body): Graph => {
  const g = buildGraph()
  const inputs = {
    scores: g.dynamic('scores', [E], 'f32'),
    rows: g.dynamic('rows', [K, N], 'f32'),
    at: g.dynamic('at', [K], 'i32'),
  }
  g.block('run', [inputs.scores, inputs.rows, inputs.at], () => body(g, inputs))
  return g.finish()
}

const opened = async (graph: Graph) => {
  const model = await openGraph(graph, path(), { threads: 2, ...testDevice })
  onTestFinished(() => model.close())
  return model.createExecutor()
}

describe('routing', () => {
  it('chooses the largest scores, the first of equal ones, NaN last, and gives their places in order', async () => {
    const next = random(5)
    for (const [E, K] of [
      [1, 1],
      [2, 1],
      [8, 2],
      [17, 17],
      [130, 64],
      [512, 10],
    ] as const) {
      const executor = await opened(
        graphOf(E, [K, 1], (g, { scores }) => {
          const ids = g.topk('ids', scores, K)
          return { ids, chosen: g.gather('chosen', scores, ids) }
        }),
      )
      const rows = 24
      // Few different numbers, so that many are equal.
      const kinds = [0, -0, 1, 1, 2, -3, Infinity, -Infinity, Number.NaN]
      const scores = Float32Array.from({ length: rows * E }, (_, i) =>
        i < (rows * E) / 2 ? next() : kinds[Math.floor(next() * kinds.length)]!,
      )
      executor.insert('scores', scores)
      executor.insert('rows', new Float32Array(rows * K))
      executor.insert('at', new Int32Array(rows * K))
      await executor.step()
      const ids = Array.from(executor.fetch('ids').data, Number)
      const chosen = Array.from(executor.fetch('chosen').data, Number)
      for (let row = 0; row < rows; row += 1) {
        const own = [...scores.subarray(row * E, (row + 1) * E)]
        const score = (i: number): number => (Number.isNaN(own[i]) ? -Infinity : own[i]!)
        const wanted = own
          .map((_, i) => i)
          .sort((a, b) => (score(a) === score(b) ? a - b : score(b) - score(a)))
          .slice(0, K)
          .sort((a, b) => a - b)
        expect(ids.slice(row * K, (row + 1) * K)).toEqual(wanted)
        expect(chosen.slice(row * K, (row + 1) * K)).toEqual(wanted.map((i) => own[i]!))
      }
    }
  })

  it('weighs, gathers and combines as the formulas say', async () => {
    const [E, K, N] = [7, 3, 5]
    const executor = await opened(
      graphOf(E, [K, N], (g, { scores, rows, at }) => {
        const shares = g.softmax('shares', scores)
        const weights = g.normalise('weights', g.gather('some', shares, at))
        return { shares, y: g.scale('y', g.combine('sum', rows, weights), -2.5) }
      }),
    )
    const next = random(6)
    const scores = Float32Array.from({ length: 2 * E }, () => 6 * next() - 3)
    const rows = Float32Array.from({ length: 2 * K * N }, () => next() - 0.5)
    const at = [6, 0, 3, 2, 2, 5]
    executor.insert('scores', scores)
    executor.insert('rows', rows)
    executor.insert('at', at)
    await executor.step()
    const [shares, y] = ['shares', 'y'].map((name) => Array.from(executor.fetch(name).data, Number))
    for (const row of [0, 1]) {
      const raised = Array.from(scores.subarray(row * E, (row + 1) * E), Math.exp)
      const total = raised.reduce((a, b) => a + b, 0)
      for (const [i, each] of raised.entries()) expect(shares![row * E + i]).toBeCloseTo(each / total, 6)
      const some = at.slice(row * K, (row + 1) * K).map((i) => raised[i]!)
      const sum = some.reduce((a, b) => a + b, 0)
      for (let n = 0; n < N; n += 1) {
        const wanted = some.reduce((acc, each, k) => acc + (each / sum) * rows[(row * K + k) * N + n]!, 0)
        expect(y![row * N + n]).toBeCloseTo(-2.5 * wanted, 5)
      }
    }
  })

  it('gives NaN for a place that is not there', async () => {
    const executor = await opened(graphOf(4, [3, 1], (g, { scores, at }) => ({ y: g.gather('y', scores, at) })))
    executor.insert('scores', [1, 2, 3, 4])
    executor.insert('rows', [0, 0, 0])
    executor.insert('at', [-1, 3, 4])
    await executor.step()
    expect([...executor.fetch('y').data]).toEqual([Number.NaN, 4, Number.NaN])
  })

  it.each<readonly [string, Graph, string]>([
    ['more than there are', graphOf(4, [1, 1], (g, { scores }) => ({ y: g.topk('y', scores, 5) })), 'chooses 5 of 4'],
    [
      'none',
      JSON.parse(
        JSON.stringify(graphOf(4, [1, 1], (g, { scores }) => ({ y: g.topk('y', scores, 1) }))).replace(
          '"count":1',
          '"count":0',
        ),
      ) as Graph,
      'needs "count"',
    ],
    ['more than 64', graphOf(70, [1, 1], (g, { scores }) => ({ y: g.topk('y', scores, 65) })), 'from 1 to 64'],
    [
      'among too many',
      graphOf(4097, [1, 1], (g, { scores }) => ({ y: g.topk('y', scores, 2) })),
      'among 4097 numbers, expected at most 4096',
    ],
    [
      'by places that are no whole numbers',
      graphOf(4, [2, 4], (g, { scores, rows }) => ({ y: g.gather('y', scores, rows as never) })),
      '"rows" is f32, expected i32',
    ],
    [
      'a sum of one row',
      graphOf(4, [2, 4], (g, { scores }) => ({ y: g.combine('y', scores, scores) })),
      'expected two dimensions',
    ],
    [
      'weights of another number',
      graphOf(4, [2, 4], (g, { scores, rows }) => ({ y: g.combine('y', rows, scores) })),
      '"scores" has shape [4], expected [2]',
    ],
    [
      'a factor that f32 cannot hold',
      graphOf(4, [2, 4], (g, { scores }) => ({ y: g.scale('y', scores, 1e39) })),
      'needs a factor, a number that f32 can hold',
    ],
  ])('refuses %s', async (_, graph, message) => {
    const error = await errorOf(() => openGraph(graph, path(), { threads: 1, ...testDevice }))
    expect(error.code).toBe('INVALID')
    expect(error.message).toContain(message)
  })
})
