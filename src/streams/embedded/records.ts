/** Records as rows: validation, size, headers, and the one place that gives out offsets. */
import { crc32 } from 'node:zlib'
import { ContinuoError } from '../../errors.ts'
import { textOf } from '../../text.ts'
import type { Bounds, Headers, RecordIn } from '../log.ts'
import type { Database } from './database.ts'
import type { Topic } from './topics.ts'

const text = new TextEncoder()

/** See layout.ts for the bytes. */
const encodeHeaders = (headers: Headers): Uint8Array | null => {
  if (headers.length === 0) return null
  const named = headers.map(([name, value]) => [text.encode(name), value] as const)
  const bytes = new Uint8Array(named.reduce((sum, [name, value]) => sum + 8 + name.length + value.length, 0))
  const view = new DataView(bytes.buffer)
  let at = 0
  for (const [name, value] of named) {
    view.setUint32(at, name.length, true)
    view.setUint32(at + 4, value.length, true)
    bytes.set(name, at + 8)
    bytes.set(value, at + 8 + name.length)
    at += 8 + name.length + value.length
  }
  return bytes
}

export const decodeHeaders = (bytes: Uint8Array | null): Headers => {
  const headers: [string, Uint8Array][] = []
  if (bytes === null) return headers
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength)
  for (let at = 0; at < bytes.length; ) {
    const name = at + 8
    const value = name + view.getUint32(at, true)
    const end = value + view.getUint32(at + 4, true)
    headers.push([textOf(bytes.subarray(name, value)), bytes.slice(value, end)])
    at = end
  }
  return headers
}

/** A record as it lies in its row. */
export interface Row {
  readonly offset: number
  readonly timestamp: number
  readonly key: Uint8Array | null
  readonly headers: Uint8Array | null
  readonly value: Uint8Array | null
}

const NONE = 0xffff_ffff
const place = Buffer.alloc(36)
const put = (value: number, at: number): void => {
  place.writeUInt32LE(value % 2 ** 32, at)
  place.writeUInt32LE(Math.floor(value / 2 ** 32), at + 4)
}

/**
 * CRC-32 (IEEE 802.3, as zlib and PNG have it) over 36 bytes, little-endian, and then key, headers and value: u32 topic
 * id, u32 partition, u64 offset, u64 timestamp, u32 lengths of key, headers and value, 2³² − 1 for NULL. It finds what
 * a disk or a mistake changed; an attacker can compute it.
 */
const checksumOf = (topic: number, partition: number, { offset, timestamp, key, headers, value }: Row): number => {
  place.writeUInt32LE(topic, 0)
  place.writeUInt32LE(partition, 4)
  put(offset, 8)
  put(timestamp, 16)
  place.writeUInt32LE(key?.length ?? NONE, 24)
  place.writeUInt32LE(headers?.length ?? NONE, 28)
  place.writeUInt32LE(value?.length ?? NONE, 32)
  let sum = crc32(place)
  for (const bytes of [key, headers, value]) if (bytes !== null && bytes.length > 0) sum = crc32(bytes, sum)
  return sum
}

/** Kafka's upper estimate of a batch with this one record: what its brokers compare with `max.message.bytes`. */
const recordBytes = (record: RecordIn): number => {
  let bytes = 61 + 21 + (record.key?.length ?? 0) + (record.value?.length ?? 0)
  for (const [name, value] of record.headers ?? []) bytes += 10 + Buffer.byteLength(name) + value.length
  return bytes
}

const EMPTY = new Uint8Array(0)

/**
 * What SQLite is given for key, headers and value. Node 22 hands it no address for some empty arrays, those of
 * TextEncoder and those that came from another thread, and SQLite takes that for NULL. The empty key of a cursor would
 * be lost.
 */
const stored = (bytes: Uint8Array | null): Uint8Array | null => (bytes?.length === 0 ? EMPTY : bytes)

const isBytes = (value: unknown): boolean => value instanceof Uint8Array

/** Throws INVALID for a record that this topic does not take. */
export const checkRecord = (topic: Topic, record: RecordIn): void => {
  const invalid = (why: string): ContinuoError =>
    new ContinuoError('INVALID', `A record for topic ${topic.name} ${why}`)
  for (const part of ['key', 'value'] as const)
    if (record[part] !== null && !isBytes(record[part])) throw invalid(`has a ${part} that is neither bytes nor null.`)
  for (const header of record.headers ?? [])
    if (typeof header[0] !== 'string' || !isBytes(header[1])) throw invalid('has a header that is not [name, bytes].')
  const { timestamp } = record
  if (timestamp !== undefined && !(Number.isSafeInteger(timestamp) && timestamp >= 0))
    throw invalid(`has the timestamp ${timestamp}; expected whole milliseconds since 1970.`)
  const bytes = recordBytes(record)
  if (bytes > topic.maxRecordBytes)
    throw invalid(
      `takes ${bytes} bytes, the topic takes at most ${topic.maxRecordBytes} (max.message.bytes). Split the record, or create the topic with a larger limit.`,
    )
}

export interface Placed {
  readonly topic: Topic
  readonly partition: number
  readonly record: RecordIn
}

export interface Records {
  /** Inside a write transaction. The offsets, in order. */
  insert(placed: readonly Placed[]): number[]
  /** Inside a transaction. */
  bounds(topic: Topic, partition: number): Bounds
  /**
   * Inside a transaction. Reads the last records of the partition, a megabyte at most; REFUSED where one fails its
   * checksum.
   */
  checkEnd(topic: Topic, partition: number): void
}

/** How much of the end of each partition is looked at when its input partition is claimed. */
const END_RECORDS = 64
const END_BYTES = 1 << 20

/** Throws REFUSED where the record was changed since it was written. `checksum` NULL: it cannot be known. */
export const checkRow = (topic: Topic, partition: number, row: Row & { readonly checksum: number | null }): void => {
  if (row.checksum === null || row.checksum === checksumOf(topic.id, partition, row)) return
  throw new ContinuoError(
    'REFUSED',
    `The record at offset ${row.offset} of ${topic.name}[${partition}] fails its checksum: the log file was damaged or changed by hand. Nothing was changed; restore it from a copy.`,
  )
}

export const openRecords = (db: Database): Records => {
  const selectBounds = db.prepare<Bounds>('SELECT "begin", "end" FROM partitions WHERE topic = ? AND partition = ?')
  const moveEnd = db.prepare('UPDATE partitions SET "end" = ? WHERE topic = ? AND partition = ?')
  const insertRecord = db.prepare(
    'INSERT INTO records (topic, partition, "offset", timestamp, key, headers, value, checksum) VALUES (?, ?, ?, ?, ?, ?, ?, ?)',
  )
  const selectEnd = db.prepare<Row & { checksum: number | null }>(
    `SELECT "offset", timestamp, key, headers, value, checksum FROM records
     WHERE topic = ? AND partition = ? AND "offset" >= ? ORDER BY "offset" DESC LIMIT ${END_RECORDS}`,
  )
  const bounds = (topic: Topic, partition: number): Bounds => selectBounds.get(topic.id, partition)!

  return {
    bounds: (topic, partition) => {
      const { begin, end } = bounds(topic, partition)
      return { begin, end }
    },
    checkEnd: (topic, partition) => {
      let bytes = 0
      for (const row of selectEnd.iterate(topic.id, partition, bounds(topic, partition).begin)) {
        checkRow(topic, partition, row)
        bytes += (row.key?.length ?? 0) + (row.value?.length ?? 0)
        if (bytes >= END_BYTES) return
      }
    },
    insert: (placed) => {
      const now = Date.now()
      const ends = new Map<string, { topic: number; partition: number; end: number }>()
      const offsets = placed.map(({ topic, partition, record }) => {
        const whole = `${topic.id}/${partition}`
        const at = ends.get(whole) ?? { topic: topic.id, partition, end: bounds(topic, partition).end }
        ends.set(whole, at)
        const headers = encodeHeaders(record.headers ?? [])
        const { key, value, timestamp = now } = record
        const checksum = checksumOf(topic.id, partition, { offset: at.end, timestamp, key, headers, value })
        const bytes = [stored(key), stored(headers), stored(value)] as const
        insertRecord.run(topic.id, partition, at.end, timestamp, ...bytes, checksum)
        return at.end++
      })
      for (const { topic, partition, end } of ends.values()) moveEnd.run(end, topic, partition)
      return offsets
    },
  }
}
