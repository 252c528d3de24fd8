/**
 * Makes an order that fails smaller, as long as it still fails: fewer workers, fewer events, fewer deeds, plainer
 * settings.
 */
import type { Fed, Order, Run } from './order.ts'

/** Of an order, those that have one thing less; the largest steps first. */
function* smaller(order: Order): Generator<Order> {
  const { runs } = order
  const withRun = (at: number, run: Partial<Run>): Order => ({
    ...order,
    runs: runs.map((each, n) => (n === at ? { ...each, ...run } : each)),
  })
  for (const [at] of runs.entries()) if (runs.length > 1) yield { ...order, runs: runs.filter((_, n) => n !== at) }
  // Two workers become one that reads what both read.
  for (const [at, run] of runs.entries()) {
    const next = runs[at + 1]
    if (next === undefined) continue
    const events = [...run.events, ...run.late, ...next.events]
    yield { ...order, runs: runs.toSpliced(at, 2, { ...next, events }) }
  }
  for (const part of [2, 4, 8, Number.POSITIVE_INFINITY]) {
    for (const [at, run] of runs.entries())
      for (const key of ['events', 'late'] as const) {
        const all: readonly Fed[] = run[key]
        const length = Math.max(1, Math.floor(all.length / part))
        for (let from = 0; from < all.length; from += length) yield withRun(at, { [key]: all.toSpliced(from, length) })
      }
  }
  for (const [at, { deeds, late, events, end, settings }] of runs.entries()) {
    for (const [n] of deeds.entries()) yield withRun(at, { deeds: deeds.toSpliced(n, 1) })
    if (late.length > 0) yield withRun(at, { events: [...events, ...late], late: [] })
    if (end !== 'idle') yield withRun(at, { end: 'idle' })
    const plain = {
      snapshotEvery: 4096,
      commitInterval: 5,
      maxContexts: 16,
      roomTurn: 2000,
      adaptTime: 60_000,
      compactFloor: 1 << 20,
      sessionShare: 64,
      tight: false,
    }
    for (const [name, value] of Object.entries(plain))
      if ((settings[name as keyof typeof plain] ?? value) !== value)
        yield withRun(at, { settings: { ...settings, [name]: value } })
  }
  if (order.partitions > 1) yield { ...order, partitions: 1 }
}

export interface ShrinkOptions {
  /**
   * How often each smaller order is played before it counts as one that does not fail: where commits fall depends on
   * time.
   */
  readonly tries: number
  /** Orders played in all, at most. */
  readonly most: number
}

/** The smallest order found, by taking the first smaller one that fails until none does. */
export const shrink = async (
  order: Order,
  fails: (order: Order) => Promise<boolean>,
  { tries, most }: ShrinkOptions,
): Promise<Order> => {
  let played = 0
  const stillFails = async (candidate: Order): Promise<boolean> => {
    for (let n = 0; n < tries && played < most; n += 1) {
      played += 1
      if (await fails(candidate)) return true
    }
    return false
  }
  for (let best = order; ; ) {
    let found: Order | null = null
    for (const candidate of smaller(best)) {
      if (played >= most) return best
      if (!(await stillFails(candidate))) continue
      found = candidate
      break
    }
    if (found === null) return best
    best = found
  }
}
