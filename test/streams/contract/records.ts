import { describe, expect, test } from 'vitest'
import type { RecordIn } from '../../../src/streams/log.ts'
import { bytes, eventually, readAll, record, take, text, valuesOf } from '../helpers.ts'
import type { Fixture } from './fixture.ts'

export const keepsRecords = ({ fresh, openAt, harness }: Fixture): void => {
  describe('keeps records', () => {
    test('as they were: bytes, keys, headers, timestamps', async () => {
      const { log, a } = await fresh()
      const everyByte = Uint8Array.from({ length: 256 }, (_, i) => i)
      const records: RecordIn[] = [
        { key: bytes('k'), value: everyByte, timestamp: Date.now() - 5000 },
        { key: null, value: null, timestamp: 0 },
        { key: new Uint8Array(), value: new Uint8Array(), timestamp: Date.now() },
        { key: everyByte, value: everyByte.subarray(100, 200), headers: [] },
        {
          key: null,
          value: bytes('with headers'),
          headers: [
            ['trace', bytes('1')],
            ['grün', everyByte],
            ['trace', bytes('2')],
            ['empty', new Uint8Array()],
          ],
        },
      ]
      const before = Date.now()
      const placed = await log.append(a, records, 0)
      const after = Date.now()
      const stored = await take(log, a, 0, records.length)
      expect(stored.map(({ offset }) => offset)).toEqual(placed.map(({ offset }) => offset))
      const plain = (part: Uint8Array | null | undefined): number[] | null => (part ? [...part] : null)
      /** kafkajs groups headers by name. */
      const grouped = (headers: RecordIn['headers'] = []): Record<string, unknown> =>
        Object.groupBy(
          headers.map(([header, value]) => [header, plain(value)] as const),
          ([header]) => header,
        )
      for (const [i, { key, value, headers, timestamp }] of records.entries()) {
        const found = stored[i]!
        expect(found).toMatchObject({ topic: a, partition: 0 })
        expect(plain(found.key)).toEqual(plain(key))
        expect(plain(found.value)).toEqual(plain(value))
        expect(grouped(found.headers)).toEqual(grouped(headers))
        if (timestamp !== undefined) expect(found.timestamp).toBe(timestamp)
        else {
          expect(found.timestamp).toBeGreaterThanOrEqual(before)
          expect(found.timestamp).toBeLessThanOrEqual(after)
        }
      }
    })

    test('of 900 kB, several in one call', async () => {
      const { log, a } = await fresh()
      const big = Uint8Array.from({ length: 900_000 }, (_, i) => (i * 31) & 255)
      await log.append(
        a,
        [0, 1, 2].map(() => ({ key: null, value: big })),
        0,
      )
      for (const { value } of await take(log, a, 0, 3)) expect(Buffer.compare(value!, big)).toBe(0)
    })

    test('in order, with growing offsets', async () => {
      const { log, a } = await fresh()
      const values = Array.from({ length: 500 }, (_, i) => String(i))
      for (let i = 0; i < values.length; i += 50)
        await log.append(
          a,
          values.slice(i, i + 50).map((value) => record(value)),
          0,
        )
      const stored = await take(log, a, 0, values.length)
      expect(valuesOf(stored)).toEqual(values)
      for (let i = 1; i < stored.length; i++) expect(stored[i]!.offset).toBeGreaterThan(stored[i - 1]!.offset)
    })

    test("in the partition of the key's hash, which is Kafka's murmur2", async () => {
      const { log, a } = await fresh(7)
      // Hashes from Kafka's own UtilsTest, positive, modulo 7.
      const known: [string, number][] = [
        ['21', -973932308],
        ['foobar', -790332482],
        ['a-little-bit-long-string', -985981536],
        ['a-little-bit-longer-string', -1486304829],
        ['lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8', -58897971],
      ]
      for (const [key, hash] of known) {
        const partition = (hash & 0x7fffffff) % 7
        expect(await log.partitionOf(a, bytes(key))).toBe(partition)
        const [placed] = await log.append(a, [record('v', key)])
        expect(placed!.partition).toBe(partition)
      }
    })

    test('without a key in some partition, and says in which', async () => {
      const { log, a } = await fresh(3)
      const placed = await log.append(a, [record('x'), record('y')])
      for (const [i, { partition, offset }] of placed.entries()) {
        const stored = await eventually(async () => {
          const found = (await readAll(log, a, partition)).find((other) => other.offset === offset)
          expect(found).toBeDefined()
          return found!
        })
        expect(text(stored.value)).toBe(['x', 'y'][i])
      }
    })

    test('apart by partition', async () => {
      const { log, a } = await fresh(3)
      for (const partition of [0, 1, 2]) await log.append(a, [record(`p${partition}`)], partition)
      for (const partition of [0, 1, 2]) expect(valuesOf(await take(log, a, partition, 1))).toEqual([`p${partition}`])
    })

    test('across a restart, with offsets, epochs and bounds', async () => {
      const { store, log, input, a, group } = await fresh()
      await log.append(a, [record('trimmed'), record('kept')], 0)
      const [, kept] = await take(log, a, 0, 2)
      await log.trim(a, 0, kept!.offset)
      const writer = await log.claim(group, input, 0)
      await writer.commit([{ topic: a, ...record('committed') }], 42)
      await take(log, a, 0, 2)
      const bounds = await log.bounds(a, 0)
      await writer.close()
      await log.close()
      await harness().restart()
      const again = await openAt(store)
      expect(await again.bounds(a, 0)).toEqual(bounds)
      expect(valuesOf(await take(again, a, 0, 2))).toEqual(['kept', 'committed'])
      const heir = await again.claim(group, input, 0)
      expect(heir.epoch).toBeGreaterThan(writer.epoch)
      expect(await again.committed(group, input, 0)).toBe(42)
      const [offset] = await heir.commit([{ topic: a, ...record('after') }], 43)
      expect(offset).toBeGreaterThan(kept!.offset)
      expect(valuesOf(await take(again, a, 0, 3))).toEqual(['kept', 'committed', 'after'])
    })
  })
}
