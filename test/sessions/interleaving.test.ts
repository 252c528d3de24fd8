/**
 * Whatever several sessions do at the same time, in whatever little memory, each is the session that did the same
 * alone: an engine's context that nobody spilled, fed call after call.
 *
 * @module-tag slow
 */
import fc from 'fast-check'
import { expect, it } from 'vitest'
import type { Model } from '../../src/engine/types.ts'
import { SessionManager } from '../../src/sessions/manager.ts'
import { decodeSnapshot } from '../../src/state/snapshot.ts'
import { feed, generate, open, sameBytes } from '../engine/helpers.ts'
import { temporaryFolder } from '../engine/packages.ts'
import { FAMILIES, openFamily } from '../families.ts'
import { smallPackage } from './helpers.ts'

type Act =
  | { readonly act: 'process'; readonly tokens: readonly number[] }
  | { readonly act: 'generate'; readonly count: number; readonly seed: number }
  /** Of a model that adapts; others do nothing. */
  | { readonly act: 'adapt'; readonly evaluations: number; readonly seed: number }
  | { readonly act: 'checkpoint' }
  /** Ends the session and goes on from its last checkpoint; without one, from the beginning. */
  | { readonly act: 'resume' }
  | { readonly act: 'begin anew' }

const acts: fc.Arbitrary<Act> = fc.oneof(
  {
    weight: 4,
    arbitrary: fc.record({ act: fc.constant('process' as const), tokens: fc.array(fc.nat(39), { maxLength: 12 }) }),
  },
  {
    weight: 2,
    arbitrary: fc.record({
      act: fc.constant('generate' as const),
      count: fc.integer({ min: 1, max: 20 }),
      seed: fc.nat(99),
    }),
  },
  {
    weight: 1,
    arbitrary: fc.record({
      act: fc.constant('adapt' as const),
      evaluations: fc.integer({ min: 1, max: 20 }),
      seed: fc.nat(99),
    }),
  },
  { weight: 2, arbitrary: fc.record({ act: fc.constant('checkpoint' as const) }) },
  { weight: 1, arbitrary: fc.record({ act: fc.constant('resume' as const) }) },
  { weight: 1, arbitrary: fc.record({ act: fc.constant('begin anew' as const) }) },
)

interface Trace {
  /** nats, ids and log probabilities of all calls. */
  readonly numbers: number[]
  readonly chain: string
  readonly pulse: number
  readonly state: Uint8Array
}

const managedTrace = async (
  model: Model,
  manager: SessionManager,
  id: string,
  script: readonly Act[],
): Promise<Trace> => {
  const numbers: number[] = []
  let blob: Uint8Array | null = null
  manager.createSession(id)
  for (const each of script) {
    if (each.act === 'process') numbers.push(...(await manager.process(id, each.tokens)).nats)
    if (each.act === 'adapt' && model.adapts) {
      const { evaluations, bound, loss } = await manager.adapt(id, { evaluations: each.evaluations, seed: each.seed })
      numbers.push(evaluations, bound, loss?.after ?? 0)
    }
    if (each.act === 'checkpoint') blob = await manager.checkpointSession(id)
    if (each.act === 'generate' && manager.listSessions().find((session) => session.id === id)!.pulse > 0) {
      const drawn = await manager.generate(id, { maxTokens: each.count, seed: each.seed })
      numbers.push(...drawn.ids, ...drawn.logprobs)
    }
    if (each.act === 'resume' || each.act === 'begin anew') {
      await manager.closeSession(id)
      if (each.act === 'resume' && blob !== null) await manager.resumeSession(blob)
      else manager.createSession(id)
    }
  }
  const { head, state } = await decodeSnapshot(await manager.checkpointSession(id), model.layout)
  return { numbers, chain: head.chain, pulse: head.conductor.globalStep, state }
}

const trace = async (model: Model, script: readonly Act[]): Promise<Trace> => {
  const numbers: number[] = []
  let kept: {
    readonly state: Uint8Array
    readonly pulse: bigint
    readonly origin: bigint
    readonly chain: string
  } | null = null
  let context = model.createContext()
  for (const each of script) {
    if (each.act === 'process') numbers.push(...(await feed(model, context, each.tokens)))
    if (each.act === 'adapt' && model.adapts) {
      const request = { type: 'adapt', evaluations: each.evaluations, seed: BigInt(each.seed) } as const
      const { adapted } = await model.submit({ context, tokens: new Int32Array(0), nats: false, request })
      numbers.push(adapted!.evaluations, adapted!.bound, adapted!.tokens < 2 ? 0 : adapted!.after)
    }
    if (each.act === 'checkpoint') {
      const { pulse, origin, chain } = context
      kept = { state: context.serialize(), pulse, origin, chain }
    }
    if (each.act === 'generate' && context.pulse > 0n) {
      const sampling = { temperature: 1, topK: 0, topP: 1, seed: BigInt(each.seed) }
      const { generated, logprobs } = await generate(model, context, each.count, sampling)
      numbers.push(...generated, ...logprobs)
    }
    if (each.act === 'resume' || each.act === 'begin anew') {
      context.close()
      context = model.createContext()
      if (each.act === 'resume' && kept !== null) context.restore(kept.state, kept)
    }
  }
  const { pulse, chain } = context
  const state = context.serialize()
  context.close()
  return { numbers, chain, pulse: Number(pulse), state }
}

const LONGEST = 12

/** Bytes of a context that did as much as a script can ask for. */
const largest = async (model: Model): Promise<number> => {
  const context = model.createContext()
  await feed(model, context, new Int32Array(LONGEST * 20).fill(7), false)
  const { bytes } = context
  context.close()
  return bytes
}

const interleaves = async (model: Model, numRuns: number): Promise<void> => {
  const scripts = fc.array(fc.array(acts, { maxLength: LONGEST }), { minLength: 1, maxLength: 6 })
  const one = await largest(model)
  let pageIns = 0
  await fc.assert(
    fc.asyncProperty(scripts, fc.double({ min: 0.001, max: 1, noNaN: true }), async (all, contexts) => {
      const maxResidentBytes = Math.ceil(contexts * one)
      const manager = new SessionManager(model, { maxResidentBytes, verifyWeights: false })
      const together = await Promise.all(all.map((script, n) => managedTrace(model, manager, `s${n}`, script)))
      expect(manager.stats.residentBytes).toBeLessThanOrEqual(Math.max(maxResidentBytes, one))
      pageIns += manager.stats.spillReads
      await manager.close()
      for (const [n, { state, ...facts }] of together.entries()) {
        const { state: expected, ...alone } = await trace(model, all[n]!)
        expect(facts).toEqual(alone)
        expect(sameBytes(state, expected)).toBe(true)
      }
    }),
    { numRuns },
  )
  // Scripts are drawn at random, and short ones of few sessions need no spill file.
  expect(pageIns).toBeGreaterThan(numRuns / 10)
}

it('any interleaving, in any memory, equals each session alone', async () =>
  interleaves(await open(smallPackage(), { threads: 2 }), 100))

// A context that is full would end the scripts of a GPT-2 that refuses.
it.each(FAMILIES.filter(({ key, large }) => large !== true && key !== 'gpt2-refuse'))('with $name too', async ({
  key,
}) => {
  const { dir, overflow } = await openFamily(key, temporaryFolder())
  await interleaves(await open(dir, { threads: 2, overflow }), 20)
})
