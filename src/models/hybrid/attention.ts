/**
 * Attention over every position of a context (Vaswani et al. 2017), of which several query heads share a head of keys (Ainslie et al. 2023):
 * the layers of a hybrid whose state grows. Keys are kept as they are met: after their norm, turned by their positions.
 *
 * Sizes: C channels of the model, H query heads and G key heads of d channels.
 */
import type { GraphBuilder } from '../../engine/builder.ts'
import { autoDim, type Counter, plus, type Value } from '../../engine/builder-types.ts'
import type { LayerKind } from './layers.ts'

export interface AttentionPlan {
  readonly C: number
  readonly H: number
  readonly G: number
  readonly d: number
  readonly scale: number
  /** How pairs of channels turn with the position (op `rope`); null: they do not. */
  readonly increments: readonly number[] | null
  /** Names behind the layer's prefix. */
  readonly names: { readonly q: string; readonly k: string; readonly v: string; readonly o: string }
  /** Norms of the heads of q and k; `map` as of constants. None: null. */
  readonly norms: {
    readonly q: string
    readonly k: string
    readonly eps: number
    readonly map?: 'one_plus'
  } | null
  /** Each query head has a gate of as many channels behind it, which its output passes: · sigmoid(gate). */
  readonly gated?: boolean
  readonly biases?: { readonly qkv: boolean; readonly o: boolean }
  /** What keys are multiplied by. */
  readonly keyFactor?: number
}

/** Declares the layers' constants and caches; what it returns computes a layer's output from its normed input. */
export const attention = (g: GraphBuilder, layers: LayerKind, plan: AttentionPlan, positions: Counter) => {
  const { C, H, G, d, scale, increments, names, norms, gated = false, biases, keyFactor = 1 } = plan
  const linear = (name: string, outputs: number, inputs: number, biased: boolean | undefined) => ({
    weight: layers.matrix(name, [outputs, inputs]),
    bias: biased ? layers.vector(`${name}.bias`, [outputs]) : null,
  })
  type Linear = ReturnType<typeof linear>
  const q = linear(names.q, (gated ? 2 : 1) * H * d, C, biases?.qkv)
  const k = linear(names.k, G * d, C, biases?.qkv)
  const v = linear(names.v, G * d, C, biases?.qkv)
  const o = linear(names.o, C, H * d, biases?.o)
  // One vector of d weights for all heads.
  const norm = (name: string, heads: number) =>
    layers.vector(name, [d], {
      width: heads * d,
      ...(heads > 1 ? { view: { repeat: heads, step: 0, parts: [[0, d]] as const } } : {}),
      ...(norms?.map === undefined ? {} : { map: norms.map }),
    })
  const weights = norms && { q: norm(norms.q, H), k: norm(norms.k, G) }
  const { index } = layers
  const keys = g.table('keyCache', [index, autoDim(positions), G * d])
  const values = g.table('valueCache', [index, autoDim(positions), G * d])

  const biased = (name: string, x: Value, { bias }: Linear): Value =>
    bias === null ? x : g.add(`${name}.b`, x, bias(index))
  const prepared = (name: 'q' | 'k', x: Value, heads: number): Value => {
    const normed =
      norms && weights ? g.rmsnorm(`attn.${name}.n`, x, weights[name](index), { groups: heads, eps: norms.eps }) : x
    return increments === null ? normed : g.rope(`attn.${name}.r`, normed, positions, { heads, increments })
  }
  return (n: Value): Value => {
    // Products that do not depend on each other stand side by side: a device may run them as one.
    const products = [q, k, v].map(({ weight }, i) => g.matmul(`attn.${'qkv'[i]}`, n, weight(index)))
    const [qz, kz, vz] = products as [Value, Value, Value]
    const both = biased('attn.q', qz, q)
    const query = gated ? g.slice('attn.q.heads', both, 0, d, H) : both
    const key = biased('attn.k', kz, k)
    const scaledKey = keyFactor === 1 ? key : g.scale('attn.k.s', key, keyFactor)
    g.cacheWrite(keys(index, plus(positions, -1)), prepared('k', scaledKey, G))
    g.cacheWrite(values(index, plus(positions, -1)), biased('attn.v', vz, v))
    const seen = { heads: H, shared: H / G, scale }
    const a = g.attend('attn.a', prepared('q', query, H), keys(index), values(index), seen)
    const out = gated ? g.mul('attn.g', a, g.sigmoid('attn.gate', g.slice('attn.gate.z', both, d, 2 * d, H))) : a
    return biased('attn.o', g.matmul('attn.o', out, o.weight(index)), o)
  }
}
