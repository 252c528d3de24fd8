/** Events that wait in the log because their session has its share in memory. */
import { describe, expect, test } from 'vitest'
import { readiness } from '../../../src/observe/readiness.ts'
import { SOURCE_LIMITS } from '../../../src/streams/source.ts'
import { eventually } from '../../streams/helpers.ts'
import { type Bench, benches, event, onBothLogsWith, verified } from '../harness.ts'

const { use } = benches()

const endless = (session: string, requestId: string) =>
  event(session, { type: 'generate', requestId, maxTokens: 1_000_000, ignoreEnd: true, seed: 3 })
const cancel = (session: string, requestId: string) => event(session, { type: 'cancel', requestId })
const short = (session: string, requestId: string) =>
  event(session, { type: 'generate', requestId, maxTokens: 3, ignoreEnd: true, seed: 1 })
const text = (session: string, value: string) => event(session, { type: 'text', text: value })

const finishes = async ({ generated }: Bench, session: string) =>
  (await generated(session)).filter(({ finish }) => finish !== null).map(({ requestId, finish }) => [requestId, finish])

/** Offsets of the records that were gone when their turns came. */
const lostIn = async (bench: Bench): Promise<readonly number[]> =>
  (await bench.records('deadletters'))
    .map(({ headers }) => Buffer.from(headers.find(([name]) => name === 'continuo-reason')![1]).toString())
    .filter((reason) => reason.includes('is gone'))
    .map((reason) => Number(/offset (\d+)/.exec(reason)![1]))

onBothLogsWith({ tags: 'slow' })((fresh) => {
  const on = (claim: (bench: Bench) => Promise<void>) => use(claim, 1, fresh())

  test('one session with much to do holds up no other, and its requests are cancelled where they wait', () =>
    on(async (bench) => {
      const requests = Array.from({ length: 40 }, (_, at) => `r${at}`)
      await bench.feed(text('greedy', 'Once '), ...requests.map((id) => endless('greedy', id)))
      await bench.feed(text('other', 'Once '), short('other', 'asked'))
      const running = await bench.start({ sessionShare: 2 })
      await eventually(async () => expect(await finishes(bench, 'other')).toEqual([['asked', 'length']]), 60_000)
      expect(running.worker.tasks.get(0)!.load).toMatchObject({ records: 40, places: 38 })
      // Those that wait end without a token; one that nobody asked for is a dead letter.
      await bench.feed(...requests.toReversed().map((id) => cancel('greedy', id)), cancel('greedy', 'nobody'))
      await running.idle()
      await running.worker.stop()
      expect(await finishes(bench, 'greedy')).toEqual(requests.map((id) => [id, 'cancelled']))
      const dead = await bench.records('deadletters')
      expect(dead).toHaveLength(1)
      await verified(bench)
    }))

  test(
    'heads, tokens and observations are those of a worker that holds all, also over stops and forks',
    { tags: 'slow' },
    () =>
      on(async (bench) => {
        const records = Array.from({ length: 60 }, (_, at) => {
          const session = `s${at % 3}`
          if (at % 20 === 10) return event(`fork-${at}`, { type: 'open', from: { session } })
          return at % 7 === 3 ? short(session, `r${at}`) : text(session, `piece ${at} `)
        })
        const outcome = async (one: Bench) => ({
          chains: [...(await one.heads())]
            .map(([id, { chain, totals }]) => ({ id, chain, totals }))
            .sort((a, b) => (a.id < b.id ? -1 : 1)),
          tokens: (await one.generated())
            .map(({ requestId, ids }) => ({ requestId, ids }))
            .sort((a, b) => (a.requestId < b.requestId ? -1 : 1)),
          observed: (await one.observations()).length,
        })
        await bench.feed(...records)
        for (let stops = 0; stops < 4; stops += 1) {
          const committed = Promise.withResolvers<void>()
          const running = await bench.start({ sessionShare: 1, commitInterval: 0, onCommit: () => committed.resolve() })
          await Promise.race([committed.promise, running.idle()])
          await running.worker.stop()
        }
        await bench.settle({ sessionShare: 1 })
        await verified(bench)
        await use(async (whole) => {
          await whole.feed(...records)
          await whole.settle()
          expect(await outcome(bench)).toEqual(await outcome(whole))
        })
      }),
  )

  test('what the log has no more when its turn comes is a dead letter that names it', () =>
    on(async (bench) => {
      await bench.feed(text('s', 'Once '), endless('s', 'long'), text('s', 'lost '), short('s', 'lost too'))
      const [end] = await bench.feed(cancel('s', 'nobody'))
      const running = await bench.start({ sessionShare: 1 })
      await eventually(async () => expect((await bench.generated('s')).length).toBeGreaterThan(0))
      expect(running.worker.tasks.get(0)!.load.places).toBe(2)
      await bench.log.trim(bench.names.chunks, 0, end!)
      await bench.feed(cancel('s', 'long'), text('s', 'kept '))
      await running.idle()
      await running.worker.stop()
      expect(await finishes(bench, 's')).toEqual([['long', 'cancelled']])
      expect(await lostIn(bench)).toEqual([end! - 2, end! - 1])
      expect((await bench.heads()).get('s')!.cursor).toMatchObject({ offset: end! + 2, complete: true })
    }))

  test('of records that are read together, those behind a trim are still read', () =>
    on(async (bench) => {
      const texts = ['a', 'b', 'c', 'd', 'e'].map((each) => text('s', each))
      const offsets = await bench.feed(text('s', 'Once '), endless('s', 'long'), ...texts)
      // Four are held, and two are read when two are left: c and d.
      const running = await bench.start({ sessionShare: 4 })
      await eventually(async () => expect((await bench.generated('s')).length).toBeGreaterThan(0))
      await bench.log.trim(bench.names.chunks, 0, offsets[5]!)
      await bench.feed(cancel('s', 'long'))
      await running.idle()
      await running.worker.stop()
      expect(await lostIn(bench)).toEqual([offsets[4]])
      expect((await bench.heads()).get('s')!.totals.tokens).toBe('Once abde'.length)
    }))
})

describe('at its limits', () => {
  test('the input is not read on, which readiness and the log say, naming the session', () =>
    use(async (bench) => {
      const requests = Array.from({ length: 20 }, (_, at) => `r${at}`)
      await bench.feed(text('greedy', 'Once '), ...requests.map((id) => endless('greedy', id)))
      const warnings: string[] = []
      const limits = { ...SOURCE_LIMITS, places: 10 }
      const running = await bench.start({ sessionShare: 2, limits, warn: (sentence) => warnings.push(sentence) })
      await eventually(() => expect(warnings).toHaveLength(1))
      expect(running.worker.tasks.get(0)!.load.places).toBeLessThanOrEqual(10)
      expect(warnings[0]).toContain(' events of session "greedy" wait for their turn')
      const { ready, partitions } = readiness(running.worker)
      expect({ ready, reason: partitions[0]!.reason }).toMatchObject({
        ready: true,
        reason: expect.stringContaining('of session "greedy" wait for their turn'),
      })
      await running.worker.stop()
    }))
})
