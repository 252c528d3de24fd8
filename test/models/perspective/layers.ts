/** The layers (§3 to §5, §7): a token that is read and writes state, and a perspective that only reads it. */
import type { Target } from './config.ts'
import { type Detour, feedForward, straight } from './experts.ts'
import type { Margins } from './margins.ts'
import type { Layer, Model } from './model.ts'
import { type Adapter, constant, dot, linear, plus, type Row, rms, rowOf, sigmoid, unit } from './rows.ts'

/** What reading writes into: of a session, or the scratch of an evaluation with tangents beside all values. */
export interface Timeline {
  clock: number
  origin: number
  /** [r, E] of each pdr layer */
  readonly S: readonly Row[]
  /** [W, Hkv·d] of each gqa layer, keys after they turned */
  readonly k: readonly Row[]
  readonly v: readonly Row[]
}

export const firstTimeline = ({ config }: Model, clock: number, directions: number): Timeline => {
  const all = (kind: Layer['kind'], length: number): Row[] =>
    config.layer_types.filter((each) => each === kind).map(() => constant(new Float64Array(length), directions))
  const ring = config.sliding_window * config.num_key_value_heads * config.head_dim
  return {
    clock,
    origin: clock,
    S: all('pdr', config.pdr.rank * config.pdr.width),
    k: all('gqa', ring),
    v: all('gqa', ring),
  }
}

/** What adapts the model: adapters of each target by place, and the router's offsets [N, 2]. */
export interface Adaptation {
  readonly adapters: ReadonlyMap<Target, readonly Adapter[]>
  readonly offsets: Float64Array
}

/** One pass of one token through layers: where it stands and what it meets. */
export interface Pass {
  readonly model: Model
  readonly timeline: Timeline
  readonly adaptation: Adaptation
  readonly margins: Margins
}

const mapped = ({ adaptation }: Pass, layer: Layer, target: Target, row: Row): Row =>
  linear(layer.maps[target], row, adaptation.adapters.get(target)?.[layer.place])

/** o[a] = Σ_b S[b][a] q[b] */
const recalled = (S: Row, q: Row, E: number): Row => {
  const across = (table: Float64Array, by: Float64Array, a: number): number =>
    by.reduce((total, value, b) => total + table[b * E + a]! * value, 0)
  return rowOf(
    E,
    q.dx.length,
    (a) => across(S.x, q.x, a),
    (a, κ) => across(S.dx[κ]!, q.x, a) + across(S.x, q.dx[κ]!, a),
  )
}

const decayOf = ({ model }: Pass, p: Row): Row => {
  const { gamma_min: least = 0, gamma_max: most = 1 } = model.config.pdr
  return rowOf(
    p.x.length,
    p.dx.length,
    (a) => least + (most - least) * sigmoid(p.x[a]!),
    (a, κ) => (most - least) * sigmoid(p.x[a]!) * (1 - sigmoid(p.x[a]!)) * p.dx[κ]![a]!,
  )
}

const pdr = (pass: Pass, layer: Layer, n: Row, writes: boolean): Row => {
  const { config } = pass.model
  const { width: E, write } = config.pdr
  const S = pass.timeline.S[layer.place]!
  const q = unit(mapped(pass, layer, 'pdr.q_proj', n))
  if (writes) {
    const γ = decayOf(pass, mapped(pass, layer, 'pdr.p_proj', n))
    const k = unit(mapped(pass, layer, 'pdr.k_proj', n))
    const v = mapped(pass, layer, 'pdr.v_proj', n)
    const convex = rowOf(
      E,
      v.dx.length,
      (a) => (1 - γ.x[a]!) * v.x[a]!,
      (a, κ) => (1 - γ.x[a]!) * v.dx[κ]![a]! - γ.dx[κ]![a]! * v.x[a]!,
    )
    const u = write === 'convex' ? convex : v
    // Tangents first: they take the S of before.
    for (const [κ, Ṡ] of S.dx.entries()) {
      for (let i = 0; i < Ṡ.length; i += 1) {
        const [b, a] = [Math.floor(i / E), i % E]
        const decay = γ.dx[κ]![a]! * S.x[i]! + γ.x[a]! * Ṡ[i]!
        Ṡ[i] = decay + k.dx[κ]![b]! * u.x[a]! + k.x[b]! * u.dx[κ]![a]!
      }
    }
    for (let i = 0; i < S.x.length; i += 1) S.x[i] = γ.x[i % E]! * S.x[i]! + k.x[Math.floor(i / E)]! * u.x[i % E]!
  }
  return mapped(pass, layer, 'pdr.o_proj', rms(recalled(S, q, E), layer.outNorm, config.rms_norm_eps))
}

/** Heads of width d turned to position t: 32-bit phases that wrap exactly (titans.md §4.3). */
const turned = ({ config }: Model, row: Row, t: number): Row => {
  const { head_dim: d, rope_increments } = config
  const half = d / 2
  const angles = rope_increments.map((each) => ((Math.imul(each, t % 2 ** 32) >>> 0) * 2 * Math.PI) / 2 ** 32)
  const turn = (x: Float64Array): Float64Array =>
    x.map((value, at) => {
      const i = at % d
      const [cos, sin] = [Math.cos(angles[i % half]!), Math.sin(angles[i % half]!)]
      return i < half ? value * cos - x[at + half]! * sin : value * cos + x[at - half]! * sin
    })
  return { x: turn(row.x), dx: row.dx.map(turn) }
}

const gqa = (pass: Pass, layer: Layer, n: Row, t: number, writes: boolean): Row => {
  const { config } = pass.model
  const { num_attention_heads: H, num_key_value_heads: Hkv, head_dim: d, sliding_window: W } = config
  const [across, scale] = [Hkv * d, 1 / Math.sqrt(d)]
  const [keys, values] = [pass.timeline.k[layer.place]!, pass.timeline.v[layer.place]!]
  const q = turned(pass.model, mapped(pass, layer, 'attn.q_proj', n), t)
  if (writes) {
    const put = (ring: Row, row: Row): void => {
      ring.x.set(row.x, (t % W) * across)
      for (const [κ, each] of ring.dx.entries()) each.set(row.dx[κ]!, (t % W) * across)
    }
    put(keys, turned(pass.model, mapped(pass, layer, 'attn.k_proj', n), t))
    put(values, mapped(pass, layer, 'attn.v_proj', n))
  }
  const first = Math.max(pass.timeline.origin, t - W + 1)
  const places = Array.from({ length: t - first + 1 }, (_, i) => ((first + i) % W) * across)
  const out = constant(new Float64Array(H * d), q.dx.length)
  for (let h = 0; h < H; h += 1) {
    const own = Math.floor(h / (H / Hkv)) * d
    const head = (x: Float64Array): Float64Array => x.subarray(h * d, (h + 1) * d)
    const scores = places.map((at) => scale * dot(keys.x, head(q.x), at + own))
    const most = Math.max(...scores)
    const powers = scores.map((score) => Math.exp(score - most))
    const total = powers.reduce((a, b) => a + b, 0)
    const weights = powers.map((power) => power / total)
    const mean = (table: Float64Array, by: readonly number[], i: number): number =>
      places.reduce((result, at, p) => result + by[p]! * table[at + own + i]!, 0)
    for (let i = 0; i < d; i += 1) out.x[h * d + i] = mean(values.x, weights, i)
    for (const [κ, each] of out.dx.entries()) {
      const moved = places.map(
        (at) => scale * (dot(keys.dx[κ]!, head(q.x), at + own) + dot(keys.x, head(q.dx[κ]!), at + own)),
      )
      const drift = moved.reduce((result, value, p) => result + weights[p]! * value, 0)
      const shifted = moved.map((value, p) => weights[p]! * (value - drift))
      for (let i = 0; i < d; i += 1) each[h * d + i] = mean(values.x, shifted, i) + mean(values.dx[κ]!, weights, i)
    }
  }
  return mapped(pass, layer, 'attn.o_proj', out)
}

export interface Through {
  readonly x: Row
  /** Of each layer with experts, by rank. */
  readonly routes: readonly (readonly number[])[]
}

/** Layers `from` … `to` − 1 at position t. */
export const through = (
  pass: Pass,
  x: Row,
  t: number,
  [from, to]: readonly [number, number],
  writes: boolean,
  detour: Detour = straight,
): Through => {
  const { model, adaptation, margins } = pass
  const ε = model.config.rms_norm_eps
  const routes: (readonly number[])[] = []
  let row = x
  for (const [l, layer] of model.layers.entries()) {
    if (l < from || l >= to) continue
    const n = rms(row, layer.inputNorm, ε)
    row = plus(row, layer.kind === 'pdr' ? pdr(pass, layer, n, writes) : gqa(pass, layer, n, t, writes))
    const { y, chosen } = feedForward(model, l, rms(row, layer.postNorm, ε), adaptation.offsets, detour, margins)
    row = plus(row, y)
    if (chosen !== null) routes.push(chosen)
  }
  return { x: row, routes }
}

/** Dykstra's projection on the half-spaces, a number of correction for each (§7). */
export const project = ({ spp, config }: Model, row: Row): Row => {
  const [y, ẏ] = [row.x.slice(), row.dx.map((each) => each.slice())]
  const c = new Float64Array(spp.length)
  const ċ = ẏ.map(() => new Float64Array(spp.length))
  for (let sweep = 0; sweep < (config.spp?.iterations ?? 0); sweep += 1) {
    let changed = false
    for (const [j, { normal, limit, inverse }] of spp.entries()) {
      const moved = c[j]! + (dot(normal, y) - limit) * inverse
      const next = Math.max(moved, 0)
      const step = next - c[j]!
      for (const [κ, each] of ẏ.entries()) {
        const nextTangent = moved > 0 ? ċ[κ]![j]! + dot(normal, each) * inverse : 0
        const stepTangent = nextTangent - ċ[κ]![j]!
        for (let i = 0; i < each.length; i += 1) each[i]! -= stepTangent * normal[i]!
        ċ[κ]![j] = nextTangent
      }
      if (step === 0) continue
      changed = true
      for (let i = 0; i < y.length; i += 1) y[i]! -= step * normal[i]!
      c[j] = next
    }
    if (!changed) break
  }
  return { x: y, dx: ẏ }
}

/** From behind the last layer to `hidden`. */
export const ended = ({ model }: Pass, x: Row): Row => project(model, rms(x, model.norm, model.config.rms_norm_eps))
