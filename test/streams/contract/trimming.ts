import { describe, expect, test } from 'vitest'
import { bytes, readAll, record, refuses, take, text, valuesOf } from '../helpers.ts'
import type { Fixture } from './fixture.ts'

export const isTrimmed = ({ fresh, openAt }: Fixture): void => {
  describe('is trimmed', () => {
    test('below an offset: begin moves, the rest stays, new records go on', async () => {
      const { log, a } = await fresh()
      await log.append(
        a,
        Array.from({ length: 10 }, (_, i) => record(String(i))),
        0,
      )
      const stored = await take(log, a, 0, 10)
      const sixth = stored[5]!.offset
      await log.trim(a, 0, sixth)
      expect((await log.bounds(a, 0)).begin).toBe(sixth)
      expect(valuesOf(await readAll(log, a))).toEqual(['5', '6', '7', '8', '9'])
      await log.trim(a, 0, stored[2]!.offset) // Already gone.
      expect((await log.bounds(a, 0)).begin).toBe(sixth)
      const [placed] = await log.append(a, [record('10')], 0)
      expect(placed!.offset).toBeGreaterThan(stored[9]!.offset)
      expect(valuesOf(await take(log, a, 0, 6))).toEqual(['5', '6', '7', '8', '9', '10'])
    })

    test('to its end: an empty log that still knows where it stands', async () => {
      const { store, log, a } = await fresh()
      await log.append(a, [record('x'), record('y')], 0)
      await take(log, a, 0, 2)
      const { end } = await log.bounds(a, 0)
      await log.trim(a, 0, end)
      const other = await openAt(store)
      expect(await other.bounds(a, 0)).toEqual({ begin: end, end })
      expect(await readAll(other, a, 0, { from: end })).toEqual([])
      await other.append(a, [record('z')], 0)
      expect((await take(log, a, 0, 1))[0]!.offset).toBeGreaterThanOrEqual(end)
    })

    test('no further than its end: POSITION, and nothing is lost', async () => {
      const { log, a } = await fresh()
      await log.append(a, [record('x')], 0)
      await take(log, a, 0, 1)
      const { end } = await log.bounds(a, 0)
      await refuses(log.trim(a, 0, end + 1), 'POSITION', end, end + 1)
      expect(valuesOf(await readAll(log, a))).toEqual(['x'])
    })

    test('under a reader: it gets POSITION, never a silent jump', async () => {
      const { log, a } = await fresh()
      const count = 12
      for (let i = 0; i < count; i++)
        await log.append(a, [{ key: bytes(String(i)), value: new Uint8Array(300_000) }], 0)
      const stored = await take(log, a, 0, count)
      const seen: number[] = []
      const reading = (async () => {
        for await (const batch of log.read(a, 0, stored[0]!.offset, { maxBytes: 300_000, follow: true })) {
          for (const { key } of batch.records) seen.push(Number(text(key)))
          if (seen.length === batch.records.length) await log.trim(a, 0, stored[count - 1]!.offset)
        }
      })()
      await refuses(reading, 'POSITION', stored[count - 1]!.offset)
      expect(seen).toEqual(seen.map((_, i) => i))
      expect(seen.length).toBeLessThan(count)
    })
  })
}
