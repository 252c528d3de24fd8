/**
 * Repeats runs that other processes disturbed. Threads of llama.cpp wait for each other by spinning: when another
 * process takes one of their CPUs, they slow down by an order of magnitude. Such a round would say nothing about
 * llama.cpp on a machine of its own.
 */
import { readFileSync } from 'node:fs'
import { availableParallelism } from 'node:os'
import { setTimeout } from 'node:timers/promises'

/** The fraction of the CPUs' time in a run that other processes (and the host of a virtual machine) may take. */
export const CALM = 0.05
/** The most tries of a run. If all are disturbed, the least disturbed one counts. */
export const TRIES = 4
/** Before a repetition: the longest wait for a quiet machine, and the time over which quiet is measured, ms. */
const PATIENCE = 20_000
const LOOK = 500
/** Clock ticks a second in /proc/stat. */
const TICKS = 100

/**
 * Busy seconds of all CPUs together, from the first line of /proc/stat: user nice system idle iowait irq softirq steal.
 */
const busySeconds = (): number => {
  const [user = 0, nice = 0, system = 0, , , irq = 0, softirq = 0, steal = 0] = readFileSync('/proc/stat', 'utf8')
    .split('\n', 1)[0]!
    .trim()
    .split(/\s+/)
    .slice(1)
    .map(Number)
  return (user + nice + system + irq + softirq + steal) / TICKS
}
const ownSeconds = (): number => {
  const { user, system } = process.cpuUsage()
  return (user + system) / 1e6
}

/** The result of `run`, and the fraction of the CPUs, 0 to 1, that other processes took meanwhile. */
export const observed = async <T>(run: () => Promise<T>): Promise<{ readonly result: T; readonly others: number }> => {
  const [started, busy, own] = [performance.now(), busySeconds(), ownSeconds()]
  const result = await run()
  const capacity = ((performance.now() - started) / 1000) * availableParallelism()
  return { result, others: (busySeconds() - busy - (ownSeconds() - own)) / capacity }
}

const quiet = async (): Promise<void> => {
  const end = performance.now() + PATIENCE
  while (performance.now() < end) {
    const { others } = await observed(() => setTimeout(LOOK))
    if (others <= CALM) return
  }
}

export interface CalmCount {
  runs: number
  repeated: number
  /** The number of runs that counted although all their tries were disturbed. */
  disturbed: number
}

/** The seconds that `run` reports, from its first calm try or else from the calmest of so many. */
export const calmly = async (run: () => Promise<number>, tally: CalmCount, tries = TRIES): Promise<number> => {
  let best = { result: Number.NaN, others: Number.POSITIVE_INFINITY }
  tally.runs += 1
  for (let attempt = 0; attempt < tries; attempt += 1) {
    if (attempt > 0) {
      tally.repeated += 1
      await quiet()
    }
    const seen = await observed(run)
    if (seen.others < best.others) best = seen
    if (seen.others <= CALM) return best.result
  }
  tally.disturbed += 1
  return best.result
}
