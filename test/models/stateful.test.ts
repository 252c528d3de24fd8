import { fileURLToPath } from 'node:url'
import { beforeAll, describe, expect, onTestFinished, test } from 'vitest'
import type { Model } from '../../src/engine/types.ts'
import { type DecoderState, type StatefulDecoder, statefulDecoder } from '../../src/models/stateful.ts'
import { bits, errorOf, open } from '../engine/helpers.ts'
import { safetensors, writePackage } from '../engine/packages.ts'
import { type Gpt2Sizes, gpt2ConfigOf, gpt2Oracle, randomGpt2 } from './gpt2/gpt2.ts'

const sizes: Gpt2Sizes = { L: 2, H: 3, N: 4, F: 19, V: 30, P: 24 }
const tensors = randomGpt2(11, sizes)
const ids = Array.from({ length: sizes.P }, (_, i) => (7 * i + 3) % sizes.V)
const ones = (n: number): number[] => new Array<number>(n).fill(1)

let folder: string
beforeAll(() => {
  folder = writePackage(gpt2ConfigOf(sizes), safetensors(tensors))
})

const decoders = async (count: number): Promise<{ model: Model; all: StatefulDecoder[] }> => {
  const model = await open(folder)
  const all = Array.from({ length: count }, () => statefulDecoder(model))
  onTestFinished(() => {
    for (const decoder of all) decoder.close()
  })
  return { model, all }
}
const one = async (): Promise<StatefulDecoder> => (await decoders(1)).all[0]!

const bitsOf = ({ keyCache, valueCache, pastLen }: DecoderState) => ({
  keys: bits(keyCache.data),
  values: bits(valueCache.data),
  pastLen: pastLen.data,
})

describe('one model for prefill and decode', () => {
  test('prefill of n tokens is prefill of one and n − 1 steps: logits and state, bit for bit', async () => {
    const { all } = await decoders(2 * sizes.P)
    for (let n = 1; n <= sizes.P; n += 1) {
      const [whole, single] = [all[2 * n - 2]!, all[2 * n - 1]!]
      const prefilled = await whole.prefill(ids.slice(0, n), ones(n))
      let logits = await single.prefill(ids.slice(0, 1))
      for (let at = 1; at < n; at += 1) logits = await single.step(ids[at]!, ones(at + 1))
      expect(bits(logits)).toEqual(bits(prefilled))
      expect(bitsOf(single.state())).toEqual(bitsOf(whole.state()))
      expect([whole.pastLen, single.pastLen]).toEqual([n, n])
    }
  })

  test('the caches are those of the formulas, head by head, and zero where nothing is active', async () => {
    const decoder = await one()
    await decoder.prefill(ids.slice(0, 9))
    await decoder.step(ids[9]!)
    const oracle = gpt2Oracle(tensors, sizes)
    for (const id of ids.slice(0, 10)) oracle.feed(id)
    const { L, H, N, P } = sizes
    const state = decoder.state()
    expect(state.pastLen).toEqual({ shape: [1], data: BigInt64Array.of(10n) })
    for (const [name, which] of [
      ['keyCache', 'k'],
      ['valueCache', 'v'],
    ] as const) {
      const { shape, data } = state[name]
      expect(shape).toEqual([L, 1, H, P, N])
      for (const [at, value] of data.entries()) {
        const [n, p, h, l] = [at % N, Math.floor(at / N) % P, Math.floor(at / N / P) % H, Math.floor(at / N / P / H)]
        const wanted = oracle.cache(l, which)[p]?.[h * N + n] ?? 0
        expect(Math.abs(value - wanted)).toBeLessThan(1e-5)
      }
    }
  })

  test('goes on from a restored state with the same bits, also in another process’ decoder, and never reads what is not active', async () => {
    const { all } = await decoders(2)
    const [first, second] = all as [StatefulDecoder, StatefulDecoder]
    await first.prefill(ids.slice(0, 7))
    const state = first.state()
    for (const { data } of [state.keyCache, state.valueCache]) {
      const { P, N } = sizes
      for (const at of data.keys()) if (Math.floor(at / N) % P >= 7) data[at] = 1e9
    }
    await second.prefill(ids.slice(3, 20))
    second.restore(state)
    expect(second.pastLen).toBe(7)
    for (const id of ids.slice(7, 12)) expect(bits(await second.step(id))).toEqual(bits(await first.step(id)))
    expect(bitsOf(second.state())).toEqual(bitsOf(first.state()))
  })

  test('begins anew after a reset', async () => {
    const decoder = await one()
    const before = await decoder.prefill(ids.slice(0, 5))
    decoder.reset()
    expect(decoder.pastLen).toBe(0)
    expect(bits(await decoder.prefill(ids.slice(0, 5)))).toEqual(bits(before))
  })
})

describe('a wrong call is refused before anything is written', () => {
  const decoding = async (): Promise<StatefulDecoder> => {
    const decoder = await one()
    await decoder.prefill(ids.slice(0, 7))
    return decoder
  }
  const fresh = one

  test.each<
    readonly [string, () => Promise<StatefulDecoder>, (decoder: StatefulDecoder) => Promise<unknown>, string, RegExp]
  >([
    ['no tokens', fresh, (d) => d.prefill([]), 'INVALID', /no tokens/],
    [
      'prefill twice',
      decoding,
      (d) => d.prefill([1, 2, 3]),
      'MISUSE',
      /Already prefilled \(pastLen 7\): feed one token a step, got 3/,
    ],
    ['prefill twice, of one token', decoding, (d) => d.prefill([1]), 'MISUSE', /Already prefilled \(pastLen 7\)/],
    ['a step before prefill', fresh, (d) => d.step(1), 'MISUSE', /Nothing was prefilled \(pastLen 0\)/],
    [
      'attention over the new token alone',
      decoding,
      (d) => d.step(1, [1]),
      'INVALID',
      /Attention covers 1 positions, the active sequence has 8/,
    ],
    [
      'attention that stops before the new token',
      decoding,
      (d) => d.step(1, ones(7)),
      'INVALID',
      /Attention covers 7 positions, the active sequence has 8/,
    ],
    ['attention that is too long', decoding, (d) => d.step(1, ones(9)), 'INVALID', /covers 9 .* sequence has 8/],
    [
      'a mask of another length than the prompt',
      fresh,
      (d) => d.prefill([1, 2], ones(3)),
      'INVALID',
      /Attention covers 3 positions, the active sequence has 2/,
    ],
    ['padding', fresh, (d) => d.prefill([1, 2, 3], [0, 1, 1]), 'INVALID', /no padding: the mask is 0 at 0/],
    ['a weighted mask', decoding, (d) => d.step(1, [...ones(7), 2]), 'INVALID', /the mask is 2 at 7/],
    [
      'a prompt that is too long',
      fresh,
      (d) => d.prefill([...ids, 1]),
      'INVALID',
      /25 positions exceed n_positions 24/,
    ],
    [
      'an id past the vocabulary',
      decoding,
      (d) => d.step(30),
      'INVALID',
      /Token id 30 is outside the vocabulary of 30/,
    ],
    ['a negative id', fresh, (d) => d.prefill([1, -1]), 'INVALID', /Token id -1 is outside the vocabulary of 30/],
    ['half an id', fresh, (d) => d.prefill([0.5]), 'INVALID', /Token id 0\.5 is outside/],
  ])('%s', async (_, make, call, code, message) => {
    const decoder = await make()
    const before = { pastLen: decoder.pastLen, state: bitsOf(decoder.state()) }
    const error = await errorOf(() => call(decoder))
    expect(error.code).toBe(code)
    expect(error.message).toMatch(message)
    expect({ pastLen: decoder.pastLen, state: bitsOf(decoder.state()) }).toEqual(before)
    // And the decoder goes on.
    const twin = await make()
    const next = (d: StatefulDecoder) => (d.pastLen === 0 ? d.prefill([4, 5]) : d.step(4))
    expect(bits(await next(decoder))).toEqual(bits(await next(twin)))
  })

  test('a step past the last position', async () => {
    const decoder = await one()
    await decoder.prefill(ids)
    const before = bitsOf(decoder.state())
    const error = await errorOf(() => decoder.step(1, ones(25)))
    expect(error).toMatchObject({
      code: 'INVALID',
      message: expect.stringMatching(/25 positions exceed n_positions 24/),
    })
    expect(bitsOf(decoder.state())).toEqual(before)
  })

  test('two calls at once', async () => {
    const decoder = await decoding()
    const first = decoder.step(1)
    expect(await errorOf(() => decoder.step(2))).toMatchObject({
      code: 'MISUSE',
      message: expect.stringMatching(/busy/),
    })
    expect((await errorOf(() => decoder.reset())).code).toBe('MISUSE')
    await first
    expect(decoder.pastLen).toBe(8)
  })

  test.each<readonly [string, (state: DecoderState) => DecoderState, RegExp]>([
    ['more layers', (s) => ({ ...s, keyCache: { ...s.keyCache, shape: [3, 1, 3, 24, 4] } }), /layers: 3 instead of 2/],
    ['a batch', (s) => ({ ...s, keyCache: { ...s.keyCache, shape: [2, 2, 3, 24, 4] } }), /batch: 2 instead of 1/],
    ['heads', (s) => ({ ...s, valueCache: { ...s.valueCache, shape: [2, 1, 4, 24, 3] } }), /heads: 4 instead of 3/],
    [
      'positions',
      (s) => ({ ...s, valueCache: { ...s.valueCache, shape: [2, 1, 3, 7, 4] } }),
      /positions: 7 instead of 24/,
    ],
    ['an axis', (s) => ({ ...s, keyCache: { ...s.keyCache, shape: [2, 1, 3, 24] } }), /channels of a head: undefined/],
    [
      'numbers',
      (s) => ({ ...s, keyCache: { ...s.keyCache, data: new Float32Array(5) } }),
      /keyCache has 5 numbers, expected 576/,
    ],
    [
      'dtype',
      (s) => ({ ...s, keyCache: { ...s.keyCache, data: new Float64Array(576) as unknown as Float32Array } }),
      /keyCache must be a Float32Array/,
    ],
    [
      'pastLen',
      (s) => ({ ...s, pastLen: { shape: [1], data: BigInt64Array.of(25n) } }),
      /pastLen is 25, expected 0 to 24/,
    ],
    [
      'pastLen’s dtype',
      (s) => ({ ...s, pastLen: { shape: [1], data: Int32Array.of(7) as unknown as BigInt64Array } }),
      /pastLen must be a BigInt64Array of shape \[1\]/,
    ],
    [
      'a number that is not finite',
      (s) => ({ ...s, valueCache: { ...s.valueCache, data: new Float32Array(576).fill(Number.NaN) } }),
      /"valueCache" holds a number that is not finite/,
    ],
  ])('a state of another model: %s', async (_, change, message) => {
    const decoder = await decoding()
    const before = bitsOf(decoder.state())
    const error = await errorOf(() => decoder.restore(change(decoder.state())))
    expect(error.code).toBe('INVALID')
    expect(error.message).toMatch(message)
    expect(bitsOf(decoder.state())).toEqual(before)
  })

  test('a model without such caches', async () => {
    const demo = await open(fileURLToPath(new URL('../../models/demo', import.meta.url)))
    const windowed = await open(folder, { overflow: 'window' })
    for (const model of [demo, windowed])
      expect((await errorOf(() => statefulDecoder(model))).message).toMatch(
        /needs key and value caches over all positions/,
      )
  })
})
