/** Routing on the torus, ternary products of rounded rows, and the feed-forward parts made of them (§6). */
import { type Margins, narrow } from './margins.ts'
import type { Expert, Layer, Model } from './model.ts'
import { gated, linear, type Row, rowOf, sum, times } from './rows.ts'
import type { Ternary } from './tensors.ts'

const { fround } = Math

const even = (value: number): number => {
  const floor = Math.floor(value)
  const rest = value - floor
  if (rest === 0.5) return floor % 2 === 0 ? floor : floor + 1
  return rest < 0.5 ? floor : floor + 1
}

/** A group rounded in f32: s = max|x| / 127, q = round-half-even(x / s) within ±127. */
export const rounded = (x: Float64Array, margins: Margins): { readonly q: Float64Array; readonly s: number } => {
  const most = x.reduce((a, b) => Math.max(a, Math.abs(fround(b))), 0)
  const s = fround(most / 127)
  if (s === 0) return { q: new Float64Array(x.length), s }
  const q = x.map((value) => {
    const quotient = fround(fround(value) / s)
    narrow(margins, 'rounding', Math.abs(Math.abs(quotient - Math.trunc(quotient)) - 0.5))
    return Math.max(-127, Math.min(127, even(quotient)))
  })
  return { q, s }
}

/**
 * W x: x rounded group by group where the model rounds (the product of both scales is one of f32); else by the numbers
 * that the codes stand for.
 */
const ternary = ({ outputs, inputs, group, trits, scales }: Ternary, x: Float64Array, round: Margins | null) => {
  const y = new Float64Array(outputs)
  const groups = Math.ceil(inputs / group)
  for (let g = 0; g < groups; g += 1) {
    const part = x.slice(g * group, (g + 1) * group)
    const { q, s } = round === null ? { q: part, s: 1 } : rounded(part, round)
    for (let o = 0; o < outputs; o += 1) {
      let total = 0
      for (let i = 0; i < q.length; i += 1) total += trits[o * inputs + g * group + i]! * q[i]!
      const scale = scales[o * groups + g]! * s
      y[o]! += total * (round === null ? scale : fround(scale))
    }
  }
  return y
}
const product = (matrix: Ternary, { x, dx }: Row, round: Margins | null): Row => ({
  x: ternary(matrix, x, round),
  dx: dx.map((each) => ternary(matrix, each, null)),
})

const expert = ({ gate, up, down }: Expert, u: Row, round: Margins | null): Row =>
  product(down, gated(product(gate, u, round), product(up, u, round)), round)

/**
 * How a perspective routes: by ranks `shift` and up, from a point `away` from the token's own, or from another point.
 */
export interface Detour {
  readonly shift: number
  readonly away: number
  readonly point: ((layer: number) => readonly [number, number]) | null
}
export const straight: Detour = { shift: 0, away: 0, point: null }

const frac = (value: number): number => value - Math.floor(value)

export interface Route {
  /** By rank. */
  readonly chosen: readonly number[]
  readonly weights: readonly number[]
}

/** z [2] to the experts of ranks shift … shift + k − 1 and their weights. */
export const routeOf = (
  { config, positions }: Model,
  z: readonly [number, number],
  offsets: Float64Array,
  shift: number,
  margins: Margins,
): Route => {
  const { count: N, top_k: k, temperature: T } = config.experts
  const along = (e: number, c: 0 | 1): number => {
    const δ = Math.abs(frac(positions[2 * e + c]! + offsets[2 * e + c]!) - z[c])
    return Math.min(δ, 1 - δ)
  }
  const d = Array.from({ length: N }, (_, e) => along(e, 0) ** 2 + along(e, 1) ** 2)
  const ranking = d.map((_, e) => e).sort((a, b) => d[a]! - d[b]! || a - b)
  for (let rank = shift; rank <= shift + k; rank += 1) {
    // The order among the chosen counts too: parts are added by it, and `routes` tell it.
    if (rank > 0 && rank < N) narrow(margins, 'route', d[ranking[rank]!]! - d[ranking[rank - 1]!]!)
  }
  const chosen = ranking.slice(shift, shift + k)
  const powers = Float64Array.from(chosen, (e) => Math.exp((d[chosen[0]!]! - d[e]!) / T))
  return { chosen, weights: Array.from(powers, (power) => power / sum(powers)) }
}

/** The feed-forward part of a layer; `chosen` is null where it has no experts. */
export const feedForward = (
  model: Model,
  l: number,
  u: Row,
  offsets: Float64Array,
  detour: Detour,
  margins: Margins,
): { readonly y: Row; readonly chosen: readonly number[] | null } => {
  const { dense, router, experts }: Layer = model.layers[l]!
  if (dense !== null) return { y: linear(dense.down, gated(linear(dense.gate, u), linear(dense.up, u))), chosen: null }
  const own = times(router!.w, u.x)
  const at = (c: 0 | 1): number => frac(own[c]! + router!.bias![c]! + detour.away)
  const z = detour.point === null ? ([at(0), at(1)] as const) : detour.point(l)
  const { chosen, weights } = routeOf(model, z, offsets, detour.shift, margins)
  const parts = chosen.map((e) => expert(experts[e]!, u, model.rounding ? margins : null))
  if (parts.length === 1) return { y: parts[0]!, chosen }
  const mixed = (of: (part: Row) => number): number =>
    parts.reduce((total, part, j) => total + weights[j]! * of(part), 0)
  const y = rowOf(
    u.x.length,
    u.dx.length,
    (i) => mixed(({ x }) => x[i]!),
    (i, κ) => mixed(({ dx }) => dx[κ]![i]!),
  )
  return { y, chosen }
}
