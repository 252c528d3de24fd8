/** Records as rows: validation, size, headers, and the one place that gives out offsets. */
import { ContinuoError } from '../../errors.ts'
import { textOf } from '../../text.ts'
import type { Bounds, Headers, RecordIn } from '../log.ts'
import type { Database } from './database.ts'
import type { Topic } from './topics.ts'

const text = new TextEncoder()

/** See layout.ts for the bytes. */
export const encodeHeaders = (headers: Headers): Uint8Array | null => {
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

/** Kafka's upper estimate of a batch with this one record: what its brokers compare with `max.message.bytes`. */
export const recordBytes = (record: RecordIn): number => {
  let bytes = 61 + 21 + (record.key?.length ?? 0) + (record.value?.length ?? 0)
  for (const [name, value] of record.headers ?? []) bytes += 10 + Buffer.byteLength(name) + value.length
  return bytes
}

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
}

export const openRecords = (db: Database): Records => {
  const selectBounds = db.prepare<Bounds>('SELECT "begin", "end" FROM partitions WHERE topic = ? AND partition = ?')
  const moveEnd = db.prepare('UPDATE partitions SET "end" = ? WHERE topic = ? AND partition = ?')
  const insertRecord = db.prepare(
    'INSERT INTO records (topic, partition, "offset", timestamp, key, headers, value) VALUES (?, ?, ?, ?, ?, ?, ?)',
  )
  const bounds = (topic: Topic, partition: number): Bounds => selectBounds.get(topic.id, partition)!

  return {
    bounds: (topic, partition) => {
      const { begin, end } = bounds(topic, partition)
      return { begin, end }
    },
    insert: (placed) => {
      const now = Date.now()
      const ends = new Map<string, { topic: number; partition: number; end: number }>()
      const offsets = placed.map(({ topic, partition, record }) => {
        const place = `${topic.id}/${partition}`
        const at = ends.get(place) ?? { topic: topic.id, partition, end: bounds(topic, partition).end }
        ends.set(place, at)
        const headers = encodeHeaders(record.headers ?? [])
        insertRecord.run(topic.id, partition, at.end, record.timestamp ?? now, record.key, headers, record.value)
        return at.end++
      })
      for (const { topic, partition, end } of ends.values()) moveEnd.run(end, topic, partition)
      return offsets
    },
  }
}
