/** Our record batches against kafkajs's, which were written apart from each other: what one writes, the other reads. */
import { gzipSync, zstdCompressSync } from 'node:zlib'
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { crc32c } from '../../src/streams/kafka/crc32c.ts'
import { committedBatches } from '../../src/streams/kafka/fetch.ts'
import { cut } from '../../src/streams/kafka/produce.ts'
import { aloneSize, type BatchView, encodeBatch, prepare, readBatches } from '../../src/streams/kafka/record-batch.ts'
import type { RecordIn } from '../../src/streams/log.ts'
import { internal } from './helpers.ts'

type Encoder = { readonly buffer: Buffer }
const Decoder = internal<new (buffer: Buffer) => object>('kafkajs/src/protocol/decoder')
const plainDecode = internal<(decoder: object) => Promise<{ records: readonly PlainRecord[]; firstOffset: string }>>(
  'kafkajs/src/protocol/recordBatch/v0/decoder',
)
const { RecordBatch } = internal<{ RecordBatch(of: object): Promise<Encoder> }>('kafkajs/src/protocol/recordBatch/v0')
const PlainRecord = internal<(of: object) => Encoder>('kafkajs/src/protocol/recordBatch/record/v0')

interface PlainRecord {
  readonly key: Buffer | null
  readonly value: Buffer | null
  readonly timestamp: string
  readonly offset: string
  readonly headers: Record<string, Buffer | Buffer[]>
}

const nobody = { producerId: -1n, producerEpoch: -1, sequence: -1, transactional: false }
const plain = (bytes: Uint8Array | null): number[] | null => (bytes === null ? null : [...bytes])

const bytes = fc.uint8Array({ maxLength: 300 })
const records: fc.Arbitrary<RecordIn[]> = fc.array(
  fc.record({
    key: fc.option(bytes),
    value: fc.option(bytes),
    timestamp: fc.integer({ min: 0, max: 2 ** 43 }),
    headers: fc.uniqueArray(fc.tuple(fc.string({ unit: 'grapheme' }), bytes), {
      selector: ([name]) => name,
      maxLength: 3,
    }),
  }),
  { minLength: 1, maxLength: 20 },
)

describe('CRC-32C', () => {
  test('has the values of RFC 3720, B.4', () => {
    expect(crc32c(Buffer.from('123456789'))).toBe(0xe3069283)
    expect(crc32c(new Uint8Array(32))).toBe(0x8a9136aa)
    expect(crc32c(new Uint8Array(32).fill(255))).toBe(0x62a8ab43)
    expect(crc32c(Uint8Array.from({ length: 32 }, (_, i) => i))).toBe(0x46dd794e)
  })

  test('agrees with the definition, bit by bit, on any stretch', () => {
    const slow = (data: Uint8Array): number => {
      let crc = 0xffffffff
      for (const byte of data) {
        crc ^= byte
        for (let bit = 0; bit < 8; bit++) crc = (crc >>> 1) ^ (crc & 1 ? 0x82f63b78 : 0)
      }
      return ~crc >>> 0
    }
    fc.assert(
      fc.property(bytes, fc.nat(40), (data, from) => {
        expect(crc32c(data, Math.min(from, data.length))).toBe(slow(data.subarray(from)))
      }),
    )
  })
})

describe('a record batch', () => {
  test('that we write is read by kafkajs as it was, and by us', async () => {
    await fc.assert(
      fc.asyncProperty(records, async (ins) => {
        const batch = encodeBatch(ins.map(prepare), { ...nobody, producerId: 7n, producerEpoch: 3, sequence: 5 })
        const theirs = (await plainDecode(new Decoder(batch))).records
        const ours = readBatches(batch, 't[0]')[0]!.records('t', 0)
        expect(theirs.length).toBe(ins.length)
        for (const [i, { key, value, timestamp, headers }] of ins.entries()) {
          for (const found of [theirs[i]!, ours[i]!]) {
            expect(plain(found.key)).toEqual(plain(key))
            expect(plain(found.value)).toEqual(plain(value))
            expect(Number(found.timestamp)).toBe(timestamp)
            expect(Number(found.offset)).toBe(i)
          }
          expect(ours[i]!.headers.map(([name, content]) => [name, plain(content)])).toEqual(
            headers!.map(([name, content]) => [name, plain(content)]),
          )
          expect(Object.keys(theirs[i]!.headers)).toEqual(Object.keys(Object.fromEntries(headers!)))
        }
      }),
      { numRuns: 200 },
    )
  })

  test('that kafkajs writes is read by us as it was', async () => {
    await fc.assert(
      fc.asyncProperty(records, async (ins) => {
        const firstTimestamp = ins[0]!.timestamp!
        const encoded = await RecordBatch({
          firstTimestamp,
          maxTimestamp: Math.max(...ins.map(({ timestamp }) => timestamp!)),
          lastOffsetDelta: ins.length - 1,
          records: ins.map(({ key, value, timestamp, headers }, offsetDelta) =>
            PlainRecord({
              key: key && Buffer.from(key),
              value: value && Buffer.from(value),
              offsetDelta,
              timestampDelta: timestamp! - firstTimestamp,
              headers: Object.fromEntries(headers!.map(([name, content]) => [name, Buffer.from(content)])),
            }),
          ),
        })
        const [view] = readBatches(encoded.buffer, 't[0]')
        const found = view!.records('t', 0)
        expect(found.map(({ key, value, timestamp }) => [plain(key), plain(value), timestamp])).toEqual(
          ins.map(({ key, value, timestamp }) => [plain(key), plain(value), timestamp]),
        )
        expect(view!.next).toBe(ins.length)
      }),
      { numRuns: 200 },
    )
  })

  test('has the size that is foretold for one record, and pieces stay below their limit', () => {
    fc.assert(
      fc.property(records, fc.integer({ min: 400, max: 4000 }), (ins, limit) => {
        const prepared = ins.map(prepare)
        for (const record of prepared) expect(encodeBatch([record], nobody).length).toBe(aloneSize(record))
        const pieces = cut(prepared, limit)
        expect(pieces.flat()).toEqual(prepared)
        for (const piece of pieces)
          if (piece.length > 1) expect(encodeBatch(piece, nobody).length).toBeLessThanOrEqual(limit + 61)
      }),
    )
  })

  test('compressed with gzip or zstd is read; with another codec it is INVALID and named', () => {
    const ins = ['one', 'two'].map((value) => prepare({ key: null, value: Buffer.from(value), timestamp: 5 }))
    const batch = encodeBatch(ins, nobody)
    const packed = (codec: number, pack: (data: Buffer) => Buffer): Buffer => {
      const made = Buffer.concat([batch.subarray(0, 61), pack(batch.subarray(61))])
      made.writeInt32BE(made.length - 12, 8)
      made.writeInt16BE(codec, 21)
      made.writeUInt32BE(crc32c(made, 21), 17)
      return made
    }
    const values = (made: Buffer): string[] =>
      readBatches(made, 't[0]')[0]!
        .records('t', 0)
        .map(({ value }) => Buffer.from(value!).toString())
    expect(values(packed(1, gzipSync))).toEqual(['one', 'two'])
    expect(values(packed(4, zstdCompressSync))).toEqual(['one', 'two'])
    expect(() => values(packed(2, (data) => data))).toThrow(/snappy/)
    expect(() => values(packed(3, (data) => data))).toThrow(/lz4/)
    expect(() => values(packed(1, () => Buffer.from('not gzip')))).toThrow(/damaged/)
  })

  test('cut off at the end of a fetch is left for the next one', () => {
    const batch = encodeBatch([prepare({ key: null, value: Buffer.from('x') })], nobody)
    expect(readBatches(Buffer.concat([batch, batch.subarray(0, -1)]), 't[0]').length).toBe(1)
    expect(readBatches(batch.subarray(0, 30), 't[0]')).toEqual([])
  })
})

describe('the filter of aborted transactions', () => {
  /** A partition's history, and who is to be seen, by simulation: the outcome is known, where a reader has only the list. */
  const history = fc.array(
    fc.record({ producer: fc.nat(2), act: fc.constantFrom('write', 'write', 'abort', 'abort', 'commit', 'plain') }),
    {
      maxLength: 60,
    },
  )

  test('shows what a reader who knows all outcomes would show', () => {
    fc.assert(
      fc.property(history, fc.nat(12), (acts, from) => {
        const batches: BatchView[] = []
        const open = new Map<number, number[]>()
        const visible = new Set<number>()
        const aborted: { producerId: bigint; firstOffset: number; last: number }[] = []
        const add = (offset: number, producer: number, transactional: boolean, control: boolean): void => {
          const [producerId, next] = [BigInt(producer), offset + 1]
          batches.push({ baseOffset: offset, next, producerId, transactional, control, records: () => [] })
        }
        for (const [offset, { producer, act }] of acts.entries()) {
          const mine = open.get(producer) ?? []
          add(offset, producer, act !== 'plain', act === 'abort' || act === 'commit')
          if (act === 'plain') visible.add(offset)
          else if (act === 'write') open.set(producer, [...mine, offset])
          else {
            open.delete(producer)
            if (act === 'commit') for (const seen of mine) visible.add(seen)
            else if (mine.length > 0)
              aborted.push({ producerId: BigInt(producer), firstOffset: mine[0]!, last: offset })
          }
        }
        // Readers see up to the first record of the first open transaction, and learn of what touches their stretch.
        const stable = Math.min(acts.length, ...[...open.values()].map(([first]) => first!))
        const fetched = batches.filter(({ baseOffset }) => baseOffset >= from && baseOffset < stable)
        const told = aborted.filter(({ firstOffset, last }) => last >= from && firstOffset < stable)
        const shown = committedBatches(fetched, told).map(({ baseOffset }) => baseOffset)
        expect(shown).toEqual([...visible].filter((offset) => offset >= from && offset < stable).sort((a, b) => a - b))
      }),
      { numRuns: 2000 },
    )
  })
})
