/**
 * Gated DeltaNet (Yang, Kautz, Hatamizadeh, "Gated Delta Networks: Improving Mamba2 with Delta Rule", 2025) as
 * Qwen3-Next has it: a causal convolution of queries, keys and values, then on a state S [K keys, N values] of each
 * head of values
 *
 *   S ← γ S;  S ← S + k (β (v − Sᵀ k))ᵀ;  y = Sᵀ q,   γ = exp(−exp(A_log) · softplus(a + dt_bias)),  β = sigmoid(b)
 *
 * which is the recurrence of `cache.wkv7` (docs/graph.md).
 *
 * Sizes: C channels of the model, Hk heads of keys of K channels and Hv of values of N, T taps.
 */
import type { GraphBuilder } from '../../engine/builder.ts'
import type { Matrix, Member, Value } from '../../engine/builder-types.ts'
import type { LayerKind } from './kinds.ts'

export interface DeltaNetPlan {
  readonly C: number
  readonly Hk: number
  readonly Hv: number
  readonly K: number
  readonly N: number
  readonly T: number
  readonly eps: number
  /** Head h of values reads head ⌊h · Hk / Hv⌋ of keys; tiled: head h mod Hk. */
  readonly tiled?: boolean
}

type Part = 'q' | 'k' | 'v' | 'z' | 'b' | 'a'

/** What computes the six projections of a layer's input. */
const projections = (g: GraphBuilder, layers: LayerKind, { C, Hk, Hv, K, N }: DeltaNetPlan) => {
  const [keys, values, each] = [Hk * K, Hv * N, Hv / Hk]
  const { index } = layers
  const at = 'linear_attn.in_proj_'
  // By head of keys: its rows of q, k, v and z stand together, and so do those of b and a. Else all q, all k, all v; z;
  // b; a.
  const together = layers.has(`${at}qkvz.weight`)
  const paired = layers.has(`${at}ba.weight`)
  const qkv = layers.matrix(`${at}${together ? 'qkvz' : 'qkv'}`, [2 * keys + (together ? 2 : 1) * values, C])
  const z = together ? null : layers.matrix(`${at}z`, [values, C])
  const b = layers.matrix(`${at}${paired ? 'ba' : 'b'}`, [(paired ? 2 : 1) * Hv, C])
  const a = paired ? null : layers.matrix(`${at}a`, [Hv, C])
  return (n: Value): Record<Part, Value> => {
    const product = (name: string, weight: Member<Matrix>): Value => g.matmul(`delta.${name}`, n, weight(index))
    // Products that do not depend on each other stand side by side: a device may run them as one.
    const wide = product(together ? 'qkvz' : 'qkv', qkv)
    const zs = z && product('z', z)
    const bs = product(paired ? 'ba' : 'b', b)
    const as = a && product('a', a)
    const part = (name: Part, x: Value, from: number, to: number, heads = 1) =>
      g.slice(`delta.${name}`, x, from, to, heads)
    return {
      ...(together
        ? {
            q: part('q', wide, 0, K, Hk),
            k: part('k', wide, K, 2 * K, Hk),
            v: part('v', wide, 2 * K, 2 * K + each * N, Hk),
          }
        : {
            q: part('q', wide, 0, keys),
            k: part('k', wide, keys, 2 * keys),
            v: part('v', wide, 2 * keys, 2 * keys + values),
          }),
      z: zs ?? part('z', wide, 2 * K + each * N, 2 * K + 2 * each * N, Hk),
      b: as ? bs : part('b', bs, 0, each, Hk),
      a: as ?? part('a', bs, each, 2 * each, Hk),
    }
  }
}

/** Declares the layers' constants and states; what it returns computes a layer's output from its normed input. */
export const deltaNet = (g: GraphBuilder, layers: LayerKind, plan: DeltaNetPlan) => {
  const { C, Hk, Hv, K, N, T, eps, tiled = false } = plan
  const [keys, values] = [Hk * K, Hv * N]
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
  // GGUF has −exp(A_log) itself.
  const whole = layers.has('linear_attn.A')
  const decay = layers.vector(`linear_attn.${whole ? 'A' : 'A_log'}`, [Hv], whole ? {} : { map: 'neg_exp' })
  const bias = layers.vector('linear_attn.dt_bias', [Hv])
  const norm = layers.vector('linear_attn.norm.weight', [N], {
    width: values,
    ...(Hv > 1 ? { view: { repeat: Hv, step: 0, parts: [[0, N]] as const } } : {}),
  })
  const outward = layers.matrix('linear_attn.out_proj', [C, values])
  const S = g.table('S', [index, Hv, K, N])

  const convolved = (name: 'q' | 'k' | 'v', x: Value): Value =>
    g.cacheConv(`delta.${name}.c`, conv[name].tail(index), x, conv[name].taps(index))
  /** Of each head of keys, for the heads of values that share it: of length 1. */
  const direction = (name: 'q' | 'k', x: Value): Value => {
    const unit = g.unit(`delta.${name}.u`, convolved(name, x), { groups: Hk, eps: 1e-6 })
    return Hv === Hk ? unit : g.repeat(`delta.${name}.h`, unit, { groups: tiled ? 1 : Hk, times: Hv / Hk })
  }
  const wide = (name: string, x: Value, times: number): Value => g.repeat(name, x, { groups: Hv, times })
  return (n: Value): Value => {
    const { q, k, v, z, b, a } = project(n)
    const step = g.softplus('delta.dt', g.add('delta.dt.z', a, bias(index)))
    const w = wide('delta.w', g.exp('delta.gamma', g.mul('delta.log', step, decay(index))), K)
    const beta = g.sigmoid('delta.beta', b)
    const rate = wide('delta.beta.w', beta, K)
    // One value serves both where they are as wide.
    const rateOfValues = K === N ? rate : wide('delta.beta.v', beta, N)
    const key = direction('k', k)
    const r = direction('q', q)
    const learned = g.mul('delta.v.b', convolved('v', v), rateOfValues)
    const y = g.cacheWkv7('delta.y', S(index), { r, w, k: key, v: learned, kk: key, a: g.mul('delta.wa', w, rate) }, Hv)
    // The rule reads with q / √K. The norm takes a factor away, but for its ε: that of √K · y is K · ε.
    const normed = g.rmsnorm('delta.y.n', y, norm(index), { groups: Hv, eps: K * eps })
    return g.matmul('delta.o', g.mul('delta.y.g', normed, g.silu('delta.gate', z)), outward(index))
  }
}
