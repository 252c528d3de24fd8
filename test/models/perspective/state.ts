/** What a session owns (§11), as float64 and integers. */
import { kindOf, layersOf, sizesOf, type Target } from './config.ts'
import { type Adaptation, firstTimeline, type Timeline } from './layers.ts'
import type { Model } from './model.ts'
import { draws, normalOf } from './philox.ts'
import type { Pair } from './rows.ts'

/** A and B of each layer that has the target, by target in order. */
export type Theta = ReadonlyMap<Target, readonly Pair[]>

export interface State {
  readonly timeline: Timeline
  readonly ids: Int32Array
  /** [R, D] */
  readonly hidden: Int8Array
  /** mpd.x */
  readonly x: Float64Array
  theta: Theta
  /** [N, 2] */
  offsets: Float64Array
  /** [K, B] */
  readonly banks: Int8Array
  through: number
  /** hidden.last */
  readonly last: Float64Array
}

/** θ⁰: B = 0, A of normals. */
export const firstTheta = ({ config }: Model): Theta => {
  const { fmea } = config
  if (fmea === null) return new Map()
  return new Map(
    fmea.targets.map((target, j) => {
      const [outputs, inputs] = sizesOf(config, target)
      const scale = Math.fround(1 / Math.sqrt(inputs))
      const pairs = Array.from({ length: layersOf(config, kindOf(target)) }, (_, place): Pair => {
        const draw = draws(fmea.seed, 'ADAPTER', place, j)
        return {
          A: Float64Array.from({ length: fmea.rank * inputs }, (__, i) => Math.fround(normalOf(draw(i)) * scale)),
          B: new Float64Array(outputs * fmea.rank),
        }
      })
      return [target, pairs]
    }),
  )
}

export const firstState = (model: Model, clock: number): State => {
  const { hidden_size: D, recent: R, experts, hdm } = model.config
  return {
    timeline: firstTimeline(model, clock, 0),
    ids: new Int32Array(R),
    hidden: new Int8Array(R * D),
    x: new Float64Array(D),
    theta: firstTheta(model),
    offsets: new Float64Array(2 * experts.count),
    banks: new Int8Array(hdm === null ? 0 : hdm.banks * hdm.bits),
    through: 0,
    last: new Float64Array(D),
  }
}

/** θ and ω as layers take them, with θ's tangents along directions of the same form. */
export const adaptationOf = (theta: Theta, offsets: Float64Array, along: readonly Theta[] = []): Adaptation => ({
  adapters: new Map(
    [...theta].map(([target, pairs]) => [
      target,
      pairs.map((pair, place) => ({ ...pair, along: along.map((each) => each.get(target)![place]!) })),
    ]),
  ),
  offsets,
})

export interface StateTensor {
  readonly shape: readonly number[]
  readonly dtype: 'F32' | 'I8' | 'I32' | 'I64'
  readonly data: readonly number[]
}

const joined = (parts: readonly Float64Array[]): Float64Array => Float64Array.from(parts.flatMap((part) => [...part]))

/** Copies under the names of §11 and in their order; what is F32 there is not rounded here. */
export const tensorsOf = ({ config }: Model, state: State): Map<string, StateTensor> => {
  const { hidden_size: D, recent: R, sliding_window: W, mpd, hdm, fmea } = config
  const { width: E, rank: r } = config.pdr
  const { timeline } = state
  const out = new Map<string, StateTensor>()
  const put = (name: string, shape: readonly number[], dtype: StateTensor['dtype'], data: ArrayLike<number>): void => {
    out.set(name, { shape, dtype, data: Array.from(data) })
  }
  const rows = (of: 'S' | 'k' | 'v'): Float64Array => joined(timeline[of].map(({ x }) => x))
  const ring = [timeline.k.length, W, config.num_key_value_heads * config.head_dim]
  put('pdr.S', [timeline.S.length, r, E], 'F32', rows('S'))
  if (timeline.k.length > 0) {
    put('attn.k', ring, 'F32', rows('k'))
    put('attn.v', ring, 'F32', rows('v'))
  }
  if (R > 0) {
    put('recent.ids', [R], 'I32', state.ids)
    put('recent.hidden', [R, D], 'I8', state.hidden)
  }
  if (mpd !== null) put('mpd.x', [D], 'F32', state.x)
  if (fmea !== null) {
    for (const [target, pairs] of state.theta) {
      const [outputs, inputs] = sizesOf(config, target)
      const of = (which: keyof Pair): Float64Array => joined(pairs.map((pair) => pair[which]))
      put(`fmea.${target}.A`, [pairs.length, fmea.rank, inputs], 'F32', of('A'))
      put(`fmea.${target}.B`, [pairs.length, outputs, fmea.rank], 'F32', of('B'))
    }
    put('router.offset', [config.experts.count, 2], 'F32', state.offsets)
  }
  if (hdm !== null) {
    put('hdm.banks', [hdm.banks, hdm.bits], 'I8', state.banks)
    put('hdm.through', [], 'I64', [state.through])
  }
  put('hidden.last', [D], 'F32', state.last)
  return out
}
