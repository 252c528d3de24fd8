/** Convolutions, Mamba-2's recurrence, the gated delta rule and parts of an index, in graphs of one's own. */
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { buildGraph } from '../../src/engine/builder.ts'
import { pattern, ref, type Value } from '../../src/engine/builder-types.ts'
import { openGraph } from '../../src/engine/engine.ts'
import { type Graph, indexExtent, tensorsOf } from '../../src/engine/graph.ts'
import { checkGraph, planGraph } from '../../src/engine/plan.ts'
import { printGraph } from '../../src/engine/print.ts'
import { errorOf, testDevice } from './helpers.ts'
import { bent, C, convolving, graphOf, inputs, set, without } from './memory-graphs.ts'
import { random, safetensors, type Tensor, writePackage } from './packages.ts'

const next = random(17)
const numbers = (n: number, scale = 1): Float32Array => Float32Array.from({ length: n }, () => (next() - 0.5) * scale)
const tensor = (...shape: number[]): Tensor => ({ shape, data: numbers(shape.reduce((a, b) => a * b, 1)) })
const open = (graph: Graph, tensors: ReadonlyMap<string, Tensor>) =>
  openGraph(graph, join(writePackage({}, safetensors(tensors)), 'model.safetensors'), { threads: 1, ...testDevice })

/** The block's y [rows][…] for inputs [rows][…], in steps of `cut` rows. */
const run = async (
  graph: Graph,
  tensors: ReadonlyMap<string, Tensor>,
  rows: number,
  given: Readonly<Record<string, Float32Array>>,
  cut: number,
): Promise<number[]> => {
  const model = await open(graph, tensors)
  const executor = model.createExecutor()
  const out: number[] = []
  for (let from = 0; from < rows; from += cut) {
    for (const [name, data] of Object.entries(given)) {
      const each = data.length / rows
      executor.insert(name, [...data.subarray(from * each, Math.min(rows, from + cut) * each)])
    }
    await executor.step('run')
    out.push(...(executor.fetch('y').data as Float32Array))
  }
  model.close()
  return out
}
const largestError = (got: readonly number[], want: readonly number[]): number =>
  got.reduce((most, value, i) => Math.max(most, Math.abs(value - want[i]!)), got.length === want.length ? 0 : Infinity)

/** 4 heads of 3 channels, 2 groups of 5 keys. */
const [HEADS, P, KEYS, GROUPS] = [4, 3, 5, 2]
const scanning = (state: readonly number[] = [HEADS, KEYS, P]): Graph => {
  const g = buildGraph()
  const [x, dt, w] = (['x', 'dt', 'w'] as const).map((name) => g.dynamic(name, [name === 'x' ? 12 : HEADS], 'f32'))
  const [B, K] = ['B', 'K'].map((name) => g.dynamic(name, [GROUPS * KEYS], 'f32'))
  const D = g.vector('D', HEADS, ref('D'))
  const S = g.table('S', [...state])
  g.block('run', [x!, dt!, w!, B!, K!], () => ({
    y: g.cacheSsm('y', S(), { x: x!, dt: dt!, w: w!, B: B!, C: K!, D }, HEADS),
  }))
  return g.finish()
}

/** Heads of K keys and N values; `values`: the channels of v, as they should not be. */
const changing = (K: number, N: number, state = [HEADS, K, N], values = HEADS * N): Graph => {
  const g = buildGraph()
  const [r, w, k, kk, a] = ['r', 'w', 'k', 'kk', 'a'].map((name) => g.dynamic(name, [HEADS * K], 'f32'))
  const v = g.dynamic('v', [values], 'f32')
  const S = g.table('S', state)
  g.block('run', [r!, w!, k!, v, kk!, a!], () => ({
    y: g.cacheWkv7('y', S(), { r: r!, w: w!, k: k!, v, kk: kk!, a: a! }, HEADS),
  }))
  return g.finish()
}

describe('recurrent graphs', () => {
  it('a convolution has a bias and goes through silu, or neither', async () => {
    const rows = 11
    const x = numbers(rows * C, 4)
    const [taps, bias] = [numbers(3 * C), numbers(C)]
    const tensors = new Map([
      ['taps', { shape: [C, 1, 3], data: taps }],
      ['bias', { shape: [C], data: bias }],
    ])
    for (const [biased, activation] of [
      [true, 'silu'],
      [true, 'none'],
      [false, 'none'],
    ] as const) {
      const g = buildGraph()
      const input = g.dynamic('x', [C], 'f32')
      const w = g.vector('taps', 3 * C, ref('taps'))
      const b = biased ? g.vector('bias', C, ref('bias')) : undefined
      const tail = g.table('tail', [2, C])
      g.block('run', [input], () => ({ y: g.cacheConv('y', tail(), input, w, { bias: b, activation }) }))
      const want = Array.from({ length: rows * C }, (_, i) => {
        const [t, c] = [Math.floor(i / C), i % C]
        let sum = biased ? bias[c]! : 0
        for (let j = 0; j < 3; j += 1) sum += taps[c * 3 + j]! * (t + j < 2 ? 0 : x[(t + j - 2) * C + c]!)
        return activation === 'silu' ? sum / (1 + Math.exp(-sum)) : sum
      })
      const whole = await run(g.finish(), tensors, rows, { x }, rows)
      expect(largestError(whole, want)).toBeLessThan(1e-6)
      expect(await run(g.finish(), tensors, rows, { x }, 4)).toEqual(whole)
    }
  })

  it("Mamba-2's recurrence is its equations, at any cut", async () => {
    const rows = 9
    const [x, B, K] = [numbers(rows * 12, 2), numbers(rows * GROUPS * KEYS), numbers(rows * GROUPS * KEYS)]
    const [dt, w] = [numbers(rows * HEADS).map(Math.abs), numbers(rows * HEADS).map(Math.abs)]
    const D = numbers(HEADS)
    const S = new Float64Array(HEADS * KEYS * P)
    const want: number[] = []
    for (let t = 0; t < rows; t += 1) {
      for (let h = 0; h < HEADS; h += 1) {
        const group = Math.floor(h / (HEADS / GROUPS)) * KEYS + t * GROUPS * KEYS
        for (let p = 0; p < P; p += 1) {
          const xi = x[t * 12 + h * P + p]!
          let y = D[h]! * xi
          for (let n = 0; n < KEYS; n += 1) {
            const at = (h * KEYS + n) * P + p
            S[at] = w[t * HEADS + h]! * S[at]! + dt[t * HEADS + h]! * xi * B[group + n]!
            y += S[at]! * K[group + n]!
          }
          want.push(y)
        }
      }
    }
    const tensors = new Map([['D', { shape: [HEADS], data: D }]])
    const whole = await run(scanning(), tensors, rows, { x, dt, w, B, K }, rows)
    expect(largestError(whole, want)).toBeLessThan(1e-6)
    for (const cut of [1, 2, 5]) {
      expect(await run(scanning(), tensors, rows, { x, dt, w, B, K }, cut)).toEqual(whole)
    }
  })

  it.each([
    [3, 3],
    [5, 3],
    [2, 7],
  ])('the gated delta rule is cache.wkv7 with what belongs to a head repeated: %i keys, %i values', async (K, N) => {
    // 4 heads of values share 2 heads of keys.
    const [rows, H, keys] = [8, 4, 2]
    const [q, k, v] = [numbers(rows * keys * K), numbers(rows * keys * K), numbers(rows * H * N, 2)]
    const [gamma, beta] = [numbers(rows * H).map(Math.abs), numbers(rows * H).map(Math.abs)]
    const g = buildGraph()
    const dynamic = (name: string, width: number): Value => g.dynamic(name, [width], 'f32')
    const [qq, kk, vv] = [dynamic('q', keys * K), dynamic('k', keys * K), dynamic('v', H * N)]
    const [decay, rate] = [dynamic('gamma', H), dynamic('beta', H)]
    const S = g.table('S', [H, K, N])
    g.block('run', [qq, kk, vv, decay, rate], () => {
      const heads = (name: string, x: Value): Value => g.repeat(name, x, { groups: keys, times: H / keys })
      const wide = (name: string, x: Value, times: number): Value => g.repeat(name, x, { groups: H, times })
      const key = heads('k.heads', kk)
      const learned = g.mul('v.beta', vv, wide('beta.values', rate, N))
      const w = wide('gamma.wide', decay, K)
      const a = g.mul('a', w, wide('beta.keys', rate, K))
      const operands = { r: heads('q.heads', qq), w, k: key, v: learned, kk: key, a }
      return { y: g.cacheWkv7('y', S(), operands, H) }
    })
    const state = new Float64Array(H * K * N)
    const want: number[] = []
    for (let t = 0; t < rows; t += 1) {
      for (let h = 0; h < H; h += 1) {
        const key = (t * keys + Math.floor(h / 2)) * K
        const at = (j: number, i: number): number => (h * K + j) * N + i
        for (let i = 0; i < N; i += 1) {
          let seen = 0
          for (let j = 0; j < K; j += 1) {
            state[at(j, i)]! *= gamma[t * H + h]!
            seen += state[at(j, i)]! * k[key + j]!
          }
          const error = beta[t * H + h]! * (v[(t * H + h) * N + i]! - seen)
          let y = 0
          for (let j = 0; j < K; j += 1) {
            state[at(j, i)]! += k[key + j]! * error
            y += state[at(j, i)]! * q[key + j]!
          }
          want.push(y)
        }
      }
    }
    const given = { q, k, v, gamma, beta }
    const whole = await run(g.finish(), new Map(), rows, given, rows)
    expect(largestError(whole, want)).toBeLessThan(1e-6)
    expect(await run(g.finish(), new Map(), rows, given, 3)).toEqual(whole)
  })

  it('a slice takes a part of each of its groups', async () => {
    const g = buildGraph()
    const x = g.dynamic('x', [12], 'f32')
    g.block('run', [x], () => ({ y: g.slice('y', x, 1, 3, 3) }))
    const given = Float32Array.from({ length: 24 }, (_, i) => i)
    expect(await run(g.finish(), new Map(), 2, { x: given }, 2)).toEqual([1, 2, 5, 6, 9, 10, 13, 14, 17, 18, 21, 22])
  })

  it('clamp and exp are what they say', async () => {
    const g = buildGraph()
    const x = g.dynamic('x', [4], 'f32')
    g.block('run', [x], () => ({ y: g.exp('y', g.clamp('c', x, { low: [-1, 0], high: [1, 0.5] })) }))
    const got = await run(g.finish(), new Map(), 1, { x: Float32Array.of(-3, 0.25, -1, 9) }, 1)
    const want = [-1, 0.25, 0, 0.5].map(Math.exp)
    expect(largestError(got, want)).toBeLessThan(1e-6)
  })

  it.each<[string, Graph, string]>([
    [
      'a slice beyond its groups',
      graphOf(({ g, x }) => g.slice('y', x, 1, 4, 2)),
      'has shape [6], which has no part 1 to 4 in each of 2 groups',
    ],
    [
      'a slice of unequal groups',
      graphOf(({ g, x }) => g.slice('y', x, 0, 1, 4)),
      'cannot split 6 channels into 4 groups',
    ],
    [
      'an unknown activation',
      bent(convolving(), 'cache.conv', set({ activation: 'gelu' })),
      'unknown activation "gelu"',
    ],
    [
      'a bias that is a value',
      bent(
        convolving(),
        'cache.conv',
        inputs((names) => [...names, 'x']),
      ),
      'input "x" must be a constant vector',
    ],
    [
      'a bias of another width',
      bent(
        convolving(),
        'cache.conv',
        inputs((names) => [...names, 'logits']),
      ),
      'input "logits" has shape [4], expected [6]',
    ],
    [
      'two biases',
      bent(
        convolving(),
        'cache.conv',
        inputs((names) => [...names, 'gain', 'gain']),
      ),
      'has 4 inputs, expected 2, and a third one for a bias',
    ],
    ['heads of unequal width', bent(scanning(), 'cache.ssm', set({ groups: 5 })), 'cannot split 12 channels into 5'],
    [
      'a step of another width',
      bent(
        scanning(),
        'cache.ssm',
        inputs(([x, , ...rest]) => [x!, 'x', ...rest]),
      ),
      'input "x" has shape [12], expected [4]',
    ],
    ['a state without keys', scanning([HEADS, P]), 'expected [heads, n, channels of a head] with n from 1 to 256'],
    ['a state of too many keys', scanning([HEADS, 257, P]), 'with n from 1 to 256'],
    ['a state of other heads', scanning([2, KEYS, P]), 'has shape [2, 5, 3], expected [4, 5, 3]'],
    ['keys that make no groups', scanning([HEADS, 3, P]), 'input "B" has 10 channels, expected 3 for each group'],
    [
      'keys of two widths',
      bent(
        scanning(),
        'cache.ssm',
        inputs(([x, dt, w, B, , D]) => [x!, dt!, w!, B!, 'w', D!]),
      ),
      'input "w" has shape [4], expected [10]',
    ],
    ['a head of too many keys', changing(257, 3), 'a head has 257 channels, expected at most 256'],
    ['a head of too many values', changing(3, 257), 'a head has 257 channels, expected at most 256'],
    ['values before keys in a state', changing(5, 3, [HEADS, 3, 5]), 'has shape [4, 3, 5], expected [4, 5, 3]'],
    ['values that make no heads', changing(5, 3, [HEADS, 5, 3], 13), 'cannot split 13 channels into 4'],
    [
      'values that are a table',
      bent(
        changing(5, 3),
        'cache.wkv7',
        inputs(([r, w, k, , kk, a]) => [r!, w!, k!, 'S', kk!, a!]),
      ),
      'input "S" is persistent',
    ],
    [
      'keys of another width than what is read with',
      bent(
        changing(5, 3),
        'cache.wkv7',
        inputs(([r, w, , v, kk, a]) => [r!, w!, 'v', v!, kk!, a!]),
      ),
      'input "v" has shape [12], expected [20]',
    ],
    [
      'a repeat of nothing',
      bent(
        graphOf(({ g, x }) => g.slice('y', g.repeat('r', x, { groups: 2, times: 3 }), 0, C)),
        'repeat',
        set({ times: 0 }),
      ),
      'needs "times", a whole number from 1',
    ],
    [
      'a repeat without groups',
      bent(
        graphOf(({ g, x }) => g.slice('y', g.repeat('r', x, { groups: 2, times: 3 }), 0, C)),
        'repeat',
        without('groups'),
      ),
      'needs "groups"',
    ],
    [
      'a repeat of groups that do not divide',
      graphOf(({ g, x }) => g.slice('y', g.repeat('r', x, { groups: 4, times: 2 }), 0, C)),
      'cannot split 6 channels into 4 groups',
    ],
    [
      'a clamp without ends',
      bent(
        graphOf(({ g, x }) => g.clamp('y', x, { low: [0], high: [1] })),
        'clamp',
        without('low'),
      ),
      'needs "low", a list of numbers',
    ],
  ])('%s is refused', async (_, graph, message) => {
    expect((await errorOf(async () => checkGraph(graph))).message).toContain(message)
  })
})

/**
 * Five layers: the second and the last multiply with a matrix of their own, the others with a vector; every second kind
 * counts.
 */
const hybrid = (): Graph => {
  const g = buildGraph()
  const l = g.index('l', 5)
  const a = g.part('a', l, [1, 4])
  const r = g.part('r', l, [0, 2, 3])
  const W = g.matrices('W', [2, 2], pattern('layers.{a}.W'), { over: a })
  const b = g.vectors('b', 2, pattern('layers.{r}.b'), { over: r })
  const S = g.table('S', [a, 2])
  const input = g.dynamic('x', [2], 'f32')
  g.block('run', [input], () => {
    const x = g.clamp('y', input, { low: [-100], high: [100] })
    g.loop(l, {}, () => {
      g.branch(
        { within: a },
        () => void g.add('y', g.matmul('m', x, W(a)), g.cacheShift('s', S(a), x)),
        () => g.branch({ within: r }, () => void g.mul('y', x, b(r))),
      )
    })
    return { y: x }
  })
  return g.finish()
}

interface Loose {
  indices: Record<string, unknown>[]
  blocks: { nodes: { nodes: Record<string, unknown>[] }[] }[]
}
const spoilt = (change: (graph: Loose) => void): Graph => {
  const copy = structuredClone(hybrid()) as unknown as Loose
  change(copy)
  return copy as unknown as Graph
}

describe('parts of an index', () => {
  it('number their members by the values that they have in the index, and pick along axes by their own', async () => {
    const tensors = new Map([
      ...[1, 4].map((n): [string, Tensor] => [`layers.${n}.W`, tensor(2, 2)]),
      ...[0, 2, 3].map((n): [string, Tensor] => [`layers.${n}.b`, tensor(2)]),
    ])
    const rows = 3
    const x = numbers(rows * 2, 2)
    const before: Record<number, number[]> = { 1: [0, 0], 4: [0, 0] }
    const want: number[] = []
    for (let t = 0; t < rows; t += 1) {
      let y = [x[2 * t]!, x[2 * t + 1]!]
      for (let n = 0; n < 5; n += 1) {
        const W = tensors.get(`layers.${n}.W`)?.data
        const b = tensors.get(`layers.${n}.b`)?.data
        const kept = before[n]
        if (W && kept) {
          before[n] = y
          y = [0, 1].map((i) => W[2 * i]! * y[0]! + W[2 * i + 1]! * y[1]! + kept[i]!)
        } else y = y.map((value, i) => value * b![i]!)
      }
      want.push(...y)
    }
    expect(largestError(await run(hybrid(), tensors, rows, { x }, 2), want)).toBeLessThan(1e-6)
    expect(indexExtent(hybrid(), 'a')).toBe(2)
    const constants = hybrid().declarations.filter((each) => each.kind === 'constant')
    expect(constants.map((each) => tensorsOf(hybrid(), each))).toEqual([
      ['layers.1.W', 'layers.4.W'],
      ['layers.0.b', 'layers.2.b', 'layers.3.b'],
    ])
  })

  it('are printed with the values that they number, and unrolled before they run', () => {
    const text = printGraph(hybrid()).join('\n')
    expect(text).toContain('  a = 0 … 1, where l = 1, 4')
    expect(text).toContain('if l = 1, 4 (a)')
    // A clamp; then a product, a shift and a sum, or a product with a vector.
    expect(planGraph(hybrid())[0]!.lines).toBe(1 + 2 * 3 + 3)
  })

  it.each<[string, Graph, string]>([
    [
      'of an index that is not there',
      spoilt(({ indices }) => Object.assign(indices[1]!, { of: 'k' })),
      'is a part of "k"',
    ],
    [
      'of a part',
      spoilt(({ indices }) => Object.assign(indices[2]!, { of: 'a' })),
      'is a part of "a", expected an index',
    ],
    ['without values', spoilt(({ indices }) => Object.assign(indices[1]!, { at: [] })), 'needs "at"'],
    [
      'with a value beyond the index',
      spoilt(({ indices }) => Object.assign(indices[1]!, { at: [1, 5] })),
      'below 5 in "at"',
    ],
    [
      'with values out of order',
      spoilt(({ indices }) => Object.assign(indices[1]!, { at: [4, 1] })),
      'ascending whole',
    ],
    ['with a value twice', spoilt(({ indices }) => Object.assign(indices[1]!, { at: [1, 1] })), 'ascending whole'],
    [
      'where their index has no value',
      spoilt(({ blocks }) => blocks[0]!.nodes.splice(1, 1, blocks[0]!.nodes[1]!.nodes[0]! as never)),
      'a branch on "a" stands outside the loop over "l"',
    ],
    [
      'where they have a value already',
      spoilt(({ blocks }) => {
        const branch = blocks[0]!.nodes[1]!.nodes[0]!
        branch.nodes = [structuredClone(branch)]
      }),
      'a branch on "a" stands where it has a value already',
    ],
    [
      'outside the branch that gives them one',
      spoilt(({ blocks }) => {
        const branch = blocks[0]!.nodes[1]!.nodes[0]!
        branch.otherwise = branch.nodes
      }),
      'uses the index "a" outside the loop over it',
    ],
  ])('%s are refused', async (_, graph, message) => {
    expect((await errorOf(async () => checkGraph(graph))).message).toContain(message)
  })
})
