/**
 * The input of a task: records from its position on, one at a time, each counted in by the watermark. When too much is in
 * work the iteration waits, nothing is fetched, and so the log itself holds what is not read: backpressure end to end.
 */
import type { EventLog, StoredRecord } from './log.ts'
import type { Watermark } from './watermark.ts'

export interface SourceLimits {
  /** Records in work at most. */
  readonly records: number
  /** Bytes in work at most; one record may exceed it alone. */
  readonly bytes: number
  /** Records the partition cursor has to remember at most, because an older one is unfinished. */
  readonly span: number
}

export const SOURCE_LIMITS: SourceLimits = { records: 8192, bytes: 8 * 1024 * 1024, span: 65_536 }

export interface Source {
  readonly records: AsyncIterable<StoredRecord>
  /** Something was finished; waiting may be over. */
  released(): void
}

const sizeOf = (record: StoredRecord): number => (record.key?.length ?? 0) + (record.value?.length ?? 0)

export const createSource = (
  log: EventLog,
  topic: string,
  partition: number,
  from: number,
  watermark: Watermark,
  stopping: AbortSignal,
  limits: SourceLimits = SOURCE_LIMITS,
  topicId?: string,
): Source => {
  let wake: (() => void) | null = null
  const rouse = (): void => {
    wake?.()
    wake = null
  }
  stopping.addEventListener('abort', rouse)

  const full = (): boolean => {
    const { records, bytes, span } = watermark.load
    return records >= limits.records || bytes >= limits.bytes || span >= limits.span
  }

  async function* records(): AsyncGenerator<StoredRecord> {
    for await (const batch of log.read(topic, partition, from, {
      follow: true,
      undecodable: true,
      signal: stopping,
      ...(topicId !== undefined && { topicId }),
    })) {
      for (const record of batch.records) {
        while (full() && !stopping.aborted) {
          await new Promise<void>((resolve) => {
            wake = resolve
          })
        }
        if (stopping.aborted) return
        watermark.begin(record.offset, sizeOf(record))
        if (!watermark.wasDone(record.offset)) yield record
      }
      watermark.reach(batch.next)
    }
  }

  return { records: records(), released: rouse }
}
