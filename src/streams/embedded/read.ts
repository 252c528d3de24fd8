import { setImmediate as nextTurn } from 'node:timers/promises'
import { ContinuoError } from '../../errors.ts'
import type { Batch, ReadOptions, StoredRecord } from '../log.ts'
import type { Database } from './database.ts'
import { checkRow, decodeHeaders, type Records, type Row } from './records.ts'
import type { Topics } from './topics.ts'

interface RecordRow extends Row {
  readonly checksum: number | null
}

export type Read = (
  topic: string,
  partition: number,
  from: number,
  options?: ReadOptions,
) => AsyncGenerator<Batch, void>

const MAX_BYTES = 1 << 20

/** What is read at one time. */
export interface BatchRequest {
  readonly name: string
  readonly partition: number
  readonly from: number
  readonly until: number
  readonly maxBytes: number
}

export type Batches = (request: BatchRequest) => Promise<Batch>

export const openBatches = (db: Database, topics: Topics, records: Records): Batches => {
  const selectRecords = db.prepare<RecordRow>(
    `SELECT "offset", timestamp, key, headers, value, checksum FROM records
     WHERE topic = ? AND partition = ? AND "offset" >= ? AND "offset" < ? ORDER BY "offset"`,
  )

  /** Bounds and records in one snapshot, or a trim in between could hide a gap. */
  const batchAt = ({ name, partition, from, until, maxBytes }: BatchRequest): Batch => {
    const topic = topics.findPartition(name, partition)
    const { begin, end } = records.bounds(topic, partition)
    if (from < begin || from > end)
      throw new ContinuoError(
        'POSITION',
        `Position ${from} of ${name}[${partition}] does not exist: the log holds ${begin} to ${end}. ${
          from < begin ? 'The records were trimmed' : 'The log is shorter than it was'
        }; choose a position within.`,
      )
    const stop = Math.min(until, end)
    const batch: StoredRecord[] = []
    let bytes = 0
    let next = from
    for (const row of selectRecords.iterate(topic.id, partition, from, stop)) {
      const { offset, timestamp, key, value } = row
      if (offset !== next) break
      next++
      if (timestamp < 0) continue
      checkRow(topic, partition, row)
      batch.push({ topic: name, partition, offset, timestamp, key, value, headers: decodeHeaders(row.headers) })
      bytes += (key?.length ?? 0) + (value?.length ?? 0) + (row.headers?.length ?? 0)
      if (bytes >= maxBytes) break
    }
    if (next === from && next < stop)
      throw new ContinuoError(
        'POSITION',
        `${name}[${partition}] holds ${begin} to ${end}, but record ${next} is missing: the log file was changed by hand or damaged. Restore it from a copy.`,
      )
    return { records: batch, next }
  }

  return (request) =>
    db.read(`reading ${request.name}[${request.partition}] at ${request.from}`, () => batchAt(request))
}

/** `beside`: the same on other threads. */
export const openReader = ({ changes }: Pick<Database, 'changes'>, batches: Batches, beside: Batches): Read =>
  async function* read(name, partition, from, options = {}) {
    const { until = Number.MAX_SAFE_INTEGER, follow = false, maxBytes = MAX_BYTES, bulk = false, signal } = options
    if (!Number.isSafeInteger(from))
      throw new ContinuoError('INVALID', `A position is a whole number, ${from} is not. Begin at bounds().begin.`)
    const next = bulk ? beside : batches
    for (let position = from; !signal?.aborted; ) {
      const mark = changes.mark()
      const batch = await next({ name, partition, from: position, until, maxBytes })
      const moved = batch.next > position
      position = batch.next
      if (moved) yield batch
      if (position >= until) return
      if (moved) await nextTurn()
      else if (follow) await changes.wait(mark, signal)
      else {
        // Who looks again and again must not keep the event loop from what would bring him a record.
        await nextTurn()
        return
      }
    }
  }
