import { describe, expect, test } from 'vitest'
import { bytes, eventually, readAll, record, refuses, take, text, valuesOf } from '../helpers.ts'
import type { Fixture } from './fixture.ts'

export const isRead = ({ fresh, openAt }: Fixture): void => {
  describe('is read', () => {
    test('within its bounds, which tell begin and end', async () => {
      const { log, a } = await fresh()
      const empty = await log.bounds(a, 0)
      expect(empty.end).toBe(empty.begin)
      await log.append(a, [record('x'), record('y')], 0)
      const stored = await take(log, a, 0, 2)
      const { begin, end } = await log.bounds(a, 0)
      expect(begin).toBe(stored[0]!.offset)
      expect(end).toBeGreaterThan(stored[1]!.offset)
      expect(await readAll(log, a, 0, { from: end })).toEqual([])
      expect(valuesOf(await readAll(log, a, 0, { from: stored[1]!.offset }))).toEqual(['y'])
    })

    test('at no position outside them: POSITION names the numbers', async () => {
      const { log, a } = await fresh()
      await log.append(a, [record('x'), record('y'), record('z')], 0)
      const [first, second] = await take(log, a, 0, 3)
      const { end } = await log.bounds(a, 0)
      await refuses(readAll(log, a, 0, { from: end + 7 }), 'POSITION', end + 7, end)
      await refuses(readAll(log, a, 0, { from: end + 7, follow: true }), 'POSITION', end + 7, end)
      await log.trim(a, 0, second!.offset)
      await refuses(readAll(log, a, 0, { from: first!.offset }), 'POSITION', first!.offset, second!.offset)
    })

    test('up to an offset, following or not', async () => {
      const { log, a } = await fresh()
      const values = Array.from({ length: 20 }, (_, i) => String(i))
      await log.append(
        a,
        values.map((value) => record(value)),
        0,
      )
      const stored = await take(log, a, 0, 20)
      const until = stored[12]!.offset
      expect(valuesOf(await readAll(log, a, 0, { until }))).toEqual(values.slice(0, 12))
      expect(valuesOf(await readAll(log, a, 0, { until, follow: true }))).toEqual(values.slice(0, 12))
      expect(await readAll(log, a, 0, { until: stored[0]!.offset })).toEqual([])
      expect(await readAll(log, a, 0, { from: stored[5]!.offset, until: stored[3]!.offset, follow: true })).toEqual([])
    })

    test('in bulk as otherwise: the same records in the same order, to the same ends, and as it grows', async () => {
      const { store, log, a } = await fresh()
      const records = Array.from({ length: 12 }, (_, i) => ({
        key: i % 4 === 0 ? null : bytes(`key ${i}`),
        value: i % 5 === 0 ? null : new Uint8Array(i % 3 === 0 ? 200_000 : 100 * i).fill(i),
        headers: i % 2 === 0 ? [] : ([['h', bytes(String(i))]] as const),
      }))
      for (const each of records) await log.append(a, [each], 0)
      await take(log, a, 0, records.length)
      const plain = await readAll(log, a, 0)
      expect(await readAll(log, a, 0, { bulk: true })).toEqual(plain)
      expect(await readAll(log, a, 0, { bulk: true, maxBytes: 1 })).toEqual(plain)
      const { begin, end } = await log.bounds(a, 0)
      const part = { from: plain[3]!.offset, until: plain[9]!.offset }
      expect(await readAll(log, a, 0, { ...part, bulk: true })).toEqual(plain.slice(3, 9))
      const together = [0, 1, 2, 3, 4].map(() => readAll(log, a, 0, { from: begin, bulk: true, maxBytes: 1000 }))
      for (const found of await Promise.all(together)) expect(found).toEqual(plain)
      await refuses(readAll(log, a, 0, { from: end + 7, bulk: true }), 'POSITION', end + 7, end)
      const other = await openAt(store)
      const more = readAll(log, a, 0, { from: end, until: end + 1, follow: true, bulk: true })
      await other.append(a, [record('later')], 0)
      expect(valuesOf(await more)).toEqual(['later'])
    })

    test('in batches whose next is the position after them', async () => {
      const { log, a } = await fresh()
      for (let i = 0; i < 10; i++) await log.append(a, [record(String(i))], 0)
      await take(log, a, 0, 10)
      const { begin, end } = await log.bounds(a, 0)
      let position = begin
      const values: (string | null)[] = []
      for await (const batch of log.read(a, 0, begin, { maxBytes: 1 })) {
        for (const { offset } of batch.records) {
          expect(offset).toBeGreaterThanOrEqual(position)
          expect(offset).toBeLessThan(batch.next)
        }
        position = batch.next
        values.push(...valuesOf(batch.records))
        // Any batch's next is a position to go on from.
        const rest = await readAll(log, a, 0, { from: position })
        expect([...values, ...valuesOf(rest)]).toEqual(Array.from({ length: 10 }, (_, i) => String(i)))
      }
      expect(values.length).toBe(10)
      expect(position).toBeLessThanOrEqual(end)
    })

    test('as it grows: a follower sees what other instances append, in order', async () => {
      const { store, log, a } = await fresh()
      const other = await openAt(store)
      const { begin } = await log.bounds(a, 0)
      const reader = log.read(a, 0, begin, { follow: true })[Symbol.asyncIterator]()
      const seen: (string | null)[] = []
      for (let i = 0; i < 5; i++) {
        const pulled = i % 2 === 0 ? reader.next() : null // Waiting before the append, or coming after it.
        await (i < 3 ? other : log).append(a, [record(String(i))], 0)
        while (seen.length <= i) {
          const { value, done } = await (seen.length === i && pulled !== null ? pulled : reader.next())
          expect(done).toBeFalsy()
          seen.push(...valuesOf(value!.records))
          if (seen.length <= i && pulled !== null) seen.push(...valuesOf((await reader.next()).value!.records))
        }
      }
      expect(seen).toEqual(['0', '1', '2', '3', '4'])
      await reader.return?.()
    })

    test('as it grows by appends and commits of the same instance', async () => {
      const { log, input, a, group } = await fresh()
      const writer = await log.claim(group, input, 0)
      const { begin } = await log.bounds(a, 0)
      const reader = log.read(a, 0, begin, { follow: true })[Symbol.asyncIterator]()
      for (let i = 0; i < 6; i++) {
        const seen: (string | null)[] = []
        const pulled = (async () => {
          while (seen.length === 0) seen.push(...valuesOf((await reader.next()).value!.records))
        })()
        await eventually(() => log.ping()) // Lets the follower settle down to waiting.
        if (i % 2 === 0) await log.append(a, [record(String(i))], 0)
        else await writer.commit([{ topic: a, ...record(String(i)) }], i)
        await pulled
        expect(seen).toEqual([String(i)])
      }
      await reader.return?.()
    })

    test('leaving the event loop its turns', async () => {
      const { log, a } = await fresh()
      for (let i = 0; i < 60; i++) await log.append(a, [record('x'.repeat(1000))], 0)
      await take(log, a, 0, 60)
      const { begin } = await log.bounds(a, 0)
      let batches = 0
      let turns = 0
      const turn = (): void => {
        turns++
        again = setImmediate(turn)
      }
      let again = setImmediate(turn)
      for await (const _ of log.read(a, 0, begin, { maxBytes: 1000 })) batches++
      clearImmediate(again)
      expect(turns).toBeGreaterThanOrEqual(batches - 1)
    })

    test('by many followers at once', async () => {
      const { store, log, a } = await fresh()
      const other = await openAt(store)
      const followers = Array.from({ length: 12 }, () => take(log, a, 0, 3))
      for (const value of ['x', 'y', 'z']) await other.append(a, [record(value)], 0)
      for (const stored of await Promise.all(followers)) expect(valuesOf(stored)).toEqual(['x', 'y', 'z'])
    })

    test('until a signal fires, without an error', async () => {
      const { log, a } = await fresh()
      await log.append(a, [record('x')], 0)
      const stop = new AbortController()
      const reading = readAll(log, a, 0, { follow: true, signal: stop.signal })
      await take(log, a, 0, 1)
      stop.abort()
      expect((await reading).length).toBeLessThanOrEqual(1)
      expect(await readAll(log, a, 0, { follow: true, signal: AbortSignal.abort() })).toEqual([])
    })

    test('no faster than it is pulled: a reader who does not pull fills no memory', async () => {
      const { log, a, b } = await fresh()
      const count = 96
      const size = 250_000
      for (let i = 0; i < count; i += 4)
        await log.append(
          a,
          [0, 1, 2, 3].map((j) => ({ key: bytes(String(i + j)), value: new Uint8Array(size).fill(i + j) })),
          0,
        )
      const { begin } = await log.bounds(a, 0)
      const reader = log.read(a, 0, begin, { maxBytes: size })[Symbol.asyncIterator]()
      const seen: (string | null)[] = []
      const pull = async (): Promise<boolean> => {
        const { value, done } = await reader.next()
        if (done) return false
        expect(value.records.length).toBeLessThanOrEqual(8) // "rough", yet not all
        seen.push(...value.records.map(({ key }) => text(key)))
        return true
      }
      await pull()
      const { setFlagsFromString } = await import('node:v8')
      setFlagsFromString('--expose-gc')
      const gc: () => void = (await import('node:vm')).runInNewContext('gc')
      gc()
      const before = process.memoryUsage().arrayBuffers
      // Time in which an eager reader would read on.
      for (let i = 0; i < 20; i++) await log.append(b, [record('elsewhere')], 0)
      await take(log, b, 0, 20)
      gc()
      expect(process.memoryUsage().arrayBuffers - before).toBeLessThan((count * size) / 4)
      while (await pull());
      expect(seen).toEqual(Array.from({ length: count }, (_, i) => String(i)))
    })
  })
}
