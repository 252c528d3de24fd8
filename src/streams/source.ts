/**
 * The input of a task: records from its position on, one at a time, each counted in by the watermark. When too much is
 * unfinished the iteration waits, nothing is fetched, and so the log itself holds what is not read: backpressure end to
 * end. What is unfinished is not all in memory (operators/pipeline/by-session.ts): one session's backlog holds up
 * others only at these limits.
 */
import type { EventLog, StoredRecord } from './log.ts'
import type { Watermark } from './watermark.ts'

/** How far a partition is read beyond what is finished. */
export interface SourceLimits {
  /** Unfinished records of which only the places are in memory. */
  readonly places: number
  /** Bytes of log between the position and the newest record that was read: what a restart reads again. */
  readonly readAhead: number
  /** Ranges that the partition cursor has to remember at most, because an older record is unfinished. */
  readonly ranges: number
}

export const SOURCE_LIMITS: SourceLimits = { places: 1_000_000, readAhead: 1024 * 1024 * 1024, ranges: 16_384 }

export interface SourceOptions {
  readonly topic: string
  readonly partition: number
  readonly from: number
  readonly watermark: Watermark
  readonly stopping: AbortSignal
  /** Records of which only the places are in memory, now. */
  readonly places: () => number
  readonly limits?: SourceLimits | undefined
  readonly topicId?: string | undefined
  /** Called where the source begins to wait at a limit, and with null where it goes on. */
  readonly onFull?: ((limit: keyof SourceLimits | null) => void) | undefined
}

export interface Source {
  readonly records: AsyncIterable<StoredRecord>
  /** Something was finished; waiting may be over. */
  released(): void
}

/** What a record takes in memory, bytes. */
export const sizeOf = (record: Pick<StoredRecord, 'key' | 'value'>): number =>
  (record.key?.length ?? 0) + (record.value?.length ?? 0)

/** Bytes between two offsets whose distance is known. */
const STRIDE = 256 * 1024

/** Bytes of log between a position and the end of what was read, to within a stride. */
const createDistance = () => {
  /** Offsets, and the bytes read before each. */
  const marks: { readonly offset: number; readonly before: number }[] = []
  let read = 0
  return {
    add(offset: number, bytes: number): void {
      if (marks.length === 0 || read - marks.at(-1)!.before >= STRIDE) marks.push({ offset, before: read })
      read += bytes
    },
    from(position: number): number {
      while (marks.length > 1 && marks[1]!.offset <= position) marks.shift()
      return read - (marks[0]?.before ?? read)
    },
  }
}

export const createSource = (log: EventLog, options: SourceOptions): Source => {
  const { topic, partition, from, watermark, stopping, places, limits = SOURCE_LIMITS, topicId, onFull } = options
  const distance = createDistance()
  let wake: (() => void) | null = null
  const rouse = (): void => {
    wake?.()
    wake = null
  }
  stopping.addEventListener('abort', rouse)

  const full = (bytes: number): keyof SourceLimits | null => {
    if (watermark.load.records === 0) return null
    if (places() >= limits.places) return 'places'
    if (watermark.load.ranges >= limits.ranges) return 'ranges'
    return distance.from(watermark.offset) + bytes > limits.readAhead ? 'readAhead' : null
  }

  async function* records(): AsyncGenerator<StoredRecord> {
    for await (const batch of log.read(topic, partition, from, {
      follow: true,
      undecodable: true,
      signal: stopping,
      ...(topicId !== undefined && { topicId }),
    })) {
      for (const record of batch.records) {
        const bytes = sizeOf(record)
        let limit = full(bytes)
        if (limit !== null) {
          onFull?.(limit)
          for (; limit !== null && !stopping.aborted; limit = full(bytes)) {
            await new Promise<void>((resolve) => {
              wake = resolve
            })
          }
          onFull?.(null)
        }
        if (stopping.aborted) return
        distance.add(record.offset, bytes)
        watermark.begin(record.offset)
        if (!watermark.wasDone(record.offset)) yield record
      }
      watermark.reach(batch.next)
    }
  }

  return { records: records(), released: rouse }
}
