/**
 * continuo migrate: every event once and in order, however often it is killed; sessions that compute to what they were;
 * what cannot be moved.
 *
 * @module-tag slow
 */
import { join } from 'node:path'
import { describe, expect, inject, test } from 'vitest'
import { ensureTopics, namesOf } from '../../src/client/topics.ts'
import { partitionOfKey } from '../../src/streams/murmur2.ts'
import type { ChunkInput } from '../../topics/chunks.ts'
import { openFamily } from '../families.ts'
import { freshPrefix } from '../kafka/broker.ts'
import { continuo, json, MODEL, recordsOf, runUntilIdle, start, temporary, withLog } from './helpers.ts'

type Fed = readonly [session: string, event: ChunkInput]

const prepare = (url: string, partitions: number, events: readonly Fed[]): Promise<void> =>
  withLog(url, async (log) => {
    const names = namesOf(log)
    await ensureTopics(log, names, partitions)
    const records = events.map(([session, event], at) => ({
      key: Buffer.from(session),
      value: Buffer.from(JSON.stringify(event)),
      headers: [['trace', Buffer.from(`t-${at}`)]] as const,
      timestamp: 1_700_000_000_000 + at,
    }))
    for (let at = 0; at < records.length; at += 500) await log.append(names.chunks, records.slice(at, at + 500))
  })

/** The records of the input as they are, by session; and the partitions in which each session has some. */
const inputOf = (url: string) =>
  withLog(url, async (log) => {
    const { chunks } = namesOf(log)
    const records = new Map<string, string[]>()
    const places = new Map<string, Set<number>>()
    for (let partition = 0; partition < (await log.partitions(chunks)); partition += 1) {
      const { begin, end } = await log.bounds(chunks, partition)
      for await (const batch of log.read(chunks, partition, begin, { until: end }))
        for (const { key, value, headers, timestamp } of batch.records) {
          const session = Buffer.from(key!).toString()
          const what = [
            Buffer.from(value!),
            ...headers.map(([name, bytes]) => `${name}=${Buffer.from(bytes)}`),
            timestamp,
          ]
          records.set(session, [...(records.get(session) ?? []), what.join(' ')])
          places.set(session, (places.get(session) ?? new Set()).add(partition))
        }
    }
    return { records, places }
  })

const SESSIONS = ['alder', 'birch', 'cedar', 'durmast', 'elm', 'fir']
const life = (session: string): readonly Fed[] => [
  [session, { type: 'text', text: `The ${session} stood at the harbour. ` }],
  [session, { type: 'generate', requestId: 'r', maxTokens: 24, seed: 3 }],
  [session, { type: 'text', text: 'It was high water at nine.' }],
]
/** A child whose id belongs to the partition of its parent, of two as of three. */
const near = (parent: string): string => {
  const homes = (id: string) => [2, 3].map((of) => partitionOfKey(Buffer.from(id), of)).join()
  for (let at = 0; ; at += 1) if (homes(`child-${at}`) === homes(parent)) return `child-${at}`
}

const { brokers, missing } = inject('kafka')
const LOGS = [
  ['from one embedded log to another', true, (folder: string, name: string) => `file:${join(folder, `${name}.db`)}`],
  [`on Kafka (${missing ?? 'there'})`, brokers !== null, () => `kafka://${brokers}/${freshPrefix()}`],
] as const

describe.each(LOGS)('%s', (_, isThere, urlOf) => {
  test.skipIf(!isThere)(
    'to more partitions: killed three times, every event stands once, and every session is what it was',
    async () => {
      const folder = temporary()
      const [from, to] = [urlOf(folder, 'from'), urlOf(folder, 'to')]
      const child = near('elm')
      await prepare(from, 2, [
        ...SESSIONS.flatMap(life),
        ['gone', { type: 'text', text: 'Forget me.' }],
        ['gone', { type: 'delete' }],
        ['unwanted', { type: 'text', text: 'Leave me.' }],
        [child, { type: 'open', from: { session: 'elm' } }],
        ...life(child).slice(1),
        ['fir', { type: 'close' }],
        ['birch', { type: 'boundary', reset: true }],
        ['cedar', { type: 'tokens', tokens: [999] }],
      ])
      expect((await runUntilIdle(from)).code).toBe(0)
      const move = ['migrate', '--from', from, '--to', to, '--partitions', '3', '--drop', 'unwanted']
      for (const failpoint of ['commit.sent@1', 'commit.sent@8', 'commit.offsets@2']) {
        const killed = await start(move, { env: { CONTINUO_FAILPOINT: failpoint } }).done
        expect(killed.signal, `${failpoint}: ${killed.out}${killed.err}`).toBe('SIGKILL')
      }
      const [told] = await json('migrate', ...move.slice(1), '--model', MODEL)
      expect(told).toMatchObject({
        partitions: 3,
        sessions: 7,
        left: { dropped: 1, deleted: 2, batches: 0 },
        computed: true,
        compared: { equal: 7, different: [] },
      })
      const [before, after] = [await inputOf(from), await inputOf(to)]
      for (const id of ['gone', 'unwanted']) before.records.delete(id)
      expect(after.records).toEqual(before.records)
      for (const [session, places] of after.places)
        expect([...places]).toEqual([partitionOfKey(Buffer.from(session), 3)])

      // What came since, and nothing else.
      await prepare(from, 2, [['alder', { type: 'text', text: ' And on.' }]])
      const unread = await continuo([...move, '--model', MODEL])
      expect(unread).toMatchObject({ code: 3, err: expect.stringContaining('events that no worker has finished') })
      expect((await runUntilIdle(from)).code).toBe(0)
      expect(await continuo([...move, '--model', MODEL])).toMatchObject({
        code: 0,
        out: expect.stringMatching(
          /Copied 0 records of 7 sessions .*\nComputed and compared: clock, chain and sums of 7 sessions are those of /,
        ),
      })
      expect((await inputOf(to)).records.get('alder')).toHaveLength(4)
      expect(await continuo(['verify', '--log', to, '--model', MODEL])).toMatchObject({ code: 0 })
    },
  )
})

test('what cannot be moved is refused by name, and nothing is written', async () => {
  const folder = temporary()
  const from = `file:${join(folder, 'from.db')}`
  const to = `file:${join(folder, 'to.db')}`
  const far = SESSIONS.find((id) => partitionOfKey(Buffer.from(id), 7) !== partitionOfKey(Buffer.from('elm'), 7))!
  await prepare(from, 1, [...life('elm'), [far, { type: 'open', from: { session: 'elm' } }], ...life('oak')])
  expect((await runUntilIdle(from)).code).toBe(0)
  const move = (...more: string[]) => continuo(['migrate', '--from', from, '--to', to, ...more])
  const apart = await move('--partitions', '7')
  expect(apart).toMatchObject({ code: 3, out: '' })
  expect(apart.err).toContain(`"${far}" began as forks, and of 7 partitions their ids belong to others`)
  const orphan = await move('--drop', 'elm')
  expect(orphan).toMatchObject({ code: 3, err: expect.stringContaining(`Leave it out too: --drop ${far}.`) })
  expect(await continuo(['migrate', '--from', from, '--to', from])).toMatchObject({ code: 2 })

  const home = partitionOfKey(Buffer.from('elm'), 7)
  expect(await move('--partitions', '7', '--keep-forks', '--model', MODEL)).toMatchObject({
    code: 0,
    out: expect.stringMatching(
      new RegExp(
        `Session "${far}" is in partition ${home}; its id belongs to another one\\.\nComputed and compared: .* 3 sessions`,
      ),
    ),
  })
  const other = `file:${join(folder, 'other.db')}`
  await prepare(other, 7, life('ash'))
  const foreign = await continuo(['migrate', '--from', other, '--to', to])
  expect(foreign).toMatchObject({ code: 3, err: expect.stringContaining('nothing says that they are copies from') })

  await withLog(from, async (log) => log.trim(namesOf(log).chunks, 0, 2))
  const trimmed = await move('--partitions', '7', '--keep-forks')
  expect(trimmed).toMatchObject({ code: 3, err: expect.stringContaining('The first events of "elm" are gone') })
})

test('a fork of a fork has the past of both, though both were deleted since', async () => {
  const folder = temporary()
  const from = `file:${join(folder, 'from.db')}`
  const to = `file:${join(folder, 'to.db')}`
  await prepare(from, 1, [
    ...life('elm'),
    ['oak', { type: 'open', from: { session: 'elm' } }],
    ['elm', { type: 'delete' }],
    ['oak', { type: 'text', text: ' And then.' }],
    ['ash', { type: 'open', from: { session: 'oak' } }],
    ['oak', { type: 'delete' }],
    ['ash', { type: 'text', text: ' And on.' }],
  ])
  expect((await runUntilIdle(from)).code).toBe(0)
  const [told] = await json('migrate', '--from', from, '--to', to, '--model', MODEL)
  expect(told).toMatchObject({ left: { deleted: 0 }, compared: { equal: 1, different: [] } })
  expect(await recordsOf(to, 'continuo.deadletters')).toEqual([])
})

test('to another model the events go, and what it computes is its own', async () => {
  const folder = temporary()
  const from = `file:${join(folder, 'from.db')}`
  const to = `file:${join(folder, 'to.db')}`
  const { dir } = await openFamily('qwen3', folder)
  await prepare(from, 1, life('elm'))
  expect((await runUntilIdle(from)).code).toBe(0)
  const other = await continuo(['verify', '--log', from, '--model', dir])
  expect(other).toMatchObject({ code: 3, out: '' })
  expect(other.err).toMatch(/^Partition 0 of continuo\.chunks was written by model .*\n$/)
  expect(await continuo(['migrate', '--from', from, '--to', to, '--model', dir])).toMatchObject({
    code: 0,
    out: expect.stringContaining('another model than that of the old log'),
  })
  expect((await inputOf(to)).records).toEqual((await inputOf(from)).records)
  expect(await continuo(['verify', '--log', to, '--model', dir])).toMatchObject({ code: 0 })
})
