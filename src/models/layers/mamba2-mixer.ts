/**
 * Mamba-2's mixer (Dao, Gu, "Transformers are SSMs: Generalized Models and Efficient Algorithms Through Structured
 * State Space Duality", 2024): a projection to z, x, B, C and dt, a causal convolution of x, B and C, and on a state S
 * [Hd, N, P]
 *
 *   Δ = softplus(dt + dt_bias);  S ← exp(A Δ) S + (Δ x) Bᵀ;  y = S C + D x,   A = −exp(A_log)
 *
 * Then the gate silu(z) and a norm, whose order and groups differ between families.
 *
 * Sizes: C channels of the model, Hd heads of P channels, D = Hd · P, G groups of N channels of B and C, T taps.
 */
import { z } from 'zod'
import type { GraphBuilder } from '../../engine/builder.ts'
import type { Value } from '../../engine/builder-types.ts'
import { refuseConfig, size } from '../config.ts'
import type { LayerKind } from './kinds.ts'
import { linear } from './linear.ts'

export interface Mamba2Plan {
  readonly C: number
  readonly Hd: number
  readonly P: number
  readonly N: number
  readonly G: number
  readonly T: number
  /** In front of the mixer's names, with its dot. */
  readonly at: string
  readonly biases: { readonly inward: boolean; readonly outward: boolean }
  readonly convBias: boolean
  /** Δ lies between these. */
  readonly limit: readonly [low: number, high: number]
  /** The norm of y within `groups` groups, behind the gate or before it. null: the gate alone. */
  readonly norm: { readonly eps: number; readonly groups: number; readonly first: boolean } | null
  /** What the parts of the projection are multiplied by; default: 1 each. */
  readonly factors?: Readonly<Record<'z' | 'x' | 'B' | 'C' | 'dt', number>>
}

/** Infinity as Python's json writes it, bare, and as transformers 5 does. */
const infinity = z.union([
  z.literal(Infinity),
  z.object({ __float__: z.literal('Infinity') }).transform(() => Number.POSITIVE_INFINITY),
])

/** time_step_limit of a configuration. */
export const stepLimit = z.tuple([z.number(), z.union([z.number(), infinity])]).default([0, Infinity])

/** Refuses sizes that the recurrence cannot have. */
export const refuseMamba2Sizes = ({ Hd, G, N, T, limit }: Pick<Mamba2Plan, 'Hd' | 'G' | 'N' | 'T' | 'limit'>): void => {
  if (Hd % G !== 0) refuseConfig(`says there are ${Hd} heads in ${G} groups, expected groups of equally many heads`)
  if (N > 256) refuseConfig(`says the state has ${N} numbers a channel, expected at most 256`)
  if (T < 2 || T > 64) refuseConfig(`says the convolution has ${T} taps, expected 2 to 64`)
  if (!(limit[0] <= limit[1])) refuseConfig(`says the step lies between ${limit[0]} and ${limit[1]}, expected a range`)
}

/** What Granite and Falcon-H1 say of their mixers. */
export const mamba2Members = {
  mamba_n_heads: size.default(128),
  mamba_d_head: z.union([size, z.literal('auto')]).default('auto'),
  mamba_n_groups: size.default(1),
  mamba_d_state: size.default(256),
  mamba_d_conv: size.default(4),
  mamba_expand: size.default(2),
  mamba_conv_bias: z.boolean().default(true),
  mamba_proj_bias: z.boolean().default(false),
  time_step_limit: stepLimit,
}
const members = z.object(mamba2Members)

/**
 * The sizes that follow from these members; D: inner channels. Throws INVALID for sizes that the recurrence cannot
 * have.
 */
export const mamba2SizesOf = (C: number, config: z.infer<typeof members>, D = config.mamba_expand * C) => {
  const Hd = config.mamba_n_heads
  const P = config.mamba_d_head === 'auto' ? D / Hd : config.mamba_d_head
  if (P * Hd !== D) refuseConfig(`has ${D} inner channels and ${Hd} heads of ${P}, expected heads that make them up`)
  const sizes = {
    ...{ C, Hd, P, N: config.mamba_d_state, G: config.mamba_n_groups, T: config.mamba_d_conv },
    ...{ convBias: config.mamba_conv_bias, limit: config.time_step_limit },
  }
  refuseMamba2Sizes(sizes)
  return sizes
}

/** The largest f32: a step that is not above it is any step. */
const LARGEST = 3.4028234663852886e38

/** Declares the layers' constants and states; what it returns computes a layer's output from its normed input. */
export const mamba2Mixer = (g: GraphBuilder, layers: LayerKind, plan: Mamba2Plan) => {
  const { C, Hd, P, N, G, T, at, biases, convBias, limit, norm, factors } = plan
  const D = Hd * P
  const keys = G * N
  const channels = D + 2 * keys
  const { index } = layers
  const inward = linear(g, layers, `${at}in_proj`, [D + channels + Hd, C], biases.inward)
  // Parts that are multiplied by different numbers are convolved by themselves.
  const parts =
    factors === undefined
      ? [{ name: 'xBC', from: 0, width: channels, factor: 1 }]
      : [
          { name: 'x', from: 0, width: D, factor: factors.x },
          { name: 'B', from: D, width: keys, factor: factors.B },
          { name: 'C', from: D + keys, width: keys, factor: factors.C },
        ]
  const convolutions = parts.map((part) => {
    const { name, from, width } = part
    const own = (each: number, suffix: string) =>
      width === channels
        ? {}
        : {
            as: `${at}conv1d.${name}${suffix}`,
            width: width * each,
            view: { repeat: 1, step: 0, parts: [[from * each, width * each]] as const },
          }
    return {
      ...part,
      taps: layers.vector(`${at}conv1d.weight`, [channels, 1, T], own(T, '')),
      bias: convBias ? layers.vector(`${at}conv1d.bias`, [channels], own(1, '.bias')) : null,
      // The last T − 1 rows before the convolution.
      tail: g.table(`conv${width === channels ? '' : `.${name}`}`, [index, T - 1, width]),
    }
  })
  // GGUF has A itself.
  const A = layers.has(`${at}A`) ? layers.vector(`${at}A`, [Hd]) : layers.vector(`${at}A_log`, [Hd], { map: 'neg_exp' })
  const skip = layers.vector(`${at}D`, [Hd])
  const stepBias = layers.vector(`${at}dt_bias`, [Hd])
  const normWeight = norm ? layers.vector(`${at}norm.weight`, [D]) : null
  const outward = linear(g, layers, `${at}out_proj`, [C, D], biases.outward)
  const S = g.table('S', [index, Hd, N, P])

  const times = (name: string, x: Value, factor = 1): Value => (factor === 1 ? x : g.scale(name, x, factor))
  const stepOf = (dt: Value): Value => {
    const step = g.softplus('ssm.dt', g.add('ssm.dt.b', dt, stepBias(index)))
    const [low, high] = [limit[0], Math.min(limit[1], LARGEST)]
    // softplus is never negative.
    return low <= 0 && high === LARGEST ? step : g.clamp('ssm.dt.c', step, { low: [low], high: [high] })
  }
  return (n: Value): Value => {
    const all = inward.apply('ssm.in', n)
    const z = times('ssm.z.s', g.slice('ssm.z', all, 0, D), factors?.z)
    const dt = times('ssm.dt.s', g.slice('ssm.dt.z', all, D + channels, D + channels + Hd), factors?.dt)
    const convolved = convolutions.map(({ name, from, width, factor, taps, bias: own, tail }) => {
      const part = g.slice(`ssm.${name}`, all, D + from, D + from + width)
      return g.cacheConv(`ssm.${name}.c`, tail(index), times(`ssm.${name}.s`, part, factor), taps(index), {
        bias: own?.(index),
      })
    })
    const [first, second, third] = convolved as [Value, Value?, Value?]
    const x = second ? first : g.slice('ssm.x', first, 0, D)
    const B = second ?? g.slice('ssm.B', first, D, D + keys)
    const c = third ?? g.slice('ssm.C', first, D + keys, channels)
    const step = stepOf(dt)
    const w = g.exp('ssm.w', g.mul('ssm.log', step, A(index)))
    const y = g.cacheSsm('ssm.y', S(index), { x, dt: step, w, B, C: c, D: skip(index) }, Hd)
    const gate = g.silu('ssm.gate', z)
    const normed = (v: Value): Value =>
      norm && normWeight ? g.rmsnorm('ssm.y.n', v, normWeight(index), { groups: norm.groups, eps: norm.eps }) : v
    const out = norm?.first ? g.mul('ssm.y.g', normed(y), gate) : normed(g.mul('ssm.y.g', y, gate))
    return outward.apply('ssm.o', out)
  }
}
