import { describe, expect, test } from 'vitest'
import type { OpenModelOptions } from '../../src/engine/options.ts'
import { ropeIncrements, ropeOf } from '../../src/models/rope.ts'
import { bits, errorOf, feed, open } from '../engine/helpers.ts'
import { safetensors, type Tensor, type Tensors, writePackage } from '../engine/packages.ts'
import { againstReference, givesExpected, openRandom } from './decoder-suite.ts'
import { BASE, type DecoderConfig, randomDecoder } from './decoders.ts'

givesExpected('llama-tiny')
givesExpected('qwen3-tiny')

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
  ['Qwen3', { ...BASE, model_type: 'qwen3', head_dim: 8, num_attention_heads: 6, num_key_value_heads: 3 }],
  [
    'Qwen3 with biases, tied',
    { ...BASE, model_type: 'qwen3', head_dim: 6, attention_bias: true, tie_word_embeddings: true },
  ],
  ['SmolLM3', { ...BASE, model_type: 'smollm3', num_hidden_layers: 5, tie_word_embeddings: true }],
  [
    'SmolLM3 with layers as told',
    { ...BASE, model_type: 'smollm3', num_hidden_layers: 3, no_rope_layers: [0, 1, 0], tie_word_embeddings: true },
  ],
]

againstReference(settings)

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
    [
      'a head of too many channels',
      { head_dim: 2 ** 40 },
      /a head turns 1099511627776 channels, expected at most 4096/,
    ],
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
      'overflow "window" was asked for, but a "llama" model cannot go past its last position. Leave it out; a memory.json beside its config.json gives it contexts without an end (continuo memory init DIR).',
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
