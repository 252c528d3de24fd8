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
import { gunzipSync, zstdDecompressSync } from 'node:zlib'
import { ContinuoError, messageOf } from '../../errors.ts'
import { textOf } from '../../text.ts'
import type { Headers, RecordIn, StoredRecord } from '../log.ts'
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
  /** The record with these coordinates, in order; the bytes are copies. */
  records(topic: string, partition: number): StoredRecord[]
}

/** `what` is wrong, as a clause. */
export const damaged = (where: string, what: string): ContinuoError =>
  new ContinuoError(
    'REFUSED',
    `The records of ${where} are damaged: ${what}. Nothing was changed. Read again; if it stays so, let an intact replica lead the partition, or restore the topic from a copy.`,
  )

/** Bytes of a batch unpacked, at most: a small batch may be made to fill any memory. */
const MAX_PLAIN = 256 * 1024 * 1024

const decompress = (codec: number, where: string, data: Buffer): Buffer => {
  if (codec === 0) return data
  try {
    if (codec === 1) return gunzipSync(data, { maxOutputLength: MAX_PLAIN })
    if (codec === 4) return zstdDecompressSync(data, { maxOutputLength: MAX_PLAIN })
  } catch (error) {
    const tooLarge = (error as { code?: unknown }).code === 'ERR_BUFFER_TOO_LARGE'
    throw damaged(
      where,
      tooLarge
        ? `a compressed batch of ${data.length} bytes holds more than ${MAX_PLAIN}`
        : `a compressed batch cannot be unpacked (${messageOf(error)})`,
    )
  }
  throw new ContinuoError(
    'INVALID',
    `The records of ${where} are compressed with ${codec === 2 ? 'snappy' : codec === 3 ? 'lz4' : `codec ${codec}`}, which Continuo does not read: let the producer use gzip, zstd or none.`,
  )
}

const decodeRecords = (
  data: Buffer,
  count: number,
  at0: { readonly topic: string; readonly partition: number; readonly offset: number; readonly timestamp: number },
  appendTime: number | undefined,
): StoredRecord[] => {
  const { topic, partition, offset: baseOffset, timestamp: baseTimestamp } = at0
  // Copies, so that a small value does not keep a whole fetched megabyte alive.
  const plain = new Uint8Array(data.buffer, data.byteOffset, data.length)
  const records: StoredRecord[] = []
  let at = 0
  const varint = (): number => {
    let byte = plain[at++]!
    let value = byte & 127
    for (let scale = 128; byte >= 128; scale *= 128) {
      byte = plain[at++]!
      value += (byte & 127) * scale
    }
    return value % 2 === 0 ? value / 2 : -(value + 1) / 2
  }
  const bytes = (): Uint8Array | null => {
    const length = varint()
    if (length < 0) return null
    at += length
    if (at > plain.length) throw new RangeError('a record reaches beyond its batch')
    return plain.slice(at - length, at)
  }
  for (let i = 0; i < count; i++) {
    const length = varint()
    const end = at + length
    if (length < 0 || end > plain.length) throw new RangeError('a record reaches beyond its batch')
    at++
    const timestamp = baseTimestamp + varint()
    const offset = baseOffset + varint()
    const key = bytes()
    const value = bytes()
    const headers: [string, Uint8Array][] = []
    for (let left = varint(); left > 0; left--)
      headers.push([textOf(bytes() ?? new Uint8Array()), bytes() ?? new Uint8Array()])
    at = end
    records.push({
      topic,
      partition,
      offset,
      timestamp: appendTime ?? timestamp,
      key,
      value,
      headers: headers as Headers,
    })
  }
  return records
}

/** The whole batches in `data`; a cut-off one at its end is left out. Throws REFUSED where a checksum does not match. */
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
    const timestamp = Number(data.readBigInt64BE(start + 27))
    const appendTime = attributes & 0x08 ? Number(data.readBigInt64BE(start + 35)) : undefined
    const count = data.readInt32BE(start + 57)
    const body = data.subarray(start + BATCH_OVERHEAD, end)
    batches.push({
      baseOffset,
      next: baseOffset + data.readInt32BE(start + 23) + 1,
      producerId: data.readBigInt64BE(start + 43),
      transactional: (attributes & 0x10) !== 0,
      control: (attributes & 0x20) !== 0,
      records: (topic, partition) => {
        try {
          const plain = count > 0 ? decompress(attributes & 7, where, body) : body
          return decodeRecords(plain, count, { topic, partition, offset: baseOffset, timestamp }, appendTime)
        } catch (error) {
          if (error instanceof ContinuoError) throw error
          throw damaged(where, `the batch at offset ${baseOffset} cannot be decoded (${(error as Error).message})`)
        }
      },
    })
    start = end
  }
  return batches
}
