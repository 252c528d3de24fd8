/**
 * Cancels while workers are killed: at the commits that carry them, and at random. When a cancel takes effect differs
 * from run to run, so the judge is a log without cancels whose requests ask for just as many tokens as the disturbed
 * ones got; and verify.
 */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { afterAll, describe, expect, inject, test } from 'vitest'
import { readPartitionState } from '../../src/operators/worker/partition-state.ts'
import type { Cancelled, Head } from '../../src/state/head.ts'
import type { EventLog, RecordIn } from '../../src/streams/log.ts'
import { openLog } from '../../src/streams/open.ts'
import { textOf } from '../../src/text.ts'
import type { ChunkInput } from '../../topics/chunks.ts'
import { DEAD_LETTER_HEADERS } from '../../topics/deadletters.ts'
import { topicNames } from '../../topics/index.ts'
import type { Generated } from '../../topics/tokens.ts'
import { openFamily } from '../families.ts'
import { freshPrefix } from '../kafka/broker.ts'
import { appendAll, createCrashTopics, finish, PARTITIONS, runWorker } from './life.ts'
import { random } from './scenario.ts'
import { expectVerified } from './suite.ts'

const dir = mkdtempSync(join(tmpdir(), 'continuo-cancel-'))
afterAll(() => rmSync(dir, { recursive: true, force: true }))

const SESSIONS = ['alder', 'birch', 'cedar', 'durmast', 'elm', 'fir']
/** Requests of a session in a round. */
const REQUESTS = 5
/** Around the transaction that has a cancel in it. */
const POINTS = ['commit.prepared', 'commit.sent', 'commit.offsets', 'commit.ended', 'commit.noted'] as const

const recordOf = (session: string, event: ChunkInput): RecordIn => ({
  key: Buffer.from(session),
  value: Buffer.from(JSON.stringify(event)),
})
type Request = ChunkInput & { readonly type: 'generate' }
/** Only a cancel ends it. */
const ENDLESS = 1_000_000
interface Open {
  readonly session: string
  readonly requestId: string
  readonly isEndless: boolean
}

/** What a log holds, by what it is about. */
const collect = async (url: string) => {
  const log = await openLog(url)
  const names = topicNames(log.prefix)
  const tokens = new Map<string, number[]>()
  const ends = new Map<string, string>()
  const letters: string[] = []
  const cancelled: Cancelled[] = []
  const heads = new Map<string, Pick<Head, 'chain' | 'totals' | 'conductor'>>()
  let generating = 0
  const read = async (topic: string, partition: number, take: (value: string, key: string) => void): Promise<void> => {
    const { begin, end } = await log.bounds(topic, partition)
    for await (const { records } of log.read(topic, partition, begin, { until: end }))
      for (const { value, headers } of records)
        take(textOf(value!), textOf(headers.findLast(([name]) => name === DEAD_LETTER_HEADERS.offset)?.[1] ?? value!))
  }
  try {
    for (let partition = 0; partition < PARTITIONS; partition += 1) {
      await read(names.tokens, partition, (value) => {
        const { requestId, index, ids, finish: end } = JSON.parse(value) as Generated
        const list = tokens.get(requestId) ?? []
        expect(index, 'each token once').toBe(list.length)
        tokens.set(requestId, [...list, ...ids])
        if (end === null) return
        expect(ends.has(requestId), 'one end').toBe(false)
        ends.set(requestId, end)
      })
      await read(names.deadletters, partition, (_, offset) => letters.push(`${partition}/${offset}`))
      const state = await readPartitionState(log, names, partition, 1 << 30)
      cancelled.push(...state.cancelled.values())
      for (const [id, { chain, totals, conductor, generation }] of state.heads) {
        heads.set(id, { chain, totals, conductor })
        if (generation !== null) generating += 1
      }
    }
    return { tokens, ends, letters, cancelled, heads, generating }
  } finally {
    await log.close()
  }
}

/** Tells which requests have tokens in the log and no end, whenever it is asked. */
const follow = (log: EventLog) => {
  const topic = topicNames(log.prefix).tokens
  const positions = Array.from({ length: PARTITIONS }, () => 0)
  const going = new Set<string>()
  return async (): Promise<ReadonlySet<string>> => {
    for (const [partition, position] of positions.entries()) {
      const { end } = await log.bounds(topic, partition)
      for await (const { records, next } of log.read(topic, partition, position, { until: end })) {
        positions[partition] = next
        for (const { value } of records) {
          const { requestId, finish: how } = JSON.parse(textOf(value!)) as Generated
          if (how === null) going.add(requestId)
          else going.delete(requestId)
        }
      }
    }
    return going
  }
}

const kill = async (fresh: (name: string) => string, lives: number): Promise<void> => {
  const family = await openFamily('rwkv7', dir)
  const next = random(23)
  const pick = (below: number): number => Math.floor(next() * below)
  const [disturbed, judge] = [fresh('disturbed'), fresh('judge')]
  for (const url of [disturbed, judge]) {
    const log = await openLog(url)
    await createCrashTopics(log)
    await log.close()
  }
  const asked: { readonly session: string; readonly event: ChunkInput }[] = []
  let cancels = 0
  let killed = 0
  let inside = 0
  const log = await openLog(disturbed)
  const { chunks } = topicNames(log.prefix)
  const underWay = follow(log)
  const cancel = async ({ session, requestId }: Open): Promise<void> => {
    cancels += 1
    await log.append(chunks, [recordOf(session, { type: 'cancel', requestId })])
  }
  /** Requests that a cancel is still to come for. */
  const open: Open[] = []
  const take = (isWanted: (one: Open) => boolean): Open | undefined => {
    const at = open.findIndex(isWanted)
    return at < 0 ? undefined : open.splice(at, 1)[0]
  }
  try {
    for (let life = 0; life < lives; life += 1) {
      const round = SESSIONS.flatMap((session) => {
        const requests = Array.from({ length: REQUESTS }, (_, at): Request => {
          const requestId = `${session}-${life}-${at}`
          const maxTokens = at === 1 ? ENDLESS : 40 + pick(260)
          return { type: 'generate', requestId, maxTokens, temperature: 0.9, seed: at, run: 1 + pick(16) }
        })
        const text = { type: 'text', text: `In round ${life} the ${session} said: ` } as const
        return [text, ...requests].map((event) => ({ session, event }))
      })
      asked.push(...round)
      for (const { session, event } of round) {
        if (event.type !== 'generate') continue
        const { requestId, maxTokens } = event
        // Some are left to their end.
        if (maxTokens === ENDLESS || next() < 0.7) open.push({ session, requestId, isEndless: maxTokens === ENDLESS })
      }
      await appendAll(
        disturbed,
        round.map(({ session, event }) => recordOf(session, event)),
      )
      const early = Array.from({ length: 3 }, () => take(({ isEndless }) => !isEndless && next() < 0.3))
      for (const one of early) if (one !== undefined) await cancel(one)
      const named = life % 3 !== 2 ? `${POINTS[life % POINTS.length]}@${1 + pick(30)}` : undefined
      const worker = runWorker(disturbed, family, ['--until-idle', '400'], named)
      await worker.started
      const timer = named === undefined ? setTimeout(() => worker.child.kill('SIGKILL'), 100 + next() * 900) : undefined
      let isOver = false
      void worker.over.then(() => {
        isOver = true
      })
      let last: Open | undefined
      while (!isOver) {
        const going = await underWay()
        const one =
          take(({ requestId }) => going.has(requestId)) ??
          (next() < 0.1 ? take(({ isEndless }) => !isEndless) : undefined)
        if (one !== undefined) await cancel(one)
        last = one ?? last
        await Promise.race([sleep(next() * 40), worker.over])
      }
      const { code, signal, stderr } = await worker.over
      clearTimeout(timer)
      if (signal === 'SIGKILL') killed += 1
      else if (code !== 0)
        throw new Error(`life ${life} (${named}) ended with code ${code}, signal ${signal}:\n${stderr}`)
      if ((await collect(disturbed)).generating > 0) inside += 1
      // Once more, whether the first took effect or not.
      const twice = last ?? take(() => true)
      for (let count = 0; twice !== undefined && count < 2; count += 1) await cancel(twice)
    }
    for (const one of open.splice(0)) if (one.isEndless) await cancel(one)
  } finally {
    await log.close()
  }
  await finish(disturbed, family)
  const result = await collect(disturbed)
  expect(killed).toBeGreaterThanOrEqual(lives / 2)
  expect(inside, 'kills inside a generation').toBeGreaterThan(0)
  // Each cancel took effect or is a dead letter.
  expect(result.cancelled.length + result.letters.length).toBe(cancels)
  expect(new Set(result.letters).size).toBe(result.letters.length)
  // The second of two for one request, at least.
  expect(result.letters.length).toBeGreaterThanOrEqual(lives)
  const at = new Map(result.cancelled.map(({ requestId, index }) => [requestId, index]))
  expect(at.size).toBe(result.cancelled.length)
  expect(at.size).toBeGreaterThan(lives * 4)
  expect([...at.values()].filter((index) => index > 0).length, 'in the middle').toBeGreaterThan(0)
  for (const [requestId, end] of result.ends) expect(end === 'cancelled').toBe(at.has(requestId))
  expect(result.ends.size).toBe(asked.filter(({ event }) => event.type === 'generate').length)

  const undisturbed = asked.flatMap(({ session, event }) => {
    if (event.type !== 'generate') return [recordOf(session, event)]
    const maxTokens = at.get(event.requestId) ?? event.maxTokens
    return maxTokens === 0 ? [] : [recordOf(session, { ...event, maxTokens })]
  })
  await appendAll(judge, undisturbed)
  await finish(judge, family)
  const expected = await collect(judge)
  expect([...result.tokens].filter(([, ids]) => ids.length > 0)).toEqual(
    [...result.tokens].flatMap(([id]) => (expected.tokens.has(id) ? [[id, expected.tokens.get(id)]] : [])),
  )
  expect(result.heads).toEqual(expected.heads)
  await expectVerified(disturbed, family)
}

describe('workers that are killed around cancels leave what was decided, and everybody obeys it', {
  tags: 'slow',
  timeout: 900_000,
}, () => {
  test('on the embedded log', () => kill((name) => `file:${join(dir, `${name}.db`)}`, 8))
  const { brokers, missing } = inject('kafka')
  if (brokers === null) test.skip(`on Kafka (no Kafka here: ${missing})`, () => undefined)
  else test('on Kafka', { tags: 'long' }, () => kill((name) => `kafka://${brokers}/${freshPrefix()}-${name}`, 4))
})
