/** Sessions of a program that adapt, and that tell what their draws found. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import type { Model } from '../../src/engine/types.ts'
import { codeOf, messageOf } from '../../src/errors.ts'
import { openModel } from '../../src/models/open.ts'
import type { SessionManager } from '../../src/sessions/manager.ts'
import type { SessionHandle } from '../../src/sessions/types.ts'
import { decodeSnapshot, encodeSnapshot } from '../../src/state/snapshot.ts'
import { open } from '../engine/helpers.ts'
import { hasShared } from '../engine/paths.ts'
import { expected, tiny } from '../operators/adapting.ts'
import { demoModel } from '../operators/harness.ts'
import { managed } from './helpers.ts'

const plain = ({ head: _, ...report }: Awaited<ReturnType<SessionManager['adapt']>>) => report

describe.skipIf(!hasShared)('a session of a program', () => {
  let model: Model
  beforeAll(async () => {
    model = await openModel(tiny(), { threads: 2, keepPacked: false })
  })
  afterAll(() => model.close())
  const read = async (manager: SessionManager, id: string, count = 48): Promise<SessionHandle> => {
    const session = manager.createSession(id)
    await manager.process(session, expected().ids.slice(0, count))
    return session
  }

  test('adapts as the event does, and the call says what came of it', async () => {
    const { adapts, ids, nll } = expected()
    const [{ asked, seed, tokens, evaluations, written }] = adapts as [(typeof adapts)[number]]
    const manager = managed(model)
    const session = await read(manager, 's')
    const { head, ...report } = await manager.adapt(session, { evaluations: asked, seed })
    expect(report).toMatchObject({ pulse: 48, tokens, evaluations, bound: written })
    expect(head.chain).toBe(session.chain)
    const { nats } = await manager.process(session, ids.slice(48, 80))
    for (const [i, value] of nats.entries()) expect(Math.abs(value - nll[48 + i]!)).toBeLessThan(1e-2)
  })

  test('learns nothing from fewer than two tokens, and its chain stays', async () => {
    const manager = managed(model)
    const session = manager.createSession('s')
    const { chain } = session
    expect(plain(await manager.adapt(session, { evaluations: 9 }))).toEqual({
      ...{ pulse: 0, tokens: 0, evaluations: 0, stages: [], bound: 0, loss: null },
    })
    expect(session.chain).toBe(chain)
  })

  test('takes calls in turn: what is read behind an adaptation is read with what it learnt', async () => {
    const { ids } = expected()
    const manager = managed(model)
    const [one, other] = [await read(manager, 'one'), await read(manager, 'other')]
    const together = [
      manager.adapt(one, { evaluations: 20, seed: 3 }),
      manager.process(one, ids.slice(48, 60)),
      manager.adapt(one, { evaluations: 20, seed: 4 }),
    ] as const
    const [first, , second] = await Promise.all(together)
    const alone = plain(await manager.adapt(other, { evaluations: 20, seed: 3 }))
    await manager.process(other, ids.slice(48, 60))
    expect(plain(first)).toEqual(alone)
    expect(plain(second)).toEqual(plain(await manager.adapt(other, { evaluations: 20, seed: 4 })))
    expect(one.chain).toBe(other.chain)
  })

  test('carries what it learnt through a checkpoint, a fork and a spill file', async () => {
    const { ids } = expected()
    const manager = managed(model, { maxResidentBytes: model.contextBytes })
    const session = await read(manager, 's')
    await manager.adapt(session, { evaluations: 40, seed: 1 })
    const blob = await manager.checkpointSession(session)
    const fork = await manager.fork(session, 'fork')
    const resumed = await manager.resumeSession(blob, { id: 'resumed' })
    const unlearnt = await read(manager, 'unlearnt')
    const ends = []
    for (const each of [session, fork, resumed, unlearnt]) {
      const { nats } = await manager.process(each, ids.slice(48, 60))
      ends.push([...nats])
    }
    expect(ends[1]).toEqual(ends[0])
    expect(ends[2]).toEqual(ends[0])
    expect(ends[3]).not.toEqual(ends[0])
    expect([fork.chain, resumed.chain]).toEqual([session.chain, session.chain])
    expect(manager.stats.spillReads).toBeGreaterThan(0)
  })

  test('two that learn by turns keep what they learnt apart', async () => {
    const { ids } = expected()
    const steps = async (manager: SessionManager, id: string, from: number) => {
      const session = manager.createSession(id)
      for (let at = from; at < from + 40; at += 10) {
        await manager.process(session, ids.slice(at, at + 10))
        await manager.adapt(session, { evaluations: 16, seed: at })
      }
      return session.chain
    }
    const [together, alone] = [managed(model), managed(model)]
    const both = await Promise.all([steps(together, 'a', 0), steps(together, 'b', 50)])
    expect(both).toEqual([await steps(alone, 'a', 0), await steps(alone, 'b', 50)])
    expect(both[0]).not.toBe(both[1])
  })

  test('tells what its draws found where that is asked for, with the same tokens', async () => {
    const manager = managed(model)
    const [loud, quiet] = [await read(manager, 'loud'), await read(manager, 'quiet')]
    const told = await manager.generate(loud, { maxTokens: 20, seed: 5, perspectives: true })
    const untold = await manager.generate(quiet, { maxTokens: 20, seed: 5 })
    expect(told.ids).toEqual(untold.ids)
    expect(untold.perspectives).toBeUndefined()
    const { draws, experts } = told.perspectives!
    expect([draws.length, experts.length]).toEqual([20, 20])
    expect(experts[0]!.map(({ length }) => length)).toEqual([1, 1, 1, 1])
    const [first] = [expected().draws[47]!]
    expect(draws[0]).toMatchObject({ fired: first.fired, agreed: first.agreed })
    expect(draws[0]!.entropy).toBeCloseTo(first.entropy, 3)
  })

  test.each([1, 3])('with a probe at every pulse that %i divides does and tells the same', async (every) => {
    const run = async (manager: SessionManager) => {
      const session = await read(manager, 's')
      const report = plain(await manager.adapt(session, { evaluations: 20, seed: 2 }))
      const { ids, perspectives } = await manager.generate(session, { maxTokens: 20, seed: 5, perspectives: true })
      return { report, ids, perspectives, chain: session.chain }
    }
    const pulses: number[] = []
    const probed = managed(model, { probeEvery: every, onProbe: ({ pulse }) => void pulses.push(pulse) })
    expect(await run(probed)).toEqual(await run(managed(model)))
    expect(pulses).toEqual(Array.from({ length: Math.ceil(68 / every) }, (_, i) => i * every))
  })

  test('refuses wrong calls by a sentence, and goes on', async () => {
    const manager = managed(model)
    const session = await read(manager, 's')
    const refused = async (options: object): Promise<string> =>
      messageOf(await manager.adapt(session, options as { evaluations: number }).catch((error: unknown) => error))
    expect(await refused({})).toContain('The options of adapt, field "evaluations": ')
    expect(await refused({ evaluations: 65_537 })).toContain('field "evaluations": ')
    expect(await refused({ evaluations: 4, seed: -1 })).toContain('field "seed": ')
    expect(await refused({ evaluations: 4, rounds: 1 })).toContain('Unrecognized key')
    expect(plain(await manager.adapt(session, { evaluations: 1 }))).toMatchObject({ evaluations: 1, stages: [] })
    await manager.closeSession(session)
    expect(await manager.adapt(session, { evaluations: 1 }).catch(codeOf)).toBe('MISUSE')
  })

  test('of a test that is over refuses', async () => {
    const manager = managed(model)
    const session = manager.createSession('s', { phase: 'test', tokens: 10 })
    await manager.process(session, expected().ids.slice(0, 10))
    expect(messageOf(await manager.adapt(session, { evaluations: 1 }).catch((error: unknown) => error))).toContain(
      'The test of session "s" is over at pulse 10.',
    )
  })
})

test('a model without the parts neither adapts nor tells what perspectives find', async () => {
  const model = await open(demoModel, { threads: 1 })
  const manager = managed(model)
  const session = manager.createSession('s')
  await manager.process(session, [1, 2, 3])
  await expect(manager.adapt(session, { evaluations: 4 })).rejects.toThrow('The model has nothing that adapts')
  await expect(manager.generate(session, { maxTokens: 2, perspectives: true })).rejects.toThrow(
    'The model does not draw from several perspectives.',
  )
  expect(session.pulse).toBe(3)
  const { head, state } = await decodeSnapshot(await manager.checkpointSession(session), model.layout)
  const asking = { ...head, settings: { surprisal: false, perspectives: true as const } }
  const forged = await encodeSnapshot(asking, state, model.layout)
  await expect(manager.resumeSession(forged, { id: 'forged' })).rejects.toThrow(
    'it asks what perspectives find, and the model does not draw from several',
  )
})
