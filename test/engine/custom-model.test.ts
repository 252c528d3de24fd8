/**
 * A model of one's own, written from scratch: two layers of softmax attention over a key-value cache that grows as the
 * stream does, served by the same engine as the shipped family. An oracle in double precision, which shares nothing
 * with it, says what must come out.
 */
import { join } from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'
import { buildGraph } from '../../src/engine/builder.ts'
import { autoDim, pattern, plus, ref } from '../../src/engine/builder-types.ts'
import { openGraph } from '../../src/engine/engine.ts'
import type { Graph } from '../../src/engine/graph.ts'
import type { OpenModelOptions } from '../../src/engine/options.ts'
import type { Model } from '../../src/engine/types.ts'
import { bits, errorOf, feed, generate, sameBytes, testDevice } from './helpers.ts'
import { random, safetensors, type Tensor, writePackage } from './packages.ts'

const [L, C, H, F, V] = [2, 24, 3, 40, 31]

const graphOf = (max: number): Graph => {
  const g = buildGraph()
  const l = g.index('l', L)
  const over = { over: l }
  const emb = g.lookup('emb', [V, C], ref('emb'))
  const positions = g.lookup('positions', [max, C], ref('positions'))
  const norm = {
    weight: g.vectors('n.w', C, pattern('{l}.n.w'), over),
    bias: g.vectors('n.b', C, pattern('{l}.n.b'), over),
  }
  const qkv = g.matrices('qkv', [3 * C, C], pattern('{l}.qkv'), over)
  const out = g.matrices('out', [C, C], pattern('{l}.out'), over)
  const up = g.matrices('up', [F, C], pattern('{l}.up'), over)
  const down = g.matrices('down', [C, F], pattern('{l}.down'), over)
  const head = g.matrix('head', [V, C], ref('head'))
  const length = g.counter('length', { max })
  const K = g.table('K', [l, autoDim(length), C])
  const Vs = g.table('V', [l, autoDim(length), C])
  const last = g.table('last', [C])

  const token = g.dynamic('token', [], 'i32')
  g.block('step', [token], () => {
    const at = g.cacheCount('at', length)
    g.cacheIncrement(length)
    const x = g.add('x', g.embed('e', token, emb), g.embed('p', at, positions))
    g.loop(l, {}, () => {
      const n = g.norm('n', x, norm.weight(l), norm.bias(l), { eps: 1e-5 })
      const all = g.matmul('all', n, qkv(l))
      g.cacheWrite(K(l, plus(length, -1)), g.slice('k', all, C, 2 * C))
      g.cacheWrite(Vs(l, plus(length, -1)), g.slice('v', all, 2 * C, 3 * C))
      const a = g.attend('a', g.slice('q', all, 0, C), K(l), Vs(l), { heads: H, scale: 1 / Math.sqrt(C / H) })
      g.add('x', x, g.matmul('o', a, out(l)))
      g.add('x', x, g.matmul('f', g.relu2('e2', g.matmul('u', x, up(l))), down(l)))
    })
    return { hidden: x, previous: g.cacheShift('previous', last(), x) }
  })
  const hidden = g.dynamic('hidden', [C], 'f32')
  g.block('predict', [hidden], () => ({ logits: g.matmul('logits', hidden, head) }))
  return g.finish()
}

const weightsOf = (max: number): Map<string, Tensor> => {
  const next = random(5)
  const tensor = (...shape: number[]): Tensor => ({
    shape,
    data: Float32Array.from({ length: shape.reduce((a, b) => a * b, 1) }, () => (next() - 0.5) / 2),
  })
  const weights = new Map([
    ['emb', tensor(V, C)],
    ['positions', tensor(max, C)],
    ['head', tensor(V, C)],
  ])
  for (let l = 0; l < L; l += 1) {
    const parts = { 'n.w': [C], 'n.b': [C], qkv: [3 * C, C], out: [C, C], up: [F, C], down: [C, F] }
    for (const [name, shape] of Object.entries(parts)) weights.set(`${l}.${name}`, tensor(...shape))
  }
  return weights
}

const open = async (max: number, options: OpenModelOptions = { threads: 2 }): Promise<Model> => {
  const folder = writePackage({}, safetensors(weightsOf(max)))
  const model = await openGraph(graphOf(max), join(folder, 'model.safetensors'), { ...testDevice, ...options })
  onTestFinished(() => model.close())
  return model
}

/** Logits after each token, in double precision. */
const oracle = (weights: Map<string, Tensor>, tokens: readonly number[]): number[][] => {
  const row = (name: string, i: number, width: number): number[] => [
    ...weights.get(name)!.data.subarray(i * width, (i + 1) * width),
  ]
  const times = (name: string, x: readonly number[]): number[] => {
    const { shape, data } = weights.get(name)!
    return Array.from({ length: shape[0]! }, (_, n) => x.reduce((sum, v, k) => sum + v * data[n * x.length + k]!, 0))
  }
  const cache = Array.from({ length: L }, () => ({ k: [] as number[][], v: [] as number[][] }))
  return tokens.map((token, t) => {
    let x = row('emb', token, C).map((v, i) => v + row('positions', t, C)[i]!)
    for (let l = 0; l < L; l += 1) {
      const mean = x.reduce((a, b) => a + b) / C
      const spread = Math.sqrt(x.reduce((a, b) => a + (b - mean) ** 2, 0) / C + 1e-5)
      const n = x.map(
        (v, i) => ((v - mean) / spread) * weights.get(`${l}.n.w`)!.data[i]! + weights.get(`${l}.n.b`)!.data[i]!,
      )
      const all = times(`${l}.qkv`, n)
      cache[l]!.k.push(all.slice(C, 2 * C))
      cache[l]!.v.push(all.slice(2 * C))
      const a = Array.from({ length: C }, () => 0)
      for (let h = 0; h < H; h += 1) {
        const channels = Array.from({ length: C / H }, (_, i) => h * (C / H) + i)
        const scores = cache[l]!.k.map((k) => channels.reduce((s, c) => s + k[c]! * all[c]!, 0) / Math.sqrt(C / H))
        const most = Math.max(...scores)
        const weightsOfPositions = scores.map((s) => Math.exp(s - most))
        const total = weightsOfPositions.reduce((p, q) => p + q)
        for (const c of channels)
          a[c] = cache[l]!.v.reduce((s, v, p) => s + (v[c]! * weightsOfPositions[p]!) / total, 0)
      }
      const o = times(`${l}.out`, a)
      x = x.map((v, i) => v + o[i]!)
      const f = times(
        `${l}.down`,
        times(`${l}.up`, x).map((v) => Math.max(v, 0) ** 2),
      )
      x = x.map((v, i) => v + f[i]!)
    }
    return times('head', x)
  })
}

const tokens = (count: number, seed = 3): number[] => {
  const next = random(seed)
  return Array.from({ length: count }, () => Math.floor(next() * V))
}

describe('a model of one’s own', () => {
  it('gives the logits of an independent oracle, far past the first growth of its cache', async () => {
    const model = await open(700)
    const context = model.createContext()
    const ids = tokens(600)
    const wanted = oracle(weightsOf(700), ids)
    let at = 0
    for (const upTo of [1, 2, 16, 17, 300, 600]) {
      await feed(model, context, ids.slice(at, upTo), false)
      at = upTo
      const logits = await model.logits(context)
      const scale = Math.max(...wanted[at - 1]!.map(Math.abs))
      wanted[at - 1]!.forEach((want, i) => {
        expect(Math.abs(logits[i]! - want) / scale).toBeLessThan(2e-5)
      })
    }
  })

  it('any cut, any threads, planned memory or not, in company or alone: the same bits', async () => {
    const ids = tokens(333)
    const one = await open(400, { threads: 1 })
    const whole = one.createContext()
    const nats = await feed(one, whole, ids)
    for (const threads of [1, 3]) {
      const model = await open(400, { threads })
      for (const size of [1, 7, 64]) {
        const [context, other] = [model.createContext(), model.createContext()]
        const pieces: number[] = []
        for (let at = 0; at < ids.length; at += size) {
          const [mine] = await model.process([
            { context, tokens: Int32Array.from(ids.slice(at, at + size)), nats: true },
            { context: other, tokens: Int32Array.of(at % V), nats: false },
          ])
          pieces.push(...mine!.nats)
        }
        expect(bits(Float32Array.from(pieces))).toEqual(bits(nats))
        expect(context.chain).toBe(whole.chain)
        expect(sameBytes(context.serialize(), whole.serialize())).toBe(true)
      }
    }
  })

  it('memory grows block by block, the last one doubling, and a snapshot holds what was entered, not what there is room for', async () => {
    const model = await open(4096)
    const context = model.createContext()
    const sizes = new Set<number>()
    const perToken = 4 * L * 2 * C
    const first = context.serialize().length
    for (let t = 0; t < 300; t += 1) {
      await feed(model, context, [t % V], false)
      sizes.add(context.bytes)
      expect(context.serialize().length).toBe(first + (t + 1) * perToken)
      expect(context.bytes).toBeLessThan(4096 + 2 * Math.max(16, t + 1) * perToken)
    }
    // 16, 32, 64, 128, 256 positions, and then 16, 32, 64 of a second block.
    expect(sizes.size).toBe(8)
    expect(model.layout.tensors(context.serialize()).map(({ name, shape }) => [name, shape])).toEqual([
      ['length', []],
      ['K', [L, 300, C]],
      ['V', [L, 300, C]],
      ['last', [C]],
    ])
    context.reset()
    expect(context.serialize().length).toBe(first)
    expect(context.bytes).toBe(model.createContext().bytes)
  })

  it('goes on from a snapshot as if nothing had happened', async () => {
    const model = await open(400)
    const context = model.createContext()
    await feed(model, context, tokens(100), false)
    const state = context.serialize()
    const { pulse, origin, chain } = context
    const twin = model.createContext()
    await feed(model, twin, tokens(222, 9), false)
    twin.restore(state, { pulse, origin, chain })
    const [a, b] = [await generate(model, context, 60), await generate(model, twin, 60)]
    expect(b.generated).toEqual(a.generated)
    expect(twin.chain).toBe(context.chain)
    // Counters and lengths that cannot be.
    const head = { pulse, origin, chain }
    expect((await errorOf(() => twin.restore(state.subarray(4), head))).code).toBe('INVALID')
    const wrong = state.slice()
    new DataView(wrong.buffer).setBigInt64(0, 401n, true)
    expect(await errorOf(() => twin.restore(wrong, head))).toMatchObject({
      message: expect.stringContaining('counter "length" is 401, expected 0 to 400'),
    })
    new DataView(wrong.buffer).setBigInt64(0, 99n, true)
    expect((await errorOf(() => twin.restore(wrong, head))).message).toMatch(/bytes, expected/)
    expect(sameBytes(twin.serialize(), context.serialize())).toBe(true)
  })

  it('past its bound nothing is fed, and the context stays as it is; others of the call go on', async () => {
    const model = await open(20)
    expect(model.positions).toBe(20)
    const [full, other] = [model.createContext(), model.createContext()]
    await feed(model, full, tokens(18), false)
    const before = full.serialize()
    const work = { nats: true, tokens: Int32Array.from(tokens(5)) }
    const items = [full, other].map((context) => ({ context, ...work }))
    const [failure, result] = await Promise.allSettled(items.map((item) => model.submit(item)))
    expect(failure).toMatchObject({
      reason: {
        code: 'INVALID',
        message: expect.stringContaining('23 positions exceed the 20 of counter "length", which stands at 18.'),
      },
    })
    expect(result).toMatchObject({ value: { nats: { length: 5 } } })
    expect([full.pulse, other.pulse]).toEqual([18n, 5n])
    expect(sameBytes(full.serialize(), before)).toBe(true)
    // What fits is fed; a generation ends with the last position.
    await feed(model, full, tokens(1), false)
    expect(await generate(model, full, 5)).toMatchObject({ generated: { length: 1 }, ended: 'positions' })
    expect(await generate(model, full, 5)).toMatchObject({ generated: { length: 0 }, ended: 'positions' })
    expect(full.pulse).toBe(20n)
    expect((await errorOf(() => feed(model, full, [1], false))).message).toMatch(
      /21 positions exceed the 20 .*written: reset/,
    )
    expect((await model.logits(full)).length).toBe(V)
    full.reset()
    await feed(model, full, tokens(20), false)
  })
})
