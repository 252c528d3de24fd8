/** Drawing from several perspectives (§8): looks at a session's state and writes nothing. */
import type { Perspective, PerspectiveConfig } from './config.ts'
import { type Detour, straight } from './experts.ts'
import type { Memory, Recalled } from './hdm.ts'
import { ended, type Pass, through } from './layers.ts'
import { type Margins, narrow, wide } from './margins.ts'
import type { Model } from './model.ts'
import { draws, normalOf } from './philox.ts'
import { linear, logSoftmax, sum } from './rows.ts'
import { adaptationOf, type State } from './state.ts'

/** What was not computed is null. */
export interface Draw {
  readonly fired: boolean
  readonly maxP: number | null
  readonly entropy: number | null
  /** Of pairs (0, 1), (0, 2), … (P − 2, P − 1). */
  readonly jsds: readonly number[] | null
  readonly jsd: number | null
  readonly agreed: boolean | null
  readonly hdm: Recalled | null
  /** Of the recalled token, where it was a hit. */
  readonly weight: number | null
  readonly uncertain: boolean
  /** Of each perspective the routes of the last m layers, those that have experts; null where no layer runs. */
  readonly experts: readonly (readonly (readonly number[])[] | null)[] | null
  /** Log-probabilities of each perspective. */
  readonly perspectives: readonly Float64Array[] | null
  /** What is sampled from, as log-probabilities. */
  readonly drawn: Float64Array
  readonly margins: Margins
}

type Mpd = NonNullable<PerspectiveConfig['mpd']>

const FLOOR = 1e-30

const jsd = (p: Float64Array, q: Float64Array, lp: Float64Array, lq: Float64Array): number => {
  const m = p.map((value, v) => Math.log(Math.max((value + q[v]!) / 2, FLOOR)))
  return (
    sum(p.map((value, v) => 0.5 * value * (lp[v]! - m[v]!))) + sum(q.map((value, v) => 0.5 * value * (lq[v]! - m[v]!)))
  )
}

/** Where perspective j begins, and how it routes. */
const startOf = (kind: Perspective, j: number, mpd: Mpd, x: Float64Array, T: number, seed: number) => {
  if (kind === 'jitter') {
    const draw = draws(seed, 'JITTER', T, j)
    return { x: x.map((value, i) => value + mpd.jitter_std * normalOf(draw(i))), detour: straight }
  }
  if (kind === 'dropout') {
    const draw = draws(seed, 'DROPOUT', T, j)
    const limit = Math.floor(mpd.dropout * 2 ** 32)
    const dropped = x.map((value, i) => (draw(i >> 2)[i & 3]! < limit ? 0 : value / (1 - mpd.dropout)))
    return { x: dropped, detour: straight }
  }
  if (kind === 'second') return { x, detour: { ...straight, shift: 1 } }
  if (kind === 'antipode') return { x, detour: { ...straight, away: 0.5 } }
  const words = draws(seed, 'RANDOM', T, j)
  const point: Detour['point'] = (l) => {
    const [w0, w1] = words(l)
    return [(w0 >>> 8) * 2 ** -24, (w1 >>> 8) * 2 ** -24]
  }
  return { x, detour: { ...straight, point } }
}

/** The layers behind x again, at the position of the last token: [log-probabilities, routes]. */
const again = (pass: Pass, x: Float64Array, detour: Detour, mpd: Mpd) => {
  const L = pass.model.layers.length
  const run = through(pass, { x, dx: [] }, pass.timeline.clock - 1, [L - mpd.layers, L], false, detour)
  return { lp: logSoftmax(linear(pass.model.head, ended(pass, run.x)).x), routes: run.routes }
}

export const drawOf = (model: Model, memory: Memory | null, state: State, seed: number): Draw => {
  const { mpd, recent: R, hidden_size: D } = model.config
  const T = state.timeline.clock
  const logits = linear(model.head, { x: state.last, dx: [] }).x
  const lp = logSoftmax(logits)
  const margins = wide()
  const none = { jsds: null, jsd: null, agreed: null, hdm: null, weight: null, experts: null, perspectives: null }
  const quiet = { fired: false, ...none, uncertain: false, drawn: lp, margins }
  if (mpd === null) return { ...quiet, maxP: null, entropy: null }

  const p = lp.map(Math.exp)
  const maxP = p.reduce((a, b) => Math.max(a, b), 0)
  const entropy = -sum(p.map((value, v) => value * lp[v]!))
  const fired = maxP < mpd.max_p || entropy > mpd.entropy
  narrow(margins, 'trigger', Math.min(Math.abs(maxP - mpd.max_p), Math.abs(entropy - mpd.entropy)))
  if (!fired) return { ...quiet, maxP, entropy }

  const pass = { model, timeline: state.timeline, adaptation: adaptationOf(state.theta, state.offsets), margins }
  const all = mpd.perspectives.map((kind, j) => {
    if (kind === 'base') return { lp, routes: null }
    if (kind === 'temperature') return { lp: logSoftmax(logits.map((value) => value / mpd.temperature)), routes: null }
    const { x, detour } = startOf(kind, j, mpd, state.x, T, seed)
    return again(pass, x, detour, mpd)
  })
  const lps = all.map((each) => each.lp)
  const ps = lps.map((each) => each.map(Math.exp))
  const jsds = ps.flatMap((a, i) => ps.slice(i + 1).map((b, k) => jsd(a, b, lps[i]!, lps[i + 1 + k]!)))
  const most = Math.max(...jsds)
  narrow(margins, 'jsd', Math.abs(most - mpd.jsd))
  const agreed = most < mpd.jsd
  const P = lps.length
  const mean = (of: readonly Float64Array[], v: number): number => of.reduce((total, each) => total + each[v]!, 0) / P
  const told = {
    fired,
    maxP,
    entropy,
    jsds,
    jsd: most,
    agreed,
    experts: all.map(({ routes }) => routes),
    perspectives: lps,
    margins,
  }
  if (agreed)
    return { ...told, hdm: null, weight: null, uncertain: false, drawn: logSoftmax(lp.map((_, v) => mean(lps, v))) }
  const at = ((T - 1) % Math.max(R, 1)) * D
  const hdm = memory?.recall(state.banks, memory.keyOf(state.hidden.subarray(at, at + D))) ?? null
  if (hdm === null || !hdm.hit) return { ...told, hdm, weight: null, uncertain: true, drawn: lp }
  const { blend, bits: B } = model.config.hdm!
  const weight = (blend * (B - 2 * hdm.distance)) / B
  const blended = lp.map((_, v) =>
    Math.log(Math.max((1 - weight) * mean(ps, v) + (v === hdm.token ? weight : 0), FLOOR)),
  )
  return { ...told, hdm, weight, uncertain: false, drawn: logSoftmax(blended) }
}
