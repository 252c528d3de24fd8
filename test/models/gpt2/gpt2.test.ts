import { copyFileSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import type { OpenModelOptions } from '../../../src/engine/options.ts'
import { bits, errorOf, feed, generate, greedy, open, sameBytes } from '../../engine/helpers.ts'
import { random, safetensors, type Tensor, type Tensors, temporaryFolder, writePackage } from '../../engine/packages.ts'
import { hasShared, sharedModel } from '../../engine/paths.ts'
import { type Gpt2Sizes, gpt2ConfigOf, gpt2Oracle, randomGpt2, withBuffers, withPrefix } from './gpt2.ts'

const tiny = sharedModel('gpt2-tiny')

interface Step {
  readonly argmax: number
  readonly max: number
  readonly second: number
  readonly logsumexp: number
  readonly sum: number
}
interface Expected {
  readonly eos_token_id: number
  readonly generations: readonly {
    readonly ids: readonly number[]
    readonly prefill_logits: readonly number[]
    readonly prefill_argmax: number
    readonly greedy: {
      readonly max_new_tokens: number
      readonly steps: readonly Step[]
      readonly generated: readonly number[]
      readonly finish: 'length' | 'eos'
      readonly pastLen: number
    }
  }[]
  readonly full_context: {
    readonly ids: readonly number[]
    readonly pastLen: number
    readonly logits: readonly number[]
  }
}
const expected = hasShared
  ? (JSON.parse(readFileSync(join(tiny, 'expected.json'), 'utf8')) as Expected)
  : { eos_token_id: 0, generations: [], full_context: { ids: [], pastLen: 0, logits: [] } }

/** Config and weights alone: a package that reads token ids. */
const openTiny = (options: OpenModelOptions = { threads: 2 }) => {
  const folder = temporaryFolder()
  for (const file of ['config.json', 'model.safetensors']) copyFileSync(join(tiny, file), join(folder, file))
  return open(folder, options)
}

const TOLERANCE = 2e-4
const farthest = (actual: ArrayLike<number>, wanted: readonly number[]): number => {
  expect(actual.length).toBe(wanted.length)
  return wanted.reduce((most, value, i) => Math.max(most, Math.abs(actual[i]! - value)), 0)
}
const argmax = (values: Float32Array): number => values.indexOf(Math.max(...values))

const summaryOf = (logits: Float32Array): Omit<Step, 'argmax'> => {
  const sorted = [...logits].sort((a, b) => b - a)
  const max = sorted[0]!
  return {
    max,
    second: sorted[1]!,
    logsumexp: max + Math.log(sorted.reduce((sum, value) => sum + Math.exp(value - max), 0)),
    sum: sorted.reduce((a, b) => a + b, 0),
  }
}

describe.skipIf(!hasShared)('the test package', () => {
  test.each([1, 3, 7, 128])('gives the expected logits, ids and ends, its prompts cut into %i', async (size) => {
    const model = await openTiny()
    expect(model.positions).toBe(128)
    for (const { ids, prefill_logits, prefill_argmax, greedy: wanted } of expected.generations) {
      const context = model.createContext()
      for (let at = 0; at < ids.length; at += size) await feed(model, context, ids.slice(at, at + size), false)
      const logits = await model.logits(context)
      expect(farthest(logits, prefill_logits)).toBeLessThan(TOLERANCE)
      expect(argmax(logits)).toBe(prefill_argmax)
      const generated: number[] = []
      let ended: string | null = null
      for (const step of wanted.steps) {
        const now = await model.logits(context)
        expect(argmax(now)).toBe(step.argmax)
        const summary = summaryOf(now)
        for (const key of ['max', 'second', 'logsumexp'] as const)
          expect(Math.abs(summary[key] - step[key])).toBeLessThan(TOLERANCE)
        expect(Math.abs(summary.sum - step.sum)).toBeLessThan(TOLERANCE * now.length)
        const [result] = await model.process([
          {
            context,
            tokens: new Int32Array(0),
            nats: false,
            generate: { ...greedy, count: 1, endTokens: [expected.eos_token_id] },
          },
        ])
        generated.push(...result!.generated)
        ended = result!.ended
      }
      expect(generated).toEqual(wanted.generated)
      expect(ended).toBe(wanted.finish === 'eos' ? 'eos' : null)
      expect(Number(context.pulse)).toBe(wanted.pastLen)
      // In one call, the same.
      const twin = model.createContext()
      const [whole] = await model.process([
        {
          context: twin,
          tokens: Int32Array.from(ids),
          nats: false,
          generate: { ...greedy, count: wanted.max_new_tokens, endTokens: [expected.eos_token_id] },
        },
      ])
      expect([...whole!.generated]).toEqual(wanted.generated)
      expect(whole!.ended).toBe(ended)
      expect(twin.chain).toBe(context.chain)
    }
  })

  test('an EOS that is drawn is neither fed nor counted: the state is that of the tokens before it', async () => {
    const model = await openTiny()
    const { ids, greedy: wanted } = expected.generations.find(({ greedy: { finish } }) => finish === 'eos')!
    const [ended, plain] = [model.createContext(), model.createContext()]
    const request = { ...greedy, count: 20, endTokens: [expected.eos_token_id] }
    const [result] = await model.process([
      { context: ended, tokens: Int32Array.from(ids), nats: false, generate: request },
    ])
    expect(result!.ended).toBe('eos')
    expect(result!.logprobs).toHaveLength(wanted.generated.length)
    await feed(model, plain, [...ids, ...wanted.generated], false)
    expect(ended.chain).toBe(plain.chain)
    expect(sameBytes(ended.serialize(), plain.serialize())).toBe(true)
    // Asked once more, it draws the same again; without EOS it goes on through it.
    const [again] = await model.process([{ context: ended, tokens: new Int32Array(0), nats: false, generate: request }])
    expect(again).toMatchObject({ generated: { length: 0 }, ended: 'eos' })
    expect((await generate(model, ended, 3)).generated[0]).toBe(expected.eos_token_id)
  })

  test('fills its context to the last position; what goes past it is refused, and nothing of it is fed', async () => {
    const model = await openTiny()
    const { ids, logits } = expected.full_context
    const context = model.createContext()
    await feed(model, context, ids, false)
    expect(farthest(await model.logits(context), logits)).toBeLessThan(TOLERANCE)
    expect(await errorOf(() => feed(model, context, [1]))).toEqual({
      code: 'INVALID',
      message:
        '129 positions exceed the 128 of counter "pastLen", which stands at 128. Nothing was written: reset the context.',
    })
    expect(await generate(model, context, 4)).toMatchObject({ generated: { length: 0 }, ended: 'positions' })
    context.reset()
    await feed(model, context, ids.slice(0, 100), false)
    expect((await errorOf(() => feed(model, context, ids.slice(0, 29)))).message).toContain('feed at most 28, or')
    expect(context.pulse).toBe(228n)
    expect(await generate(model, context, 40)).toMatchObject({ generated: { length: 28 }, ended: 'positions' })
  })

  test('shows its state under the names of the contract, active positions only', async () => {
    const model = await openTiny()
    const context = model.createContext()
    await feed(model, context, [5, 6, 7], false)
    const state = context.serialize()
    const entries = model.layout.tensors(state)
    expect(entries.map(({ name, dtype, shape }) => [name, dtype, shape])).toEqual([
      ['pastLen', 'I64', []],
      ['keyCache', 'F32', [2, 3, 64]],
      ['valueCache', 'F32', [2, 3, 64]],
      ['hidden.last', 'F32', [64]],
    ])
    expect(new DataView(state.buffer, state.byteOffset).getBigInt64(0, true)).toBe(3n)
  })
})

const settings: readonly (readonly [string, Gpt2Sizes])[] = [
  ['one layer, one head', { L: 1, H: 1, N: 8, F: null, V: 11, P: 40 }],
  ['odd sizes', { L: 2, H: 3, N: 5, F: 17, V: 29, P: 67 }],
  ['many narrow heads, untied', { L: 3, H: 7, N: 2, F: 33, V: 40, P: 50, tied: false }],
  ['wide heads, another epsilon', { L: 2, H: 2, N: 33, F: 70, V: 53, P: 45, eps: 1e-3 }],
  ['more keys than a block has', { L: 1, H: 2, N: 4, F: 9, V: 13, P: 300 }],
]

const randomIds = (count: number, vocabulary: number, seed: number): number[] => {
  const next = random(seed)
  return Array.from({ length: count }, () => Math.floor(next() * vocabulary))
}

const openRandom = (sizes: Gpt2Sizes, tensors: Tensors, options: OpenModelOptions = { threads: 2 }) =>
  open(writePackage(gpt2ConfigOf(sizes), safetensors(tensors)), options)

describe.each(settings)('against GPT-2 in double precision: %s', (_, sizes) => {
  const tensors = randomGpt2(sizes.L * 100 + sizes.H, sizes)

  test.each(['plain', 'prefixed with buffers'])('%s names', async (names) => {
    const file = names === 'plain' ? tensors : withBuffers(withPrefix(tensors), sizes, 'transformer.')
    const model = await openRandom(sizes, file)
    const oracle = gpt2Oracle(tensors, sizes)
    const ids = randomIds(sizes.P, sizes.V, 7)
    const context = model.createContext()
    for (const [at, id] of ids.entries()) {
      const wanted = oracle.feed(id)
      await feed(model, context, [id], false)
      const scale = Math.max(1, ...wanted.map(Math.abs))
      expect(farthest(await model.logits(context), wanted) / scale, `position ${at}`).toBeLessThan(2e-5)
    }
    expect((await errorOf(() => feed(model, context, [0]))).code).toBe('INVALID')
  })

  test('any cut and any threads: the same bits', async () => {
    const ids = randomIds(sizes.P, sizes.V, 8)
    let whole: { nats: Uint32Array; chain: string } | null = null
    for (const threads of [1, 3]) {
      const model = await openRandom(sizes, tensors, { threads })
      for (const size of [1, 6, sizes.P]) {
        const context = model.createContext()
        const nats: number[] = []
        for (let at = 0; at < ids.length; at += size)
          nats.push(...(await feed(model, context, ids.slice(at, at + size))))
        const now = { nats: bits(Float32Array.from(nats)), chain: context.chain }
        whole ??= now
        expect(now).toEqual(whole)
      }
    }
  })

  test('windowed, it goes on for ever over the last positions', async () => {
    const model = await openRandom(sizes, tensors, { threads: 2, overflow: 'window' })
    expect(model.positions).toBeNull()
    const oracle = gpt2Oracle(tensors, sizes, true)
    const ids = randomIds(Math.ceil(2.5 * sizes.P), sizes.V, 9)
    const [alone, cut] = [model.createContext(), model.createContext()]
    for (const [at, id] of ids.entries()) {
      const wanted = oracle.feed(id)
      await feed(model, alone, [id], false)
      const scale = Math.max(1, ...wanted.map(Math.abs))
      expect(farthest(await model.logits(alone), wanted) / scale, `position ${at}`).toBeLessThan(2e-5)
    }
    for (let at = 0; at < ids.length; at += 37) await feed(model, cut, ids.slice(at, at + 37), false)
    expect(cut.chain).toBe(alone.chain)
    expect(cut.serialize().length).toBe(alone.serialize().length)
    const result = await generate(model, cut, 3)
    expect(result).toMatchObject({ generated: { length: 3 }, ended: null })
  })
})

describe('a package', () => {
  const sizes: Gpt2Sizes = { L: 2, H: 2, N: 4, F: null, V: 12, P: 9 }
  const tensors = randomGpt2(3, sizes)
  const config = gpt2ConfigOf(sizes)
  const opened = (changed: object, file: Tensors = tensors, options: OpenModelOptions = { threads: 1 }) =>
    open(writePackage({ ...config, ...changed }, safetensors(file)), options)

  test.each<readonly [string, object, RegExp]>([
    ['unscaled attention', { scale_attn_weights: false }, /scale_attn_weights must be true/],
    [
      'scores divided by the layer',
      { scale_attn_by_inverse_layer_idx: true },
      /scale_attn_by_inverse_layer_idx must be false/,
    ],
    ['cross attention', { add_cross_attention: true }, /add_cross_attention must be false/],
    ['another activation', { activation_function: 'gelu' }, /activation_function must be "gelu_new"/],
    ['two context lengths', { n_ctx: 10 }, /n_ctx is 10 and n_positions is 9/],
    ['heads of unequal width', { n_head: 3 }, /n_embd is 8 and n_head is 3/],
    ['no heads at all', { n_head: undefined }, /n_head/],
    ['fewer layers than the file', { n_layer: 1 }, /n_layer is 1, but tensors "h\.\*" .* say 2/],
    ['more layers than the file', { n_layer: 3 }, /n_layer is 3, but tensors "h\.\*" .* say 2/],
    [
      'more positions than the file',
      { n_positions: 10, n_ctx: 10 },
      /"wpe\.weight" has shape \[9, 8\], expected \[10, 8\]/,
    ],
    ['another inner width', { n_inner: 31 }, /c_fc\.weight" has shape \[8, 32\], expected \[8, 31\]/],
    ['an untied head that is not there', { tie_word_embeddings: false }, /Tensor "lm_head\.weight" is missing/],
  ])('is refused for %s', async (_, changed, message) => {
    const error = await errorOf(() => opened(changed))
    expect(error.code).toBe('INVALID')
    expect(error.message).toMatch(message)
  })

  test('with projections the other way round is refused, but for the square one, whose numbers tell', async () => {
    const turned = new Map<string, Tensor>(tensors)
    turned.set('h.0.mlp.c_fc.weight', { ...tensors.get('h.0.mlp.c_fc.weight')!, shape: [32, 8] })
    expect((await errorOf(() => opened({}, turned))).message).toMatch(/has shape \[32, 8\], expected \[8, 32\]/)
  })

  test('may carry its tied head once more, and may leave out what has a default', async () => {
    const doubled = new Map<string, Tensor>(tensors)
    doubled.set('lm_head.weight', tensors.get('wte.weight')!)
    const bare = { n_ctx: undefined, n_inner: undefined, tie_word_embeddings: undefined, layer_norm_epsilon: undefined }
    const [one, two] = [await opened({}), await opened(bare, doubled)]
    const [a, b] = [one.createContext(), two.createContext()]
    await feed(one, a, [1, 2, 3], false)
    await feed(two, b, [1, 2, 3], false)
    expect(b.chain).toBe(a.chain)
    expect(bits(await two.logits(b))).toEqual(bits(await one.logits(a)))
  })

  test('windowed is another model with another state; a model without positions has no window', async () => {
    const [refusing, same, windowed] = [
      await opened({}),
      await opened({}, tensors, { threads: 1, overflow: 'refuse' }),
      await opened({}, tensors, { threads: 1, overflow: 'window' }),
    ]
    expect(same.fingerprint).toBe(refusing.fingerprint)
    expect(windowed.fingerprint).not.toBe(refusing.fingerprint)
    expect(windowed.layoutFingerprint).not.toBe(refusing.layoutFingerprint)
    const demo = join(import.meta.dirname, '../../../models/demo')
    expect((await errorOf(() => open(demo, { overflow: 'window' }))).message).toMatch(
      /"rwkv7" model has no last position/,
    )
    expect((await errorOf(() => opened({}, tensors, { overflow: 'slide' as 'window' }))).message).toMatch(
      /overflow is "slide", expected "refuse" or "window"/,
    )
  })
})
