/**
 * What draws found, on a stream: told with each run of tokens where it was asked for, and nothing else of it is seen.
 */
import { describe, expect, test } from 'vitest'
import { verifyLog } from '../../../src/operators/verify/verify.ts'
import type { ChunkInput } from '../../../topics/chunks.ts'
import { hasShared } from '../../engine/paths.ts'
import { eventually } from '../../streams/helpers.ts'
import { asking, chains, expected, script, tinyBenches } from '../adapting.ts'
import { event, verified } from '../harness.ts'

describe.skipIf(!hasShared)('a session that is to tell what its draws found', () => {
  const { use } = tinyBenches()
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

  test('is verified from a snapshot in the middle of a request, where its first events are gone', () =>
    use(async (bench) => {
      const { log, names, model, tokenizer } = bench
      await bench.feed(event('s', open), event('s', script()[0]!))
      await bench.settle({ snapshotEvery: 1 })
      await bench.feed(event('s', asking('one', 120)), event('s', script()[1]!))
      await bench.settle({ commitInterval: 1, snapshotEvery: 20 })
      await bench.feed(event('s', asking('two', 20)))
      await bench.settle({ snapshotEvery: 1 << 30 })
      // Only events from the request on are left: a snapshot inside it is the first from which they lead on.
      await log.trim(names.chunks, 0, 2)
      const { findings, partial } = await verifyLog({ log, names, model, tokenizer, format: 'json' })
      expect({ findings, sessions: partial.map(({ session }) => session) }).toEqual({ findings: [], sessions: ['s'] })
      await log.trim(names.chunks, 0, 3)
      const later = await verifyLog({ log, names, model, tokenizer, format: 'json' })
      expect(later.findings).toEqual([])
      expect(later.partial[0]!.fromPulse).toBeGreaterThan(partial[0]!.fromPulse)
    }))

  test('tells what the reference says of every draw', { tags: 'slow' }, () =>
    use(async (bench) => {
      const { ids, adapts, draws } = expected()
      const adaptAt = new Map(adapts.map(({ at, asked, seed }) => [at, { evaluations: asked, seed }]))
      // Before each of these the session is forked, and the fork draws.
      for (const [i, id] of ids.entries()) {
        await bench.feed(
          event('s', { type: 'tokens', tokens: [id] }),
          event(`draw-${i}`, { ...open, from: { session: 's' } }),
          event(`draw-${i}`, asking('r', 1)),
        )
        const adapt = adaptAt.get(i + 1)
        if (adapt !== undefined) await bench.feed(event('s', { type: 'adapt', ...adapt }))
      }
      await bench.settle({ maxContexts: 200 })
      for (const [i, { fired, entropy, jsd, agreed, hdm, weight }] of draws.entries()) {
        const told = (await bench.observations(`draw-${i}`)).find(({ type }) => type === 'perspectives')
        if (told?.type !== 'perspectives') throw new Error(`No draw after ${i + 1} tokens was told of.`)
        const [found] = told.draws
        expect(found, `after ${i + 1} tokens`).toMatchObject({
          fired,
          agreed: agreed ?? null,
          hdm: hdm ? { token: hdm.token, distance: hdm.distance, bank: hdm.bank, hit: hdm.hit } : null,
        })
        expect(found!.entropy).toBeCloseTo(entropy, 3)
        if (jsd === undefined) expect(found!.jsd).toBeNull()
        else expect(found!.jsd).toBeCloseTo(jsd, 3)
        if (weight === undefined) expect(found!.weight).toBeNull()
        else expect(found!.weight).toBeCloseTo(weight, 6)
      }
    }),
  )
})
