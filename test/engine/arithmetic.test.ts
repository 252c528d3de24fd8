/** One arithmetic: how work is divided must not be visible in a single bit. */
import fc from 'fast-check'
import { beforeAll, describe, expect, it } from 'vitest'
import type { Context } from '../../src/engine/context.ts'
import type { Model } from '../../src/engine/types.ts'
import type { Sampling, WorkItem } from '../../src/engine/work.ts'
import { bits, feed, generate, none, open, sameBytes } from './helpers.ts'
import { randomRwkv7, safetensors, writePackage } from './packages.ts'

const V = 50
const folder = { path: '' }
beforeAll(() => {
  const weights = randomRwkv7(7, { L: 3, H: 3, N: 32, F: 300, V, D: { w: 8, a: 9, v: 10, g: 70 } })
  folder.path = writePackage({ model_type: 'rwkv7' }, safetensors(weights, 'BF16'))
})

const token = fc.integer({ min: 0, max: V - 1 })
const sampling: Sampling = { temperature: 0.8, topK: 0, topP: 0.9, seed: 0xfeedn }

/** Lengths that add up to `total`. */
const cuts = (total: number): fc.Arbitrary<number[]> =>
  fc.array(fc.integer({ min: 1, max: total }), { minLength: 1, maxLength: 12 }).map((lengths) => {
    const out: number[] = []
    let left = total
    for (const length of lengths) {
      const take = Math.min(length, left)
      if (take > 0) out.push(take)
      left -= take
    }
    return left > 0 ? [...out, left] : out
  })

describe('one arithmetic', () => {
  it('any cut, any threads, any company: same chain, nats and logits to the last bit', {
    timeout: 120_000,
  }, async () => {
    const [one, two] = [await open(folder.path, { threads: 1 }), await open(folder.path, { threads: 2 })]
    const cases = fc
      .array(token, { minLength: 1, maxLength: 300 })
      .chain((tokens) =>
        fc.tuple(
          fc.constant(tokens),
          cuts(tokens.length),
          fc.boolean(),
          fc.array(fc.array(token, { maxLength: 150 }), { maxLength: 4 }),
          fc.nat(4),
        ),
      )
    await fc.assert(
      fc.asyncProperty(cases, async ([tokens, lengths, twoThreads, company, place]) => {
        const whole = one.createContext()
        const wantNats = await feed(one, whole, tokens)
        const wantLogits = await one.logits(whole)

        const model = twoThreads ? two : one
        const context = model.createContext()
        const others = company.map(() => model.createContext())
        const nats: number[] = []
        let at = 0
        for (const length of lengths) {
          const items: WorkItem[] = company.map((their, i) => ({
            context: others[i]!,
            tokens: Int32Array.from(their),
            nats: i % 2 === 0,
          }))
          items.splice(place, 0, { context, tokens: Int32Array.from(tokens.slice(at, at + length)), nats: true })
          const results = await model.process(items)
          nats.push(...results[Math.min(place, company.length)]!.nats)
          at += length
        }
        expect(context.chain).toBe(whole.chain)
        expect(context.pulse).toBe(BigInt(tokens.length))
        expect(bits(Float32Array.from(nats))).toEqual(bits(wantNats))
        expect(bits(await model.logits(context))).toEqual(bits(wantLogits))
        for (const used of [whole, context, ...others]) used.close()
      }),
      { numRuns: 40 },
    )
  })

  it('generating and then reading what was generated are the same computation', async () => {
    const model = await open(folder.path, { threads: 2 })
    const [writer, reader] = [model.createContext(), model.createContext()]
    await feed(model, writer, [1, 2, 3])
    const { generated, logprobs } = await generate(model, writer, 60, sampling)
    const nats = await feed(model, reader, [1, 2, 3, ...generated])
    expect(reader.chain).toBe(writer.chain)
    expect(bits(nats.slice(3))).toEqual(bits(logprobs.map((value) => -value)))
  })

  it('asking for nats, or not, does not change the state', async () => {
    const model = await open(folder.path)
    const [a, b] = [model.createContext(), model.createContext()]
    expect((await feed(model, a, [4, 5, 6], true)).length).toBe(3)
    expect((await feed(model, b, [4, 5, 6], false)).length).toBe(0)
    expect(a.chain).toBe(b.chain)
    expect(sameBytes(a.serialize(), b.serialize())).toBe(true)
  })

  it('tokens and generate in one item: first the one, then the other', async () => {
    const model = await open(folder.path)
    const [a, b] = [model.createContext(), model.createContext()]
    const [joined] = await model.process([
      { context: a, tokens: Int32Array.of(1, 2), nats: true, generate: { ...sampling, count: 5 } },
    ])
    await feed(model, b, [1, 2])
    expect((await generate(model, b, 5, sampling)).generated).toEqual(joined!.generated)
    expect(joined!.head).toEqual({ pulse: 7n, origin: 0n, chain: b.chain })
    expect(joined!.nats.length).toBe(2)
  })

  it('the chain tells apart what differs in a single token or weight', async () => {
    const model = await open(folder.path)
    const chainOf = async (tokens: number[], from: Model = model): Promise<string> => {
      const context = from.createContext()
      await feed(from, context, tokens, false)
      return context.chain
    }
    const weights = randomRwkv7(7, { L: 3, H: 3, N: 32, F: 300, V, D: { w: 8, a: 9, v: 10, g: 70 } })
    weights.get('blocks.1.ffn.value.weight')!.data[1234]! *= 2
    const other = await open(writePackage({ model_type: 'rwkv7' }, safetensors(weights, 'BF16')))
    const chains = [
      await chainOf([1, 2, 3]),
      await chainOf([1, 3, 2]),
      await chainOf([1, 2]),
      await chainOf([1, 2, 3], other),
    ]
    expect(new Set(chains).size).toBe(4)
    expect(other.fingerprint).not.toBe(model.fingerprint)
    expect(other.layoutFingerprint).toBe(model.layoutFingerprint)
  })
})

describe('state', () => {
  it('serialize and restore at any pulse, into a fresh context of a fresh model, continue with the same bits', {
    timeout: 60_000,
  }, async () => {
    const [here, there] = [await open(folder.path), await open(folder.path, { threads: 2 })]
    await fc.assert(
      fc.asyncProperty(
        fc.array(token, { minLength: 2, maxLength: 120 }),
        fc.nat(),
        fc.boolean(),
        async (tokens, where, reset) => {
          const cut = 1 + (where % (tokens.length - 1))
          const whole = here.createContext()
          const before = here.createContext()
          for (const context of [whole, before]) {
            if (!reset) continue
            await feed(here, context, [3, 1])
            context.reset()
          }
          await feed(here, whole, tokens, false)
          await feed(here, before, tokens.slice(0, cut), false)
          const after = there.createContext()
          after.restore(before.serialize(), before)
          expect({ pulse: after.pulse, origin: after.origin, chain: after.chain }).toEqual({
            pulse: before.pulse,
            origin: before.origin,
            chain: before.chain,
          })
          await feed(there, after, tokens.slice(cut), false)
          expect(after.chain).toBe(whole.chain)
          expect(sameBytes(after.serialize(), whole.serialize())).toBe(true)
          expect((await generate(there, after, 5, sampling)).generated).toEqual(
            (await generate(here, whole, 5, sampling)).generated,
          )
        },
      ),
      { numRuns: 30 },
    )
  })

  it('the layout describes the serialised bytes: dense, in order, C + C + H·N·N floats a layer and the last hidden vector', async () => {
    const model = await open(folder.path)
    let offset = 0
    for (const entry of model.layout.first) {
      expect(entry.offset).toBe(offset)
      expect(entry.bytes).toBe(4 * entry.shape.reduce((a, b) => a * b, 1))
      offset += entry.bytes
    }
    expect(offset).toBe(model.contextBytes)
    expect(offset).toBe(4 * (3 * (96 + 96 + 3 * 32 * 32) + 96))
    expect(model.createContext().serialize().length).toBe(offset)
  })

  it('reset returns to the first values; clock and chain go on and the first token after it has no surprisal', async () => {
    const model = await open(folder.path)
    const context = model.createContext()
    await feed(model, context, [5, 6, 7])
    const chain = context.chain
    context.reset()
    expect(context.pulse).toBe(3n)
    expect(context.origin).toBe(3n)
    expect(context.chain).not.toBe(chain)
    expect(context.serialize().every((byte) => byte === 0)).toBe(true)
    const fresh = model.createContext()
    expect(bits(await feed(model, context, [8, 9]))).toEqual(bits(await feed(model, fresh, [8, 9])))
    expect(context.chain).not.toBe(fresh.chain)
    expect(sameBytes(context.serialize(), fresh.serialize())).toBe(true)
  })

  it('an empty item is allowed and changes nothing', async () => {
    const model = await open(folder.path)
    const context: Context = model.createContext()
    const [result] = await model.process([{ context, tokens: none, nats: true, generate: { ...sampling, count: 0 } }])
    expect(result!.nats.length + result!.generated.length).toBe(0)
    expect(context.pulse).toBe(0n)
    expect(await model.process([])).toEqual([])
  })
})
