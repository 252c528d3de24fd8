/** How rows of matrix memories are taken, what the clock and its segments do to a step, and with what a context begins. */
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import type { Value } from '../../src/engine/builder.ts'
import { openGraph } from '../../src/engine/engine.ts'
import { type Graph, planGraph } from '../../src/engine/graph.ts'
import { errorOf } from './helpers.ts'
import {
  attending,
  bent,
  C,
  convolving,
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
  const ways = (graph: Graph) => planGraph(graph)[0]!.stretches.map(({ way }) => way)
  it('go together where each walks its own way, and row by row where rows pick for themselves', () => {
    expect(ways(attending())).toEqual(['one'])
    expect(ways(remembering())).toEqual(['one', 'one', 'one'])
    expect(ways(convolving())).toEqual(['one'])
    const picked = (body: (kit: Kit) => Value) => ways(graphOf(body))
    expect(picked(({ g, x, at, taps }) => g.cacheConv('y', g.table('T', [5, 2, C])(at), x, taps))).toEqual(['rows'])
    expect(picked(({ g, x, at }) => g.cacheShift('y', g.table('T', [5, C])(at), x))).toEqual(['rows'])
    expect(picked(({ g, x, at }) => g.cacheRecall('y', g.table('T', [5, H, N, N])(at), x, H))).toEqual(['rows'])
    // Without a segment a mix is the row's own.
    const mixing = bent(remembering(), 'cache.mix', without('segment'))
    expect(ways(mixing)).toContain('rows')
  })

  it('a step stays within a segment, and the clock goes on with it', async () => {
    const model = await openGraph(remembering(), path(), { threads: 1 })
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

  it('block "first" makes the state that contexts begin with and are reset to', async () => {
    const model = await openGraph(remembering(), path(), { threads: 1 })
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
