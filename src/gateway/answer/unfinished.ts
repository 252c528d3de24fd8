/**
 * The events that this gateway has sent and no worker has finished yet, by session and by key. Beyond a bound the
 * gateway takes no more of that session or key, so that a client that sends faster than workers read is told, and the
 * log does not grow with events that no worker has read. The partition cursors of the state topic say what is finished.
 * Other gateways, and producers of the topic, have a count of their own or none.
 */
import type { ChunkInput } from '../../../topics/chunks.ts'
import { isFinished, type Position } from '../../streams/watermark.ts'
import { Refusal } from '../refusal.ts'

export interface Bounds {
  /** Events of one session; 0: any number. */
  readonly session: number
  /** Events of one key; 0: any number. Where there are no keys nothing is counted by them. */
  readonly key: number
}

/** Events on their way to the log. */
export interface Admitted {
  /** They are in the log, at these offsets. */
  sent(partition: number, offsets: readonly number[]): void
  /** They are not all there; what became of the others is not known, so they do not count. */
  failed(): void
}

export interface Unfinished {
  /**
   * Counts the events. Throws a Refusal (429) where the session or the key has too many unfinished; one request always
   * fits where there are none.
   */
  admit(session: string, key: string | null, events: readonly ChunkInput[]): Admitted
  /** What was committed last in the partition. */
  committed(partition: number, position: Position): void
  /** Events that are not finished. */
  readonly size: number
}

interface Sent {
  readonly offset: number
  readonly session: string
  readonly key: string | null
}

/** What ends work is taken in any case. */
const ENDS = new Set<ChunkInput['type']>(['cancel', 'delete'])

/** `isBlind`: it is not known at the moment what is finished, so nothing is refused. */
export const createUnfinished = (bounds: Bounds, isBlind: () => boolean): Unfinished => {
  const sessions = new Map<string, number>()
  const keys = new Map<string, number>()
  const sent = new Map<number, readonly Sent[]>()
  const positions = new Map<number, Position>()
  let size = 0

  const add = (counts: Map<string, number>, name: string, count: number): void => {
    const now = (counts.get(name) ?? 0) + count
    if (now === 0) counts.delete(name)
    else counts.set(name, now)
  }
  const count = (session: string, key: string | null, change: number): void => {
    size += change
    add(sessions, session, change)
    if (key !== null) add(keys, key, change)
  }
  const forget = (partition: number): void => {
    const [all, position] = [sent.get(partition), positions.get(partition)]
    if (all === undefined || position === undefined) return
    const left: Sent[] = []
    for (const one of all)
      if (isFinished(position, one.offset)) count(one.session, one.key, -1)
      else left.push(one)
    if (left.length === 0) sent.delete(partition)
    else sent.set(partition, left)
  }
  const check = (who: string, has: number, more: number, most: number, code: string): void => {
    if (most === 0 || has === 0 || has + more <= most || isBlind()) return
    throw new Refusal(
      429,
      `${who} has ${has} events that no worker has finished yet, and ${more} more would be over ${most}. Send them again when some are finished.`,
      { code },
    )
  }

  return {
    admit(session, key, events) {
      if (!events.every(({ type }) => ENDS.has(type))) {
        const more = events.length
        check(`Session "${session}"`, sessions.get(session) ?? 0, more, bounds.session, 'session_backlog')
        if (key !== null) check(`The key ${key}`, keys.get(key) ?? 0, more, bounds.key, 'key_backlog')
      }
      count(session, key, events.length)
      return {
        sent(partition, offsets) {
          sent.set(partition, [...(sent.get(partition) ?? []), ...offsets.map((offset) => ({ offset, session, key }))])
          // They may be finished before it is known where they are.
          forget(partition)
        },
        failed: () => count(session, key, -events.length),
      }
    },
    committed(partition, position) {
      positions.set(partition, position)
      forget(partition)
    },
    get size() {
      return size
    },
  }
}
