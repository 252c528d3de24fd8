/**
 * follow: the records of a topic as they are committed, of all its partitions.
 *
 * Each partition has a reader that hands over one batch and waits until it was taken, so nothing is fetched faster than
 * the caller reads. Records of one partition come in their order; nothing is said of the order between partitions.
 */
import type { Batch, EventLog, StoredRecord } from '../streams/log.ts'

/** Which records of a topic are followed, and for how long. */
export interface FollowOptions {
  /** Full name of the topic: `topicNames(log.prefix).tokens`. */
  readonly topic: string
  /** How many partitions the topic has; `ensureTopics` says it. */
  readonly partitions: number
  /** Only records of this key; default: all. */
  readonly session?: string | undefined
  /** Where to start: with the first record that is still there, or (the default) with the first to come. */
  readonly from?: 'beginning' | 'end'
  /** Ends when everything that was there at the start was read and nothing came for so many ms; default: never. */
  readonly untilIdle?: number | undefined
  /** Ends the iteration, without an error. */
  readonly signal?: AbortSignal
}

interface Delivery {
  readonly batch: Batch
  readonly taken: () => void
}

/** Rejects with what reading the log rejects with. */
export async function* follow(log: EventLog, options: FollowOptions): AsyncGenerator<StoredRecord> {
  const { topic, partitions, session, from = 'end', untilIdle = Number.POSITIVE_INFINITY, signal } = options
  const wanted = session === undefined ? null : Buffer.from(session)
  const over = new AbortController()
  const deliveries: Delivery[] = []
  const failures: unknown[] = []
  let reading = partitions
  /** Partitions in which something that was there at the start is not read yet. */
  let behind = partitions
  let last = performance.now()
  let wake = (): void => undefined
  const end = (): void => {
    over.abort()
    wake()
  }
  signal?.addEventListener('abort', end)
  if (signal?.aborted) end()

  const reached = (): void => {
    behind -= 1
    last = performance.now()
    wake()
  }
  const read = async (partition: number): Promise<void> => {
    const bounds = await log.bounds(topic, partition)
    const start = from === 'beginning' ? bounds.begin : bounds.end
    let caughtUp = start >= bounds.end
    if (caughtUp) reached()
    for await (const batch of log.read(topic, partition, start, {
      follow: true,
      undecodable: true,
      signal: over.signal,
    })) {
      if (batch.records.length > 0 && !over.signal.aborted) {
        await new Promise<void>((taken) => {
          deliveries.push({ batch, taken })
          wake()
        })
      }
      if (!caughtUp && batch.next >= bounds.end) {
        caughtUp = true
        reached()
      }
    }
  }
  const readers = Array.from({ length: partitions }, (_, partition) =>
    read(partition)
      .catch((error: unknown) => failures.push(error))
      .finally(() => {
        reading -= 1
        wake()
      }),
  )

  /** Waits for a delivery, a failure or an end; false when it is the caller's patience that ends. */
  const something = async (): Promise<boolean> => {
    let timer: NodeJS.Timeout | undefined
    const left = behind > 0 ? Number.POSITIVE_INFINITY : last + untilIdle - performance.now()
    if (left <= 0) return false
    await new Promise<void>((resolve) => {
      wake = resolve
      if (left < Number.POSITIVE_INFINITY) timer = setTimeout(resolve, left)
    })
    clearTimeout(timer)
    return true
  }

  try {
    for (;;) {
      for (let [delivery] = deliveries; delivery !== undefined; [delivery] = deliveries) {
        for (const record of delivery.batch.records) {
          last = performance.now()
          if (wanted === null || (record.key !== null && wanted.equals(record.key))) yield record
        }
        // Not before: a caller that leaves the loop leaves it here, and its reader waits.
        deliveries.shift()
        delivery.taken()
      }
      if (failures.length > 0) throw failures[0]
      if (reading === 0 || over.signal.aborted || !(await something())) return
    }
  } finally {
    end()
    signal?.removeEventListener('abort', end)
    for (const { taken } of deliveries) taken()
    await Promise.all(readers)
  }
}
