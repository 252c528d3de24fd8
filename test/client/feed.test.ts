import { expect, test } from 'vitest'
import { type Fed, feed } from '../../src/client/feed.ts'
import { recordAsJson } from '../../src/client/records.ts'
import { ensureInput, ensureTopics, namesOf, partitionsIn } from '../../src/client/topics.ts'
import { ContinuoError } from '../../src/errors.ts'
import type { EventLog } from '../../src/streams/log.ts'
import { errorOf, temporaryLog } from './helpers.ts'

async function* pieces(...texts: readonly (string | null)[]): AsyncGenerator<Uint8Array | null> {
  for (const text of texts) yield text === null ? null : Buffer.from(text)
}

const eventsOf = async (log: EventLog, topic: string): Promise<unknown[]> => {
  const { begin, end } = await log.bounds(topic, 0)
  const events: unknown[] = []
  for await (const { records } of log.read(topic, 0, begin, { until: end }))
    events.push(...records.map((record) => recordAsJson('chunks', record).value))
  return events
}

test('appends what stands before the text, the text in pieces, and what stands behind it, in order', async () => {
  const log = await temporaryLog()
  const { chunks: topic } = namesOf(log)
  await ensureInput(log, namesOf(log))
  const sent: Fed[] = []
  const fed = await feed(log, {
    topic,
    session: 'book',
    before: [{ type: 'open', surprisal: true }],
    text: pieces('abc', null, 'defg'),
    chunkBytes: 4,
    after: [{ type: 'boundary', reset: false }, { type: 'close' }],
    onSent: (soFar) => sent.push(soFar),
  })
  expect(await eventsOf(log, topic)).toEqual([
    { type: 'open', surprisal: true },
    { type: 'text', text: 'abc' },
    { type: 'text', text: 'defg' },
    { type: 'boundary', reset: false },
    { type: 'close' },
  ])
  const place = { partition: 0, first: fed.place!.first, last: fed.place!.first + 4 }
  expect(fed).toEqual({ bytes: 7, events: 5, place, interrupted: false })
  expect(sent.map(({ events }) => events)).toEqual([2, 5])
})

test('sends none of the events after a text that the signal cut short', async () => {
  const log = await temporaryLog()
  const { chunks: topic } = namesOf(log)
  await ensureInput(log, namesOf(log))
  const stopping = new AbortController()
  async function* text(): AsyncGenerator<Uint8Array> {
    yield Buffer.from('read')
    stopping.abort()
  }
  const fed = await feed(log, {
    topic,
    session: 's',
    text: text(),
    after: [{ type: 'close' }],
    signal: stopping.signal,
  })
  expect(fed).toMatchObject({ bytes: 4, events: 1, interrupted: true })
  expect(await eventsOf(log, topic)).toEqual([{ type: 'text', text: 'read' }])
})

test('tells what was sent before the log failed', async () => {
  const log = await temporaryLog()
  const { chunks: topic } = namesOf(log)
  await ensureInput(log, namesOf(log))
  let calls = 0
  const failing: EventLog = {
    ...log,
    append: async (...args) => {
      calls += 1
      if (calls === 2) throw new ContinuoError('UNAVAILABLE', 'The broker is away.')
      return log.append(...args)
    },
  }
  let last: Fed | undefined
  const { code } = await errorOf(() =>
    feed(failing, { topic, session: 's', text: pieces('a', null, 'b'), onSent: (fed) => (last = fed) }),
  )
  expect(code).toBe('UNAVAILABLE')
  expect(last).toMatchObject({ bytes: 1, events: 1 })
})

test('says nothing was appended where there was nothing to append', async () => {
  const log = await temporaryLog()
  await ensureInput(log, namesOf(log))
  expect(await feed(log, { topic: namesOf(log).chunks, session: 's' })).toEqual({
    bytes: 0,
    events: 0,
    place: null,
    interrupted: false,
  })
})

test('the topics are created once; a log without input is INVALID, another number of partitions too', async () => {
  const log = await temporaryLog()
  const names = namesOf(log)
  expect((await errorOf(() => partitionsIn(log, names))).code).toBe('INVALID')
  expect(await ensureInput(log, names)).toHaveLength(7)
  expect(await ensureInput(log, names)).toEqual([])
  expect(await partitionsIn(log, names)).toEqual({ partitions: 1, changed: null })
  const { code, message } = await errorOf(() => ensureTopics(log, names, 2))
  expect(code).toBe('INVALID')
  expect(message).toContain('has 1 partition, expected 2')
})
