/** Sessions that adapt, on a stream: what the event does and tells, that every way to the same place is the same, and what is refused. */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { type ModelPackage, openPackage } from '../../src/models/open.ts'
import { restoreSession } from '../../src/operators/restore.ts'
import { verifyLog } from '../../src/operators/verify.ts'
import { textOf } from '../../src/text.ts'
import type { ChunkInput } from '../../topics/chunks.ts'
import { DEAD_LETTER_HEADERS } from '../../topics/deadletters.ts'
import type { Adapted, Observation } from '../../topics/observations.ts'
import { hasShared, sharedModel } from '../engine/paths.ts'
import { eventually } from '../streams/helpers.ts'
import { type Bench, type BenchOptions, benches, createBench, event, verified } from './harness.ts'

const NAME = 'perspective-tiny'

interface Stage {
  readonly stage: string
  readonly was: number
  readonly now: number
  readonly accepted: boolean
}
interface Expected {
  readonly ids: readonly number[]
  readonly nll: readonly (number | null)[]
  readonly total_nll: number
  readonly adapts: readonly {
    readonly at: number
    readonly asked: number
    readonly seed: number
    readonly tokens: number
    readonly evaluations: number
    readonly stages: readonly Stage[]
    readonly written: number
    readonly loss: number
  }[]
}
const expected = (): Expected => JSON.parse(readFileSync(join(sharedModel(NAME), 'expected.json'), 'utf8')) as Expected

/** The input of expected.json, with its two adaptations on the way. */
const script = (): readonly ChunkInput[] => {
  const { ids, adapts } = expected()
  const [first, second] = adapts.map(
    ({ asked, seed }): ChunkInput => ({ type: 'adapt', evaluations: asked, seed, id: `a${seed}` }),
  )
  return [
    { type: 'tokens', tokens: ids.slice(0, 48) },
    first!,
    { type: 'tokens', tokens: ids.slice(48, 80) },
    second!,
    { type: 'tokens', tokens: ids.slice(80) },
  ]
}

const adaptedIn = (observations: readonly Observation[]): readonly Adapted[] =>
  observations.flatMap((each) => (each.type === 'adapted' ? [each] : []))
const reasonsIn = async (bench: Bench): Promise<readonly string[]> =>
  (await bench.records('deadletters')).map(({ headers }) =>
    textOf(headers.find(([name]) => name === DEAD_LETTER_HEADERS.reason)![1]),
  )
const asking = (requestId: string, maxTokens = 24): ChunkInput => ({
  type: 'generate',
  requestId,
  maxTokens,
  temperature: 0.9,
  seed: 5,
})

describe.skipIf(!hasShared)('a session that adapts, on a stream', () => {
  let shared: ModelPackage
  beforeAll(async () => {
    shared = await openPackage(sharedModel(NAME), { threads: 2, keepPacked: false })
  })
  afterAll(() => shared.model.close())
  const use = async (claim: (bench: Bench) => Promise<void>, options?: BenchOptions): Promise<void> => {
    const bench = await createBench(shared, 1, options)
    try {
      await claim(bench)
    } finally {
      await bench.close()
    }
  }
  const chains = async (bench: Bench, ...sessions: readonly string[]): Promise<readonly string[]> => {
    const heads = await bench.heads()
    return sessions.map((session) => heads.get(session)!.chain)
  }

  test('tells what the reference says of its adaptations, and goes on with what they learnt', () =>
    use(async (bench) => {
      const { adapts, total_nll: total } = expected()
      await bench.feed(...script().map((each) => event('s', each)))
      await bench.settle({ snapshotEvery: 50 })
      const told = adaptedIn(await bench.observations('s'))
      expect(told).toHaveLength(2)
      for (const [at, { stages, seed, ...of }] of adapts.entries()) {
        const { tokens, evaluations, bound, pulse, cause, loss } = told[at]!
        expect({ tokens, evaluations, bound, pulse }).toEqual({
          ...{ tokens: of.tokens, evaluations: of.evaluations, bound: of.written, pulse: of.at },
        })
        expect(cause).toMatchObject({ offset: 1 + 2 * at, id: `a${seed}` })
        expect(told[at]!.stages.map(({ stage, accepted }) => ({ stage, accepted }))).toEqual(
          stages.map(({ stage, accepted }) => ({ stage, accepted })),
        )
        for (const [n, { was, now }] of stages.entries()) {
          expect(told[at]!.stages[n]!.was).toBeCloseTo(was, 3)
          expect(told[at]!.stages[n]!.now).toBeCloseTo(now, 3)
        }
        expect(loss!.before).toBeCloseTo(of.loss, 3)
        expect(loss!.after! < loss!.before!).toBe(stages.some(({ accepted }) => accepted))
      }
      const { totals, conductor } = (await bench.heads()).get('s')!
      expect(conductor.globalStep).toBe(96)
      expect(totals.nats).toBeCloseTo(total, 2)
      await verified(bench)
    }))

  test('goes on after each record in another worker, with and without a snapshot, as if nothing had been', () =>
    use(async (bench) => {
      const all = [...script(), asking('r')]
      await bench.feed(...all.map((each) => event('straight', each)))
      await bench.settle()
      for (const [at, chunk] of all.entries()) {
        await bench.feed(event('saved', chunk), event('read-again', chunk))
        await bench.settle({ snapshotEvery: at % 2 === 0 ? 1 : 100_000, maxContexts: 1 })
      }
      const [straight, ...others] = await chains(bench, 'straight', 'saved', 'read-again')
      expect(others).toEqual([straight, straight])
      const plain = (each: Observation) => ({ ...each, session: '', cause: null })
      expect((await bench.observations('saved')).map(plain)).toEqual((await bench.observations('straight')).map(plain))
      await verified(bench)
    }))

  test('is rebuilt from its events alone: what it learnt is learnt again', () =>
    use(async ({ log, names, model, tokenizer, ...bench }) => {
      await bench.feed(...script().map((each) => event('s', each)))
      await bench.settle()
      const head = (await bench.heads()).get('s')!
      const validate = { format: 'json', vocabSize: model.vocabSize, readsText: true } as const
      const deps = { log, names, model, engine: { model, tokenizer, submit: model.submit }, validate }
      const saved = await restoreSession(deps, 0, head)
      const again = await restoreSession(deps, 0, { ...head, snapshot: null })
      expect(again.context.chain).toBe(head.chain)
      expect(Buffer.compare(await again.context.state(), await saved.context.state())).toBe(0)
      for (const { context } of [saved, again]) context.close()
    }))

  test('is saved by what an adaptation computed, though its clock stands', () =>
    use(async (bench) => {
      // 14 evaluations of 12 tokens are more than the pulses that a snapshot waits for; the 48 that were read are not.
      await bench.feed(
        ...script()
          .slice(0, 2)
          .map((each) => event('s', each)),
      )
      const running = await bench.start({ snapshotEvery: 150 })
      await running.idle()
      await eventually(async () => expect((await bench.heads()).get('s')!.snapshot).toMatchObject({ pulse: 48 }))
      await bench.feed(event('s', script()[2]!))
      await running.idle()
      await running.worker.stop()
      await verified(bench)
    }))

  test('two sessions in turns in one place each keep what they learnt', () =>
    use(async (bench) => {
      const { ids } = expected()
      const of = (seed: number): readonly ChunkInput[] => [
        { type: 'tokens', tokens: ids.slice(seed, seed + 40) },
        { type: 'adapt', evaluations: 30, seed },
        asking('one'),
        { type: 'adapt', evaluations: 30, seed: seed + 1 },
        asking('two'),
      ]
      const [a, b] = [of(3), of(31)]
      for (const at of a.keys()) await bench.feed(event('a', a[at]!), event('b', b[at]!))
      await bench.settle({ maxContexts: 1, maxResidentBytes: 40_000 })
      await bench.feed(...a.map((each) => event('a-alone', each)))
      await bench.settle()
      await bench.feed(...b.map((each) => event('b-alone', each)))
      await bench.settle()
      const [left, right, leftAlone, rightAlone] = await chains(bench, 'a', 'b', 'a-alone', 'b-alone')
      expect([left, right]).toEqual([leftAlone, rightAlone])
      expect(left).not.toBe(right)
      await verified(bench)
    }))

  test('a fork takes what its parent learnt, and neither notices what the other learns', () =>
    use(async (bench) => {
      const start = script().slice(0, 2)
      const [mine, its] = [1, 2].map((seed): ChunkInput => ({ type: 'adapt', evaluations: 20, seed }))
      await bench.feed(
        ...start.map((each) => event('parent', each)),
        event('child', { type: 'open', from: { session: 'parent' } }),
        event('parent', mine!),
        event('child', its!),
        event('parent', asking('r')),
        event('child', asking('r')),
        ...[...start, mine!, asking('r')].map((each) => event('alone', each)),
        ...[...start, its!, asking('r')].map((each) => event('other', each)),
      )
      await bench.settle()
      const [parent, child, alone, other] = await chains(bench, 'parent', 'child', 'alone', 'other')
      expect([parent, child]).toEqual([alone, other])
      expect(child).not.toBe(parent)
      await verified(bench)
    }))

  test('a reset forgets what was learnt; a boundary without one does not', () =>
    use(async (bench) => {
      const { ids } = expected()
      const [text, adapt] = script()
      const rest: ChunkInput = { type: 'tokens', tokens: ids.slice(48) }
      const ending = (session: string, ...events: readonly ChunkInput[]) =>
        bench.feed(...[text!, ...events, rest].map((each) => event(session, each)))
      await ending('plain', { type: 'boundary', reset: true })
      await ending('forgot', adapt!, { type: 'boundary', reset: true })
      await ending('kept', adapt!, { type: 'boundary' })
      await ending('knows', adapt!)
      await bench.settle()
      const last = async (session: string): Promise<number> => {
        const told = (await bench.observations(session)).filter(({ type }) => type === 'observed')
        return (told.at(-1) as Extract<Observation, { type: 'observed' }>).nats
      }
      expect(await last('forgot')).toBe(await last('plain'))
      expect(await last('kept')).toBe(await last('knows'))
      await verified(bench)
    }))

  test('reads what is held back first, in the same step', () =>
    use(async (bench) => {
      await bench.feed(
        event('s', { type: 'text', text: 'A ship came in.\ud83d' }),
        event('s', { type: 'adapt', evaluations: 9 }),
      )
      const { commits } = await bench.settle()
      const told = (await bench.observations('s')).filter(({ cause }) => cause.offset === 1)
      expect(told.map(({ type }) => type)).toEqual(['observed', 'adapted'])
      // U+FFFD for the half that never met its other half.
      expect(told[0]).toMatchObject({ fromPulse: 15, toPulse: 18 })
      expect(told[1]).toMatchObject({ pulse: 18, tokens: 12 })
      expect(commits.flatMap(({ steps }) => steps).filter(({ record }) => record.offset === 1)).toHaveLength(1)
      expect((await bench.heads()).get('s')!.cursor).toMatchObject({ token: 3, complete: true, held: '' })
      await verified(bench)
    }))

  test('learns nothing from fewer than two tokens, says so, and nothing else changes', () =>
    use(async (bench) => {
      const { ids } = expected()
      const adapt: ChunkInput = { type: 'adapt', evaluations: 40, seed: 3 }
      const one: ChunkInput = { type: 'tokens', tokens: ids.slice(0, 1) }
      const rest: ChunkInput = { type: 'tokens', tokens: ids.slice(1, 20) }
      await bench.feed(...[{ type: 'open' } as const, adapt, one, adapt, rest].map((each) => event('s', each)))
      await bench.feed(...[one, rest].map((each) => event('plain', each)))
      await bench.settle()
      const told = adaptedIn(await bench.observations('s'))
      const nothing = { evaluations: 0, stages: [], bound: 0, loss: null }
      expect(told).toMatchObject([
        { ...nothing, pulse: 0, tokens: 0 },
        { ...nothing, pulse: 1, tokens: 1 },
      ])
      const [s, plain] = await chains(bench, 's', 'plain')
      expect(s).toBe(plain)
      await verified(bench)
    }))

  test('refuses what cannot be, with a sentence, and leaves the session as it was', () =>
    use(async (bench) => {
      const [text, adapt] = script()
      await bench.feed(event('s', text!), event('closed', text!), event('closed', { type: 'close' }))
      await bench.settle()
      const before = (await bench.heads()).get('s')!
      await bench.feed(
        event('nobody', adapt!),
        event('closed', adapt!),
        event('s', '{"type":"adapt"}'),
        event('s', '{"type":"adapt","evaluations":0}'),
        event('s', '{"type":"adapt","evaluations":65537}'),
        event('s', '{"type":"adapt","evaluations":4,"seed":-1}'),
        event('s', '{"type":"adapt","evaluations":4,"rounds":2}'),
      )
      await bench.settle()
      const [nobody, closed, ...others] = await reasonsIn(bench)
      expect(nobody).toBe(
        'Session "nobody" is not open; an "adapt" event arrived. Send what it shall learn from first, or "open".',
      )
      expect(closed).toContain('Session "closed" is closed; a "adapt" event arrived.')
      expect(others).toHaveLength(5)
      for (const reason of others)
        expect(reason).toContain('A "adapt" event has the fields type, id, evaluations, seed.')
      const heads = await bench.heads()
      expect(heads.has('nobody')).toBe(false)
      expect(heads.get('s')!.chain).toBe(before.chain)
      await verified(bench)
    }))

  test('an observation that was added is found', () =>
    use(async (bench) => {
      await bench.feed(
        ...script()
          .slice(0, 2)
          .map((each) => event('s', each)),
      )
      await bench.settle()
      const told = adaptedIn(await bench.observations('s'))[0]!
      await bench.log.append(bench.names.observations, [event('s', JSON.stringify({ ...told, bound: 8 }))])
      const { log, names, model, tokenizer } = bench
      const { findings } = await verifyLog({ log, names, model, tokenizer, format: 'json' })
      expect(findings).toMatchObject([{ kind: 'observation', session: 's' }])
      expect(findings[0]!.message).toContain('No input explains this event')
    }))

  describe('that is to tell what its draws found', () => {
    const open: ChunkInput = { type: 'open', perspectives: true }

    test('has each run of tokens followed by it, and draws the same tokens', () =>
      use(async (bench) => {
        const all = [...script(), asking('r', 40)]
        await bench.feed(...[open, ...all].map((each) => event('loud', each)))
        await bench.feed(...[{ type: 'open' } as const, ...all].map((each) => event('quiet', each)))
        await bench.settle({ snapshotEvery: 30 })
        const told = (await bench.observations('loud')).flatMap((each) => (each.type === 'perspectives' ? [each] : []))
        const runs = await bench.generated('loud')
        expect(runs.map(({ ids }) => ids.length)).toEqual([16, 16, 8])
        const place = ({ requestId, index, fromPulse, toPulse }: (typeof runs | typeof told)[number]) => ({
          ...{ requestId, index, fromPulse, toPulse },
        })
        expect(told.map(place)).toEqual(runs.map(place))
        const draws = told.flatMap((each) => each.draws)
        expect(draws).toHaveLength(40)
        expect(draws.some(({ fired }) => fired)).toBe(true)
        for (const { fired, jsd, agreed, hdm, weight } of draws) {
          expect([jsd === null, agreed === null]).toEqual([!fired, !fired])
          if (agreed !== false) expect(hdm).toBeNull()
          if (!hdm?.hit) expect(weight).toBeNull()
        }
        const experts = told.flatMap((each) => each.experts)
        expect(experts.map((layers) => layers.map((ranks) => ranks.length))).toEqual(
          Array.from({ length: 40 }, () => [1, 1, 1, 1]),
        )
        const [loud, quiet] = await chains(bench, 'loud', 'quiet')
        expect(loud).toBe(quiet)
        expect((await bench.observations('quiet')).filter(({ type }) => type === 'perspectives')).toEqual([])
        const heads = await bench.heads()
        expect(heads.get('loud')!.settings).toEqual({ surprisal: false, perspectives: true })
        expect(heads.get('quiet')!.settings).toEqual({ surprisal: false })
        await verified(bench)
      }))

    test('keeps the wish from worker to worker, in the middle of a request too, until another open', () =>
      use(async (bench) => {
        await bench.feed(event('s', open), event('s', script()[0]!))
        await bench.settle({ snapshotEvery: 1 })
        await bench.feed(event('s', asking('one', 200)))
        const stopped = await bench.start({ commitInterval: 1, snapshotEvery: 20 })
        await eventually(async () => expect((await bench.generated('s')).length).toBeGreaterThan(1))
        await stopped.worker.stop()
        await bench.settle()
        await bench.feed(event('s', { type: 'open' }), event('s', asking('two', 4)))
        await bench.settle()
        const told = (await bench.observations('s')).flatMap((each) => (each.type === 'perspectives' ? [each] : []))
        const runs = await bench.generated('s')
        expect(told.map(({ index }) => index)).toEqual(
          runs.filter(({ requestId }) => requestId === 'one').map(({ index }) => index),
        )
        await verified(bench)
      }))

    test('a fork has the wish of its own open', () =>
      use(async (bench) => {
        await bench.feed(
          event('parent', open),
          event('parent', script()[0]!),
          event('quiet', { type: 'open', from: { session: 'parent' } }),
          event('loud', { type: 'open', perspectives: true, from: { session: 'parent' } }),
          ...['quiet', 'loud'].map((session) => event(session, asking('r', 4))),
        )
        await bench.settle()
        const counted = async (session: string): Promise<number> =>
          (await bench.observations(session)).filter(({ type }) => type === 'perspectives').length
        expect([await counted('quiet'), await counted('loud')]).toEqual([0, 1])
        await verified(bench)
      }))
  })
})

describe('a model without the parts', () => {
  const { use } = benches()
  test('refuses to adapt, and to tell what perspectives find', () =>
    use(async (bench) => {
      await bench.feed(
        event('s', { type: 'text', text: 'A ship came in.' }),
        event('s', { type: 'adapt', evaluations: 4 }),
        event('s', { type: 'open', perspectives: true }),
      )
      await bench.settle()
      expect(await reasonsIn(bench)).toEqual([
        'The model has nothing that adapts, and an "adapt" event arrived. Only a perspective model with "fmea" or "hdm" takes it.',
        'The model does not draw from several perspectives, and an "open" event asks what they find. Leave "perspectives" out.',
      ])
      expect((await bench.heads()).get('s')).toMatchObject({ status: 'open', conductor: { globalStep: 15 } })
      await verified(bench)
    }))
})
