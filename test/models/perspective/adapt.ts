/**
 * Adaptation between messages (§10): forward-mode tangents of the adapters, evolution of the router's offsets, then the
 * memory.
 */
import type { Memory } from './hdm.ts'
import { ended, firstTimeline, type Pass, through } from './layers.ts'
import { type Margins, narrow, wide } from './margins.ts'
import type { Model } from './model.ts'
import { bitOf, draws, normalOf } from './philox.ts'
import { constant, linear, logSoftmax, type Pair, type Row } from './rows.ts'
import { adaptationOf, firstTheta, type State, type Theta } from './state.ts'

const { fround } = Math

export interface Evaluation {
  readonly loss: number
  /** Of ids[1 …]. */
  readonly nll: readonly number[]
  /** The loss's derivatives along the directions. */
  readonly slopes: readonly number[]
}

const embedded = ({ embed, config }: Model, id: number, directions: number): Row =>
  constant(embed.slice(id * config.hidden_size, (id + 1) * config.hidden_size), directions)

/** The mean surprisal of ids[1 …] in a scratch context under θ and ω, and its derivatives along directions of θ. */
export const evaluate = (
  model: Model,
  {
    theta,
    offsets,
    along = [],
  }: { readonly theta: Theta; readonly offsets: Float64Array; readonly along?: readonly Theta[] },
  ids: readonly number[],
  margins: Margins,
): Evaluation => {
  const timeline = firstTimeline(model, 0, along.length)
  const pass: Pass = { model, timeline, adaptation: adaptationOf(theta, offsets, along), margins }
  const nll: number[] = []
  const slopes = along.map(() => 0)
  for (const [i, id] of ids.slice(0, -1).entries()) {
    const run = through(pass, embedded(model, id, along.length), i, [0, model.layers.length], true)
    timeline.clock = i + 1
    const z = linear(model.head, ended(pass, run.x))
    const lp = logSoftmax(z.x)
    const next = ids[i + 1]!
    nll.push(-lp[next]!)
    for (const [κ, ż] of z.dx.entries())
      slopes[κ]! += lp.reduce((total, value, v) => total + Math.exp(value) * ż[v]!, 0) - ż[next]!
  }
  const mean = (total: number): number => total / nll.length
  return { loss: mean(nll.reduce((a, b) => a + b, 0)), nll, slopes: slopes.map(mean) }
}

/** θ with each parameter mapped: targets in order, layers ascending, A then B, row-major; `i` counts on through all. */
export const mapTheta = (theta: Theta, to: (value: number, i: number) => number): Theta => {
  let i = 0
  const table = (values: Float64Array): Float64Array => values.map((value) => to(value, i++))
  const pair = ({ A, B }: Pair): Pair => {
    const first = table(A)
    return { A: first, B: table(B) }
  }
  return new Map([...theta].map(([target, pairs]) => [target, pairs.map(pair)]))
}
const parametersOf = (theta: Theta): number[] => {
  const out: number[] = []
  mapTheta(theta, (value) => {
    out.push(value)
    return value
  })
  return out
}

/** v of round ρ and direction κ: a sign for each parameter. */
export const directionOf = (theta: Theta, seed: number, clock: number, round: number, κ: number): Theta => {
  const draw = draws(seed, 'DIRECTION', clock, 64 * round + κ)
  let words = draw(0)
  return mapTheta(theta, (_, i) => {
    if (i % 128 === 0) words = draw(i / 128)
    return bitOf(words, i % 128) === 1 ? 1 : -1
  })
}

export interface Stage {
  readonly stage: 'adapters' | 'router'
  readonly slopes?: readonly number[]
  /** F₊, F₋ of each pair. */
  readonly fitness?: readonly number[]
  /** J before and after. */
  readonly was: number
  readonly now: number
  readonly accepted: boolean
}
export interface Bound {
  readonly pulse: number
  readonly token: number
  readonly bank: number
}
export interface Adapted {
  /** n, of the window. */
  readonly tokens: number
  readonly evaluations: number
  readonly stages: readonly Stage[]
  readonly loss: { readonly before: number; readonly after: number } | null
  /** Of the accepted θ and ω. */
  readonly nll: readonly number[]
  readonly bound: readonly Bound[]
  readonly margins: Margins
}

interface Point {
  readonly theta: Theta
  readonly offsets: Float64Array
  readonly loss: number
  readonly nll: readonly number[]
}
interface Task {
  readonly model: Model
  readonly ids: readonly number[]
  readonly clock: number
  readonly seed: number
  readonly margins: Margins
}
type Tried = { readonly stage: Stage; readonly point: Point }

const squares = (values: Iterable<number>): number => {
  let total = 0
  for (const value of values) total += value * value
  return total
}
const tried = (
  task: Task,
  from: Point,
  to: Pick<Point, 'theta' | 'offsets'>,
  J: (point: Point) => number,
  told: Pick<Stage, 'stage' | 'slopes' | 'fitness'>,
): Tried => {
  const reached = { ...to, ...evaluate(task.model, to, task.ids, task.margins) }
  const [was, now] = [J(from), J(reached)]
  narrow(task.margins, 'accept', Math.abs(now - was))
  const accepted = now < was
  return { stage: { ...told, was, now, accepted }, point: accepted ? reached : from }
}

const adapters = (task: Task, from: Point, round: number): Tried => {
  const { model, ids, seed, clock, margins } = task
  const fmea = model.config.fmea!
  const { directions, learning_rate, anchor } = fmea
  const first = parametersOf(firstTheta(model))
  const along = Array.from({ length: directions }, (_, κ) => directionOf(from.theta, seed, clock, round, κ))
  const { slopes } = evaluate(model, { ...from, along }, ids, margins)
  const signs = along.map(parametersOf)
  // The derivatives enter as f32, as the expected values of the shared model take them; all else is double until θ'.
  const theta = mapTheta(from.theta, (value, i) => {
    const ĝ = slopes.reduce((total, slope, κ) => total + fround(slope) * signs[κ]![i]!, 0) / directions
    return fround(value - learning_rate * (ĝ + 2 * anchor * (value - first[i]!)))
  })
  const J = (point: Point): number =>
    point.loss + anchor * squares(parametersOf(point.theta).map((value, i) => value - first[i]!))
  return tried(task, from, { theta, offsets: from.offsets }, J, { stage: 'adapters', slopes })
}

const router = (task: Task, from: Point, round: number): Tried => {
  const { model, ids, seed, clock, margins } = task
  const { population, sigma, router_rate, router_anchor } = model.config.fmea!
  const { theta, offsets } = from
  const pairs = Array.from({ length: population / 2 }, (_, κ) => {
    const draw = draws(seed, 'NES', clock, 1024 * round + κ)
    const ε = offsets.map((__, i) => fround(normalOf(draw(i)) * fround(sigma)))
    const fitness = (side: 1 | -1): number => {
      const moved = offsets.map((value, i) => fround(value + side * ε[i]!))
      return -evaluate(model, { theta, offsets: moved }, ids, margins).loss
    }
    return { ε, plus: fitness(1), minus: fitness(-1) }
  })
  const moved = offsets.map((value, i) => {
    const total = pairs.reduce((all, { ε, plus, minus }) => all + (plus - minus) * ε[i]!, 0)
    const ĝ = total / (population * sigma * sigma)
    return fround(value + router_rate * (ĝ - 2 * router_anchor * value))
  })
  const J = (point: Point): number => point.loss + router_anchor * squares(point.offsets)
  const fitness = pairs.flatMap(({ plus, minus }) => [plus, minus])
  return tried(task, from, { theta, offsets: moved }, J, { stage: 'router', fitness })
}

const rounds = (task: Task, begun: Point, evaluations: number) => {
  const { fmea } = task.model.config
  const stages: Stage[] = []
  let [point, left] = [begun, evaluations - 1]
  if (fmea === null) return { point, stages, left }
  const turns = [
    { run: adapters, cost: 2 * fmea.directions + 1 },
    { run: router, cost: fmea.population + 1 },
  ]
  for (let round = 0; ; round += 1) {
    for (const { run, cost } of turns) {
      if (left < cost) return { point, stages, left }
      left -= cost
      const next = run(task, point, round)
      point = next.point
      stages.push(next.stage)
    }
  }
}

/** The event `adapt`: writes θ, ω, the banks and `hdm.through` of `state` at its end. */
export const adaptState = (
  model: Model,
  memory: Memory | null,
  state: State,
  { evaluations, seed }: { readonly evaluations: number; readonly seed: number },
): Adapted => {
  const { recent: R, hidden_size: D, hdm } = model.config
  const { clock: T, origin } = state.timeline
  const first = Math.max(origin, T - R)
  const n = T - first
  const margins = wide()
  if (n < 2) return { tokens: n, evaluations: 0, stages: [], loss: null, nll: [], bound: [], margins }
  const ids = Array.from({ length: n }, (_, i) => state.ids[(first + i) % R]!)
  const { theta, offsets } = state
  const task = { model, ids, clock: T, seed, margins }
  const begun = { theta, offsets, ...evaluate(model, { theta, offsets }, ids, margins) }
  const { point, stages, left } = rounds(task, begun, evaluations)

  state.theta = point.theta
  state.offsets = point.offsets
  const bound: Bound[] = []
  if (hdm !== null && memory !== null) {
    for (let p = Math.max(first + 1, state.through); p < T; p += 1) {
      const i = p - first
      narrow(margins, 'write', Math.abs(point.nll[i - 1]! - hdm.write_nats))
      if (!(point.nll[i - 1]! > hdm.write_nats)) continue
      const at = ((p - 1) % R) * D
      const key = memory.keyOf(state.hidden.slice(at, at + D))
      bound.push({ pulse: p, token: ids[i]!, bank: memory.bind(state.banks, key, ids[i]!) })
    }
    state.through = T
  }
  const loss = { before: begun.loss, after: point.loss }
  return { tokens: n, evaluations: evaluations - left, stages, loss, nll: point.nll, bound, margins }
}
