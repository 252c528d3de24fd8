/**
 * The time line: workers that begin, leave and return, and what the log says of it. "Nothing lost" is said of a resume
 * only if these were observed: the worker goes on at a number of pulses that a commit left (counted by the gateway from
 * the heads in the log, by the worker from what it restored), that number is not below what was committed when the
 * former worker was last seen alive, and no session and no cursor has gone back since.
 */
import type { BoardEvent } from '../../observe/board.ts'
import type { Seen } from './boards.ts'
import type { TimelineEvent } from './types.ts'

const MOST_EVENTS = 256
/** Commits of a partition whose pulses are remembered. */
const MOST_TOTALS = 1024

type Told = Pick<TimelineEvent, 'kind' | 'tone' | 'partition' | 'text'>

const count = (value: number): string => value.toLocaleString('en-US')
const named = ({ url }: Seen): string => (url === null ? 'The worker of this process' : `The worker at ${url}`)

export interface Timeline {
  note(event: Told, at?: number): void
  after(seq: number): readonly TimelineEvent[]
  boardEvent(event: BoardEvent, worker: Seen): void
  /** The worker answered just now: what the log has is what it committed, or less. */
  alive(worker: Seen): void
  reach(worker: Seen): void
  owner(partition: number, before: string | null, now: string | null): void
  wentBack(partition: number, session: string, before: number, now: number): void
  cursorWentBack(partition: number, before: number, now: number): void
  /** A session was deleted that had so many pulses. */
  shrunk(partition: number, pulses: number): void
  committed(partition: number): void
}

/** `pulseOf`: pulses of all sessions of a partition together, as the log has them. */
export const createTimeline = (pulseOf: (partition: number) => number, wake: () => void): Timeline => {
  const kept: TimelineEvent[] = []
  let seq = 0
  /** Where a partition stood when its worker was last seen alive, and of those whose worker has gone since. */
  const alive = new Map<number, number>()
  const left = new Map<number, number>()
  /** Pulses after the last commits of each partition, and resumes that the gateway has not read so far yet. */
  const totals = new Map<number, Set<number>>()
  const pending = new Map<number, BoardEvent>()
  /** Partitions of which something went back since their last resume. */
  const back = new Set<number>()
  /** Owners that took a partition over and have not committed yet. */
  const taken = new Map<number, string>()

  const note = (event: Told, at = Date.now()): void => {
    seq += 1
    kept.push({ seq, at, ...event })
    if (kept.length > MOST_EVENTS) kept.shift()
    wake()
  }

  const resumed = (event: BoardEvent): void => {
    const { partition, at, pulse = 0, sessions = 0, offset = 0 } = event
    if (sessions === 0) {
      note(
        { kind: 'began', tone: 'quiet', partition, text: `Partition ${partition} began at offset ${count(offset)}.` },
        at,
      )
      return
    }
    if (pulseOf(partition) < pulse) {
      pending.set(partition, event)
      return
    }
    const known = left.get(partition) ?? 0
    left.delete(partition)
    const own = totals.get(partition)
    const isKnown = own === undefined || own.has(pulse) || own.size === MOST_TOTALS
    const good = pulse >= known && isKnown && !back.has(partition)
    const why = pulse < known ? `pulse ${count(known)} was committed` : 'the log has other numbers'
    const text = `Partition ${partition} resumed at pulse ${count(pulse)}, ${good ? 'nothing lost' : `but ${why}`}.`
    note({ kind: 'resumed', tone: good ? 'good' : 'bad', partition, text }, at)
    back.delete(partition)
  }

  return {
    note,
    after: (last) => kept.filter((event) => event.seq > last),
    boardEvent(event, worker) {
      const { partition, state, reason, at } = event
      if (state === 'running') resumed(event)
      else if (reason !== undefined) {
        left.set(partition, alive.get(partition) ?? 0)
        note({ kind: 'trouble', tone: 'bad', partition, text: `Partition ${partition} is ${state}: ${reason}` }, at)
      } else if (state === 'closed')
        note({ kind: 'lost', tone: 'quiet', partition, text: `${named(worker)} gave partition ${partition} back.` }, at)
    },
    alive({ view }) {
      for (const { partition, state } of view?.partitions ?? [])
        if (state === 'running') alive.set(partition, pulseOf(partition))
    },
    reach(worker) {
      const { reachable, view } = worker
      if (reachable) {
        note({ kind: 'began', tone: 'quiet', partition: null, text: `${named(worker)} answers.` })
        return
      }
      const held = view?.partitions ?? []
      for (const { partition } of held) left.set(partition, alive.get(partition) ?? 0)
      const at = held.map(({ partition }) => `partition ${partition} at pulse ${count(pulseOf(partition))}`).join(', ')
      note({
        kind: 'lost',
        tone: 'bad',
        partition: held.length === 1 ? held[0]!.partition : null,
        text: `${named(worker)} stopped answering${at === '' ? '' : `; the log has ${at}`}.`,
      })
    },
    owner(partition, before, now) {
      if (now === null)
        note({ kind: 'lost', tone: 'bad', partition, text: `No worker has partition ${partition}; it had ${before}.` })
      else {
        if (before !== null || left.has(partition)) taken.set(partition, now)
        left.delete(partition)
        note({ kind: 'owner', tone: 'quiet', partition, text: `Worker ${now} has partition ${partition}.` })
      }
      if (now === null) left.set(partition, pulseOf(partition))
    },
    shrunk(partition, pulses) {
      for (const map of [alive, left]) {
        const stood = map.get(partition)
        if (stood !== undefined) map.set(partition, Math.max(0, stood - pulses))
      }
    },
    wentBack(partition, session, before, now) {
      back.add(partition)
      const text = `Session "${session}" went back from pulse ${count(before)} to ${count(now)}.`
      note({ kind: 'back', tone: 'bad', partition, text })
    },
    cursorWentBack(partition, before, now) {
      back.add(partition)
      const text = `Partition ${partition} went back from offset ${count(before)} to ${count(now)}.`
      note({ kind: 'back', tone: 'bad', partition, text })
    },
    committed(partition) {
      const own = totals.get(partition) ?? new Set()
      totals.set(partition, own.add(pulseOf(partition)))
      if (own.size > MOST_TOTALS) own.delete(own.values().next().value!)
      const waits = pending.get(partition)
      if (waits !== undefined) {
        pending.delete(partition)
        resumed(waits)
      }
      const owner = taken.get(partition)
      if (owner === undefined) return
      taken.delete(partition)
      const text = `Worker ${owner} went on with partition ${partition} behind its last commit, nothing lost.`
      if (!back.has(partition)) note({ kind: 'resumed', tone: 'good', partition, text })
      back.delete(partition)
    },
  }
}
