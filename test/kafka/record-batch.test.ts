/** Our record batches against kafkajs's, which were written apart from each other: what one writes, the other reads. */
import { gzipSync, zstdCompressSync } from 'node:zlib'
import fc from 'fast-check'
import lz4 from 'lz4-napi'
import snappy from 'snappy'
import { describe, expect, test } from 'vitest'
import { Undecodable } from '../../src/streams/kafka/codecs.ts'
import { crc32c } from '../../src/streams/kafka/crc32c.ts'
import { committedBatches } from '../../src/streams/kafka/fetch.ts'
import { cut } from '../../src/streams/kafka/produce.ts'
import { aloneSize, type BatchView, encodeBatch, prepare, readBatches } from '../../src/streams/kafka/record-batch.ts'
import type { RecordIn, StoredRecord } from '../../src/streams/log.ts'
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
        const ours = [...readBatches(batch, 't[0]')[0]!.records('t', 0)]
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
        const found = [...view!.records('t', 0)]
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

  /** The batch with its records exchanged for what `pack` makes of them, and a checksum that is right. */
  const repacked = (batch: Buffer, codec: number, pack: (data: Buffer) => Uint8Array): Buffer => {
    const made = Buffer.concat([batch.subarray(0, 61), pack(batch.subarray(61))])
    made.writeInt32BE(made.length - 12, 8)
    made.writeInt16BE(codec, 21)
    made.writeUInt32BE(crc32c(made, 21), 17)
    return made
  }
  const decoded = (batch: Buffer): StoredRecord[] => [...readBatches(batch, 't[0]')[0]!.records('t', 0)]

  /** As Java's library frames it, the blocks cut by `cutAt` bytes. */
  const javaSnappy =
    (cutAt: number) =>
    (data: Buffer): Buffer => {
      const head = Buffer.concat([Buffer.from('\x82SNAPPY\0', 'latin1'), Buffer.from([0, 0, 0, 1, 0, 0, 0, 1])])
      const parts: Buffer[] = [head]
      for (let at = 0; at < data.length; at += cutAt) {
        const block = snappy.compressSync(data.subarray(at, at + cutAt))
        const length = Buffer.alloc(4)
        length.writeInt32BE(block.length)
        parts.push(length, block)
        // Streams that were put together have a header in the middle.
        if (at === 0) parts.push(head)
      }
      return Buffer.concat(parts)
    }
  const lz4Frame =
    (options: { contentChecksum?: boolean; blockChecksums?: boolean } = {}) =>
    (data: Buffer): Buffer =>
      lz4.compressFrameSync(data, options)

  const codecs: readonly [name: string, codec: number, pack: (data: Buffer) => Uint8Array][] = [
    ['gzip', 1, gzipSync],
    ['snappy, raw', 2, (data) => snappy.compressSync(data)],
    ['snappy, as Java frames it', 2, javaSnappy(100)],
    ['lz4', 3, lz4Frame()],
    ['lz4 with all checksums', 3, lz4Frame({ contentChecksum: true, blockChecksums: true })],
    ['zstd', 4, zstdCompressSync],
  ]

  test.each(codecs)('compressed with %s is read as it was', (_, codec, pack) => {
    fc.assert(
      fc.property(records, (ins) => {
        const batch = encodeBatch(ins.map(prepare), nobody)
        expect(decoded(repacked(batch, codec, pack))).toEqual(decoded(batch))
      }),
      { numRuns: 20 },
    )
    // More than one block of lz4, and text that repeats itself.
    const value = Buffer.alloc(300_000, 'the tide comes in and the tide goes out. ')
    const batch = encodeBatch([prepare({ key: null, value, timestamp: 1 })], nobody)
    expect(value.equals(decoded(repacked(batch, codec, pack))[0]!.value!)).toBe(true)
  })

  test.each(
    codecs,
  )('whose %s was damaged before its checksum was made is read or Undecodable, and nothing else', (_, codec, pack) => {
    const ins = Array.from({ length: 40 }, (_, i) =>
      prepare({ key: null, value: Buffer.from(`value ${i}`), timestamp: 5 }),
    )
    const batch = encodeBatch(ins, nobody)
    let undecodable = 0
    fc.assert(
      fc.property(
        fc.array(fc.tuple(fc.nat(), fc.nat(255)), { minLength: 1, maxLength: 4 }),
        fc.option(fc.nat()),
        (changes, cutAt) => {
          const made = repacked(batch, codec, (data) => {
            const packed = Buffer.from(pack(data))
            for (const [at, byte] of changes) packed[at % packed.length] = byte
            return cutAt === null ? packed : packed.subarray(0, cutAt % packed.length)
          })
          try {
            decoded(made)
          } catch (error) {
            expect(error, String(error)).toBeInstanceOf(Undecodable)
            undecodable += 1
          }
        },
      ),
      { numRuns: 500 },
    )
    expect(undecodable).toBeGreaterThan(50)
  })

  // Each packs and unpacks 65 MiB.
  for (const [name, codec, pack] of codecs)
    test(`of ${name} that would fill the memory is Undecodable; one below the limit is read`, {
      tags: ['slow'],
    }, () => {
      // Blocks of 100 bytes would be a million.
      const packing = pack === codecs[2]![2] ? javaSnappy(1 << 20) : pack
      const made = (size: number): Buffer =>
        repacked(encodeBatch([prepare({ key: null, value: Buffer.alloc(size), timestamp: 1 })], nobody), codec, packing)
      const bomb = made(65 << 20)
      expect(bomb.length).toBeLessThan(4 << 20)
      expect(() => decoded(bomb)).toThrow(Undecodable)
      expect(() => decoded(bomb)).toThrow(/unpack to more than 67108864/)
      expect(decoded(made(60 << 20))[0]?.value?.length).toBe(60 << 20)
    })

  test('of lz4 whose million blocks each could be large takes no memory for them', () => {
    const head = Buffer.from('04224d186070730000'.slice(0, 14), 'hex')
    head[5] = 0x70 // blocks of 4 MiB
    const block = Buffer.from([1, 0, 0, 0, 0])
    const frame = Buffer.concat([head, ...Array.from({ length: 100_000 }, () => block), Buffer.alloc(4)])
    const made = repacked(encodeBatch([prepare({ key: null, value: null })], nobody), 3, () => frame)
    expect(() => decoded(made)).toThrow(Undecodable)
  })

  test('of an unknown codec, or whose records lie, is Undecodable and says why', () => {
    const batch = encodeBatch([prepare({ key: null, value: Buffer.from('x'), timestamp: 1 })], nobody)
    const changed = (at: number, byte: number): Buffer =>
      repacked(batch, 0, (data) => {
        const lying = Buffer.from(data)
        lying[at] = byte
        return lying
      })
    const why = (made: Buffer): string => {
      try {
        return String(decoded(made).length)
      } catch (error) {
        expect(error).toBeInstanceOf(Undecodable)
        return (error as Error).message
      }
    }
    expect(why(repacked(batch, 5, (data) => data))).toContain('codec 5')
    // length, attributes, timestamp, offset, key, value length, value, headers
    expect(why(changed(0, 0x7e))).toContain('beyond its batch')
    expect(why(changed(3, 2))).toContain('offset 1')
    expect(why(changed(3, 1))).toContain('offset -1')
    expect(why(changed(5, 0x7e))).toContain('beyond its end')
    expect(why(changed(7, 0x02))).toContain('beyond its end')
    const headers = Array.from({ length: 100_001 }, () => ['', new Uint8Array()] as const)
    expect(why(encodeBatch([prepare({ key: null, value: null, headers })], nobody))).toContain('100001 headers')
  })

  test('cut off at the end of a fetch is left for the next one', () => {
    const batch = encodeBatch([prepare({ key: null, value: Buffer.from('x') })], nobody)
    expect(readBatches(Buffer.concat([batch, batch.subarray(0, -1)]), 't[0]').length).toBe(1)
    expect(readBatches(batch.subarray(0, 30), 't[0]')).toEqual([])
  })
})

describe('the filter of aborted transactions', () => {
  /**
   * A partition's history, and who is to be seen, by simulation: the outcome is known, where a reader has only the
   * list.
   */
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
          batches.push({
            baseOffset: offset,
            next,
            producerId,
            transactional,
            control,
            records: () => [],
            asOne: () => expect.fail(),
          })
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
