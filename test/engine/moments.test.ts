import { join } from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'
import { buildGraph } from '../../src/engine/builder.ts'
import { ref } from '../../src/engine/builder-types.ts'
import { openGraph } from '../../src/engine/engine.ts'
import type { OpenModelOptions } from '../../src/engine/options.ts'
import { errorOf, feed, open } from './helpers.ts'
import { random, randomRwkv7, safetensors, type Tensor, writePackage } from './packages.ts'

const [C, V] = [70, 31]
const SIZES = { L: 2, H: 2, N: 16, F: 131, V: 50, D: { w: 8, a: 8, v: 6, g: 10 } }

/** A token's row of the table, multiplied with two matrices. */
const graph = () => {
  const g = buildGraph()
  const emb = g.lookup('emb', [V, C], ref('emb'))
  const a = g.matrix('a', [C, C], ref('a'))
  const b = g.matrix('b', [C, C], ref('b'))
  const head = g.matrix('head', [V, C], ref('head'))
  const last = g.table('last', [C])
  const token = g.dynamic('token', [], 'i32')
  g.block('step', [token], () => {
    const x = g.embed('x', token, emb)
    const y = g.add('y', g.matmul('ya', x, a), g.matmul('yb', x, b))
    return { hidden: y, previous: g.cacheShift('previous', last(), y) }
  })
  const hidden = g.dynamic('hidden', [C], 'f32')
  g.block('predict', [hidden], () => ({ logits: g.matmul('logits', hidden, head) }))
  return g.finish()
}

const next = random(9)
const tensor = (...shape: number[]): Tensor => ({
  shape,
  data: Float32Array.from({ length: shape.reduce((n, extent) => n * extent, 1) }, () => next() - 0.5),
})
const tensors = new Map([
  ['emb', tensor(V, C)],
  ['a', tensor(C, C)],
  ['b', tensor(C, C)],
  ['head', tensor(V, C)],
])
const ids = Int32Array.from({ length: 300 }, () => Math.floor(next() * V))

describe('the moments of a model', () => {
  const opened = async (options: OpenModelOptions) => {
    const dir = writePackage({ model_type: 'mine' }, safetensors(tensors))
    const model = await openGraph(graph(), join(dir, 'model.safetensors'), options)
    onTestFinished(() => model.close())
    return model
  }

  it('are the sums of the products of what a matrix is multiplied with', async () => {
    const model = await opened({ threads: 2, moments: ['a', 'b'] })
    await feed(model, model.createContext(), ids)
    const rows = [...ids].map((id) => tensors.get('emb')!.data.subarray(id * C, (id + 1) * C))
    for (const name of ['a', 'b']) {
      const found = model.moments(name)!
      for (let i = 0; i < C; i += 1) {
        for (let j = 0; j < C; j += 1) {
          const wanted = rows.reduce((sum, row) => sum + row[i]! * row[j]!, 0)
          if (!(Math.abs(found[i * C + j]! - wanted) < 1e-4))
            expect.fail(`${name}[${i}][${j}] is ${found[i * C + j]}, not ${wanted}`)
        }
      }
    }
  })

  it('are not there of a tensor that nobody asked for, and nothing else changes', async () => {
    const [plain, watched] = [await opened({ threads: 1 }), await opened({ threads: 1, moments: ['a'] })]
    const error = await errorOf(() => Promise.resolve(watched.moments('b')))
    expect(error.code).toBe('MISUSE')
    expect(error.message).toContain('Nobody asked for the moments of "b"')
    const chains = []
    for (const model of [plain, watched]) {
      const context = model.createContext()
      await feed(model, context, ids)
      chains.push(context.chain)
    }
    expect(chains[0]).toBe(chains[1])
  })

  it('of a stream have the same bits on any number of threads and however it is cut', async () => {
    const dir = writePackage({ model_type: 'rwkv7' }, safetensors(randomRwkv7(3, SIZES)))
    const names = ['blocks.1.att.key.weight', 'blocks.0.ffn.value.weight', 'head.weight']
    const found = []
    for (const [threads, cut] of [
      [1, 300],
      [3, 300],
      [2, 77],
    ] as const) {
      const model = await open(dir, { threads, moments: names })
      const context = model.createContext()
      for (let at = 0; at < ids.length; at += cut) await feed(model, context, ids.subarray(at, at + cut))
      found.push(names.map((name) => [...model.moments(name)!]))
    }
    expect(found[1]).toEqual(found[0])
    expect(found[2]).toEqual(found[0])
  })
})
