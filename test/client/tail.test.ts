import fc from 'fast-check'
import { expect, onTestFinished, test } from 'vitest'
import { MOST_WAITING, openTail } from '../../src/client/tail.ts'
import { codeOf } from '../../src/errors.ts'
import type { EventLog } from '../../src/streams/log.ts'
import { temporaryLog } from './helpers.ts'

const TOPIC = 'continuo.tokens'

const opened = async (wrap: (log: EventLog) => EventLog = (log) => log) => {
  const log = await temporaryLog()
  await log.createTopics([{ name: TOPIC, partitions: 1, config: {} }])
  const tail = openTail(wrap(log), TOPIC)
  onTestFinished(() => tail.close())
  let written = 0
  const write = async (key: string, size = 1): Promise<void> => {
    const value = Buffer.from(`${written}`.padEnd(size, ' '))
    written += 1
    await log.append(TOPIC, [{ key: Buffer.from(key), value }], 0)
  }
  return { log, tail, write }
}

/** The numbers of the next records. */
const next = async (
  records: AsyncGenerator<{ readonly value: Uint8Array | null }>,
  count: number,
): Promise<number[]> => {
  const found: number[] = []
  while (found.length < count) {
    const { value, done } = await records.next()
    if (done) break
    found.push(Number(Buffer.from(value.value!).toString().trim()))
  }
  return found
}

test('what was there and what comes, of one key, each record once', async () => {
  const { tail, write } = await opened()
  for (const key of ['a', 'b', 'a']) await write(key)
  const ending = new AbortController()
  const a = tail.records(0, 'a', 0, ending.signal)
  expect(await next(a, 2)).toEqual([0, 2])
  const waiting = next(a, 2)
  for (const key of ['b', 'a', 'a']) await write(key)
  expect(await waiting).toEqual([4, 5])
  const over = a.next()
  ending.abort()
  expect(await over).toMatchObject({ done: true })
})

test('any number of readers, from any position, at any speed, get what a reader of the log gets', async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.array(fc.constantFrom('a', 'b'), { minLength: 1, maxLength: 30 }),
      fc.array(fc.record({ from: fc.nat(10), joins: fc.nat(29), key: fc.constantFrom('a', 'b') }), { maxLength: 5 }),
      async (keys, readers) => {
        const { tail, write } = await opened()
        const ending = new AbortController()
        const reading: Promise<void>[] = []
        for (const [at, key] of keys.entries()) {
          for (const { from, joins, key: of } of readers) {
            if (joins !== at || from > at) continue
            const expected = keys.flatMap((each, number) => (each === of && number >= from ? [number] : []))
            const records = tail.records(0, of, from, ending.signal)
            reading.push(next(records, expected.length).then((found) => expect(found).toEqual(expected)))
          }
          await write(key)
        }
        await Promise.all(reading)
        ending.abort()
      },
    ),
    { numRuns: 30 },
  )
})

test('a live reader that stands still holds little, and still gets every record', async () => {
  const size = MOST_WAITING / 4
  const { tail, write } = await opened()
  const ending = new AbortController()
  const slow = tail.records(0, 'a', 0, ending.signal)
  const quick = tail.records(0, 'a', 0, ending.signal)
  await write('a', size)
  expect(await next(slow, 1)).toEqual([0])
  // It has reached the end, and is given what comes by the shared reader from here on.
  for (let at = 1; at < 4; at += 1) {
    const waiting = next(slow, 1)
    await write('a', size)
    expect(await waiting).toEqual([at])
  }
  expect(await next(quick, 4)).toEqual([0, 1, 2, 3])
  for (let at = 4; at < 24; at += 1) {
    await write('a', size)
    // Where another has it, the one that stands still was given it, too.
    expect(await next(quick, 1)).toEqual([at])
  }
  expect(await next(slow, 20)).toEqual(Array.from({ length: 20 }, (_, at) => at + 4))
  ending.abort()
})

test('a reader that begins ahead of the shared one gets nothing from before its position', async () => {
  let release = (): void => undefined
  const held = new Promise<void>((resolve) => {
    release = resolve
  })
  const { tail, write } = await opened((log) => ({
    ...log,
    async *read(topic, partition, from, options) {
      if (options?.follow) await held
      yield* log.read(topic, partition, from, options)
    },
  }))
  const ending = new AbortController()
  const first = tail.records(0, 'a', 0, ending.signal)
  const all = next(first, 4)
  // The shared reader begins at the end of the topic as the first reader finds it.
  await new Promise((resolve) => setImmediate(resolve))
  for (let at = 0; at < 4; at += 1) await write('a')
  const ahead = next(tail.records(0, 'a', 2, ending.signal), 2)
  release()
  expect(await ahead).toEqual([2, 3])
  expect(await all).toEqual([0, 1, 2, 3])
  ending.abort()
})

test('readers at the end of the topic share one reader of the log', async () => {
  let reads = 0
  const { tail, write } = await opened((log) => ({
    ...log,
    read(...given) {
      reads += 1
      return log.read(...given)
    },
  }))
  await write('a')
  const ending = new AbortController()
  const readers = Array.from({ length: 50 }, () => tail.records(0, 'a', 1, ending.signal))
  const found = Promise.all(readers.map((reader) => next(reader, 3)))
  for (let at = 0; at < 3; at += 1) await write('a')
  expect(await found).toEqual(readers.map(() => [1, 2, 3]))
  expect(reads).toBeLessThanOrEqual(2)
  ending.abort()
})

test('readers that catch up from several places share what is read of the log', async () => {
  let reads = 0
  const { log, tail } = await opened((log) => ({
    ...log,
    read(...given) {
      if (!given[3]?.follow) reads += 1
      return log.read(...given)
    },
  }))
  const count = 3000
  const records = Array.from({ length: count }, (_, at) => ({
    key: Buffer.from(at % 3 === 0 ? 'b' : 'a'),
    value: Buffer.from(`${at}`.padEnd(100, ' ')),
  }))
  await log.append(TOPIC, records, 0)
  const ending = new AbortController()
  const expected = (key: string, from: number): number[] =>
    Array.from({ length: count }, (_, at) => at).filter((at) => at >= from && (at % 3 === 0 ? 'b' : 'a') === key)
  await Promise.all(
    Array.from({ length: 60 }, async (_, reader) => {
      const [key, from] = [reader % 2 === 0 ? 'a' : 'b', (reader % 3) * 7]
      const all = expected(key, from)
      expect(await next(tail.records(0, key, from, ending.signal), all.length)).toEqual(all)
    }),
  )
  // Of 64 KiB each, and those up to the first common place for each of three beginnings.
  expect(reads).toBeLessThan(15)
  const [first, second] = await Promise.all(
    [0, 0].map(async (from) => (await tail.batches(0, 'a', from, ending.signal).next()).value),
  )
  expect(first).toBe(second)
  ending.abort()
})

test('a reader leaves while the log does not answer', async () => {
  const { tail, write } = await opened((log) => ({
    ...log,
    async *read(topic, partition, from, options) {
      if (options?.follow) yield* log.read(topic, partition, from, options)
      else await new Promise(() => undefined)
    },
  }))
  await write('a')
  const ending = new AbortController()
  const reading = tail.records(0, 'a', 0, ending.signal).next()
  await new Promise((resolve) => setImmediate(resolve))
  ending.abort()
  expect(await reading).toMatchObject({ done: true })
})

test('a position that was trimmed is an error of the reader that asks for it', async () => {
  const { log, tail, write } = await opened()
  for (let at = 0; at < 4; at += 1) await write('a')
  await log.trim(TOPIC, 0, 2)
  const ending = new AbortController()
  const gone = tail.records(0, 'a', 0, ending.signal)
  expect(codeOf(await gone.next().catch((error: unknown) => error))).toBe('POSITION')
  expect(await next(tail.records(0, 'a', 2, ending.signal), 2)).toEqual([2, 3])
  ending.abort()
})
