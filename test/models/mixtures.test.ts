import { describe, expect, test } from 'vitest'
import { errorOf, feed, open } from '../engine/helpers.ts'
import { safetensors, type Tensor, type Tensors, writePackage } from '../engine/packages.ts'
import { againstReference, givesExpected } from './decoder-suite.ts'
import { BASE, type DecoderConfig, randomDecoder } from './decoders.ts'

givesExpected('qwen3moe-tiny')

const QWEN: DecoderConfig = {
  ...BASE,
  model_type: 'qwen3_moe',
  num_hidden_layers: 3,
  head_dim: 6,
  num_experts: 7,
  num_experts_per_tok: 3,
  moe_intermediate_size: 19,
  norm_topk_prob: true,
}
const MIXTRAL: DecoderConfig = { ...BASE, model_type: 'mixtral', num_local_experts: 5, num_experts_per_tok: 2 }

againstReference([
  ['Qwen3-MoE', QWEN],
  ['Qwen3-MoE, weights as they are', { ...QWEN, norm_topk_prob: false, num_experts_per_tok: 1 }],
  ['Qwen3-MoE, every expert', { ...QWEN, num_experts_per_tok: 7, tie_word_embeddings: true }],
  ['Qwen3-MoE, layers with an MLP between', { ...QWEN, num_hidden_layers: 5, decoder_sparse_step: 2 }],
  ['Qwen3-MoE, layers with an MLP by name', { ...QWEN, mlp_only_layers: [0, 2], attention_bias: true }],
  ['Mixtral', MIXTRAL],
  ['Mixtral with a window', { ...MIXTRAL, sliding_window: 12 }],
])

describe('a package', () => {
  const tensors = randomDecoder(8, QWEN)
  const opened = (changed: object, file: Tensors = tensors) =>
    open(writePackage({ ...QWEN, ...changed }, safetensors(file)), { threads: 1 })

  test.each<readonly [string, object, RegExp]>([
    ['more experts for a token than there are', { num_experts_per_tok: 8 }, /8 of 7 experts/],
    ['more experts than the file', { num_experts: 8 }, /mlp\.gate\.weight" has shape \[7, 24\], expected \[8, 24\]/],
    ['more experts than a row can choose among', { num_experts: 2 ** 40 }, /mlp\.gate\.weight" has shape/],
    ['another inner width', { moe_intermediate_size: 20 }, /has shape \[19, 24\], expected \[20, 24\]/],
    ['no experts', { num_experts: 0 }, /num_experts/],
    ['saying nothing of experts', { num_experts: undefined }, /has no num_experts, expected how many/],
  ])('is refused for %s', async (_, changed, message) => {
    const error = await errorOf(() => opened(changed))
    expect(error.code).toBe('INVALID')
    expect(error.message).toMatch(message)
  })

  test('may name the number of experts as transformers 5 does', async () => {
    const logitsOf = async (changed: object): Promise<Float32Array> => {
      const model = await opened(changed)
      const context = model.createContext()
      await feed(model, context, [1, 2, 3])
      return model.logits(context)
    }
    expect(await logitsOf({ num_experts: undefined, num_local_experts: 7 })).toEqual(await logitsOf({}))
  })

  test('without one expert, or with one too many, is refused by its name', async () => {
    const less = new Map<string, Tensor>(tensors)
    less.delete('model.layers.1.mlp.experts.6.up_proj.weight')
    expect((await errorOf(() => opened({}, less))).message).toContain(
      'model.layers.1.mlp.experts.6.up_proj.weight" is missing',
    )
    const more = new Map<string, Tensor>(tensors)
    more.set('model.layers.1.mlp.experts.7.up_proj.weight', { shape: [19, 24], data: new Float32Array(19 * 24) })
    expect((await errorOf(() => opened({}, more))).message).toContain('experts.7.up_proj.weight" is not part of')
  })

  test('says nothing that is not finite: a router that diverged ends the item', async () => {
    const wild = new Map<string, Tensor>(tensors)
    const router = tensors.get('model.layers.0.mlp.gate.weight')!
    wild.set('model.layers.0.mlp.gate.weight', { ...router, data: router.data.map(() => 3e38) })
    const model = await opened({}, wild)
    const error = await errorOf(() => feed(model, model.createContext(), [1, 2, 3]))
    expect(error.message).toMatch(/finite/)
  })
})
