/**
 * Titans sessions: saved and loaded anywhere, beside others, reset and begun at any clock.
 *
 * @module-tag slow
 */
import fc from 'fast-check'
import { beforeAll, describe, expect, it } from 'vitest'
import type { ContextHead, EngineContext } from '../../../src/engine/context.ts'
import type { Model } from '../../../src/engine/types.ts'
import type { WorkItem } from '../../../src/engine/work.ts'
import { bits, feed, generate, open, sameBytes } from '../../engine/helpers.ts'
import { surprisalOf } from '../../engine/oracle.ts'
import { KIND_NAMES, KINDS, type Kind, kindTensors, someTokens, writeTitans } from './titans-packages.ts'
import { titansReference } from './titans-reference.ts'

const dirs = {} as Record<Kind, string>
beforeAll(() => {
  for (const name of KIND_NAMES) dirs[name] = writeTitans(KINDS[name], kindTensors(name))
})
const headOf = ({ pulse, origin, chain }: EngineContext): ContextHead => ({ pulse, origin, chain })

/** A context of this model as a new one is, at another clock. */
const firstAt = (model: Model, clock: bigint, chain = '0'.repeat(32)): EngineContext => {
  const context = model.createContext()
  context.restore(context.serialize(), { pulse: clock, origin: clock, chain })
  return context
}

describe('Titans sessions', () => {
  it.each(KIND_NAMES)('%s: saved at every cut and loaded into another context, beside other sessions', async (name) => {
    const model = await open(dirs[name], { threads: 2 })
    const { vocab_size: V } = KINDS[name]
    const tokens = someTokens(1, 90, V)
    const whole = model.createContext()
    const nats = bits(await feed(model, whole, tokens))
    const logits = bits(await model.logits(whole))
    const cuts = fc.uniqueArray(fc.integer({ min: 1, max: 89 }), { maxLength: 12 })
    await fc.assert(
      fc.asyncProperty(cuts, fc.nat(3), async (unordered, neighbours) => {
        const others = Array.from({ length: neighbours }, () => model.createContext())
        let context = model.createContext()
        const got: number[] = []
        let from = 0
        for (const to of [...unordered.toSorted((a, b) => a - b), 90]) {
          const own = { context, tokens: Int32Array.from(tokens.slice(from, to)), nats: true }
          const beside = others.map((other, i): WorkItem => {
            return { context: other, tokens: Int32Array.from(someTokens(to + i, 1 + i * 9, V)), nats: false }
          })
          const results = await model.process([...beside, own])
          got.push(...bits(results[neighbours]!.nats))
          const next = model.createContext()
          next.restore(context.serialize(), headOf(context))
          context.close()
          context = next
          from = to
        }
        expect(headOf(context)).toEqual(headOf(whole))
        expect(got).toEqual([...nats])
        expect(bits(await model.logits(context))).toEqual(logits)
        expect(sameBytes(context.serialize(), whole.serialize())).toBe(true)
        for (const each of [context, ...others]) each.close()
      }),
      { numRuns: 15, seed: 4 },
    )
  })

  it.each(KIND_NAMES)('%s: saved at every single pulse', async (name) => {
    const model = await open(dirs[name])
    const tokens = someTokens(2, 40, KINDS[name].vocab_size)
    const whole = model.createContext()
    await feed(model, whole, tokens)
    let context = model.createContext()
    for (const token of tokens) {
      const next = model.createContext()
      next.restore(context.serialize(), headOf(context))
      await feed(model, next, [token])
      context.close()
      context = next
    }
    expect(context.chain).toBe(whole.chain)
    expect(sameBytes(context.serialize(), whole.serialize())).toBe(true)
  })

  it.each(KIND_NAMES)('%s: two sessions that take turns are two that were alone', async (name) => {
    const model = await open(dirs[name])
    const texts = [3, 4].map((seed) => someTokens(seed, 60, KINDS[name].vocab_size))
    const alone = await Promise.all(
      texts.map(async (tokens) => {
        const own = await open(dirs[name])
        const context = own.createContext()
        await feed(own, context, tokens)
        return { chain: context.chain, state: context.serialize() }
      }),
    )
    const both = texts.map(() => model.createContext())
    for (let at = 0; at < 60; at += 3)
      for (const [i, context] of both.entries()) await feed(model, context, texts[i]!.slice(at, at + 3))
    both.forEach((context, i) => {
      expect(context.chain).toBe(alone[i]!.chain)
      expect(sameBytes(context.serialize(), alone[i]!.state)).toBe(true)
    })
    expect(both[0]!.chain).not.toBe(both[1]!.chain)
  })

  it.each(KIND_NAMES)('%s: a generated token is a fed one', async (name) => {
    const model = await open(dirs[name])
    const prompt = someTokens(5, 13, KINDS[name].vocab_size)
    const [a, b] = [model.createContext(), model.createContext()]
    await feed(model, a, prompt)
    const { generated } = await generate(model, a, 15)
    await feed(model, b, [...prompt, ...generated])
    expect(b.chain).toBe(a.chain)
    expect(sameBytes(a.serialize(), b.serialize())).toBe(true)
  })
})

describe('the clock of Titans', () => {
  // Clocks that are and are not multiples of the periods and the segments, at the beginning, inside and at the end of a
  // segment.
  const clocks = [1, 5, 9, 10, 12, 23, 60, 120, 121]

  it.each(KIND_NAMES)('%s: a reset is a first context at that clock, whatever was read before', async (name) => {
    const model = await open(dirs[name])
    const config = KINDS[name]
    const tokens = someTokens(6, 40, config.vocab_size)
    for (const clock of clocks) {
      const context = model.createContext()
      await feed(model, context, someTokens(clock, clock, config.vocab_size))
      context.reset()
      expect([context.pulse, context.origin]).toEqual([BigInt(clock), BigInt(clock)])
      expect(sameBytes(context.serialize(), model.createContext().serialize())).toBe(true)
      const fresh = firstAt(model, BigInt(clock), context.chain)
      const nats = await feed(model, context, tokens)
      expect(bits(nats)).toEqual(bits(await feed(model, fresh, tokens)))
      expect(headOf(context)).toEqual(headOf(fresh))
      expect(sameBytes(context.serialize(), fresh.serialize())).toBe(true)
      expect([context.pulse, context.origin]).toEqual([BigInt(clock + 40), BigInt(clock)])
      // In a segment and at the beginning of one.
      if (clock !== 9 && clock !== 60) continue
      const reference = titansReference(config, kindTensors(name), clock)
      let logits = reference.step(tokens[0]!)
      for (const [i, token] of tokens.slice(1).entries()) {
        expect(Math.abs(nats[i + 1]! - surprisalOf([...logits], token))).toBeLessThan(1e-4)
        logits = reference.step(token)
      }
    }
  })

  // Of all periods and segments above.
  const COMMON = 960n
  it.each(KIND_NAMES)('%s: the millionth year is as the first day', async (name) => {
    const model = await open(dirs[name])
    const tokens = someTokens(7, 60, KINDS[name].vocab_size)
    const context = model.createContext()
    await feed(model, context, tokens)
    const logits = await model.logits(context)
    for (const clock of [COMMON, COMMON << 35n, COMMON << 44n, COMMON << 53n]) {
      const late = firstAt(model, clock)
      await feed(model, late, tokens)
      expect([late.pulse, late.origin]).toEqual([clock + 60n, clock])
      const got = await model.logits(late)
      expect(logits.reduce((most, value, i) => Math.max(most, Math.abs(value - got[i]!)), 0)).toBeLessThan(1e-5)
      // Off the common multiples the schedule is another, and so is the computation.
      const off = firstAt(model, clock + 1n)
      await feed(model, off, tokens)
      const other = await model.logits(off)
      expect(logits.reduce((most, value, i) => Math.max(most, Math.abs(value - other[i]!)), 0)).toBeGreaterThan(1e-3)
    }
  })

  it.each(KIND_NAMES)('%s: at a late clock of no account the reference agrees', async (name) => {
    const clock = 2 ** 45 + 12347
    const model = await open(dirs[name])
    const tokens = someTokens(8, 30, KINDS[name].vocab_size)
    const context = firstAt(model, BigInt(clock))
    await feed(model, context, tokens.slice(0, 11))
    await feed(model, context, tokens.slice(11))
    const reference = titansReference(KINDS[name], kindTensors(name), clock)
    const want = tokens.map((token) => reference.step(token)).at(-1)!
    const got = await model.logits(context)
    expect(want.reduce((most, value, i) => Math.max(most, Math.abs(value - got[i]!)), 0)).toBeLessThan(5e-5)
  })
})
