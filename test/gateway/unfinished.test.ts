/** What a gateway takes of one session and of one key, and what it refuses until a worker has finished some of it. */
import fc from 'fast-check'
import { expect, test } from 'vitest'
import { createUnfinished } from '../../src/gateway/answer/unfinished.ts'
import { shareOf } from '../../src/operators/pipeline/shares.ts'
import type { ChunkInput } from '../../topics/chunks.ts'
import { continuo, MODEL, recordsOf, start, temporary } from '../cli/helpers.ts'
import { ask, endWithTest, logIn, type Refused, serving } from './helpers.ts'

const texts = (count: number): ChunkInput[] => Array.from({ length: count }, () => ({ type: 'text', text: 'a' }))

test('a session, and a key, have so many unfinished events; what ends work is always taken', () => {
  const unfinished = createUnfinished({ session: 4, key: 6 }, () => false)
  unfinished.admit('a', 'alice', texts(3)).sent(0, [0, 1, 2])
  expect(() => unfinished.admit('a', 'alice', texts(2))).toThrow('Session "a" has 3 events')
  unfinished.admit('b', 'alice', texts(3)).sent(1, [0, 1, 2])
  expect(() => unfinished.admit('c', 'alice', texts(1))).toThrow('The key alice has 6 events')
  // Another key, and a session that has none: any request fits.
  unfinished.admit('d', 'bob', texts(9)).failed()
  unfinished.admit('a', 'alice', [{ type: 'cancel', requestId: 'r' }]).sent(0, [3])
  unfinished.admit('a', 'alice', [{ type: 'delete' }]).sent(0, [4])
  expect(unfinished.size).toBe(8)
  unfinished.committed(0, { offset: 1, done: [[2, 4]] })
  expect(unfinished.size).toBe(5)
  unfinished.admit('a', 'alice', texts(1)).sent(0, [5])
  unfinished.committed(1, { offset: 3, done: [] })
  unfinished.committed(0, { offset: 6, done: [] })
  expect(unfinished.size).toBe(0)
})

test('events that are finished before it is known where they are do not count', () => {
  const unfinished = createUnfinished({ session: 1, key: 0 }, () => false)
  const admitted = unfinished.admit('a', null, texts(1))
  unfinished.committed(0, { offset: 8, done: [] })
  admitted.sent(0, [7])
  expect(unfinished.size).toBe(0)
})

test('whatever is finished in whatever order, what counts is what is not', () => {
  fc.assert(
    fc.property(
      fc.array(fc.record({ session: fc.constantFrom('a', 'b'), count: fc.integer({ min: 1, max: 3 }) }), {
        maxLength: 12,
      }),
      fc.array(fc.nat(40)),
      (requests, order) => {
        const unfinished = createUnfinished({ session: 0, key: 0 }, () => false)
        let end = 0
        for (const { session, count } of requests) {
          const offsets = Array.from({ length: count }, (_, at) => end + at)
          unfinished.admit(session, null, texts(count)).sent(0, offsets)
          end += count
        }
        const finished = new Set<number>()
        for (const offset of order.filter((at) => at < end)) {
          finished.add(offset)
          const ranges = [...finished].sort((a, b) => a - b).map((at): [number, number] => [at, at + 1])
          unfinished.committed(0, { offset: 0, done: ranges })
          expect(unfinished.size).toBe(end - finished.size)
        }
        unfinished.committed(0, { offset: end, done: [] })
        expect(unfinished.size).toBe(0)
      },
    ),
    { numRuns: 200 },
  )
})

test('over HTTP: 429 with a time to come again, and room once a worker has read; the events name the key they count for', {
  tags: 'slow',
}, async () => {
  const folder = temporary()
  const log = logIn(folder)
  const keys = `${folder}/keys.json`
  const added = await continuo(['keys', 'add', 'alice', '--keys', keys])
  const [key] = /ck_\S+/.exec(added.out)!
  await continuo(['topics', 'apply', '--log', log, '--partitions', '1'])
  const gateway = await serving(log, '--keys', keys, '--session-backlog', '3', '--key-backlog', '5')
  endWithTest(gateway)
  const headers = { authorization: `Bearer ${key}` }
  const send = (session: string, count: number) =>
    ask<Refused>(`${gateway.url}/v1/sessions/${session}/chunks`, texts(count), headers)
  expect((await send('a', 3)).status).toBe(202)
  const refused = await send('a', 1)
  expect(refused.status).toBe(429)
  expect(Number(refused.headers.get('retry-after'))).toBeGreaterThan(0)
  expect(refused.body.error).toMatchObject({ code: 'session_backlog' })
  expect((await send('b', 2)).status).toBe(202)
  expect((await send('c', 1)).body.error).toMatchObject({ code: 'key_backlog' })
  const completion = await ask<Refused>(`${gateway.url}/v1/completions`, { model: 'demo', prompt: 'x' }, headers)
  expect(completion.status).toBe(429)
  expect((await ask(`${gateway.url}/v1/sessions/a/chunks`, { type: 'delete' }, headers)).status).toBe(202)

  const worker = start(['run', '--log', log, '--model', MODEL, '--until-idle', '500'])
  endWithTest(worker)
  await expect.poll(async () => (await send('a', 3)).status, { timeout: 30_000 }).toBe(202)
  expect(await worker.done).toMatchObject({ code: 0 })

  const chunks = await recordsOf(log, 'continuo.chunks')
  expect(new Set(chunks.map(shareOf))).toEqual(new Set(['alice']))
  const observations = await recordsOf(log, 'continuo.observations')
  expect(observations.length).toBeGreaterThan(0)
  expect(observations.flatMap((record) => record.headers.map(([name]) => name))).not.toContain('continuo-share')
})
