/**
 * What was new about each line, on a stream: the same lines whatever pieces the text came in, from worker to worker, in
 * forks.
 */
import { describe, expect, test } from 'vitest'
import { createLineJudge } from '../../../src/novelty/lines.ts'
import { standsOut } from '../../../src/novelty/stands-out.ts'
import { verifyLog } from '../../../src/operators/verify/verify.ts'
import { watchModel } from '../../../src/places.ts'
import { alert } from '../../../topics/alerts.ts'
import type { ChunkInput } from '../../../topics/chunks.ts'
import { DEAD_LETTER_HEADERS } from '../../../topics/deadletters.ts'
import { type LineNovelty, NOVELTY_SPAN } from '../../../topics/novelty.ts'
import type { Observed } from '../../../topics/observations.ts'
import { eventually } from '../../streams/helpers.ts'
import { type Bench, benches, event, verified } from '../harness.ts'

const { use } = benches(watchModel)

const open: ChunkInput = { type: 'open', novelty: true, surprisal: true }
const line = (i: number): string =>
  `${10 + (i % 50)}:${i % 60} worker ${i % 7} wrote ${100 + ((i * 37) % 90)} rows to disk ${i % 3}\n`
const usual = (from: number, to: number): string => Array.from({ length: to - from }, (_, i) => line(from + i)).join('')
const ODD = 'the ledger is out of balance, call the harbour master\n'

const texts = (session: string, text: string, size: number): readonly ReturnType<typeof event>[] =>
  Array.from({ length: Math.ceil(text.length / size) }, (_, at) =>
    event(session, { type: 'text', text: text.slice(at * size, (at + 1) * size) }),
  )

const observed = async (bench: Bench, session: string): Promise<readonly Observed[]> =>
  (await bench.observations(session)).flatMap((each) => (each.type === 'observed' ? [each] : []))
const linesOf = async (bench: Bench, session: string): Promise<readonly LineNovelty[]> =>
  (await observed(bench, session)).flatMap(({ lines = [] }) => lines)

describe('a session that is to tell what is new', () => {
  test(
    'joins the lines of a record where it was opened so, in any cut, from worker to worker, and in a fork',
    { tags: 'slow' },
    () =>
      use(async (bench) => {
        const joining: ChunkInput = { type: 'open', novelty: true, join: '^\\d{2}:' }
        const trace = '  at lamp.light\n  at harbour.night\n'
        const text = Array.from({ length: 220 }, (_, i) => line(i) + (i % 9 === 0 ? trace : '')).join('')
        await bench.feed(event('once', joining), ...texts('once', text, 1 << 20), event('once', { type: 'close' }))
        await bench.settle()
        const once = await linesOf(bench, 'once')
        expect(once).toHaveLength(220)
        expect(once.filter(({ bytes }) => bytes > 60)).toHaveLength(25)

        // The cut falls inside a record.
        const cut = text.indexOf('  at harbour', 5000) + 4
        await bench.feed(event('cut', joining), ...texts('cut', text.slice(0, cut), 37))
        await bench.settle({ snapshotEvery: 1 })
        await bench.feed(
          event('child', { ...joining, from: { session: 'cut' } }),
          ...texts('cut', text.slice(cut), 1001),
          ...texts('child', text.slice(cut), 10_000),
          event('cut', { type: 'close' }),
          event('child', { type: 'close' }),
        )
        await bench.settle({ snapshotEvery: 1 << 20 })
        const told = await linesOf(bench, 'cut')
        expect(told).toEqual(once)
        const child = await linesOf(bench, 'child')
        expect(child).toEqual(once.slice(-child.length))
        await verified(bench)
      }),
  )

  test('and cannot join them as asked is told why', () =>
    use(async (bench) => {
      await bench.feed(
        event('s', { type: 'open', join: 'a' }),
        event('s', { type: 'open', novelty: true, join: '(' }),
        event('s', { type: 'open', novelty: true, join: '' }),
        event('s', { type: 'text', text: 'a\n' }),
      )
      await bench.settle()
      const letters = await bench.records('deadletters')
      const reasons = letters.map(({ headers }) =>
        Buffer.from(headers.find(([name]) => name === DEAD_LETTER_HEADERS.reason)![1]).toString(),
      )
      expect(reasons).toHaveLength(3)
      expect(reasons[0]).toMatch(/has "join" without "novelty"/)
      expect(reasons[1]).toMatch(/"join" cannot be used: it is no regular expression/)
      expect(reasons[2]).toMatch(/join/)
    }))

  test('tells the same of each line in any cut, from worker to worker, as one that reads all at once', () =>
    use(async (bench) => {
      const text = usual(0, 300) + ODD + usual(300, 330)
      await bench.feed(event('once', open), ...texts('once', text, 1 << 20))
      await bench.settle()
      await bench.feed(event('cut', open), ...texts('cut', text.slice(0, 9000), 37))
      await bench.settle({ snapshotEvery: 1 })
      await bench.feed(...texts('cut', text.slice(9000), 1001))
      await bench.settle({ snapshotEvery: 1 << 20 })
      const once = await linesOf(bench, 'once')
      expect(await linesOf(bench, 'cut')).toEqual(once)
      expect(once).toHaveLength(331)

      // As the judge of lines says by itself, of the surprisals that stand beside them.
      const nats = (await observed(bench, 'once')).flatMap(({ surprisal = [] }) => surprisal)
      const judge = createLineJudge()
      const bytes = Buffer.from(text)
      const own: LineNovelty[] = []
      for (const [at, value] of nats.entries()) judge.token(bytes.subarray(at, at + 1), value ?? Number.NaN, at, own)
      expect(once).toEqual(own)
      const odd = once[300]!
      expect(odd.structure.rank).toBe(1)
      expect(odd).toMatchObject({ seen: 0, text: ODD.trimEnd(), pattern: ODD.trimEnd(), bytes: ODD.length - 1 })
      expect(odd.words!.map(({ word }) => word)).toContain('balance,')
      expect(once[310]).toMatchObject({ seen: 309, first: 0 })
      const heads = await bench.heads()
      expect(heads.get('cut')!.novelty).toMatchObject({ lines: 331 })
      await verified(bench)
    }))

  test('tells of many lines in several observations, and of a last line that its text does not end', () =>
    use(async (bench) => {
      await bench.feed(event('s', open), event('s', { type: 'text', text: `${'a\n\n'.repeat(500)}the end` }))
      await bench.feed(
        event('s', { type: 'boundary' }),
        event('s', { type: 'boundary' }),
        event('s', { type: 'close' }),
      )
      await bench.settle()
      const told = await observed(bench, 's')
      expect(told.map(({ last }) => last)).toEqual([false, false, true, true])
      for (const { lines } of told) expect(lines!.length).toBeLessThanOrEqual(NOVELTY_SPAN + 256)
      const lines = told.flatMap(({ lines = [] }) => lines)
      expect(lines).toHaveLength(501)
      expect(lines.at(-1)).toMatchObject({ bytes: 7, fromPulse: 1500, toPulse: 1507 })
      await verified(bench)
    }))

  test('is forked with what it remembers where the fork asks for it; a reset forgets it, and so does an open without the wish', () =>
    use(async (bench) => {
      await bench.feed(event('day', open), ...texts('day', usual(0, 200), 4000))
      const fork = (id: string, novelty: boolean) => event(id, { type: 'open', novelty, from: { session: 'day' } })
      await bench.feed(fork('knows', true), fork('quiet', false))
      for (const id of ['knows', 'quiet', 'day'])
        await bench.feed(event(id, { type: 'text', text: line(200) }), event(id, { type: 'text', text: ODD }))
      await bench.feed(
        event('quiet', { type: 'open', novelty: true }),
        event('quiet', { type: 'text', text: ODD }),
        event('day', { type: 'boundary', reset: true }),
        event('day', { type: 'text', text: line(200) }),
      )
      await bench.settle({ snapshotEvery: 1000 })
      const [knows, quiet, day] = [
        await linesOf(bench, 'knows'),
        await linesOf(bench, 'quiet'),
        await linesOf(bench, 'day'),
      ]
      expect(knows.map(({ seen }) => seen)).toEqual([200, 0])
      expect(knows[1]!.structure.rank).toBe(1)
      expect(quiet.map(({ seen, structure }) => [seen, structure.rank])).toEqual([[0, null]])
      expect(day.slice(200).map(({ seen }) => seen)).toEqual([200, 0, 0])
      expect((await bench.heads()).get('day')!.novelty).toMatchObject({ lines: 1 })
      await verified(bench)
    }))

  test('of plain text is every one where the worker is told so: a record is a line, with or without its end', () =>
    use(async (bench) => {
      const told = { format: 'text', input: { novelty: true } } as const
      const lines = Array.from({ length: 260 }, (_, i) => line(i))
      await bench.feed(...lines.slice(0, 130).map((each, i) => event('host', i % 2 === 0 ? each : each.trimEnd())))
      await bench.settle({ ...told, snapshotEvery: 2000 })
      await bench.feed(
        ...lines.slice(130).map((each) => event('host', each.trimEnd())),
        event('host', `${ODD}${line(1)}cut`),
      )
      await bench.settle(told)
      const said = await linesOf(bench, 'host')
      expect(said.slice(0, 260).map(({ bytes }) => bytes)).toEqual(lines.map(({ length }) => length - 1))
      expect(said.slice(260).map(({ bytes }) => bytes)).toEqual([ODD.length - 1, line(1).length - 1, 3])
      expect(said[260]!.structure.rank).toBe(1)
      const { log, names, model, tokenizer } = bench
      expect((await verifyLog({ log, names, model, tokenizer, format: 'text', blobs: true })).findings).toEqual([])
    }))

  test(
    'gives an alert for each line that stands out, once, where the worker is told to; verify finds one that is gone',
    { tags: 'slow' },
    () =>
      use(async (bench) => {
        const text = usual(0, 300) + ODD + usual(300, 320)
        await bench.feed(event('s', open), ...texts('s', text, 500), event('quiet', { type: 'text', text }))
        const stopped = await bench.start({ input: { alerts: 0.005 }, snapshotEvery: 1, commitInterval: 0 })
        await eventually(async () => expect((await linesOf(bench, 's')).length).toBeGreaterThan(20))
        await stopped.worker.stop()
        await bench.settle({ input: { alerts: 0.005 } })
        const lines = await linesOf(bench, 's')
        const alerts = (await bench.records('alerts')).map(({ key, value, headers }) => ({
          key: Buffer.from(key!).toString(),
          value: alert.parse(JSON.parse(Buffer.from(value!).toString())),
          type: Buffer.from(headers.find(([name]) => name === 'ce_type')![1]).toString(),
        }))
        expect(alerts.map(({ value }) => value.line)).toEqual(lines.filter((each) => standsOut(each, 0.005).length > 0))
        expect(new Set(alerts.map(({ key, type }) => `${key} ${type}`))).toEqual(new Set(['s continuo.alert.v1']))
        expect(alerts.map(({ value }) => value.line.text)).toContain(ODD.trimEnd())
        await verified(bench)
        const [first] = await bench.records('alerts')
        await bench.log.append(bench.names.alerts, [{ ...first!, value: first!.value }], 0)
        const { log, names, model, tokenizer } = bench
        const { findings } = await verifyLog({ log, names, model, tokenizer, format: 'json' })
        expect(findings).toMatchObject([
          { kind: 'alert', message: expect.stringContaining('No input explains this event') },
        ])
      }),
  )

  test('says nothing where nobody asked', () =>
    use(async (bench) => {
      await bench.feed(event('s', { type: 'text', text: line(0) }))
      await bench.settle()
      expect((await observed(bench, 's'))[0]).not.toHaveProperty('lines')
      expect((await bench.heads()).get('s')).not.toHaveProperty('novelty')
    }))
})
