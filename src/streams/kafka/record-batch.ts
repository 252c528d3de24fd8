/**
 * Record batches, format version 2 (Kafka ≥ 0.11), written and read byte by byte:
 *
 *   0 baseOffset int64 · 8 length int32 (of what follows) · 12 leaderEpoch int32 · 16 magic int8 = 2
 *   17 crc uint32, CRC-32C from 21 on · 21 attributes int16 (bits 0–2 codec, 3 log-append time, 4 transactional, 5 control)
 *   23 lastOffsetDelta int32 · 27 baseTimestamp int64 · 35 maxTimestamp int64 · 43 producerId int64 · 51 producerEpoch int16
 *   53 baseSequence int32 · 57 count int32 · 61 records
 *   record: length varint · attributes int8 · timestampDelta varint · offsetDelta varint · key · value · headers
 *
 * Varints are zigzag. kafkajs checks no CRC, and fails at about 125,000 records in a batch.
 */
import { ContinuoError } from '../../errors.ts'
import { textOf } from '../../text.ts'
import type { RecordIn, StoredRecord } from '../log.ts'
import { Undecodable, unpack } from './codecs.ts'
import { crc32c } from './crc32c.ts'

export const BATCH_OVERHEAD = 61
const LENGTH_AT = 8
const BODY_AT = 12
const encoder = new TextEncoder()

const varintSize = (value: number): number => {
  let rest = value < 0 ? -2 * value - 1 : 2 * value
  let size = 1
  for (; rest >= 128; rest = Math.floor(rest / 128)) size++
  return size
}

const bytesSize = (bytes: Uint8Array | null): number => (bytes === null ? 1 : varintSize(bytes.length) + bytes.length)

/** A record with its header names as bytes and its size without its own length, timestamp and offset deltas. */
export interface Prepared {
  readonly key: Uint8Array | null
  readonly value: Uint8Array | null
  readonly headers: readonly (readonly [name: Uint8Array, value: Uint8Array])[]
  readonly timestamp: number
  readonly size: number
}

export const prepare = ({ key, value, headers = [], timestamp = Date.now() }: RecordIn): Prepared => {
  const named = headers.map(([name, content]) => [encoder.encode(name), content] as const)
  let size = 1 + bytesSize(key) + bytesSize(value) + varintSize(named.length)
  for (const [name, content] of named) size += bytesSize(name) + bytesSize(content)
  return { key, value, headers: named, timestamp, size }
}

/** Bytes of a record within a batch. */
const recordSize = ({ size, timestamp }: Prepared, baseTimestamp: number, offsetDelta: number): number => {
  const body = size + varintSize(timestamp - baseTimestamp) + varintSize(offsetDelta)
  return varintSize(body) + body
}

/** Bytes of a batch that holds this record alone: what a topic's `max.message.bytes` is compared with. */
export const aloneSize = (record: Prepared): number => BATCH_OVERHEAD + recordSize(record, record.timestamp, 0)

/** Bytes of a record in a batch, at most: for cutting batches to size. */
export const sizeBound = (record: Prepared): number => record.size + 16

export interface ProducerState {
  readonly producerId: bigint
  readonly producerEpoch: number
  readonly sequence: number
  readonly transactional: boolean
}

export const encodeBatch = (records: readonly Prepared[], producer: ProducerState): Buffer => {
  const baseTimestamp = records[0]?.timestamp ?? 0
  let total = BATCH_OVERHEAD
  let maxTimestamp = baseTimestamp
  for (const [i, record] of records.entries()) {
    total += recordSize(record, baseTimestamp, i)
    maxTimestamp = Math.max(maxTimestamp, record.timestamp)
  }
  const batch = Buffer.allocUnsafe(total)
  batch.writeBigInt64BE(0n, 0)
  batch.writeInt32BE(total - BODY_AT, LENGTH_AT)
  batch.writeInt32BE(-1, 12)
  batch.writeInt8(2, 16)
  batch.writeInt16BE(producer.transactional ? 0x10 : 0, 21)
  batch.writeInt32BE(records.length - 1, 23)
  batch.writeBigInt64BE(BigInt(baseTimestamp), 27)
  batch.writeBigInt64BE(BigInt(maxTimestamp), 35)
  batch.writeBigInt64BE(producer.producerId, 43)
  batch.writeInt16BE(producer.producerEpoch, 51)
  batch.writeInt32BE(producer.sequence, 53)
  batch.writeInt32BE(records.length, 57)

  let at = BATCH_OVERHEAD
  const varint = (value: number): void => {
    let rest = value < 0 ? -2 * value - 1 : 2 * value
    for (; rest >= 128; rest = Math.floor(rest / 128)) batch[at++] = (rest % 128) | 128
    batch[at++] = rest
  }
  const bytes = (content: Uint8Array | null): void => {
    varint(content?.length ?? -1)
    batch.set(content ?? [], at)
    at += content?.length ?? 0
  }
  for (const [i, { key, value, headers, timestamp, size }] of records.entries()) {
    varint(size + varintSize(timestamp - baseTimestamp) + varintSize(i))
    batch[at++] = 0
    varint(timestamp - baseTimestamp)
    varint(i)
    bytes(key)
    bytes(value)
    varint(headers.length)
    for (const [name, content] of headers) {
      bytes(name)
      bytes(content)
    }
  }
  batch.writeUInt32BE(crc32c(batch, 21), 17)
  return batch
}

/** The header of a batch, and where its records are. */
export interface BatchView {
  readonly baseOffset: number
  /** One past the last offset of the batch, even if that record was removed. */
  readonly next: number
  readonly producerId: bigint
  readonly transactional: boolean
  readonly control: boolean
  /** The records with these coordinates, in order; the bytes are copies. Throws Undecodable before the first. */
  records(topic: string, partition: number): Iterable<StoredRecord>
  /** The batch as one record without a key, at its first offset: its bytes, and why they cannot be read. */
  asOne(topic: string, partition: number, reason: string): StoredRecord
}

/** `what` is wrong, as a clause. */
export const damaged = (where: string, what: string): ContinuoError =>
  new ContinuoError(
    'REFUSED',
    `The records of ${where} are damaged: ${what}. Nothing was changed. Read again; if it stays so, let an intact replica lead the partition, or restore the topic from a copy.`,
  )

/** Longest varint, in bytes: seven bits each, of at most 64. */
const MAX_VARINT = 10
/** A header takes hundreds of times the two bytes that it may take in a batch. */
const MAX_HEADERS = 100_000

/** Where the parts of a record lie, and what its varints say. Bytes come as [from, to), null for none. */
type Stretch = readonly [from: number, to: number] | null
interface Layout {
  readonly offset: number
  readonly timestamp: number
  readonly key: Stretch
  readonly value: Stretch
  readonly headers: readonly (readonly [name: Stretch, value: Stretch])[]
}

/** The records of a batch one after the other, without copying any bytes. Throws Undecodable for what is not one. */
function* layouts(plain: Uint8Array, count: number): Generator<Layout> {
  let at = 0
  let end = plain.length
  const varint = (): number => {
    let value = 0
    let scale = 1
    for (let bytes = 1; ; bytes++, scale *= 128) {
      if (at >= end || bytes > MAX_VARINT) throw new Undecodable('a record reaches beyond its end')
      const byte = plain[at++]!
      value += (byte & 127) * scale
      if (byte < 128) return value % 2 === 0 ? value / 2 : -(value + 1) / 2
    }
  }
  const stretch = (): Stretch => {
    const length = varint()
    if (length < 0) return null
    at += length
    if (at > end) throw new Undecodable('a record reaches beyond its end')
    return [at - length, at]
  }
  for (let i = 0; i < count; i++) {
    end = plain.length
    const length = varint()
    end = at + length
    if (length < 0 || end > plain.length) throw new Undecodable('a record reaches beyond its batch')
    at++
    const timestamp = varint()
    const offset = varint()
    const key = stretch()
    const value = stretch()
    const named = varint()
    if (named > MAX_HEADERS) throw new Undecodable(`a record has ${named} headers, more than ${MAX_HEADERS}`)
    const headers: [Stretch, Stretch][] = []
    for (let left = named; left > 0; left--) headers.push([stretch(), stretch()])
    at = end
    yield { offset, timestamp, key, value, headers }
  }
}

interface BatchHead {
  readonly baseOffset: number
  readonly next: number
  readonly codec: number
  readonly count: number
  readonly timestamp: number
  readonly appendTime: number | undefined
}

/**
 * The records of a batch, each made when it is asked for: a small batch may hold millions. All are looked at first, so
 * that a batch gives all of its records or, by Undecodable, none.
 */
const decodeRecords = (head: BatchHead, body: Buffer, topic: string, partition: number): Iterable<StoredRecord> => {
  const { baseOffset, next, codec, count, timestamp: baseTimestamp, appendTime } = head
  if (count <= 0) return []
  const unpacked = unpack(codec, body)
  const plain = new Uint8Array(unpacked.buffer, unpacked.byteOffset, unpacked.length)
  let previous = -1
  for (const { offset } of layouts(plain, count)) {
    if (offset <= previous || baseOffset + offset >= next)
      throw new Undecodable(`a record says offset ${baseOffset + offset} after ${baseOffset + previous}`)
    previous = offset
  }
  // Copies, so that a small value does not keep a whole fetched megabyte alive.
  const copy = (stretch: Stretch): Uint8Array | null => (stretch === null ? null : plain.slice(...stretch))
  const nothing = new Uint8Array()
  return (function* () {
    for (const { offset, timestamp, key, value, headers } of layouts(plain, count))
      yield {
        topic,
        partition,
        offset: baseOffset + offset,
        timestamp: appendTime ?? baseTimestamp + timestamp,
        key: copy(key),
        value: copy(value),
        headers: headers.map(([name, content]) => [textOf(copy(name) ?? nothing), copy(content) ?? nothing] as const),
      }
  })()
}

/**
 * The whole batches in `data`; a cut-off one at its end is left out. Throws REFUSED where a checksum does not match.
 */
export const readBatches = (data: Buffer, where: string): BatchView[] => {
  const batches: BatchView[] = []
  for (let start = 0; start + BATCH_OVERHEAD <= data.length; ) {
    const end = start + BODY_AT + data.readInt32BE(start + LENGTH_AT)
    if (end > data.length) break
    const baseOffset = Number(data.readBigInt64BE(start))
    const magic = data.readInt8(start + 16)
    if (magic !== 2) throw damaged(where, `the batch at offset ${baseOffset} has format ${magic}, expected 2`)
    const expected = data.readUInt32BE(start + 17)
    const found = crc32c(data, start + 21, end)
    if (found !== expected)
      throw damaged(
        where,
        `the batch at offset ${baseOffset} has checksum ${found.toString(16)}, its header says ${expected.toString(16)}`,
      )
    const attributes = data.readInt16BE(start + 21)
    const next = baseOffset + data.readInt32BE(start + 23) + 1
    const timestamp = Number(data.readBigInt64BE(start + 27))
    const appendTime = attributes & 0x08 ? Number(data.readBigInt64BE(start + 35)) : undefined
    const count = data.readInt32BE(start + 57)
    const head = { baseOffset, next, codec: attributes & 7, count, timestamp, appendTime }
    const whole = data.subarray(start, end)
    batches.push({
      baseOffset,
      next,
      producerId: data.readBigInt64BE(start + 43),
      transactional: (attributes & 0x10) !== 0,
      control: (attributes & 0x20) !== 0,
      records: (topic, partition) => decodeRecords(head, whole.subarray(BATCH_OVERHEAD), topic, partition),
      asOne: (topic, partition, reason) => ({
        topic,
        partition,
        offset: baseOffset,
        timestamp: appendTime ?? timestamp,
        key: null,
        value: new Uint8Array(whole),
        headers: [],
        undecodable: { next, reason },
      }),
    })
    start = end
  }
  return batches
}
