import { setTimeout as delay } from 'node:timers/promises'
import { orAborted } from '../../aborted.ts'
import { ContinuoError } from '../../errors.ts'
import type { Batch, Bounds, ReadOptions, StoredRecord } from '../log.ts'
import { Undecodable } from './codecs.ts'
import { faultOf } from './faults.ts'
import { committedBatches, type Fetched, fetchProtocol } from './fetch.ts'
import type { Lane, Network } from './network.ts'
import { type BatchView, damaged, readBatches } from './record-batch.ts'

export interface Reader {
  read(topic: string, partition: number, from: number, options?: ReadOptions): AsyncGenerator<Batch, void>
  bounds(topic: string, partition: number): Promise<Bounds>
}

const MAX_BYTES = 1 << 20
/** Records given at once, at most. */
const MAX_RECORDS = 8192
const MAX_INT32 = 2 ** 31 - 1
/**
 * How long a follower's fetch waits at the broker. An append ends the wait at once, so this only sets the idle rate.
 */
const FOLLOW_WAIT = 500
/** The same for a reader that knows that there is more. */
const CATCH_UP_WAIT = 100
/** Lanes kept for the next fetch: enough for steady readers, few after a restore that read everything at once. */
const MAX_IDLE = 8
/** How long a position may lie beyond what the leader calls stable, and how often to look, ms. */
const BEHIND_PATIENCE = 5000
/** Until a read that gets no answer fails, ms. */
const READ_PATIENCE = 5000
const FOLLOW_PATIENCE = 15_000
const BEHIND_PAUSE = 50
const READ_COMMITTED = 1
const EARLIEST = -2
const LATEST = -1

const sizeOf = ({ key, value, headers }: StoredRecord): number =>
  headers.reduce((sum, [, content]) => sum + content.length, (key?.length ?? 0) + (value?.length ?? 0))

const recordsOf = (batch: BatchView, topic: string, partition: number, asOne: boolean): Iterable<StoredRecord> => {
  try {
    return batch.records(topic, partition)
  } catch (error) {
    if (!(error instanceof Undecodable)) throw error
    if (asOne) return [batch.asOne(topic, partition, error.message)]
    throw damaged(
      `${topic}[${partition}]`,
      `the batch at offset ${batch.baseOffset} cannot be decoded: ${error.message}`,
    )
  }
}

export const openReader = (network: Network): Reader => {
  /** Connections for fetches, kept between them: a fetch in progress has one to itself. */
  const idle: Lane[] = []

  const listOffset = (topic: string, partition: number, timestamp: number): Promise<number> =>
    network.retry(`asking for the bounds of ${topic}[${partition}]`, async () => {
      const broker = await network.common.to(await network.leader(topic, partition))
      const topics = [{ topic, partitions: [{ partition, timestamp }] }]
      const { responses } = await broker.listOffsets({ isolationLevel: READ_COMMITTED, topics })
      return Number(responses[0]?.partitions[0]?.offset)
    })

  const bounds = async (topic: string, partition: number): Promise<Bounds> => {
    const [begin, end] = await Promise.all([
      listOffset(topic, partition, EARLIEST),
      listOffset(topic, partition, LATEST),
    ])
    return { begin, end: Math.max(begin, end) }
  }

  const noPosition = (topic: string, partition: number, from: number, { begin, end }: Bounds): ContinuoError =>
    new ContinuoError(
      'POSITION',
      `Position ${from} of ${topic}[${partition}] does not exist: the log holds ${begin} to ${end}. ${
        from < begin ? 'The records were trimmed' : 'The log is shorter than it was, or not yet stable'
      }; choose a position within.`,
    )

  const checkId = (topic: string, known: string, found: string | null): void => {
    if (found === null || found === known) return
    throw new ContinuoError(
      'REFUSED',
      `Topic ${topic} was deleted and made anew while it was read: it had the id ${known}, this one has ${found}. Offsets of the one mean nothing in the other.`,
    )
  }

  const fetchAt = async (
    topic: string,
    partition: number,
    offset: number,
    maxBytes: number,
    maxWait: number,
    signal: AbortSignal | undefined,
    topicId: string | undefined,
    patience: number,
  ): Promise<Fetched | null> => {
    const lane = idle.pop() ?? network.lane()
    let tried = false
    try {
      const { fetched } = await network.retry(
        `reading ${topic}[${partition}] at ${offset}`,
        async () => {
          // A topic that is deleted ends the fetches that wait on it. What is found under its name after that may be
          // another one.
          if (tried && topicId !== undefined) checkId(topic, topicId, await network.topicId(topic))
          tried = true
          const protocol = fetchProtocol({ topic, partition, offset, maxBytes: Math.min(maxBytes, MAX_INT32), maxWait })
          return await lane.send(await network.leader(topic, partition), protocol)
        },
        { lane, patience, ...(signal && { signal }) },
      )
      return fetched
    } catch (error) {
      const { type, message } = faultOf(error)
      if (type === 'OFFSET_OUT_OF_RANGE') throw noPosition(topic, partition, offset, await bounds(topic, partition))
      // Not the records' checksums, which brokers do not look at, but a length that leads nowhere.
      if (type === 'CORRUPT_MESSAGE')
        throw damaged(`${topic}[${partition}]`, `Kafka finds no batch at offset ${offset} (${message})`)
      throw error
    } finally {
      if (network.closed || idle.length >= MAX_IDLE) void lane.close()
      else idle.push(lane)
    }
  }

  const read = async function* (
    topic: string,
    partition: number,
    from: number,
    options: ReadOptions = {},
  ): AsyncGenerator<Batch, void> {
    const {
      until = Number.MAX_SAFE_INTEGER,
      follow = false,
      maxBytes = MAX_BYTES,
      undecodable,
      signal,
      topicId,
    } = options
    const where = `${topic}[${partition}]`
    if (!Number.isSafeInteger(from) || from < 0)
      throw new ContinuoError(
        'INVALID',
        `A position is a whole number from 0 on, ${from} is not. Begin at bounds().begin.`,
      )
    await network.retry(`reading ${topic}[${partition}]`, () => network.leader(topic, partition))
    let position = from
    let end = Number.MAX_SAFE_INTEGER
    let first = true
    let behindSince: number | null = null
    while (!signal?.aborted && position < until) {
      // A reader that follows outlives a broker that starts again, as an append does.
      const patience = follow ? FOLLOW_PATIENCE : READ_PATIENCE
      const maxWait = first ? 0 : follow ? FOLLOW_WAIT : CATCH_UP_WAIT
      // The fetch goes on when the signal fires.
      const fetched = await orAborted(
        fetchAt(topic, partition, position, maxBytes, maxWait, signal, topicId, patience),
        signal,
      )
      if (fetched === undefined || signal?.aborted) return
      // kafkajs has waited as long as the quota asked for.
      if (fetched === null) continue
      const { lastStableOffset, logStartOffset, aborted, data } = fetched
      if (position > lastStableOffset) {
        // Beyond the end of the log Kafka says so (above). This is the gap after a change of leader, which closes soon,
        // or an open transaction.
        behindSince ??= performance.now()
        if (performance.now() - behindSince > BEHIND_PATIENCE)
          throw noPosition(topic, partition, position, { begin: logStartOffset, end: lastStableOffset })
        await delay(BEHIND_PAUSE)
        continue
      }
      behindSince = null
      if (first && !follow) end = lastStableOffset
      first = false

      // A fetch begins with the batch that holds the position, so it may begin before it.
      const batches = readBatches(data, where)
      let records: StoredRecord[] = []
      let bytes = 0
      for (const batch of committedBatches(batches, aborted))
        for (const record of recordsOf(batch, topic, partition, undecodable === true)) {
          if (record.offset < position || record.offset >= until) continue
          // What was fetched may unpack to much more.
          if (bytes >= maxBytes || records.length >= MAX_RECORDS) {
            yield { records, next: record.offset }
            if (signal?.aborted) return
            records = []
            bytes = 0
          }
          records.push(record)
          bytes += sizeOf(record)
        }
      // Batches without a record (markers, aborted ones, what a cleaner left) move the position all the same.
      const next = Math.min(until, Math.max(position, batches.at(-1)?.next ?? position))
      const moved = next > position
      position = next
      if (moved) yield { records, next }
      if (position >= end) return
    }
  }
  return { read, bounds }
}
