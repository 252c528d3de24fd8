import { describe, expect, test } from 'vitest'
import type { OutRecord } from '../../../src/streams/log.ts'
import { bytes, eventually, readAll, record, take, text, valuesOf } from '../helpers.ts'
import type { Fixture } from './fixture.ts'

export const isCommitted = ({ fresh, openAt, startChild, harness }: Fixture): void => {
  describe('commits', () => {
    test('records of several topics and the offset, and returns the offsets in order', async () => {
      const { store, log, input, a, b, group } = await fresh(2)
      expect(await log.committed(group, input, 1)).toBeNull()
      const writer = await log.claim(group, input, 1)
      expect(writer.partition).toBe(1)
      const outs: OutRecord[] = [
        { topic: a, key: bytes('k'), value: bytes('1'), headers: [['h', bytes('v')]], timestamp: 12345 },
        { topic: b, ...record('2') },
        { topic: a, ...record('3') },
        { topic: input, ...record('4') },
      ]
      const offsets = await writer.commit(outs, 17)
      const other = await openAt(store)
      const inA = await take(other, a, 1, 2)
      const inB = await take(other, b, 1, 1)
      const inInput = await take(other, input, 1, 1)
      expect(valuesOf([...inA, ...inB, ...inInput])).toEqual(['1', '3', '2', '4'])
      expect(offsets).toEqual([inA[0], inB[0], inA[1], inInput[0]].map((stored) => stored!.offset))
      expect(inA[0]).toMatchObject({ timestamp: 12345, partition: 1 })
      expect(text(inA[0]!.headers[0]![1])).toBe('v')
      await eventually(async () => expect(await other.committed(group, input, 1)).toBe(17))
      expect(await other.committed(group, input, 0)).toBeNull()
      expect(await other.committed(`${group}-2`, input, 1)).toBeNull()
      expect(await readAll(other, a, 0)).toEqual([])
    })

    test('an offset alone, and nothing at all', async () => {
      const { log, input, a, group } = await fresh()
      const writer = await log.claim(group, input, 0)
      expect(await writer.commit([], 5)).toEqual([])
      expect(await writer.append([])).toEqual([])
      await eventually(async () => expect(await log.committed(group, input, 0)).toBe(5))
      expect(await readAll(log, a)).toEqual([])
    })

    test('bulk ahead, without an offset', async () => {
      const { log, input, a, group } = await fresh()
      const writer = await log.claim(group, input, 0)
      const part = new Uint8Array(900_000).fill(7)
      const offsets = await writer.append([0, 1, 2].map(() => ({ topic: a, key: null, value: part })))
      expect((await take(log, a, 0, 3)).map(({ offset }) => offset)).toEqual(offsets)
      expect(await log.committed(group, input, 0)).toBeNull()
    })

    test('more than a megabyte as one atom', async () => {
      const { log, input, a, b, group } = await fresh()
      const writer = await log.claim(group, input, 0)
      const part = { key: null, value: new Uint8Array(700_000) }
      await writer.commit(
        [a, b, a, b, a].map((topic) => ({ topic, ...part })),
        1,
      )
      expect((await take(log, a, 0, 3)).length + (await take(log, b, 0, 2)).length).toBe(5)
    })

    test('thousands of small records', async () => {
      const { log, input, a, group } = await fresh()
      const writer = await log.claim(group, input, 0)
      const values = Array.from({ length: 5000 }, (_, i) => String(i))
      const offsets = await writer.commit(
        values.map((value) => ({ topic: a, ...record(value) })),
        1,
      )
      expect(offsets.length).toBe(5000)
      expect(valuesOf(await take(log, a, 0, 5000))).toEqual(values)
    })

    test('such that no reader ever sees a part of a transaction', async () => {
      const { store, log, input, a, group } = await fresh()
      const reader = await openAt(store)
      const writer = await log.claim(group, input, 0)
      const size = 40
      const commits = 25
      let committing = true
      const committed = (async () => {
        for (let n = 1; n <= commits; n++)
          await writer.commit(
            Array.from({ length: size }, () => ({ topic: a, ...record(`${n}`) })),
            n,
          )
      })().finally(() => {
        committing = false
      })
      while (committing) expect((await readAll(reader, a)).length % size).toBe(0)
      await committed
      await take(reader, a, 0, size * commits)
    })

    test('side by side in several partitions', async () => {
      const { log, input, a, group } = await fresh(4)
      const partitions = [0, 1, 2, 3]
      await Promise.all(
        partitions.map(async (partition) => {
          const writer = await log.claim(group, input, partition)
          for (let n = 1; n <= 10; n++) await writer.commit([{ topic: a, ...record(`${partition}:${n}`) }], n)
          await writer.close()
        }),
      )
      for (const partition of partitions) {
        expect(valuesOf(await take(log, a, partition, 10))).toEqual(
          Array.from({ length: 10 }, (_, i) => `${partition}:${i + 1}`),
        )
        expect(await log.committed(group, input, partition)).toBe(10)
      }
    })

    const killed = async (kills: number): Promise<void> => {
      const { store, log, input, a, b, group } = await fresh()
      let acknowledged = 0
      for (let kill = 0; kill < kills; kill++) {
        const { child, messages, exited } = startChild('committer', store, group, log.prefix)
        const last = (): number => messages.at(-1)?.committed ?? 0
        const target = acknowledged + 1 + Math.floor(Math.random() * 8)
        await eventually(() => expect(last()).toBeGreaterThanOrEqual(target))
        child.kill('SIGKILL')
        await exited
        const heir = await log.claim(group, input, 0) // Resolves what the dead left open.
        const committed = (await log.committed(group, input, 0))!
        expect(committed).toBeGreaterThanOrEqual(last())
        acknowledged = committed
        const expected = Array.from({ length: committed * 20 }, (_, i) => 1 + Math.floor(i / 20))
        for (const topic of [a, b]) {
          const stored = await take(log, topic, 0, expected.length)
          expect(stored.map(({ value }) => Number.parseInt(text(value)!, 10))).toEqual(expected)
          expect((await readAll(log, topic)).length).toBe(expected.length)
        }
        await heir.close()
        store.inspect?.()
      }
    }
    test('whole transactions only, though the committing process is killed', () => killed(2))
    test('whole transactions only, though the committing process is killed again and again', { tags: 'slow' }, () =>
      killed(harness().kills),
    )
  })
}
