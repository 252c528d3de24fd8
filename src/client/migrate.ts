/**
 * A log copied into another: the events of the input, in order for each session, with their headers and times, to as
 * many partitions as are wanted. A worker of the new log computes the rest from them.
 *
 * Each pair of a source partition and a target partition has a cursor in the target log: the committed offset of a
 * group that is named after the source. A transaction carries copies and their cursor, so a copy that was killed goes
 * on where it stood, and nothing stands twice.
 *
 *   source 0 ──┬──▶ target 0   cursors of group continuo-migrate-<source>-0
 *              └──▶ target 1
 *   source 1 ──┬──▶ target 0   cursors of group continuo-migrate-<source>-1
 *              └──▶ target 1
 */
import type { TopicNames } from '../../topics/index.ts'
import { ContinuoError } from '../errors.ts'
import { sha256 } from '../hash.ts'
import { timeOf } from '../operators/pipeline/emit.ts'
import type { Bounds, EventLog, OutRecord, PartitionWriter, StoredRecord } from '../streams/log.ts'
import type { Plan } from './migrate-plan.ts'

/** Bytes of copies in one transaction. */
const BATCH_BYTES = 512 * 1024
const BATCH_RECORDS = 1000

export interface CopyOptions {
  readonly from: EventLog
  readonly to: EventLog
  readonly fromNames: TopicNames
  readonly toNames: TopicNames
  readonly plan: Plan
  /** No further transaction begins after it fires. */
  readonly signal?: AbortSignal
  /** Called after each transaction with the records that this call has copied. */
  readonly onCopied?: (records: number) => void
}

export interface Copied {
  /** Records that this call copied. */
  readonly records: number
  /** The signal fired before all was copied. */
  readonly interrupted: boolean
}

/**
 * Cursors of a source partition are those of this group. The same source has the same name however its credentials are
 * given.
 */
const groupOf = ({ from, fromNames }: CopyOptions, source: number): string =>
  `continuo-migrate-${sha256(Buffer.from(`${from.url}\n${fromNames.chunks}`)).slice(0, 12)}-${source}`

const copyOf = (topic: string, record: StoredRecord): OutRecord => {
  const { key, value, headers } = record
  return { topic, key, value, headers, timestamp: timeOf(record) }
}

/** A target partition that takes copies of one source partition. */
interface Lane {
  readonly writer: PartitionWriter
  /** Every record of the source below it has been copied, or goes elsewhere. */
  position: number
  batch: OutRecord[]
  bytes: number
}

/**
 * Makes a cursor for each pair that has none. Throws REFUSED where the target holds events and has no cursor of this
 * source: they came from elsewhere.
 */
const begin = async (options: CopyOptions, bounds: readonly Bounds[]): Promise<void> => {
  const { to, toNames, plan } = options
  const topic = toNames.chunks
  for (const [source, { begin: first }] of bounds.entries()) {
    const group = groupOf(options, source)
    for (let target = 0; target < plan.partitions; target += 1) {
      // The claim first: it aborts the transaction that a killed copy left open. Until then Kafka answers a request for
      // the committed offset with UNSTABLE_OFFSET_COMMIT.
      const writer = await to.claim(group, topic, target)
      try {
        if ((await to.committed(group, topic, target)) !== null) continue
        if ((await to.bounds(topic, target)).end > 0)
          throw new ContinuoError(
            'REFUSED',
            `${topic}, partition ${target}, of ${to.url} holds events, and nothing says that they are copies from ${options.from.url}. Nothing was copied. Migrate into a new prefix or file.`,
          )
        await writer.commit([], first)
      } finally {
        await writer.close()
      }
    }
  }
}

const copyPartition = async (
  options: CopyOptions,
  source: number,
  { begin: first, end }: Bounds,
  copied: (records: number) => void,
): Promise<void> => {
  const { from, to, fromNames, toNames, plan, signal } = options
  const group = groupOf(options, source)
  const lanes: Lane[] = []
  try {
    for (let target = 0; target < plan.partitions; target += 1) {
      const writer = await to.claim(group, toNames.chunks, target)
      // Behind the claim, which ends what another copy has open.
      const position = (await to.committed(group, toNames.chunks, target)) ?? first
      lanes.push({ writer, position, batch: [], bytes: 0 })
    }
    const flush = async (lane: Lane, next: number): Promise<void> => {
      if (lane.position >= next) return
      const { batch } = lane
      lane.batch = []
      lane.bytes = 0
      await lane.writer.commit(batch, next)
      lane.position = next
      copied(batch.length)
    }
    const start = Math.max(first, Math.min(...lanes.map(({ position }) => position)))
    if (start < end) {
      for await (const { records } of from.read(fromNames.chunks, source, start, { until: end, undecodable: true })) {
        for (const record of records) {
          if (signal?.aborted) return
          const target = plan.targetOf(record)
          const lane = target === null ? undefined : lanes[target]
          if (lane === undefined || record.offset < lane.position) continue
          lane.batch.push(copyOf(toNames.chunks, record))
          lane.bytes += (record.value?.length ?? 0) + (record.key?.length ?? 0)
          if (lane.bytes >= BATCH_BYTES || lane.batch.length >= BATCH_RECORDS) await flush(lane, record.offset + 1)
        }
      }
    }
    if (signal?.aborted) return
    for (const lane of lanes) await flush(lane, end)
  } finally {
    for (const { writer } of lanes) await writer.close()
  }
}

/**
 * Copies what the plan covers and is not copied yet. Rejects with REFUSED for a target of another origin, and with what
 * the logs reject with.
 */
export const copyEvents = async (options: CopyOptions): Promise<Copied> => {
  const { bounds } = options.plan
  let records = 0
  await begin(options, bounds)
  for (const [source, each] of bounds.entries()) {
    if (options.signal?.aborted) break
    await copyPartition(options, source, each, (more) => {
      records += more
      options.onCopied?.(records)
    })
  }
  return { records, interrupted: options.signal?.aborted === true }
}
