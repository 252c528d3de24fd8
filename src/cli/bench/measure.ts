/**
 * A measure gives samples, one round after the other in turn with all others, and says at the end what they come to.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { type Spread, spread } from './statistics.ts'

/** Samples by name; a sample may be several numbers. */
export type Sample = Readonly<Record<string, number | readonly number[]>>
export type Samples = Readonly<Record<string, readonly number[]>>

export interface Row {
  readonly what: string
  readonly figure: string
  readonly spread: string
}

export interface Report {
  /** For --json. */
  readonly values: Readonly<Record<string, unknown>>
  /** For people. */
  readonly rows: readonly Row[]
}

export interface Measure {
  readonly name: string
  sample(): Promise<Sample>
  report(samples: Samples): Report
  close(): Promise<void>
}

/** A figure with its least and its greatest, which carry the digits that `format` gives them. */
export const row = (what: string, { median, min, max }: Spread, format: (value: number) => string, unit = ''): Row => ({
  what,
  figure: `${format(median)}${unit}`,
  spread: `${format(min)} … ${format(max)}`,
})

export const figure = (samples: Samples, name: string): Spread => spread(samples[name] ?? [])

export interface RoundOptions {
  readonly measures: readonly Measure[]
  /** Undefined: as many as fit into about half a minute, and three at least. */
  readonly rounds: number | undefined
  readonly signal: AbortSignal
  readonly onSample: (name: string, round: number) => void
}

export interface Rounds {
  /** Whole ones; the first, which warms up, is not counted. */
  readonly rounds: number
  readonly samples: ReadonlyMap<Measure, Samples>
}

const HALF_A_MINUTE = 30_000 // ms
const LEAST_ROUNDS = 3

/** Ends after any sample when the signal aborts; what was sampled so far is kept. */
export const runRounds = async ({ measures, rounds, signal, onSample }: RoundOptions): Promise<Rounds> => {
  const samples = new Map<Measure, Record<string, number[]>>()
  const started = performance.now()
  const enough = (round: number): boolean =>
    rounds === undefined ? round > LEAST_ROUNDS && performance.now() - started > HALF_A_MINUTE : round > rounds
  let round = 0
  if (measures.length === 0) return { rounds: 0, samples }
  for (; !enough(round); round += 1) {
    for (const measure of measures) {
      // An abort is heard by the event loop only.
      await sleep(0)
      if (signal.aborted) return { rounds: Math.max(0, round - 1), samples }
      onSample(measure.name, round)
      const sample = await measure.sample()
      if (round === 0) continue
      const kept = samples.get(measure) ?? {}
      for (const [name, value] of Object.entries(sample)) kept[name] = [...(kept[name] ?? []), ...[value].flat()]
      samples.set(measure, kept)
    }
  }
  return { rounds: round - 1, samples }
}
