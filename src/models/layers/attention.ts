/**
 * Attention (Vaswani et al. 2017), of which several query heads share a head of keys (Ainslie et al. 2023), over every
 * position of a context or over a window of them. Keys are kept as they are met: after their norm, turned by their
 * positions.
 *
 * Sizes: C channels of the model, H query heads and G key heads of d channels.
 *
 * The state is `pastLen`, the positions in use; `keyCache` and `valueCache`, [layers, positions, G·d], of the layers
 * that see the whole context; `windowKeys` and `windowValues`, [layers, window, G·d], of those that see a window.
 */
import { autoDim, plus, ring, type Table, type Value } from '../../engine/builder-types.ts'
import type { MemorySettings } from '../families/memory-json.ts'
import type { LayerKind } from './kinds.ts'
import type { Build } from './language-model.ts'
import { linear, type Place } from './linear.ts'
import { outerMemory } from './outer-memory.ts'

/** How a layer sees positions. Layers that are alike share one object, or one list of increments. */
export interface Sight {
  /** The positions that a token sees, its own included; null: all of its context. */
  readonly window: number | null
  /** How pairs of channels turn with the position (op `rope`); null: they do not. */
  readonly increments: readonly number[] | null
}

export interface AttentionPlan {
  readonly C: number
  readonly H: number
  readonly G: number
  readonly d: number
  /** What scores are multiplied by; usually 1/√d. */
  readonly scale: number
  /** Of all layers, or of each. */
  readonly sight: Sight | ((layer: number) => Sight)
  /** Names behind the layer's prefix. */
  readonly names: { readonly q: Place; readonly k: Place; readonly v: Place; readonly o: string }
  /** Norms of the heads of q and k; `map` as of constants. Default: none. */
  readonly norms?: {
    readonly q: string
    readonly k: string
    readonly eps: number
    readonly map?: 'one_plus'
  }
  /** Each query head has a gate of as many channels behind it, which its output passes: · sigmoid(gate). */
  readonly gated?: boolean
  readonly biases?: { readonly qkv?: boolean; readonly o?: boolean }
  /** What keys are multiplied by. */
  readonly keyFactor?: number
  /**
   * The context lies outside, and layers see a bounded list of its parts. All layers are alike then, and have no
   * window.
   */
  readonly memory?: MemorySettings | undefined
}

/** Names as most packages have them. */
export const ATTENTION_NAMES = {
  q: 'self_attn.q_proj',
  k: 'self_attn.k_proj',
  v: 'self_attn.v_proj',
  o: 'self_attn.o_proj',
} as const
export const HEAD_NORM_NAMES = { q: 'self_attn.q_norm.weight', k: 'self_attn.k_norm.weight' } as const

export const sightOf = ({ sight }: AttentionPlan, layer: number): Sight =>
  typeof sight === 'function' ? sight(layer) : sight

const nameOf = (window: number | null): string => (window === null ? 'full' : 'window')

/** The caches of the layers that see all positions (null), and of those that see a window. */
const cachesOf = ({ g, kinds, positions }: Build, layers: LayerKind, plan: AttentionPlan) => {
  const counter = positions()
  const { groups, run } = kinds.divide(layers, (layer) => sightOf(plan, layer).window, nameOf)
  const clock = groups.some(([window]) => window !== null) ? g.clock('globalStep') : null
  const tables = new Map<number | null, readonly [keys: Table, values: Table]>()
  for (const [window, { index }] of groups) {
    const axis = window === null ? autoDim(counter) : ring(window, clock!)
    const [keys, values] = window === null ? ['keyCache', 'valueCache'] : ['windowKeys', 'windowValues']
    const table = (name: string): Table => g.table(name, [index, axis, plan.G * plan.d])
    tables.set(window, [table(keys!), table(values!)])
  }
  return { tables, run }
}

/** Declares the layers' constants and caches; what it returns computes a layer's output from its normed input. */
export const attention = (build: Build, layers: LayerKind, plan: AttentionPlan): ((n: Value) => Value) => {
  const { g } = build
  const { C, H, G, d, names, norms, gated = false, biases, keyFactor = 1 } = plan
  const { index } = layers
  const q = linear(g, layers, names.q, [(gated ? 2 : 1) * H * d, C], biases?.qkv)
  const k = linear(g, layers, names.k, [G * d, C], biases?.qkv)
  const v = linear(g, layers, names.v, [G * d, C], biases?.qkv)
  const o = linear(g, layers, names.o, [C, H * d], biases?.o)
  // One vector of d weights for all heads.
  const norm = (name: string, heads: number) =>
    layers.vector(name, [d], {
      width: heads * d,
      ...(heads > 1 ? { view: { repeat: heads, step: 0, parts: [[0, d]] as const } } : {}),
      ...(norms?.map === undefined ? {} : { map: norms.map }),
    })
  const weights = norms && { q: norm(norms.q, H), k: norm(norms.k, G) }
  const normed = (name: 'q' | 'k', x: Value, heads: number): Value =>
    norms && weights ? g.rmsnorm(`attn.${name}.n`, x, weights[name](index), { groups: heads, eps: norms.eps }) : x

  const met = plan.memory
    ? outerMemory(build, layers, plan, plan.memory, sightOf(plan, 0).increments!)
    : cached(build, layers, plan)

  return (n: Value): Value => {
    // Products that do not depend on each other stand side by side: a device may run them as one.
    const [qz, kz, vz] = [q.product('attn.q', n), k.product('attn.k', n), v.product('attn.v', n)]
    const both = q.biased('attn.q', qz)
    const query = normed('q', gated ? g.slice('attn.q.heads', both, 0, d, H) : both, H)
    const key = k.biased('attn.k', kz)
    const scaled = normed('k', keyFactor === 1 ? key : g.scale('attn.k.s', key, keyFactor), G)
    const a = met(query, scaled, v.biased('attn.v', vz))
    const out = gated ? g.mul('attn.g', a, g.sigmoid('attn.gate', g.slice('attn.gate.z', both, d, 2 * d, H))) : a
    return o.apply('attn.o', out)
  }
}

/** Declares the layers' caches; what it returns attends, with q, k and v as they are before they turn. */
const cached = (build: Build, layers: LayerKind, plan: AttentionPlan): ((q: Value, k: Value, v: Value) => Value) => {
  const { g, kinds } = build
  const { H, G, scale } = plan
  const positions = build.positions()
  const { tables, run } = cachesOf(build, layers, plan)
  /** q of a row over the positions that the layers of a window see, its own k and v among them. */
  const attended = (window: number | null, at: LayerKind, [qs, ks, vs]: readonly [Value, Value, Value]): Value => {
    const [keys, values] = tables.get(window)!
    const own = at.index
    const seen = { heads: H, shared: H / G, scale }
    if (window !== null)
      return g.cacheAttend('attn.a', qs, { k: ks, v: vs, keys: keys(own), values: values(own) }, seen)
    g.cacheWrite(keys(own, plus(positions, -1)), ks)
    g.cacheWrite(values(own, plus(positions, -1)), vs)
    return g.attend('attn.a', qs, keys(own), values(own), seen)
  }
  /** What each kind of layer does with its q, k and v. */
  return (qs: Value, ks: Value, vs: Value): Value => {
    let a: Value = qs
    const turned = (name: 'q' | 'k', x: Value, heads: number, increments: Sight['increments']): Value =>
      increments === null ? x : g.rope(`attn.${name}.r`, x, positions, { heads, increments })
    run((window, seeing) =>
      kinds
        .divide(
          seeing,
          (layer) => sightOf(plan, layer).increments,
          (increments, group) => `${nameOf(window)}.${increments === null ? 'nope' : `rope${group}`}`,
        )
        .run((increments) => {
          const own = [turned('q', qs, H, increments), turned('k', ks, G, increments), vs] as const
          a = attended(window, seeing, own)
        }),
    )
    return a
  }
}
