/**
 * `verify` agrees after every order of events that a worker takes: random orders of all kinds of events, with workers
 * that stop and are killed, and with what operators do between them. docs/testing.md says how an order is played again.
 */
import { afterAll, describe, expect, inject, test } from 'vitest'
import { freshPrefix } from '../kafka/broker.ts'
import { createBench } from '../operators/harness.ts'
import { flipRecord } from '../operators/memory-bench.ts'
import { drawOrder } from './draw.ts'
import { createModels } from './models.ts'
import { eventsOf, type Order } from './order.ts'
import { play, prepare, verification } from './play.ts'
import { shrink } from './shrink.ts'
import { asked, CASES, KINDS, playAll, type Seen } from './suite.ts'

const models = createModels()
afterAll(() => models.close())

test.each(CASES)('an order that failed once: %s', async (_, order) => {
  expect((await play(order, models)).faults).toEqual([])
})

const shows = (seen: Seen, names: readonly (keyof Seen)[]): void => {
  for (const name of names) expect(seen[name], name).toBeGreaterThan(0)
}
const COMPARED = ['sessions', 'deleted', 'tokens', 'heads', 'snapshots'] as const

test('verify agrees after a few orders on the embedded log', async () => {
  shows(await playAll('embedded', [2, 8], models), COMPARED)
})

describe('verify agrees', { timeout: 3_600_000 }, () => {
  test('after hundreds of orders on the embedded log', { tags: 'slow' }, async () => {
    shows(await playAll('embedded', [100, 200], models), [...COMPARED, 'partial', 'notRecomputed'])
  })
  test('after orders on the embedded log with workers that are killed', { tags: 'slow' }, async () => {
    shows(await playAll('killed', [1000, 8], models), [...COMPARED, 'kills'])
  })
  test('after thousands of orders on the embedded log', { tags: ['slow', 'long'] }, async () => {
    shows(await playAll('embedded', [10_000, 2500], models), [...COMPARED, 'partial', 'notRecomputed'])
  })
  test('after hundreds of orders with workers that are killed', { tags: ['slow', 'long'] }, async () => {
    shows(await playAll('killed', [20_000, 300], models), [...COMPARED, 'kills', 'partial', 'notRecomputed'])
  })
})

const wanted = asked()
test.skipIf(wanted === null)('verify agrees after the orders of CONTINUO_ORDERS', { timeout: 3_600_000 }, async () => {
  const [kind, range] = wanted!
  const { brokers, missing } = inject('kafka')
  if (KINDS[kind].log === 'kafka') expect(brokers, missing ?? '').not.toBeNull()
  const seen = await playAll(kind, range, models, () =>
    KINDS[kind].log === 'kafka' ? { url: `kafka://${brokers}/${freshPrefix()}` } : {},
  )
  console.log(JSON.stringify(seen))
})

test('after an order verify finds one bit that is wrong in any record of tokens, observations, dead letters, state and snapshots', {
  tags: 'slow',
}, async () => {
  let flips = 0
  for (const seed of [4, 9, 17]) {
    const order = drawOrder(seed, { kills: false, log: 'embedded' })
    const model = await models.get(order.model)
    const bench = await createBench(model.opened, order.partitions)
    try {
      await prepare(bench, model, { ...order, runs: order.runs.map((run) => ({ ...run, deeds: [] })) })
      expect((await verification(bench)).findings).toEqual([])
      const heads = await bench.heads()
      for (const topic of ['tokens', 'observations', 'deadletters', 'state', 'snapshots'] as const) {
        const last = (await bench.records(topic)).findLast(({ key, value, offset }) => {
          if (value === null || value.length === 0) return false
          const session = Buffer.from(key ?? '').toString()
          if (topic === 'deadletters') return true
          // What a session was before it was deleted is not compared, nor is a snapshot that no newest head names.
          if (topic !== 'snapshots') return heads.get(session) !== undefined
          const { snapshot } = [...heads.values()].find((head) => head.snapshot?.first === offset) ?? {}
          return snapshot !== undefined
        })
        if (last === undefined) continue
        flipRecord(bench, bench.names[topic], last.offset, last.partition)
        const { findings } = await verification(bench)
        expect(findings.length, `${order.model}, ${topic}, offset ${last.offset}`).toBeGreaterThan(0)
        flipRecord(bench, bench.names[topic], last.offset, last.partition)
        flips += 1
      }
      expect((await verification(bench)).findings).toEqual([])
    } finally {
      await bench.close()
    }
  }
  expect(flips).toBeGreaterThan(10)
})

test('an order that fails becomes as small as what fails in it', async () => {
  const order = drawOrder(9, { kills: true, log: 'embedded' })
  expect(eventsOf(order)).toBeGreaterThan(30)
  /** As a fault of forks whose parents are deleted would show. */
  const fails = async ({ runs }: Order): Promise<boolean> => {
    const all = runs.flatMap(({ events, late }) => [...events, ...late])
    const parents = all.flatMap(([, given]) =>
      typeof given === 'object' && given.type === 'open' && given.from !== undefined ? [given.from.session] : [],
    )
    return all.some(
      ([session, given]) => typeof given === 'object' && given.type === 'delete' && parents.includes(session),
    )
  }
  expect(await fails(order)).toBe(true)
  const smallest = await shrink(order, fails, { most: 10_000, tries: 1 })
  expect(await fails(smallest)).toBe(true)
  expect(eventsOf(smallest)).toBe(2)
  expect(smallest.runs).toHaveLength(1)
  expect(smallest.runs[0]).toMatchObject({ late: [], end: 'idle', deeds: [] })
})
