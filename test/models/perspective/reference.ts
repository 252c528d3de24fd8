/**
 * The `perspective` family in float64, a token at a time, from its specification alone: nothing here knows how the
 * engine computes. Only what the specification rounds is rounded: groups of ternary products and of `whole`, normals,
 * θ, ω and ε.
 */
import { type Adapted, adaptState } from './adapt.ts'
import type { PerspectiveConfig } from './config.ts'
import { memoryOf, whole } from './hdm.ts'
import { ended, through } from './layers.ts'
import { type Margins, wide } from './margins.ts'
import { type Model, readModel } from './model.ts'
import { type Draw, drawOf } from './mpd.ts'
import { constant, linear, logSoftmax } from './rows.ts'
import { adaptationOf, firstState, type State, type StateTensor, tensorsOf } from './state.ts'

export interface Fed {
  /** −ln p of the id by the logits before it; null where there is no token before it. */
  readonly nll: number | null
  /** Of each layer with experts, by rank. */
  readonly routes: readonly (readonly number[])[]
  readonly logits: Float64Array
  readonly margins: Margins
}
export interface Session {
  readonly clock: () => number
  readonly feed: (id: number) => Fed
  /** What a generation with this seed would find at the present clock; changes nothing. */
  readonly draw: (seed: number) => Draw
  readonly adapt: (evaluations: number, seed?: number) => Adapted
  readonly state: () => Map<string, StateTensor>
  /** The first state at the present clock. */
  readonly reset: () => void
  /** Another session that goes on from here by itself. */
  readonly fork: () => Session
}
export interface Reference {
  readonly config: PerspectiveConfig
  readonly model: Model
  /** A fresh session whose first token is read at this clock. */
  readonly open: (clock?: number) => Session
}

const sessionOf = (model: Model, memory: ReturnType<typeof memoryOf>, begun: State): Session => {
  const { hidden_size: D, recent: R, mpd } = model.config
  const L = model.layers.length
  let state = begun
  const feed = (id: number): Fed => {
    const { timeline } = state
    const { clock: t, origin } = timeline
    const margins = wide()
    const before = linear(model.head, { x: state.last, dx: [] }).x
    const pass = { model, timeline, adaptation: adaptationOf(state.theta, state.offsets), margins }
    const cut = L - (mpd?.layers ?? 0)
    const x = constant(model.embed.slice(id * D, (id + 1) * D), 0)
    const lower = through(pass, x, t, [0, cut], true)
    if (mpd !== null) state.x.set(lower.x.x)
    const upper = through(pass, lower.x, t, [cut, L], true)
    const hidden = ended(pass, upper.x).x
    if (R > 0) {
      state.ids[t % R] = id
      state.hidden.set(whole(hidden, margins), (t % R) * D)
    }
    state.last.set(hidden)
    timeline.clock = t + 1
    return {
      nll: t === origin ? null : -logSoftmax(before)[id]!,
      routes: [...lower.routes, ...upper.routes],
      logits: linear(model.head, { x: hidden, dx: [] }).x,
      margins,
    }
  }
  return {
    clock: () => state.timeline.clock,
    feed,
    draw: (seed) => drawOf(model, memory, state, seed),
    adapt: (evaluations, seed = 0) => adaptState(model, memory, state, { evaluations, seed }),
    state: () => tensorsOf(model, state),
    reset: () => {
      state = firstState(model, state.timeline.clock)
    },
    fork: () => sessionOf(model, memory, structuredClone(state)),
  }
}

/** A package folder; without `rounding` ternary products take rows as they are. */
export const openReference = (dir: string, { rounding = true }: { readonly rounding?: boolean } = {}): Reference => {
  const model = readModel(dir, rounding)
  const memory = memoryOf(model.config)
  return { config: model.config, model, open: (clock = 0) => sessionOf(model, memory, firstState(model, clock)) }
}
