/** Prints the rounds of a measure as lines of the report. */
import type { Machine } from './probe.ts'

export interface Round {
  /** Tokens per second; null where only llama.cpp is timed. */
  readonly ours: number | null
  readonly theirs: number
  readonly machine: Machine
  readonly bound: { readonly of: string; readonly tokensPerSecond: number } | null
}

export const median = (values: readonly number[]): number => {
  const sorted = [...values].sort((a, b) => a - b)
  const middle = sorted.length >> 1
  return sorted.length % 2 === 1 ? sorted[middle]! : (sorted[middle - 1]! + sorted[middle]!) / 2
}

export const spread = (values: readonly number[], shown: (value: number) => string): string =>
  `${shown(median(values))} (${shown(Math.min(...values))} to ${shown(Math.max(...values))})`

export const whole = (value: number): string => (value < 100 ? value.toFixed(1) : value.toFixed(0))
export const shownRatio = (value: number): string => value.toFixed(2)

export const printRow = (title: string, rounds: readonly Round[]): void => {
  const side = (name: string, speeds: readonly number[]): void => {
    const parts = rounds.flatMap(({ bound }, i) => (bound ? [speeds[i]! / bound.tokensPerSecond] : []))
    const of = rounds[0]?.bound?.of
    const part = of === undefined ? '' : `, ${shownRatio(median(parts))} of ${of}`
    console.log(`  ${name.padEnd(10)} ${spread(speeds, whole)} tokens/s${part}`)
  }
  console.log(title)
  const ours = rounds.flatMap((round) => (round.ours === null ? [] : [round.ours]))
  if (ours.length === rounds.length) side('Continuo', ours)
  side(
    'llama.cpp',
    rounds.map(({ theirs }) => theirs),
  )
  if (ours.length === rounds.length) {
    console.log(
      `  ratio      ${spread(
        rounds.map(({ theirs }, i) => ours[i]! / theirs),
        shownRatio,
      )}`,
    )
  }
}

export const printMachine = (machines: readonly Machine[]): void => {
  const billions = (value: number): string => (value / 1e9).toFixed(value < 1e11 ? 1 : 0)
  const int8 = machines.flatMap((machine) => (machine.int8 === null ? [] : [machine.int8]))
  console.log(
    `read bandwidth ${spread(
      machines.map(({ read }) => read),
      billions,
    )} GB/s`,
  )
  console.log(
    `f32 FMA peak ${spread(
      machines.map(({ fma }) => fma),
      billions,
    )} GFLOP/s`,
  )
  if (int8.length > 0) console.log(`int8 peak ${spread(int8, billions)} Gop/s`)
}
