import { setImmediate } from 'node:timers/promises'
import { expect, test } from 'vitest'
import { follow } from '../../src/client/follow.ts'
import { recordAsJson } from '../../src/client/records.ts'
import type { EventLog, StoredRecord } from '../../src/streams/log.ts'
import { DEAD_LETTER_HEADERS } from '../../topics/deadletters.ts'
import { errorOf, temporaryLog } from './helpers.ts'

const TOPIC = 'continuo.tokens'
const LIMIT = 'max.message.bytes'

const prepared = async (partitions = 2): Promise<EventLog> => {
  const log = await temporaryLog()
  await log.createTopics([{ name: TOPIC, partitions, config: { [LIMIT]: '1048576' } }])
  return log
}

const append = (log: EventLog, partition: number, ...values: readonly string[]) =>
  log.append(
    TOPIC,
    values.map((value) => ({ key: Buffer.from(value[0]!), value: Buffer.from(value) })),
    partition,
  )

const contentOf = ({ value }: StoredRecord): string => Buffer.from(value!).toString()

const collected = async (records: AsyncIterable<StoredRecord>): Promise<string[]> => {
  const values: string[] = []
  for await (const record of records) values.push(contentOf(record))
  return values
}

test('brings what is there of every partition, in the order of each, and ends when nothing more comes', async () => {
  const log = await prepared()
  await append(log, 0, 'a1', 'b1', 'a2')
  await append(log, 1, 'c1', 'c2')
  const values = await collected(follow(log, { topic: TOPIC, partitions: 2, from: 'beginning', untilIdle: 0 }))
  expect([...values].sort()).toEqual(['a1', 'a2', 'b1', 'c1', 'c2'])
  expect(values.filter((value) => !value.startsWith('c'))).toEqual(['a1', 'b1', 'a2'])
})

test('brings only one session, and only what comes after it began, where that is asked for', async () => {
  const log = await prepared(1)
  await append(log, 0, 'a1', 'b1')
  const seen: string[] = []
  const stop = new AbortController()
  const records = follow(log, { topic: TOPIC, partitions: 1, session: 'a', signal: stop.signal })
  const first = records.next()
  // The reader asks for the bounds before it reads; what is appended behind them is new.
  await log.bounds(TOPIC, 0)
  await append(log, 0, 'b2', 'a2', 'a3')
  seen.push(contentOf((await first).value as StoredRecord))
  for await (const record of records) {
    seen.push(contentOf(record))
    stop.abort()
  }
  expect(seen).toEqual(['a2', 'a3'])
})

test('ends without an error when its signal fires, also when that was before', async () => {
  const log = await prepared()
  const stop = new AbortController()
  const reading = collected(follow(log, { topic: TOPIC, partitions: 2, signal: stop.signal }))
  stop.abort()
  expect(await reading).toEqual([])
  expect(await collected(follow(log, { topic: TOPIC, partitions: 2, from: 'beginning', signal: stop.signal }))).toEqual(
    [],
  )
})

test('lets its readers go when the caller leaves the loop in the middle of a batch', async () => {
  const log = await prepared(1)
  await append(log, 0, 'a1', 'a2', 'a3')
  for await (const record of follow(log, { topic: TOPIC, partitions: 1, from: 'beginning' })) {
    expect(contentOf(record)).toBe('a1')
    break
  }
})

test('fetches no second batch before the first was read', async () => {
  const log = await prepared(1)
  const large = 'x'.repeat(600_000)
  for (const name of ['a', 'b', 'c']) await append(log, 0, `${name}${large}`)
  let fetched = 0
  const counting: EventLog = {
    ...log,
    async *read(...args) {
      for await (const batch of log.read(...args)) {
        fetched += 1
        yield batch
      }
    },
  }
  const records = follow(counting, { topic: TOPIC, partitions: 1, from: 'beginning' })
  await records.next()
  // Time enough for a reader that does not wait: each turn lets it read once more.
  for (let turn = 0; turn < 50; turn += 1) await setImmediate()
  expect(fetched).toBe(1)
  await records.return(undefined)
})

test('rejects with what reading the log rejects with', async () => {
  const log = await prepared(1)
  const { code } = await errorOf(() => collected(follow(log, { topic: 'continuo.none', partitions: 1 })))
  expect(code).toBe('INVALID')
})

test('an output record is its event; one that is no JSON, and a dead letter, are their bytes', () => {
  const record = {
    ...{ topic: TOPIC, partition: 0, offset: 7, timestamp: 1, key: Buffer.from('s') },
    ...{ value: Buffer.from('{"a":1}'), headers: [[DEAD_LETTER_HEADERS.reason, Buffer.from('why')]] as const },
  }
  const place = { partition: 0, offset: 7, timestamp: 1, session: 's' }
  expect(recordAsJson('tokens', record)).toEqual({ ...place, value: { a: 1 } })
  expect(recordAsJson('tokens', { ...record, value: Buffer.from('{') })).toEqual({ ...place, valueBase64: 'ew==' })
  expect(recordAsJson('deadletters', record)).toEqual({
    ...place,
    ...{ reason: 'why', headers: { [DEAD_LETTER_HEADERS.reason]: 'why' }, valueBase64: 'eyJhIjoxfQ==' },
  })
})
