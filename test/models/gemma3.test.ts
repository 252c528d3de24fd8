import { describe, expect, test } from 'vitest'
import { bits, errorOf, feed, open } from '../engine/helpers.ts'
import { safetensors, type Tensor, type Tensors, writePackage } from '../engine/packages.ts'
import { againstReference, givesExpected } from './decoder-suite.ts'
import { BASE, type DecoderConfig, randomDecoder } from './decoders.ts'

givesExpected('gemma3-tiny')

const { hidden_act: _, rope_theta: __, ...sizes } = BASE
const GEMMA: DecoderConfig = {
  ...sizes,
  model_type: 'gemma3_text',
  num_hidden_layers: 3,
  head_dim: 6,
  sliding_window: 16,
  query_pre_attn_scalar: 10,
  hidden_activation: 'gelu_pytorch_tanh',
  layer_types: ['sliding_attention', 'full_attention', 'sliding_attention'],
}
const full = { rope_type: 'linear', rope_theta: 50_000, factor: 4 }
const { layer_types: ___, ...patterned } = GEMMA

againstReference([
  ['windows and full layers side by side', GEMMA],
  [
    'by the pattern',
    { ...patterned, num_hidden_layers: 4, sliding_window_pattern: 2, rope_scaling: { rope_type: 'linear', factor: 8 } },
  ],
  [
    'by the older pattern, other bases',
    { ...patterned, _sliding_window_pattern: 3, rope_theta: 2e5, rope_local_base_freq: 500 },
  ],
  [
    'bases under their newer names, capped logits',
    {
      ...GEMMA,
      rope_parameters: { full_attention: full, sliding_attention: { rope_type: 'default', rope_theta: 700 } } as never,
      final_logit_softcapping: 3,
    },
  ],
  ['all layers with a window', { ...GEMMA, layer_types: Array(3).fill('sliding_attention'), num_key_value_heads: 1 }],
  ['biases', { ...GEMMA, attention_bias: true }],
])

describe('a package', () => {
  const tensors = randomDecoder(8, GEMMA)
  const opened = (config: object, file: Tensors = tensors) =>
    open(writePackage(config, safetensors(file)), { threads: 1 })
  const logitsOf = async (config: object, file: Tensors): Promise<Uint32Array> => {
    const model = await opened(config, file)
    const context = model.createContext()
    await feed(model, context, [1, 2, 3, 4], false)
    return bits(await model.logits(context))
  }

  test('of a model that also sees pictures is its text part', async () => {
    const { model_type: type, vocab_size, ...text } = GEMMA
    const config = {
      model_type: 'gemma3',
      text_config: { ...text, vocab_size, model_type: type },
      vision_config: { hidden_size: 4 },
    }
    const alone = await logitsOf(GEMMA, tensors)
    for (const prefix of ['language_model.model.', 'model.language_model.']) {
      const whole = new Map<string, Tensor>(
        [...tensors].map(([name, tensor]) => [name.replace('model.', prefix), tensor]),
      )
      const picture = { shape: [2], data: Float32Array.of(1, 2) }
      const tower = prefix.startsWith('model.') ? 'model.vision_tower' : 'vision_tower'
      whole.set(`${tower}.vision_model.embeddings.patch_embedding.bias`, picture)
      whole.set(`${tower.replace('vision_tower', 'multi_modal_projector')}.mm_soft_emb_norm.weight`, picture)
      expect(await logitsOf(config, whole)).toEqual(alone)
    }
    const stray = new Map<string, Tensor>(tensors)
    stray.set('vision_tower.x', { shape: [1], data: Float32Array.of(1) })
    expect((await errorOf(() => opened(GEMMA, stray))).message).toContain('Tensor "vision_tower.x" is not part')
  })

  test('keeps windows and a cache that grows side by side', async () => {
    const model = await opened(GEMMA)
    const context = model.createContext()
    await feed(model, context, Array(20).fill(1), false)
    expect(model.layout.tensors(context.serialize()).map(({ name, shape }) => [name, shape])).toEqual([
      ['pastLen', []],
      ['windowKeys', [2, 16, 12]],
      ['windowValues', [2, 16, 12]],
      ['keyCache', [1, 20, 12]],
      ['valueCache', [1, 20, 12]],
      ['hidden.last', [24]],
    ])
  })

  test.each<readonly [string, object, RegExp]>([
    ['capped scores', { attn_logit_softcapping: 50 }, /attn_logit_softcapping must be null/],
    ['another activation', { hidden_activation: 'gelu' }, /hidden_activation must be "gelu_pytorch_tanh"/],
    [
      'a layer of an unknown kind',
      { layer_types: ['linear_attention'] },
      /layer_types\.0 must be "full_attention" or "sliding_attention"/,
    ],
    ['an unknown rope', { rope_scaling: { rope_type: 'dynamic' } }, /rope_scaling has the type "dynamic"/],
  ])('is refused for %s', async (_, changed, message) => {
    const error = await errorOf(() => opened({ ...GEMMA, ...changed }))
    expect(error.code).toBe('INVALID')
    expect(error.message).toMatch(message)
  })
})
