/**
 * The blobs of a partition in its own topic: parts under the keys `<sha256>#0`, `<sha256>#1`, …, the place of a blob is
 * the offset of its first part. Parts are written as those of snapshots are, ahead of the commit that will name them;
 * parts of several blobs may lie between each other. The reader compares the hash of the joined parts with the blob's
 * name.
 */
import { setTimeout as delay } from 'node:timers/promises'
import { blobKey } from '../../../topics/blobs.ts'
import { PART_BYTES, PART_CHECK } from '../../../topics/snapshots.ts'
import type { BlobReader, BlobStore, Wanted } from '../../blobs/store.ts'
import { digest, join } from '../../bulk.ts'
import { codeOf } from '../../errors.ts'
import { inParallel } from '../../parallel.ts'
import { splitParts } from '../../state/snapshot.ts'
import type { EventLog, OutRecord, StoredRecord } from '../../streams/log.ts'
import { textOf } from '../../text.ts'
import { SNAPSHOT_GROUP_PARTS } from '../snapshots/snapshots.ts'
import type { TurnWriter } from '../snapshots/turns.ts'

/** Blobs that lie close to each other are read in one go, of this size at most; so many go at a time. */
const SPAN_BYTES = 8 << 20
const SPANS = 4
/** So many bytes are worth the threads that read beside the event loop, which take a tenth of a second to start. */
const BULK_BYTES = 64 << 20
/** Offsets between two of them that are read over. */
const GAP = 8
/** Bytes of a batch at most. */
const BATCH_BYTES = 1 << 20
/** Of other records that lie between the parts of a blob. Where more lies, a part is missing. */
const BETWEEN_BYTES = 16 << 20
/**
 * How often a read begins again because of the ends of the topic, and after how long where the record may not be seen
 * yet, ms.
 */
const TRIES = 20
const PAUSE = 25

const utf8 = new TextEncoder()

export const placeOf = (offset: number): string => offset.toString(16).padStart(16, '0')
export const offsetOf = (place: string): number => Number.parseInt(place, 16)

/** A blob that is being read, and who asked for it. */
interface Reading extends Wanted {
  readonly offset: number
  readonly at: number[]
  readonly parts: Uint8Array[]
  length: number
  done: boolean
}

interface How {
  readonly bulk: boolean
  /** Record by record. */
  readonly alone: boolean
}

const takes = (reading: Reading, { key, offset }: StoredRecord): boolean =>
  key !== null &&
  (reading.parts.length > 0 ? offset > reading.offset : offset === reading.offset) &&
  textOf(key) === blobKey(reading.hash, reading.parts.length)

/** In spans that lie close together, ascending. */
const spansOf = (readings: readonly Reading[]): readonly (readonly Reading[])[] => {
  const spans: Reading[][] = []
  let bytes = 0
  for (const reading of [...readings].sort((a, b) => a.offset - b.offset)) {
    const last = spans.at(-1)?.at(-1)
    const partsOf = last === undefined ? 0 : Math.ceil(last.bytes / PART_BYTES)
    if (last === undefined || bytes > SPAN_BYTES || reading.offset > last.offset + 2 * partsOf + GAP) {
      spans.push([reading])
      bytes = reading.bytes
    } else {
      spans.at(-1)!.push(reading)
      bytes += reading.bytes
    }
  }
  return spans
}

/** Where the partition's blobs are read. */
export const topicReader = (log: EventLog, topic: string, partition: number): BlobReader => {
  /** Reads on until all of them are found or passed. Those that are left are not there. */
  const readSpan = async (
    open: Set<Reading>,
    { bulk, alone }: How,
    give: (reading: Reading) => Promise<void>,
  ): Promise<void> => {
    const [begin] = open
    const wanted = [...open].reduce((sum, { bytes }) => sum + bytes, 0)
    const maxBytes = alone ? 1 : Math.min(BATCH_BYTES, wanted + 1024)
    let over = 0
    /** The blobs of the batch before: the next one is read meanwhile. */
    let giving: Promise<unknown> = Promise.resolve()
    try {
      for await (const { records } of log.read(topic, partition, begin!.offset, { maxBytes, bulk })) {
        await giving
        const found: Promise<void>[] = []
        for (const record of records) {
          let taken = false
          for (const reading of open) {
            if (!takes(reading, record)) continue
            taken = true
            reading.parts.push(record.value ?? new Uint8Array(0))
            reading.length += record.value?.length ?? 0
            if (reading.length < reading.bytes) continue
            open.delete(reading)
            found.push(give(reading))
          }
          if (!taken) over += record.value?.length ?? 0
        }
        giving = Promise.all(found)
        // Awaited later, also where reading ends with an error.
        giving.catch(() => undefined)
        if (open.size === 0) break
        // Its first part would be behind us.
        const passed = (records.at(-1)?.offset ?? -1) + 1
        const isHopeless = ({ offset, parts }: Reading): boolean => parts.length === 0 && offset < passed
        if (over > BETWEEN_BYTES + wanted || [...open].every(isHopeless)) break
      }
    } finally {
      await giving
    }
  }

  /**
   * The same, where an end of the topic lies between them: an owner trims what is dead at any time, and what was
   * written is seen later.
   */
  const readThere = async (open: Set<Reading>, how: How, give: (reading: Reading) => Promise<void>): Promise<void> => {
    for (let tries = 1; ; tries += 1) {
      const { begin, end } = await log.bounds(topic, partition)
      for (const reading of open) {
        reading.parts.length = 0
        reading.length = 0
        if (reading.offset < begin) open.delete(reading)
      }
      const seen = new Set([...open].filter(({ offset }) => offset < end))
      for (const reading of seen) open.delete(reading)
      try {
        if (seen.size > 0) await readSpan(seen, how, give)
      } catch (error) {
        if (codeOf(error) !== 'POSITION' || tries >= TRIES) throw error
        for (const reading of seen) open.add(reading)
        continue
      }
      if (open.size === 0 || tries >= TRIES) return
      await delay(PAUSE)
    }
  }

  /** One record at a time: a damaged one is in the way of no other blob. */
  const readAlone = async (reading: Reading, give: (reading: Reading) => Promise<void>): Promise<void> => {
    let isDamaged = false
    try {
      await readThere(new Set([reading]), { bulk: false, alone: true }, async () => undefined)
    } catch (error) {
      if (codeOf(error) !== 'REFUSED') throw error
      isDamaged = true
      reading.parts.splice(0, reading.parts.length, new Uint8Array(0))
    }
    if (isDamaged || reading.length >= reading.bytes) await give(reading)
  }

  return {
    url: `${topic}[${partition}]`,
    async get(wanted, found) {
      const byPlace = new Map<string, Reading>()
      for (const [at, { hash, place, bytes }] of wanted.entries()) {
        const known = byPlace.get(`${hash}.${place}`)
        if (known !== undefined) known.at.push(at)
        else {
          const reading = { hash, place, bytes, offset: offsetOf(place), at: [at], parts: [], length: 0, done: false }
          byPlace.set(`${hash}.${place}`, reading)
        }
      }
      if (byPlace.size === 0) return
      const give = async (reading: Reading): Promise<void> => {
        const { at, parts } = reading
        reading.done = true
        const bytes = parts.length === 1 ? parts[0]! : await join(parts)
        parts.length = 0
        try {
          for (const each of at) await found(each, bytes)
        } catch (error) {
          failed = { error }
          throw error
        }
      }
      /** An error of `found`, which is not one of the log. */
      let failed: { readonly error: unknown } | null = null
      const readings = [...byPlace.values()]
      const bulk = readings.reduce((sum, { bytes }) => sum + bytes, 0) >= BULK_BYTES
      await inParallel(spansOf(readings), SPANS, async (span) => {
        try {
          await readThere(new Set(span), { bulk, alone: false }, give)
        } catch (error) {
          if (codeOf(error) !== 'REFUSED' || failed !== null) throw error
          for (const reading of span) if (!reading.done) await readAlone(reading, give)
        }
      })
      for (const { at, done } of byPlace.values()) if (!done) for (const each of at) await found(each, null)
    },
  }
}

export interface TopicStore extends BlobStore {
  /** Every blob of a living snapshot lies at this offset or behind it: below, the topic is trimmed, or will be. */
  readonly begin: number
  /** One past the last offset that is known to be written. */
  readonly end: number
  /** Offsets that a blob of this size takes. */
  offsetsOf(bytes: number): number
  /** The topic's end, asked anew. */
  bound(): Promise<number>
  /** From here on nothing below is looked for. */
  leave(before: number): void
  /** Trims up to where it was left. */
  trim(): Promise<void>
}

/** The store of who owns the partition. The topic is there. */
export const openTopicStore = async (
  log: EventLog,
  topic: string,
  writer: TurnWriter,
  partBytes: number,
): Promise<TopicStore> => {
  const { partition } = writer
  let { begin, end } = await log.bounds(topic, partition)
  return {
    ...topicReader(log, topic, partition),
    async put(hash, bytes) {
      const parts = splitParts(bytes, partBytes)
      let place = -1
      for (let at = 0; at < parts.length; at += SNAPSHOT_GROUP_PARTS) {
        const group = parts.slice(at, at + SNAPSHOT_GROUP_PARTS)
        const records = group.map(async (value, index): Promise<OutRecord> => {
          const check = parts.length === 1 ? hash : await digest([value])
          return {
            topic,
            key: utf8.encode(blobKey(hash, at + index)),
            value,
            headers: [[PART_CHECK, utf8.encode(check)]],
          }
        })
        const offsets = await writer.bulk(await Promise.all(records))
        if (place < 0) place = offsets[0]!
        end = Math.max(end, offsets.at(-1)! + 1)
      }
      return placeOf(place)
    },
    get begin() {
      return begin
    },
    get end() {
      return end
    },
    offsetsOf(bytes) {
      const parts = Math.ceil(bytes / partBytes)
      // On Kafka each transaction takes an offset for its marker.
      return log.kind === 'kafka' ? parts + Math.ceil(parts / SNAPSHOT_GROUP_PARTS) : parts
    },
    async bound() {
      const { end: bound } = await log.bounds(topic, partition)
      end = Math.max(end, bound)
      return bound
    },
    leave(before) {
      begin = Math.max(begin, before)
    },
    trim: () => log.trim(topic, partition, begin),
  }
}
