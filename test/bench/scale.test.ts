/**
 * docs/scale.md: its constants are those that the formulas take, its examples are what the formulas give, and a small
 * run on the embedded log commits, writes and holds what they predict.
 */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { constantsOf, examples, worked } from '../../bench/scale/examples.ts'
import { type Constants, commitRate, headRate, NAMES, rates, touched, zipf } from '../../bench/scale/formulas.ts'
import { drawer, eventOf, feedAtRate, randomFrom } from '../../bench/scale/rig.ts'
import { recordBytes } from '../../src/state/live-index.ts'
import { benches } from '../operators/harness.ts'

const page = readFileSync(join(import.meta.dirname, '..', '..', 'docs', 'scale.md'), 'utf8')

describe('docs/scale.md', () => {
  const constants = constantsOf(page)

  test('has a number for every constant of the formulas', () => {
    expect(Object.keys(constants).sort()).toEqual([...NAMES].sort())
    for (const [name, value] of Object.entries(constants)) expect(value, name).toBeGreaterThanOrEqual(0)
  })

  test('shows in its examples what the formulas give', { tags: 'slow' }, () => {
    const rows = page.split('\n')
    for (const { what } of examples(constants))
      expect(
        rows.some((row) => row.startsWith(`| ${what} | `)),
        what,
      ).toBe(true)
    expect(worked(page, constants)).toBe(page)
    expect(worked(page, { ...constants, headBytes: 2 * constants.headBytes })).not.toBe(page)
  })
})

describe('the formulas', () => {
  test('of commits: one for each event where events are rare, one for each interval where they are many', () => {
    expect(commitRate(0, 0.1)).toBe(0)
    expect(commitRate(0.01, 0.1)).toBeCloseTo(0.01, 4)
    expect(commitRate(1000, 0.1)).toBeCloseTo(10, 6)
  })

  test('of heads: each event its own where commits are many, each session once where they are few', () => {
    const each = [3, 2, 1]
    expect(headRate(each, 1e6)).toBeCloseTo(6, 3)
    expect(headRate(each, 1e-3)).toBeCloseTo(3e-3, 6)
    expect(touched(each, 1000)).toBeCloseTo(3, 6)
  })

  const bench = benches()
  test('predict a small run on the embedded log', { tags: 'slow' }, () =>
    bench.use(async ({ feed, log, names, start, records }) => {
      const SESSIONS = 60
      const INTERVAL = 0.1
      const random = randomFrom(3)
      const shares = zipf(SESSIONS, 1)
      const draw = drawer(shares, random)
      const running = await start({ commitInterval: INTERVAL * 1000, maxContexts: SESSIONS })
      await running.idle()

      // Sizes of records, from events of sessions that the run does not have.
      await feed(eventOf(1001), eventOf(1002), eventOf(1003))
      await feed(eventOf(1001, true), eventOf(1002, true))
      await feed(...Array.from({ length: SESSIONS }, (_, n) => eventOf(n)))
      await running.idle()
      const size = async (topic: 'state' | 'observations' | 'tokens', own: (key: string, value: string) => boolean) => {
        const text = (bytes: Uint8Array | null): string => Buffer.from(bytes ?? []).toString()
        const some = (await records(topic)).filter(({ key, value }) => own(text(key), text(value)))
        return some.reduce((sum, record) => sum + recordBytes(record), 0) / some.length
      }
      const c: Constants = {
        ...(Object.fromEntries(NAMES.map((name) => [name, 0])) as unknown as Constants),
        headBytes: await size('state', (key) => key !== ''),
        cursorBytes: await size('state', (key) => key === ''),
        observationBytes: await size('observations', (_, value) => value.includes('"observed"')),
        generatedBytes: await size('tokens', () => true),
      }
      const bytes = async (topic: 'state' | 'observations' | 'tokens') =>
        (await records(topic)).reduce((sum, record) => sum + recordBytes(record), 0)
      const written = async () => [await bytes('state'), await bytes('observations'), await bytes('tokens')] as const
      const before = await written()
      const commits = running.commits.length

      const next = () => eventOf(draw(), random() < 0.2)
      const began = performance.now()
      const { events } = await feedAtRate(
        { feed: async (some) => void (await log.append(names.chunks, some)) },
        50,
        3,
        next,
        random,
      )
      await running.idle()
      // Until all was committed: on a busy machine the work goes on behind the feeding.
      const seconds = (performance.now() - began) / 1000
      const after = await written()
      const seen = running.commits.slice(commits)
      await running.worker.stop()
      const rate = events / seconds

      // A machine that is busy delays commits; none comes early.
      const measured = seen.length / seconds
      const predicted = commitRate(rate, INTERVAL)
      expect(measured).toBeLessThan(1.3 * predicted)
      expect(measured).toBeGreaterThan(0.2 * predicted)

      const expected = rates(c, {
        partitions: [shares.map((share) => share * rate)],
        generating: 0.2,
        workers: 1,
        interval: 1 / measured,
        restores: 0,
      })
      const within = (prediction: number, measurement: number, what: string): void => {
        expect(prediction / measurement, what).toBeGreaterThan(1 / 1.4)
        expect(prediction / measurement, what).toBeLessThan(1.4)
      }
      const grown = after.map((all, i) => all - before[i]!)
      // A busy machine also commits in the middle of an answer, which the formulas leave out: heads of sessions that
      // finish no event.
      const finished = seen.map(
        ({ steps }) => new Set(steps.filter(({ done }) => done).map(({ session }) => session)).size,
      )
      const heads = finished.reduce((sum, one) => sum + one, 0)
      const inTheMiddle = seen.reduce((sum, one) => sum + one.sessions, 0) - heads
      expect(inTheMiddle).toBeGreaterThanOrEqual(0)
      within(expected.heads * seconds, heads, 'heads')
      within(expected.stateBytes * seconds, grown[0]! - inTheMiddle * c.headBytes, 'bytes of state')
      within(expected.observationBytes * seconds, grown[1]!, 'bytes of observations')
      within(expected.tokenBytes * seconds, grown[2]!, 'bytes of tokens')
      const busy = new Set(seen.flatMap(({ steps }) => steps.map(({ session }) => session)))
      within(
        touched(
          shares.map((share) => share * rate),
          seconds,
        ),
        busy.size,
        'sessions',
      )
    }),
  )
})
