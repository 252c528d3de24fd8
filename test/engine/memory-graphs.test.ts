/**
 * How rows of matrix memories are taken, what the clock and its segments do to a step, and with what a context begins.
 */
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { ring, type Value } from '../../src/engine/builder-types.ts'
import { openGraph } from '../../src/engine/engine.ts'
import type { Graph } from '../../src/engine/graph.ts'
import { planGraph } from '../../src/engine/plan.ts'
import { errorOf, testDevice } from './helpers.ts'
import {
  attending,
  bent,
  C,
  convolving,
  FORM,
  graphOf,
  H,
  K,
  type Kit,
  N,
  remembering,
  weights,
  without,
} from './memory-graphs.ts'
import { safetensors, writePackage } from './packages.ts'

const path = (): string => join(writePackage({}, safetensors(weights)), 'model.safetensors')

describe('rows of matrix memories', () => {
  const orders = (graph: Graph) => planGraph(graph)[0]!.stages.map(({ order }) => order)
  it('go together where each walks its own way, and row by row where rows pick for themselves', () => {
    expect(orders(attending())).toEqual(['row_parallel'])
    expect(orders(remembering())).toEqual(['row_parallel', 'row_parallel', 'row_parallel'])
    expect(orders(convolving())).toEqual(['row_parallel'])
    const picked = (body: (kit: Kit) => Value) => orders(graphOf(body))
    expect(picked(({ g, x, at, taps }) => g.cacheConv('y', g.table('T', [5, 2, C])(at), x, taps))).toEqual([
      'row_serial',
    ])
    expect(picked(({ g, x, at }) => g.cacheShift('y', g.table('T', [5, C])(at), x))).toEqual(['row_serial'])
    expect(picked(({ g, x, at }) => g.cacheRecall('y', g.table('T', [5, H, N, N])(at), x, H))).toEqual(['row_serial'])
    // Without a segment a mix is the row's own.
    const mixing = bent(remembering(), 'cache.mix', without('segment'))
    expect(orders(mixing)).toContain('row_serial')
  })

  it('a step stays within a segment, and the clock goes on with it', async () => {
    const model = await openGraph(remembering(), path(), { threads: 1, ...testDevice })
    const executor = model.createExecutor()
    const step = async (rows: number): Promise<void> => {
      executor.insert('x', Array(rows * C).fill(0.25))
      executor.insert('wide', Array(rows * (C + 1)).fill(0))
      executor.insert('at', Array(rows).fill(0))
      executor.insert('gates', Array(rows * K * H).fill(0.5))
      await executor.step('run')
    }
    expect((await errorOf(() => step(7))).message).toContain('6 of 7 rows')
    await step(4)
    expect((await errorOf(() => step(3))).message).toContain('2 of 3 rows')
    await step(2)
    await step(6)
    model.close()
  })

  it.each<[string, (kit: Kit) => Value]>([
    [
      'a momentum',
      ({ g, x, at, gates, logits }) => {
        g.clock('clock')
        const [M, S] = [g.table('M', [K, H, N, N]), g.table('picked', [3, K, H, N, N])]
        const memory = { M: M(), momentum: S(at), buffer: g.table('G', [1, H, N, N])() }
        return g.cacheMemory('y', memory, { q: x, k: x, v: x, theta: gates, eta: gates, alpha: gates, logits }, FORM)
      },
    ],
    [
      'keys of the context',
      ({ g, x, at }) => {
        const clock = g.clock('clock')
        const own = (keys: string, values: string, pick: Value<'i32'> | number) => {
          const [k, v] = [keys, values].map((name) => g.table(name, [3, ring(4, clock), C]))
          return { k: x, v: x, keys: k!(pick), values: v!(0) }
        }
        return g.cacheAttend('y', x, own('K', 'V', 0), { heads: H, scale: 1, context: own('picked', 'HV', at) })
      },
    ],
  ])('a row that picks %s which is not there ends with its context, not with the process', async (_, body) => {
    const model = await openGraph(graphOf(body), path(), { threads: 1, ...testDevice })
    const executor = model.createExecutor()
    const step = async (at: number): Promise<void> => {
      executor.insert('x', Array(C).fill(0.25))
      executor.insert('wide', Array(C + 1).fill(0))
      executor.insert('at', [at])
      executor.insert('gates', Array(K * H).fill(0.5))
      await executor.step('run')
    }
    await step(2)
    const { code, message } = await errorOf(() => step(3))
    expect(code).toBe('REFUSED')
    expect(message).toContain('position 3 of "picked" is not there, expected 0 to 2')
    executor.context.reset()
    await step(0)
    model.close()
  })

  it('what the gates were is told of the level they belong to, also where no layer is', async () => {
    const model = await openGraph(remembering(), path(), { threads: 1, ...testDevice })
    const executor = model.createExecutor()
    executor.insert('x', Array(C).fill(0.25))
    executor.insert('wide', Array(C + 1).fill(0))
    executor.insert('at', [0])
    executor.insert('gates', [0.25, 0.25, 0.5, 0.5])
    await executor.step('run')
    expect(executor.context.gates()).toEqual([
      { table: 'M', layer: 0, level: 0, theta: 0.25, eta: 0.25, alpha: 0.25 },
      { table: 'M', layer: 0, level: 1, theta: 0.5, eta: 0.5, alpha: 0.5 },
    ])
    model.close()
  })

  it('block "first" makes the state that contexts begin with and are reset to', async () => {
    const model = await openGraph(remembering(), path(), { threads: 1, ...testDevice })
    const executor = model.createExecutor()
    const init = weights.get('init')!.data
    // A file has [value, key], the table [key, value].
    const turned = Float32Array.from(
      init,
      (_, i) => init[i - (i % (N * N)) + (i % N) * N + Math.floor((i % (N * N)) / N)]!,
    )
    expect(executor.fetch('M').data).toEqual(turned)
    expect(executor.fetch('S').data).toEqual(new Float32Array(K * H * N * N))
    executor.insert('x', Array(C).fill(0.25))
    executor.insert('wide', Array(C + 1).fill(0))
    executor.insert('at', [0])
    executor.insert('gates', Array(K * H).fill(0.5))
    await executor.step('run')
    expect(executor.fetch('M').data).not.toEqual(turned)
    executor.context.reset()
    expect(executor.fetch('M').data).toEqual(turned)
    model.close()
  })
})
