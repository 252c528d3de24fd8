/**
 * Sessions that adapt, on a stream: what the event does and tells, that every way to the same place is the same, and
 * what is refused.
 */
import { describe, expect, test } from 'vitest'
import type { Model } from '../../../src/engine/types.ts'
import { restoreSession } from '../../../src/operators/snapshots/restore.ts'
import { verifyLog } from '../../../src/operators/verify/verify.ts'
import type { Head } from '../../../src/state/head.ts'
import type { ChunkInput } from '../../../topics/chunks.ts'
import type { Adapted, Observation } from '../../../topics/observations.ts'
import { hasShared } from '../../engine/paths.ts'
import { eventually } from '../../streams/helpers.ts'
import { asking, chains, expected, reasonsIn, script, tinyBenches } from '../adapting.ts'
import { benches, event, verified } from '../harness.ts'
import { plant } from '../planting.ts'

const adaptedIn = (observations: readonly Observation[]): readonly Adapted[] =>
  observations.flatMap((each) => (each.type === 'adapted' ? [each] : []))
describe.skipIf(!hasShared)('a session that adapts, on a stream', () => {
  const { use } = tinyBenches()

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

  test(
    'goes on after each record in another worker, with and without a snapshot, as if nothing had been',
    { tags: 'slow' },
    () =>
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
        expect((await bench.observations('saved')).map(plain)).toEqual(
          (await bench.observations('straight')).map(plain),
        )
        await verified(bench)
      }),
  )

  test('is rebuilt from its events alone: what it learnt is learnt again', () =>
    use(async ({ log, names, model, tokenizer, ...bench }) => {
      await bench.feed(...script().map((each) => event('s', each)))
      await bench.settle()
      const head = (await bench.heads()).get('s')!
      const validate = { format: 'json', vocabSize: model.vocabSize, readsText: true } as const
      const deps = {
        log,
        names,
        model,
        engine: { model, tokenizer, submit: model.submit },
        validate,
        cancelled: new Map(),
      }
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

  test('two sessions in turns in one place each keep what they learnt', { tags: 'slow' }, () =>
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
    }),
  )

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

  test(
    'leaves no trace where a stop ends it between two evaluations, and is done anew by the next worker',
    { tags: 'slow' },
    () =>
      use(async (bench) => {
        // Half a character is held back: the adaptation's step reads it first.
        const events: readonly ChunkInput[] = [
          { type: 'text', text: 'A ship came in.\ud83d' },
          { type: 'adapt', evaluations: 600, seed: 5 },
          asking('r'),
        ]
        await bench.feed(...events.map((each) => event('s', each)))
        for (const snapshotEvery of [1, 100_000]) {
          const adapting = Promise.withResolvers<void>()
          const submit: Model['submit'] = (item) => {
            const answer = bench.model.submit(item)
            if (item.request?.type === 'adapt') adapting.resolve()
            return answer
          }
          const running = await bench.start({ snapshotEvery, model: { ...bench.model, submit } })
          await adapting.promise
          await running.worker.stop()
          expect(running.states.at(-1)?.state).toBe('closed')
          expect((await bench.heads()).get('s')!.cursor).toMatchObject({ offset: 0, complete: true })
          expect((await bench.observations('s')).map(({ type }) => type)).toEqual(['opened', 'observed'])
        }
        await bench.settle()
        await bench.feed(...events.map((each) => event('alone', each)))
        await bench.settle()
        const [stopped, alone] = await chains(bench, 's', 'alone')
        expect(stopped).toBe(alone)
        expect(adaptedIn(await bench.observations('s'))).toHaveLength(1)
        await verified(bench)
      }),
  )

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
      // Nothing is said of the order between sessions.
      const reasons = await reasonsIn(bench)
      const of = (session: string) => reasons.find((reason) => reason.startsWith(`Session "${session}"`))
      const [nobody, closed] = [of('nobody'), of('closed')]
      const others = reasons.filter((reason) => reason !== nobody && reason !== closed)
      expect(nobody).toBe(
        'Session "nobody" is not open; an "adapt" event arrived. Send what it shall learn from first, or "open".',
      )
      expect(closed).toContain('Session "closed" is closed; a "adapt" event arrived.')
      expect(others).toHaveLength(5)
      for (const reason of others)
        expect(reason).toContain('A "adapt" event has the fields type, id, once, evaluations, seed, requestId.')
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

  test('does not believe a head that asks what perspectives find', () =>
    use(async (bench) => {
      await bench.feed(event('s', { type: 'text', text: 'A ship came in.' }))
      await bench.settle()
      const asks = (head: Head): Head => ({ ...head, settings: { surprisal: false, perspectives: true } })
      await plant(bench, 's', { head: asks, inside: asks })
      await bench.feed(event('s', { type: 'text', text: ' It left again.' }))
      await bench.settle()
      // Neither its snapshot nor its events lead to such a head.
      expect((await reasonsIn(bench))[0]).toMatch(/^Session "s" was set aside: .*"perspectives":true/)
    }))
})
