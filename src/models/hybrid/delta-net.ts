/**
 * Gated DeltaNet (Yang, Kautz, Hatamizadeh, "Gated Delta Networks: Improving Mamba2 with Delta Rule", 2025) as Qwen3-Next has it: a causal
 * convolution of queries, keys and values, then on a state S [heads, N keys, N values] of each head of values
 *
 *   S ← γ S;  S ← S + k (β (v − Sᵀ k))ᵀ;  y = Sᵀ q,   γ = exp(−exp(A_log) · softplus(a + dt_bias)),  β = sigmoid(b)
 *
 * which is the recurrence of `cache.wkv7` (docs/graph.md).
 *
 * Sizes: C channels of the model, Hk heads of keys and Hv of values of N channels, T taps.
 */
import type { GraphBuilder } from '../../engine/builder.ts'
import type { Matrix, Member, Value } from '../../engine/builder-types.ts'
import type { LayerKind } from './layers.ts'

export interface DeltaNetPlan {
  readonly C: number
  readonly Hk: number
  readonly Hv: number
  readonly N: number
  readonly T: number
  readonly eps: number
  /** Rows of q, k, v and z stand together for each head of keys, and those of b and a. Else: q, k and v; z; b; a. */
  readonly byKeyHead: boolean
}

type Part = 'q' | 'k' | 'v' | 'z' | 'b' | 'a'

/** What computes the six projections of a layer's input. */
const projections = (g: GraphBuilder, layers: LayerKind, { C, Hk, Hv, N, byKeyHead }: DeltaNetPlan) => {
  const [keys, values, each] = [Hk * N, Hv * N, Hv / Hk]
  const { index } = layers
  const product = (name: string, n: Value, weight: Member<Matrix>): Value => g.matmul(`delta.${name}`, n, weight(index))
  if (byKeyHead) {
    const qkvz = layers.matrix('linear_attn.in_proj_qkvz', [2 * keys + 2 * values, C])
    const ba = layers.matrix('linear_attn.in_proj_ba', [2 * Hv, C])
    return (n: Value): Record<Part, Value> => {
      const [wide, narrow] = [product('qkvz', n, qkvz), product('ba', n, ba)]
      const part = (name: Part, x: Value, from: number, to: number) => g.slice(`delta.${name}`, x, from, to, Hk)
      return {
        q: part('q', wide, 0, N),
        k: part('k', wide, N, 2 * N),
        v: part('v', wide, 2 * N, (2 + each) * N),
        z: part('z', wide, (2 + each) * N, (2 + 2 * each) * N),
        b: part('b', narrow, 0, each),
        a: part('a', narrow, each, 2 * each),
      }
    }
  }
  const qkv = layers.matrix('linear_attn.in_proj_qkv', [2 * keys + values, C])
  const z = layers.matrix('linear_attn.in_proj_z', [values, C])
  const b = layers.matrix('linear_attn.in_proj_b', [Hv, C])
  const a = layers.matrix('linear_attn.in_proj_a', [Hv, C])
  return (n: Value): Record<Part, Value> => {
    // Products that do not depend on each other stand side by side: a device may run them as one.
    const wide = product('qkv', n, qkv)
    const others = { z: product('z', n, z), b: product('b', n, b), a: product('a', n, a) }
    const part = (name: Part, from: number, to: number) => g.slice(`delta.${name}`, wide, from, to)
    return {
      q: part('q', 0, keys),
      k: part('k', keys, 2 * keys),
      v: part('v', 2 * keys, 2 * keys + values),
      ...others,
    }
  }
}

/** Declares the layers' constants and states; what it returns computes a layer's output from its normed input. */
export const deltaNet = (g: GraphBuilder, layers: LayerKind, plan: DeltaNetPlan) => {
  const { C, Hk, Hv, N, T, eps } = plan
  const [keys, values] = [Hk * N, Hv * N]
  const { index } = layers
  const project = projections(g, layers, plan)
  const channels = 2 * keys + values
  const convolution = (name: 'q' | 'k' | 'v', from: number, width: number) => ({
    taps: layers.vector('linear_attn.conv1d.weight', [channels, 1, T], {
      as: `linear_attn.conv1d.${name}`,
      width: width * T,
      view: { repeat: 1, step: 0, parts: [[from * T, width * T]] },
    }),
    // The last T − 1 rows before the convolution.
    tail: g.table(`conv.${name}`, [index, T - 1, width]),
  })
  const conv = {
    q: convolution('q', 0, keys),
    k: convolution('k', keys, keys),
    v: convolution('v', 2 * keys, values),
  }
  const decay = layers.vector('linear_attn.A_log', [Hv], { map: 'neg_exp' })
  const bias = layers.vector('linear_attn.dt_bias', [Hv])
  const norm = layers.vector('linear_attn.norm.weight', [N], {
    width: values,
    ...(Hv > 1 ? { view: { repeat: Hv, step: 0, parts: [[0, N]] as const } } : {}),
  })
  const outward = layers.matrix('linear_attn.out_proj', [C, values])
  const S = g.table('S', [index, Hv, N, N])

  const convolved = (name: 'q' | 'k' | 'v', x: Value): Value =>
    g.cacheConv(`delta.${name}.c`, conv[name].tail(index), x, conv[name].taps(index))
  /** Of each head of keys, for the heads of values that share it: of length 1. */
  const direction = (name: 'q' | 'k', x: Value): Value => {
    const unit = g.unit(`delta.${name}.u`, convolved(name, x), { groups: Hk, eps: 1e-6 })
    return Hv === Hk ? unit : g.repeat(`delta.${name}.h`, unit, { groups: Hk, times: Hv / Hk })
  }
  const wide = (name: string, x: Value): Value => g.repeat(name, x, { groups: Hv, times: N })
  return (n: Value): Value => {
    const { q, k, v, z, b, a } = project(n)
    const step = g.softplus('delta.dt', g.add('delta.dt.z', a, bias(index)))
    const w = wide('delta.w', g.exp('delta.gamma', g.mul('delta.log', step, decay(index))))
    const rate = wide('delta.beta.w', g.sigmoid('delta.beta', b))
    const key = direction('k', k)
    const r = direction('q', q)
    const learned = g.mul('delta.v.b', convolved('v', v), rate)
    const y = g.cacheWkv7('delta.y', S(index), { r, w, k: key, v: learned, kk: key, a: g.mul('delta.wa', w, rate) }, Hv)
    // The rule reads with q / √N. The norm takes a factor away, but for its ε: that of √N · y is N · ε.
    const normed = g.rmsnorm('delta.y.n', y, norm(index), { groups: Hv, eps: N * eps })
    return g.matmul('delta.o', g.mul('delta.y.g', normed, g.silu('delta.gate', z)), outward(index))
  }
}
