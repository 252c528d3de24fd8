import { copyFileSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import type { OpenModelOptions } from '../../src/engine/types.ts'
import { ropeIncrements, ropeOf } from '../../src/models/rope.ts'
import { bits, errorOf, feed, generate, open } from '../engine/helpers.ts'
import {
  type Dtype,
  random,
  rounded,
  safetensors,
  type Tensor,
  type Tensors,
  temporaryFolder,
  writePackage,
} from '../engine/packages.ts'
import { hasShared, sharedModel } from '../engine/paths.ts'
import { type DecoderConfig, decoderReference, randomDecoder } from './decoders.ts'

const farthest = (actual: ArrayLike<number>, wanted: readonly number[]): number => {
  expect(actual.length).toBe(wanted.length)
  return wanted.reduce((most, value, i) => Math.max(most, Math.abs(actual[i]! - value)), 0)
}
const randomIds = (count: number, vocabulary: number, seed: number): number[] => {
  const next = random(seed)
  return Array.from({ length: count }, () => Math.floor(next() * vocabulary))
}

interface Expected {
  readonly token_ids: readonly number[]
  readonly total_nats: number
  readonly nll: readonly number[]
  readonly logits: readonly number[]
  readonly tolerance: { readonly logits: number; readonly nats: number }
}

describe.skipIf(!hasShared)('the test package llama-tiny', () => {
  const tiny = sharedModel('llama-tiny')
  test.each([1, 7, 64, 1000])('gives the expected logits and nats, cut into %i', async (size) => {
    const expected = JSON.parse(readFileSync(join(tiny, 'expected.json'), 'utf8')) as Expected
    const folder = temporaryFolder()
    for (const file of ['config.json', 'model.safetensors']) copyFileSync(join(tiny, file), join(folder, file))
    const model = await open(folder, { threads: 2 })
    const context = model.createContext()
    const nats: number[] = []
    for (let at = 0; at < expected.token_ids.length; at += size)
      nats.push(...(await feed(model, context, expected.token_ids.slice(at, at + size))))
    const own = nats.slice(1)
    expect(Math.abs(own.reduce((a, b) => a + b, 0) - expected.total_nats)).toBeLessThan(expected.tolerance.nats)
    expect(farthest(own, expected.nll)).toBeLessThan(expected.tolerance.logits)
    expect(farthest(await model.logits(context), expected.logits)).toBeLessThan(expected.tolerance.logits)
  })
})

const BASE: DecoderConfig = {
  model_type: 'llama',
  vocab_size: 29,
  hidden_size: 24,
  num_hidden_layers: 2,
  num_attention_heads: 4,
  num_key_value_heads: 2,
  intermediate_size: 37,
  max_position_embeddings: 90,
  rms_norm_eps: 1e-5,
  rope_theta: 10_000,
  hidden_act: 'silu',
}
const { num_key_value_heads: _, ...ownKeys } = BASE
const llama3 = {
  rope_type: 'llama3',
  factor: 8,
  low_freq_factor: 1,
  high_freq_factor: 4,
  original_max_position_embeddings: 64,
}
const settings: readonly (readonly [string, DecoderConfig])[] = [
  ['two query heads to a key head', BASE],
  ['a head of its own for every query, tied', { ...ownKeys, tie_word_embeddings: true }],
  [
    'odd numbers of heads, wider than the model',
    { ...BASE, num_attention_heads: 9, num_key_value_heads: 3, head_dim: 6 },
  ],
  ['one key head, one layer', { ...BASE, num_hidden_layers: 1, num_key_value_heads: 1, head_dim: 2 }],
  ['biases everywhere', { ...BASE, attention_bias: true, mlp_bias: true }],
  ['positions interpolated', { ...BASE, rope_scaling: { type: 'linear', factor: 2.5 } }],
  ['Llama 3.1 positions', { ...BASE, head_dim: 32, rope_theta: 500_000, rope_scaling: llama3 }],
  ['positions under their newer names', { ...BASE, rope_theta: 1, rope_parameters: { ...llama3, rope_theta: 20_000 } }],
  ['more keys than a block has', { ...BASE, num_hidden_layers: 1, max_position_embeddings: 300 }],
  ['Mistral with a window', { ...BASE, model_type: 'mistral', sliding_window: 16 }],
  ['Mistral with a window that is never full', { ...BASE, model_type: 'mistral', sliding_window: 4096 }],
  ['Qwen2', { ...BASE, model_type: 'qwen2', sliding_window: 16, use_sliding_window: false }],
]

const openRandom = (
  config: DecoderConfig,
  tensors: Tensors,
  dtype: Dtype = 'F32',
  options: OpenModelOptions = { threads: 2 },
) => open(writePackage(config, safetensors(tensors, dtype)), options)

/** What the reference reads: windows count for Mistral alone. */
const referenceOf = (config: DecoderConfig, tensors: Tensors) =>
  decoderReference(
    { ...config, sliding_window: config.model_type === 'mistral' ? (config.sliding_window ?? null) : null },
    tensors,
  )

describe.each(settings)('against a decoder in double precision: %s', (_, config) => {
  const tensors = randomDecoder(config.num_attention_heads * 10 + config.num_hidden_layers, config)
  const P = config.max_position_embeddings

  test.each<Dtype>(['F32', 'BF16'])('%s', async (dtype) => {
    const model = await openRandom(config, tensors, dtype)
    expect(model.positions).toBe(P)
    const stored = new Map(
      [...tensors].map(([name, { shape, data }]) => [
        name,
        { shape, data: data.map((value) => rounded(value, dtype)) },
      ]),
    )
    const reference = referenceOf(config, stored)
    const ids = randomIds(P, config.vocab_size, 7)
    const context = model.createContext()
    for (const [at, id] of ids.entries()) {
      const wanted = reference.feed(id)
      await feed(model, context, [id], false)
      if (at > 20 && at % 7 !== 0 && at < P - 1) continue
      const scale = Math.max(1, ...wanted.map(Math.abs))
      expect(farthest(await model.logits(context), wanted) / scale, `position ${at}`).toBeLessThan(2e-5)
    }
    expect((await errorOf(() => feed(model, context, [0]))).message).toContain(
      `${P + 1} positions exceed the ${P} of counter "pastLen"`,
    )
    expect(await generate(model, context, 4)).toMatchObject({ generated: { length: 0 }, ended: 'positions' })
  })

  test('any cut and any threads: the same bits', async () => {
    const ids = randomIds(P, config.vocab_size, 8)
    let whole: { nats: Uint32Array; chain: string; state: string } | null = null
    for (const threads of [1, 3]) {
      const model = await openRandom(config, tensors, 'F32', { threads })
      for (const size of [1, 6, P]) {
        const context = model.createContext()
        const nats: number[] = []
        for (let at = 0; at < ids.length; at += size)
          nats.push(...(await feed(model, context, ids.slice(at, at + size))))
        const state = Buffer.from(context.serialize()).toString('base64')
        const now = { nats: bits(Float32Array.from(nats)), chain: context.chain, state }
        whole ??= now
        expect(now).toEqual(whole)
      }
    }
  })
})

describe('a package', () => {
  const config = { ...BASE, max_position_embeddings: 9 }
  const tensors = randomDecoder(3, config)
  const opened = (changed: object, file: Tensors = tensors, options: OpenModelOptions = { threads: 1 }) =>
    open(writePackage({ ...config, ...changed }, safetensors(file)), options)
  const qwen = { model_type: 'qwen2' }

  test.each<readonly [string, object, RegExp]>([
    ['another activation', { hidden_act: 'gelu' }, /not a llama configuration: hidden_act must be "silu"/],
    [
      'windows in some layers',
      { ...qwen, use_sliding_window: true },
      /not a qwen2 configuration: use_sliding_window must be false/,
    ],
    [
      'a layer of another kind',
      { layer_types: ['full_attention', 'sliding_attention'] },
      /layer_types\.1 must be "full_attention"/,
    ],
    [
      'an unknown rope',
      { rope_scaling: { rope_type: 'yarn', factor: 4 } },
      /rope_scaling has the type "yarn", expected "default", "linear" or "llama3"/,
    ],
    ['a rope without its factor', { rope_scaling: { type: 'linear' } }, /rope_scaling of type "linear" lacks factor/],
    [
      'half a llama3 rope',
      { rope_parameters: { ...llama3, low_freq_factor: null } },
      /rope_parameters of type "llama3" lacks low_freq_factor/,
    ],
    [
      'rope bands the wrong way round',
      { rope_scaling: { ...llama3, high_freq_factor: 1 } },
      /low_freq_factor 1 and high_freq_factor 1/,
    ],
    ['a factor below one', { rope_scaling: { type: 'linear', factor: 0.5 } }, /factor is 0.5, expected at least 1/],
    ['a base below one', { rope_theta: 0.5 }, /rope_theta is 0.5, expected at least 1/],
    ['a part of a head', { partial_rotary_factor: 0.5 }, /partial_rotary_factor must be 1/],
    [
      'a part of a head under its newer name',
      { rope_parameters: { partial_rotary_factor: 0.5 } },
      /partial_rotary_factor must be 1/,
    ],
    ['matrices cut for training', { pretraining_tp: 2 }, /pretraining_tp must be 1/],
    ['heads of unequal width', { num_attention_heads: 5 }, /hidden_size is 24 and num_attention_heads is 5/],
    ['an odd head', { num_attention_heads: 8 }, /a head has 3 channels, expected an even number/],
    [
      'keys that heads cannot share',
      { num_key_value_heads: 3 },
      /num_attention_heads is 4 and num_key_value_heads is 3/,
    ],
    [
      'fewer layers than the file',
      { num_hidden_layers: 1 },
      /num_hidden_layers is 1, but tensors "model\.layers\.\*" .* say 2/,
    ],
    ['another inner width', { intermediate_size: 36 }, /gate_proj\.weight" has shape \[37, 24\], expected \[36, 24\]/],
    ['biases that are not there', { attention_bias: true }, /q_proj\.bias" is missing/],
    ['more positions than a table can grow by', { max_position_embeddings: 2 ** 40 }, /expected at most 2147483648/],
  ])('is refused for %s', async (_, changed, message) => {
    const error = await errorOf(() => opened(changed))
    expect(error.code).toBe('INVALID')
    expect(error.message).toMatch(message)
  })

  test('with biases or norms that the family has not is refused by their name', async () => {
    const more = new Map<string, Tensor>(tensors)
    more.set('model.layers.1.self_attn.q_norm.weight', { shape: [6], data: new Float32Array(6).fill(1) })
    expect((await errorOf(() => opened({}, more))).message).toContain(
      'Tensor "model.layers.1.self_attn.q_norm.weight" is not part of this model family',
    )
  })

  test('without a head, or with a head that is tied, has its embedding there; old buffers are passed over', async () => {
    const bare = new Map<string, Tensor>(tensors)
    bare.delete('lm_head.weight')
    const doubled = new Map<string, Tensor>(tensors)
    doubled.set('model.layers.0.self_attn.rotary_emb.inv_freq', { shape: [3], data: Float32Array.of(1, 2, 3) })
    doubled.set('model.rotary_emb.inv_freq', { shape: [3], data: Float32Array.of(1, 2, 3) })
    const models = [
      await opened({}, bare),
      await opened({ tie_word_embeddings: true }, doubled),
      await opened({}, doubled),
    ]
    const logits: Uint32Array[] = []
    for (const model of models) {
      const context = model.createContext()
      await feed(model, context, [1, 2, 3], false)
      logits.push(bits(await model.logits(context)))
    }
    expect(logits[1]).toEqual(logits[0])
    expect(logits[2]).not.toEqual(logits[0])
  })

  test('shows its state under the names of the contract, and cannot go past its end', async () => {
    const model = await opened({})
    const context = model.createContext()
    await feed(model, context, [5, 6, 7], false)
    expect(model.layout.tensors(context.serialize()).map(({ name, dtype, shape }) => [name, dtype, shape])).toEqual([
      ['pastLen', 'I64', []],
      ['keyCache', 'F32', [2, 3, 12]],
      ['valueCache', 'F32', [2, 3, 12]],
      ['hidden.last', 'F32', [24]],
    ])
    expect((await errorOf(() => opened({}, tensors, { threads: 1, overflow: 'window' }))).message).toBe(
      'overflow "window" was asked for, but a "llama" model cannot go past its last position. Leave it out, and reset a session that is full.',
    )
  })

  test('after a reset, a window holds nothing of what was before', async () => {
    const mistral = { ...config, model_type: 'mistral', sliding_window: 4 }
    const model = await openRandom(mistral, tensors)
    const [used, fresh] = [model.createContext(), model.createContext()]
    await feed(model, used, [1, 2, 3, 4, 5, 6, 7], false)
    used.reset()
    for (const context of [used, fresh]) await feed(model, context, [8, 9, 10, 11, 12, 13], false)
    expect(bits(await model.logits(used))).toEqual(bits(await model.logits(fresh)))
    expect(model.layout.first.map(({ name, shape }) => [name, shape])).toEqual([
      ['pastLen', []],
      ['windowKeys', [2, 4, 12]],
      ['windowValues', [2, 4, 12]],
      ['hidden.last', [24]],
    ])
  })
})

describe('increments', () => {
  test('are the nearest whole numbers to the exact turns', () => {
    // By mpmath with 60 digits.
    const at = (base: number, n: number, scaling: object = {}) =>
      ropeIncrements(ropeOf({ rope_theta: base, rope_scaling: scaling as never }), n)
    expect(at(10_000, 8)).toEqual([683565276, 68356528, 6835653, 683565])
    expect(at(500_000, 128).slice(0, 3)).toEqual([683565276, 556844054, 453614763])
    expect(at(500_000, 128, { ...llama3, original_max_position_embeddings: 8192 }).slice(27, 34)).toEqual([
      2694803, 2195233, 1480993, 937779, 585646, 358767, 213747,
    ])
    expect(at(1, 4)).toEqual([683565276, 683565276])
  })
})
