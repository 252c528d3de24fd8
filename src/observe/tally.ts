/** Counts what a worker has committed since it began. What is not in the log is not counted. */
import type { Commit } from '../operators/pipeline/commit.ts'
import type { Head } from '../state/head.ts'

export interface Totals {
  /** Tokens read and generated: the pulses of all sessions. */
  readonly read: number
  readonly generated: number
  readonly predictions: number
  /** Surprisal of the predicted tokens. */
  readonly nats: number
  readonly commits: number
  readonly deadLetters: number
  /** Sessions that moved. */
  readonly sessions: number
}

export interface Speed {
  /** Tokens a second over the last seconds; 0 while nothing is committed. */
  readonly now: number
  /** From the beginning to the last commit that moved a session. */
  readonly average: number
}

export interface Tally {
  /**
   * Where the sessions of a partition stood when its task began to run; what it was told before counts no more: others
   * may have deleted some.
   */
  begin(partition: number, heads: ReadonlyMap<string, Head>): void
  /** Returns what this commit added. */
  add(commit: Commit): Totals
  readonly totals: Totals
  readonly speed: Speed
}

const WINDOW = 3000 // ms

type Sums = Head['totals']

const NONE: Sums = { tokens: 0, predictions: 0, nats: 0, generated: 0 }

export const createTally = (): Tally => {
  /** Of each partition. */
  const last = new Map<number, Map<string, Sums>>()
  const moved = new Set<string>()
  let started = performance.now()
  let recent: { at: number; tokens: number }[] = [{ at: started, tokens: 0 }]
  let totals: Totals = { read: 0, generated: 0, predictions: 0, nats: 0, commits: 0, deadLetters: 0, sessions: 0 }
  return {
    begin(partition, heads) {
      if (totals.commits === 0) {
        started = performance.now()
        recent = [{ at: started, tokens: 0 }]
      }
      last.set(partition, new Map([...heads].map(([id, head]) => [id, head.totals])))
    },
    add({ partition, steps }) {
      const sums = last.get(partition) ?? new Map<string, Sums>()
      last.set(partition, sums)
      const sum = { read: 0, generated: 0, predictions: 0, nats: 0, commits: 1, deadLetters: 0 }
      for (const { session, head, outputs, deleted } of steps) {
        if (deleted === true) sums.delete(session!)
        for (const { to } of outputs) if (to === 'deadletters') sum.deadLetters += 1
        if (head === null) continue
        // A fork begins with the sums of its parent, and what the session had before counts no more.
        const isBirth = head.from !== undefined && head.cursor.offset === head.born
        const before = isBirth ? head.totals : (sums.get(head.session) ?? NONE)
        sum.read += head.totals.tokens - before.tokens
        sum.generated += head.totals.generated - before.generated
        sum.predictions += head.totals.predictions - before.predictions
        sum.nats += head.totals.nats - before.nats
        sums.set(head.session, head.totals)
        moved.add(head.session)
      }
      totals = {
        read: totals.read + sum.read,
        generated: totals.generated + sum.generated,
        predictions: totals.predictions + sum.predictions,
        nats: totals.nats + sum.nats,
        commits: totals.commits + 1,
        deadLetters: totals.deadLetters + sum.deadLetters,
        sessions: moved.size,
      }
      const tokens = totals.read + totals.generated
      const at = performance.now()
      if (sum.read + sum.generated > 0) recent = [...recent.filter((sample) => at - sample.at < WINDOW), { at, tokens }]
      return { ...sum, sessions: moved.size }
    },
    get totals() {
      return totals
    },
    get speed() {
      const first = recent[0]!
      const last = recent.at(-1)!
      const between = (tokens: number, ms: number): number => (ms <= 0 ? 0 : (tokens / ms) * 1000)
      const paused = performance.now() - last.at > WINDOW
      return {
        now: paused ? 0 : between(last.tokens - first.tokens, last.at - first.at),
        average: between(last.tokens, last.at - started),
      }
    },
  }
}
