/**
 * Drives the engine beside the float64 reference: opens packages, reads a context's tensors under the names of its
 * layout, compares.
 */
import { expect } from 'vitest'
import type { EngineContext } from '../../../src/engine/context.ts'
import type { ExpertOptions, OpenModelOptions } from '../../../src/engine/options.ts'
import type { Model } from '../../../src/engine/types.ts'
import type { DrawNote, WorkResult } from '../../../src/engine/work.ts'
import { errorOf, none, open } from '../../engine/helpers.ts'
import type { Adapted } from './adapt.ts'
import type { Draw } from './mpd.ts'
import type { StateTensor } from './state.ts'
import { numbersOf } from './tensors.ts'

/** Leaves nothing beside the package: neither packed weights nor a table of frequencies. */
const STORE: ExpertOptions = { bytes: 1 << 22, frequencies: false }

export const openPerspective = (dir: string, { experts, ...options }: OpenModelOptions = {}): Promise<Model> =>
  open(dir, { threads: 2, keepPacked: false, warn: () => {}, ...options, experts: { ...STORE, ...experts } })

/** The least bound of its experts' bytes that a package is served with: the engine says it of one that is too small. */
export const leastBytes = async (dir: string): Promise<number> => {
  const { message } = await errorOf(() => openPerspective(dir, { experts: { bytes: 1 } }))
  return Number(/need (\d+) bytes/.exec(message)?.[1])
}

export type Tensors = ReadonlyMap<string, Pick<StateTensor, 'shape' | 'dtype' | 'data'>>

/** The tensors of a context in the order of its snapshot. */
export const stateOf = (model: Model, context: EngineContext): Tensors => {
  const state = context.serialize()
  return new Map(
    model.layout.tensors(state).map(({ name, dtype, shape, offset, bytes }) => {
      const data = [...numbersOf({ dtype, shape, bytes: state.slice(offset, offset + bytes) })]
      return [name, { shape, dtype: dtype as StateTensor['dtype'], data }]
    }),
  )
}

export const largest = (values: readonly number[]): number =>
  values.reduce((most, value) => Math.max(most, Math.abs(value)), 0)

/** The largest difference of two lists of one length. */
export const farthest = (got: ArrayLike<number>, want: ArrayLike<number>): number => {
  expect(got.length).toBe(want.length)
  // A difference that is not a number is larger than all.
  return Array.from(want).reduce((most, value, i) => {
    const apart = Math.abs(got[i]! - value)
    return apart <= most ? most : apart
  }, 0)
}

const LEARNT = /^(fmea\.|router\.offset$)/

/**
 * Whole numbers are equal; adapters and offsets are within 2e-3 of the largest change from their first values, so that
 * those which did not change are the first bits; other floats within 1e-3 of their largest.
 */
export const expectState = (got: Tensors, want: Tensors, first: Tensors): void => {
  expect([...got].map(([name, { dtype, shape }]) => [name, dtype, shape])).toEqual(
    [...want].map(([name, { dtype, shape }]) => [name, dtype, shape]),
  )
  for (const [name, { dtype, data }] of want) {
    const own = got.get(name)!.data
    if (dtype !== 'F32') {
      expect(own, name).toEqual(data)
      continue
    }
    const begun = first.get(name)!.data
    const [share, size] = LEARNT.test(name)
      ? [2e-3, largest(data.map((value, i) => Math.fround(value) - begun[i]!))]
      : [1e-3, largest(data)]
    expect(farthest(own, data.map(Math.fround)), name).toBeLessThanOrEqual(share * size)
  }
}

/** What one draw of a generation finds at the context's clock; the context stays where it is. */
export const drawAt = async (
  model: Model,
  context: EngineContext,
  seed: number,
  temperature = 0,
): Promise<WorkResult & { readonly note: DrawNote }> => {
  const fork = model.forkContext(context)
  const generate = { count: 1, temperature, topK: 0, topP: 1, seed: BigInt(seed) }
  const [result] = await model.process([{ context: fork, tokens: none, nats: false, perspectives: true, generate }])
  fork.close()
  return { ...result!, note: result!.draws![0]! }
}

/**
 * Temperatures that take one uniform number to several tokens, so that more of a distribution than its largest is seen.
 */
const TEMPERATURES = [0, 0.7, 1.5, 4, 30]

/**
 * Tokens drawn at the context's clock have the log-probabilities that `drawn` [vocabulary] gives them; the greedy one
 * its largest.
 */
export const expectDrawn = async (
  model: Model,
  context: EngineContext,
  drawn: Float64Array,
  seed: number,
): Promise<void> => {
  for (const temperature of TEMPERATURES) {
    const { generated, logprobs } = await drawAt(model, context, seed, temperature)
    expect(Math.abs(logprobs[0]! - drawn[generated[0]!]!)).toBeLessThan(1e-3)
    if (temperature === 0) expect(logprobs[0]!).toBeGreaterThan(Math.max(...drawn) - 1e-3)
  }
}

/** The engine draws at the context's clock what the reference draws there. */
export const expectDraw = async (model: Model, context: EngineContext, want: Draw, seed: number): Promise<void> => {
  expectNote((await drawAt(model, context, seed)).note, want)
  await expectDrawn(model, context, want.drawn, seed)
}

/** The note of a draw against what the reference, or a file of expectations, has. */
export const expectNote = (
  note: DrawNote,
  want: Pick<Draw, 'fired' | 'entropy' | 'jsd' | 'agreed' | 'hdm' | 'weight'>,
): void => {
  expect(note.fired).toBe(want.fired)
  expect(Math.abs(note.entropy - want.entropy!)).toBeLessThan(1e-3)
  expect(note.jsd === null ? null : Math.abs(note.jsd - want.jsd!) < 1e-3).toBe(want.jsd === null ? null : true)
  expect(note.agreed).toBe(want.agreed)
  const { hdm } = want
  expect(note.hdm).toEqual(hdm && { token: hdm.token, distance: hdm.distance, bank: hdm.bank, hit: hdm.hit })
  expect(note.weight === null ? null : Math.abs(note.weight - want.weight!) < 1e-6).toBe(
    want.weight === null ? null : true,
  )
}

/** An adaptation by the engine against one by the reference. */
export const adaptAs = async (
  model: Model,
  context: EngineContext,
  { evaluations, seed }: { readonly evaluations: number; readonly seed: number },
  want: Pick<Adapted, 'tokens' | 'evaluations' | 'stages' | 'bound'> & {
    readonly loss: { readonly before: number; readonly after: number | null } | null
  },
): Promise<void> => {
  const request = { type: 'adapt', evaluations, seed: BigInt(seed) } as const
  const [result] = await model.process([{ context, tokens: none, nats: false, request }])
  const got = result!.adapted!
  expect([got.tokens, got.evaluations, got.bound]).toEqual([want.tokens, want.evaluations, want.bound.length])
  expect(got.stages.map(({ stage, accepted }) => [stage, accepted])).toEqual(
    want.stages.map(({ stage, accepted }) => [stage, accepted]),
  )
  for (const [i, { was, now, slopes, fitness }] of want.stages.entries()) {
    const stage = got.stages[i]!
    expect(Math.abs(stage.was - was)).toBeLessThan(1e-3)
    expect(Math.abs(stage.now - now)).toBeLessThan(1e-3)
    const probes = slopes ?? fitness!
    expect(farthest(stage.probes, probes)).toBeLessThan(1e-3 * Math.max(1, largest(probes)))
  }
  if (want.loss === null) return
  expect(Math.abs(got.before - want.loss.before)).toBeLessThan(1e-3)
  if (want.loss.after !== null) expect(Math.abs(got.after - want.loss.after)).toBeLessThan(1e-3)
}
