/**
 * Adaptations that are ended on their way: by a cancel, by the deletion of their session, by the worker's bound.
 * Nothing is learnt then.
 */
import { describe, expect, test } from 'vitest'
import type { Model } from '../../../src/engine/types.ts'
import { verifyLog } from '../../../src/operators/verify/verify.ts'
import { readPartitionState } from '../../../src/operators/worker/partition-state.ts'
import { SessionManager } from '../../../src/sessions/manager.ts'
import { type ChunkInput, MAX_EVALUATIONS } from '../../../topics/chunks.ts'
import type { Adapted } from '../../../topics/observations.ts'
import { hasShared } from '../../engine/paths.ts'
import { eventually } from '../../streams/helpers.ts'
import { asking, chains, expected, reasonsIn, tinyBenches } from '../adapting.ts'
import { type Bench, event, verified } from '../harness.ts'

/** More than any test waits for. */
const endless = (requestId?: string): ChunkInput => ({
  ...{ type: 'adapt', evaluations: MAX_EVALUATIONS, seed: 5 },
  ...(requestId !== undefined && { requestId }),
})
const text = (): ChunkInput => ({ type: 'tokens', tokens: expected().ids.slice(0, 48) })
const cancel = (requestId: string): ChunkInput => ({ type: 'cancel', requestId })

const told = async (bench: Bench, session: string): Promise<readonly Adapted[]> =>
  (await bench.observations(session)).flatMap((each) => (each.type === 'adapted' ? [each] : []))

/** A model, and what resolves when the engine has its `count`-th adaptation. */
const watched = (model: Model, count = 1) => {
  const adapting = Promise.withResolvers<void>()
  let seen = 0
  const submit: Model['submit'] = (item) => {
    const answer = model.submit(item)
    if (item.request?.type === 'adapt' && ++seen === count) adapting.resolve()
    return answer
  }
  return { model: { ...model, submit }, adapting: adapting.promise }
}

const NOTHING = { tokens: 0, evaluations: 0, stages: [], bound: 0, loss: null } as const

describe.skipIf(!hasShared)('an adaptation that is ended', () => {
  const { use } = tinyBenches()

  test('by a cancel, which goes past all that waits in the session: it goes on as if it had not been asked to learn', () =>
    use(async (bench) => {
      const { model, adapting } = watched(bench.model)
      // Half a character is held back: the event reads it, whatever becomes of the rest of it.
      const before: readonly ChunkInput[] = [text(), { type: 'text', text: 'A ship.\ud83d' }]
      await bench.feed(...[...before, endless('long'), asking('r')].map((each) => event('s', each)))
      const running = await bench.start({ model })
      await adapting
      await bench.feed(event('s', cancel('long')))
      await running.idle()
      await running.worker.stop()
      expect(await told(bench, 's')).toMatchObject([{ ...NOTHING, requestId: 'long', endedBy: 'cancel', pulse: 58 }])
      expect(await reasonsIn(bench)).toEqual([])
      const { cancelled } = await readPartitionState(bench.log, bench.names, 0, 1 << 30)
      expect([...cancelled.values()]).toMatchObject([{ requestId: 'long', offset: 2, index: 0, cause: { offset: 4 } }])
      await bench.feed(...[...before, { type: 'boundary' } as const, asking('r')].map((each) => event('plain', each)))
      await bench.settle()
      const [ended, plain] = await chains(bench, 's', 'plain')
      expect(ended).toBe(plain)
      await verified(bench)
    }))

  test('by a cancel before its turn: it never begins', () =>
    use(async (bench) => {
      const { model, adapting } = watched(bench.model)
      await bench.feed(...[text(), endless('one'), endless('two')].map((each) => event('s', each)))
      const running = await bench.start({ model })
      await adapting
      await bench.feed(event('s', cancel('two')), event('s', cancel('one')))
      await running.idle()
      await running.worker.stop()
      expect((await told(bench, 's')).map(({ requestId, endedBy }) => [requestId, endedBy])).toEqual([
        ['one', 'cancel'],
        ['two', 'cancel'],
      ])
      await verified(bench)
    }))

  test('a cancel that comes too late, or names another, is a dead letter', () =>
    use(async (bench) => {
      await bench.feed(
        event('s', text()),
        event('s', { type: 'adapt', evaluations: 20, seed: 5, requestId: 'short' }),
        event('s', cancel('other')),
      )
      await bench.settle()
      await bench.feed(event('s', cancel('short')))
      await bench.settle()
      expect(await told(bench, 's')).toMatchObject([{ requestId: 'short', tokens: 12 }])
      expect((await told(bench, 's'))[0]).not.toHaveProperty('endedBy')
      const reasons = await reasonsIn(bench)
      expect(reasons).toHaveLength(2)
      for (const reason of reasons) expect(reason).toContain('no such request was waiting or being generated')
      await verified(bench)
    }))

  test('by the deletion of its session, where nothing between the two shows what it learnt', () =>
    use(async (bench) => {
      const { model, adapting } = watched(bench.model)
      await bench.feed(...[text(), endless(), endless('second')].map((each) => event('s', each)))
      const running = await bench.start({ model })
      await adapting
      await bench.feed(event('s', { type: 'delete' }), event('s', text()))
      await running.idle()
      await running.worker.stop()
      expect(await told(bench, 's')).toMatchObject([
        { ...NOTHING, endedBy: 'delete' },
        { ...NOTHING, endedBy: 'delete', requestId: 'second' },
      ])
      expect((await bench.heads()).get('s')!.born).toBe(4)
      await verified(bench)
    }))

  test('a deletion waits where something between the two shows what was learnt: an answer, or a fork', () =>
    use(async (bench) => {
      const learn: ChunkInput = { type: 'adapt', evaluations: 200, seed: 5 }
      const { model, adapting } = watched(bench.model)
      await bench.feed(
        ...[text(), learn, asking('r'), { type: 'delete' } as const].map((each) => event('answers', each)),
        event('parent', text()),
        event('parent', learn),
        event('child', { type: 'open', from: { session: 'parent' } }),
        event('parent', { type: 'delete' }),
        event('child', asking('r')),
        ...[text(), learn, asking('r')].map((each) => event('alone', each)),
      )
      const running = await bench.start({ model })
      await adapting
      await running.idle()
      await running.worker.stop()
      for (const session of ['answers', 'parent', 'alone']) {
        expect(await told(bench, session)).toHaveLength(1)
        expect((await told(bench, session))[0]).not.toHaveProperty('endedBy')
      }
      const [child, alone] = await chains(bench, 'child', 'alone')
      expect(child).toBe(alone)
      await verified(bench)
    }))

  test('by the worker, whose bound it has passed; what its session sends next has its turn', () =>
    use(async (bench) => {
      await bench.feed(...[text(), endless(), asking('r')].map((each) => event('s', each)))
      await bench.settle({ adaptTime: 20 })
      expect(await told(bench, 's')).toMatchObject([{ ...NOTHING, endedBy: 'time' }])
      const { cancelled } = await readPartitionState(bench.log, bench.names, 0, 1 << 30)
      expect([...cancelled.values()]).toMatchObject([{ endedBy: 'time', offset: 1, index: 0, cause: { offset: 1 } }])
      await bench.feed(...[text(), asking('r')].map((each) => event('plain', each)))
      await bench.settle()
      const [ended, plain] = await chains(bench, 's', 'plain')
      expect(ended).toBe(plain)
      await verified(bench)
    }))

  test('one that waits for a thread is ended at once, and its time has not begun', () =>
    use(async (bench) => {
      const { model, adapting } = watched(bench.model, 4)
      const busy = ['a', 'b', 'c', 'd']
      await bench.feed(...busy.flatMap((id) => [event(id, text()), event(id, endless(id))]))
      const running = await bench.start({ model, adaptTime: 1500 })
      await adapting
      await bench.feed(event('gone', text()), event('gone', endless('gone')), event('gone', cancel('gone')))
      await eventually(async () => expect(await told(bench, 'gone')).toMatchObject([{ endedBy: 'cancel' }]))
      await bench.feed(event('short', text()), event('short', { type: 'adapt', evaluations: 20, seed: 5 }))
      await running.idle()
      await running.worker.stop()
      for (const id of busy) expect(await told(bench, id)).toMatchObject([{ endedBy: 'time' }])
      expect(await told(bench, 'short')).toMatchObject([{ tokens: 12 }])
      expect((await told(bench, 'short'))[0]).not.toHaveProperty('endedBy')
      await verified(bench)
    }))

  test('stays so for everybody who computes the session again, also from its first event', () =>
    use(async (bench) => {
      await bench.feed(...[text(), endless('x')].map((each) => event('s', each)))
      await bench.settle({ adaptTime: 20, snapshotEvery: 100_000 })
      // No snapshot: another worker computes the session from its events, and has all the time.
      await bench.feed(event('s', asking('r')))
      await bench.settle({ snapshotEvery: 100_000 })
      await bench.feed(...[text(), asking('r')].map((each) => event('plain', each)))
      await bench.settle()
      const [ended, plain] = await chains(bench, 's', 'plain')
      expect(ended).toBe(plain)
      await verified(bench)
    }))

  test('an observation that says so, without a record, is found', () =>
    use(async (bench) => {
      await bench.feed(event('s', text()), event('s', { type: 'adapt', evaluations: 20, seed: 5 }))
      await bench.settle()
      const one = (await told(bench, 's'))[0]!
      const made: Adapted = { ...one, ...NOTHING, stages: [], endedBy: 'time' }
      await bench.log.append(bench.names.observations, [event('s', JSON.stringify(made))])
      const { log, names, model, tokenizer } = bench
      const { findings } = await verifyLog({ log, names, model, tokenizer, format: 'json' })
      expect(findings.map(({ message }) => message).join('\n')).toContain(
        'The observations topic says that the adaptation at offset 1 was ended (time), and no record of the state topic does.',
      )
    }))

  test('by the signal of a caller, in a library', () =>
    use(async ({ model, tokenizer }) => {
      const { model: seen, adapting } = watched(model)
      const manager = new SessionManager(seen, { tokenizer, verifyWeights: false })
      try {
        const { ids } = expected()
        const session = manager.createSession('s')
        await manager.process(session, ids.slice(0, 48))
        const stop = new AbortController()
        const answer = manager.adapt(session, { evaluations: MAX_EVALUATIONS, signal: stop.signal })
        await adapting
        stop.abort()
        expect(await answer).toMatchObject({ ...NOTHING, endedBy: 'cancel' })
        expect((await manager.adapt(session, { evaluations: 20 })).tokens).toBe(12)
      } finally {
        await manager.close()
      }
    }))
})
