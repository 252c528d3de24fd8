/** Blobs in the topic of their partition, on both logs. */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, expect, inject, test } from 'vitest'
import type { Wanted } from '../../src/blobs/store.ts'
import { codeOf } from '../../src/errors.ts'
import { sha256 } from '../../src/hash.ts'
import { openTopicStore, type TopicStore, topicReader } from '../../src/operators/blobs/topic.ts'
import { inTurns, type TurnWriter } from '../../src/operators/snapshots/turns.ts'
import type { EventLog } from '../../src/streams/log.ts'
import { openLog } from '../../src/streams/open.ts'
import { TOPICS, topicNames } from '../../topics/index.ts'
import { freshPrefix } from '../kafka/broker.ts'
import { eventually } from '../streams/helpers.ts'
import { contract } from './contract.ts'

interface Opened {
  readonly log: EventLog
  readonly topic: string
  readonly store: TopicStore
  readonly writer: TurnWriter
  /** A later owner of the partition. */
  again(partBytes?: number): Promise<{ readonly store: TopicStore; readonly writer: TurnWriter }>
}

type Use = (claim: (opened: Opened) => Promise<void>) => Promise<void>

const using = async (url: string, claim: (opened: Opened) => Promise<void>): Promise<void> => {
  const log = await openLog(url)
  try {
    const names = topicNames(log.prefix)
    await log.createTopics(TOPICS.map(({ name, settings }) => ({ name: names[name], partitions: 2, config: settings })))
    const again = async (partBytes = 900_000) => {
      const writer = inTurns(await log.claim('test', names.chunks, 1))
      return { writer, store: await openTopicStore(log, names.blobs, writer, partBytes) }
    }
    const { store, writer } = await again()
    await claim({ log, topic: names.blobs, store, writer, again })
  } finally {
    await log.close()
  }
}

const bytesOf = (length: number, seed: number): Uint8Array => {
  const bytes = new Uint8Array(length)
  for (let at = 0; at < length; at += 1) bytes[at] = at * 31 + seed
  return bytes
}
const put = async (store: TopicStore, bytes: Uint8Array): Promise<Wanted> => {
  const hash = sha256(bytes)
  return { hash, place: await store.put(hash, bytes), bytes: bytes.length }
}
const found = async (log: EventLog, topic: string, wanted: readonly Wanted[]) => {
  const all: (Uint8Array | null)[] = []
  await topicReader(log, topic, 1).get(wanted, async (at, bytes) => {
    all[at] = bytes
  })
  return all.map((each) => (each === null ? null : sha256(each)))
}

const suite = (name: string, use: Use): void => {
  contract(name, (claim) => use(({ store }) => claim(store)))

  describe(`the topic of blobs in ${name}`, () => {
    test('has parts with a sha256 each, of the size that was asked for, and a place is the offset of the first', () =>
      use(async ({ log, topic, again }) => {
        const { store } = await again(1000)
        const bytes = bytesOf(2500, 4)
        const { hash, place } = await put(store, bytes)
        const parts = []
        const { begin } = await log.bounds(topic, 1)
        const end = begin + store.offsetsOf(2500)
        await eventually(async () => expect((await log.bounds(topic, 1)).end).toBe(end))
        for await (const { records } of log.read(topic, 1, begin, { until: end })) parts.push(...records)
        expect(parts.map(({ key }) => Buffer.from(key!).toString())).toEqual([0, 1, 2].map((part) => `${hash}#${part}`))
        expect(parts.map(({ value }) => value!.length)).toEqual([1000, 1000, 500])
        expect(parts.map(({ headers }) => [headers[0]![0], Buffer.from(headers[0]![1]).toString()])).toEqual(
          parts.map(({ value }) => ['sha256', sha256(value!)]),
        )
        expect(Number.parseInt(place, 16)).toBe(parts[0]!.offset)
      }))

    test('is trimmed below a place: what lies below is null, what lies above is read, also by who began before', () =>
      use(async ({ log, topic, store }) => {
        const names = []
        for (let at = 0; at < 5; at += 1) names.push(await put(store, bytesOf(1_000_000, at)))
        const before = Number.parseInt(names[3]!.place, 16)
        store.leave(before)
        await store.trim()
        expect(await found(log, topic, names)).toEqual([null, null, null, names[3]!.hash, names[4]!.hash])
        expect((await log.bounds(topic, 1)).begin).toBe(before)
        expect(store.begin).toBe(before)
      }))

    test('an owner that was overtaken writes nothing more, and what it wrote halfway is no blob', () =>
      use(async ({ log, topic, store, writer, again }) => {
        const half = bytesOf(2_700_000, 1)
        const hash = sha256(half)
        const parts = [half.subarray(0, 900_000), half.subarray(900_000, 1_800_000)]
        const [first] = await writer.bulk(
          parts.map((value, part) => ({ topic, key: Buffer.from(`${hash}#${part}`), value })),
        )
        const next = await again()
        await expect(put(store, half)).rejects.toSatisfy((error) => codeOf(error) === 'FENCED')
        const other = await put(next.store, bytesOf(2_000_000, 2))
        const torn = { hash, place: first!.toString(16), bytes: half.length }
        // A broker may tell a reader of the end of a transaction a moment after its writer.
        await eventually(async () => expect(await found(log, topic, [torn, other])).toEqual([null, other.hash]))
      }))

    // The queue stands before either log; the embedded one answers at once, however busy the machine is.
    test.skipIf(name === 'Kafka')('bulk waits for commits, and commits for one piece of bulk at most', () =>
      use(async ({ store, writer }) => {
        const order: string[] = []
        const note = (what: string) => () => void order.push(what)
        const bulk = [1, 2, 3].map((seed) => put(store, bytesOf(1000, seed)).then(note('bulk')))
        const hashed = sha256(bytesOf(10, 1))
        await store.put(hashed, bytesOf(10, 1)).then(note('first'))
        const commits = [7, 8].map((offset) => writer.commit([], offset).then(note('commit')))
        const more = [4, 5, 6].map((seed) => put(store, bytesOf(1000, seed)).then(note('late')))
        await Promise.all([...bulk, ...commits, ...more])
        expect(order.filter((what) => what === 'commit')).toHaveLength(2)
        expect(order.lastIndexOf('commit')).toBeLessThan(order.lastIndexOf('late'))
        expect(order.slice(order.indexOf('commit')).filter((what) => what === 'late')).toHaveLength(3)
      }),
    )
  })
}

suite('the embedded log', async (claim) => {
  const dir = mkdtempSync(join(tmpdir(), 'continuo-blobs-'))
  try {
    await using(`file:${join(dir, 'log.db')}`, claim)
  } finally {
    rmSync(dir, { recursive: true, force: true })
  }
})

const { brokers, missing } = inject('kafka')
if (brokers === null) test.skip(`on Kafka (no Kafka here: ${missing})`, () => undefined)
else suite('Kafka', (claim) => using(`kafka://${brokers}/${freshPrefix()}`, claim))
