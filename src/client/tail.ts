/**
 * tail: the records of one key in one partition of a topic, from any position on, for many readers at once.
 *
 *   catching up ──reached the shared reader──▶ live
 *        ▲                                      │
 *        └──────── MOST_WAITING exceeded ───────┘
 *
 * A reader that catches up goes through pages of the log, which all readers share (pages.ts). One that is live gets
 * what one shared reader of the partition brings, so a thousand readers of a session cost the log one, wherever they
 * begin. What waits for a live reader is bounded: one that takes its records too slowly goes back to the pages, from
 * the record behind the last that it took. Nothing is skipped or given twice on the way.
 */
import { setTimeout as delay } from 'node:timers/promises'
import { orAborted } from '../aborted.ts'
import { codeOf } from '../errors.ts'
import type { EventLog, StoredRecord } from '../streams/log.ts'
import { createPages, nameOf, sizeOf } from './pages.ts'

/** Bytes of keys and values that wait for one live reader at most. */
export const MOST_WAITING = 1 << 16
/** Between two tries to reach a log that does not answer. */
const RETRY = 250 // ms

export interface Tail {
  /**
   * Records of `session` from position `from` on, until the signal fires. Rejects with what reading the log rejects
   * with: POSITION where `from` was trimmed.
   */
  records(partition: number, session: string, from: number, signal: AbortSignal): AsyncGenerator<StoredRecord>
  /** The same, several at a time; readers that catch up are given the same arrays. */
  batches(
    partition: number,
    session: string,
    from: number,
    signal: AbortSignal,
  ): AsyncGenerator<readonly StoredRecord[]>
  close(): Promise<void>
}

interface Reader {
  readonly queue: StoredRecord[]
  bytes: number
  /** More came than may wait: what is queued is complete up to here, the rest is to be read from the log. */
  lost: boolean
  failure: unknown
  wake(): void
}

interface Shared {
  /** Everything below was handed to the readers that were live. */
  position: number
  readonly live: Map<string, Set<Reader>>
  readonly done: Promise<void>
}

export const openTail = (log: EventLog, topic: string): Tail => {
  const over = new AbortController()
  const pages = createPages(log, topic, over.signal)
  const partitions = new Map<number, Promise<Shared>>()

  const give = ({ live }: Shared, record: StoredRecord): void => {
    if (record.key === null) return
    for (const reader of live.get(nameOf(record.key)) ?? []) {
      if (reader.lost) continue
      reader.bytes += sizeOf(record)
      // One record always fits, or a large one would never be given.
      if (reader.queue.length > 0 && reader.bytes > MOST_WAITING) reader.lost = true
      else reader.queue.push(record)
      reader.wake()
    }
  }
  const each = ({ live }: Shared, tell: (reader: Reader) => void): void => {
    for (const readers of live.values())
      for (const reader of readers) {
        tell(reader)
        reader.wake()
      }
  }

  const share = async (shared: Shared, partition: number): Promise<void> => {
    while (!over.signal.aborted) {
      try {
        const options = { follow: true, undecodable: true, signal: over.signal }
        for await (const batch of log.read(topic, partition, shared.position, options)) {
          for (const record of batch.records) give(shared, record)
          shared.position = batch.next
        }
      } catch (error) {
        if (over.signal.aborted) return
        if (codeOf(error) === 'POSITION') {
          // Trimmed past the shared reader. Each reader looks for its own position again and says what it lacks.
          each(shared, (reader) => {
            reader.lost = true
          })
          shared.position = (await log.bounds(topic, partition).catch(() => null))?.begin ?? shared.position
        } else if (codeOf(error) !== 'UNAVAILABLE') {
          each(shared, (reader) => {
            reader.failure = error
          })
          partitions.delete(partition)
          return
        }
        await delay(RETRY, null, { signal: over.signal }).catch(() => undefined)
      }
    }
  }

  const begin = async (partition: number): Promise<Shared> => {
    const { end } = await log.bounds(topic, partition)
    const shared: { -readonly [Key in keyof Shared]: Shared[Key] } = {
      position: end,
      live: new Map(),
      done: Promise.resolve(),
    }
    shared.done = share(shared, partition)
    return shared
  }
  const sharedOf = (partition: number): Promise<Shared> => {
    const known = partitions.get(partition)
    if (known !== undefined) return known
    const beginning = begin(partition)
    partitions.set(partition, beginning)
    beginning.catch(() => partitions.delete(partition))
    return beginning
  }

  async function* batches(
    partition: number,
    session: string,
    from: number,
    signal: AbortSignal,
  ): AsyncGenerator<readonly StoredRecord[]> {
    const name = Buffer.from(session).toString('latin1')
    const shared = await sharedOf(partition)
    const ends = AbortSignal.any([signal, over.signal])
    let next = from
    while (!ends.aborted) {
      while (next < shared.position && !ends.aborted) {
        const page = await orAborted(pages.at(partition, next, shared.position), ends)
        if (page === undefined) return
        const found = page.of(name)
        next = page.next
        if (found.length > 0) yield found
      }
      if (ends.aborted) return
      // From here to the reader's entry in `live` nothing is awaited: no record can come between.
      const reader: Reader = { queue: [], bytes: 0, lost: false, failure: undefined, wake: () => undefined }
      const readers = shared.live.get(name) ?? new Set()
      shared.live.set(name, readers.add(reader))
      const woken = (): void => reader.wake()
      ends.addEventListener('abort', woken)
      try {
        while (!ends.aborted) {
          const begin = next
          const found = reader.queue.splice(0).filter(({ offset }) => offset >= begin)
          reader.bytes = 0
          if (found.length > 0) {
            next = found.at(-1)!.offset + 1
            yield found
            continue
          }
          if (reader.failure !== undefined) throw reader.failure
          if (reader.lost) break
          await new Promise<void>((resolve) => {
            reader.wake = resolve
            if (ends.aborted) resolve()
          })
        }
      } finally {
        ends.removeEventListener('abort', woken)
        readers.delete(reader)
        if (readers.size === 0 && shared.live.get(name) === readers) shared.live.delete(name)
      }
    }
  }

  async function* records(
    partition: number,
    session: string,
    from: number,
    signal: AbortSignal,
  ): AsyncGenerator<StoredRecord> {
    for await (const batch of batches(partition, session, from, signal))
      for (const record of batch) {
        if (signal.aborted || over.signal.aborted) return
        yield record
      }
  }

  return {
    records,
    batches,
    async close() {
      over.abort()
      const all = await Promise.allSettled(partitions.values())
      await Promise.all(all.map((one) => (one.status === 'fulfilled' ? one.value.done : undefined)))
    },
  }
}
