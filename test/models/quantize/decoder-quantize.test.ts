import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { quantizePackage } from '../../../src/models/quantize/quantize.ts'
import { feed, open } from '../../engine/helpers.ts'
import { safetensors, writePackage } from '../../engine/packages.ts'
import { farthest, randomIds } from '../decoder-suite.ts'
import { BASE, type DecoderConfig, decoderReference, randomDecoder } from '../decoders.ts'
import { newOut } from '../helpers.ts'
import { dequantisedTensors, readStored } from './quantized.ts'

const WIDE: DecoderConfig = {
  ...BASE,
  hidden_size: 48,
  head_dim: 12,
  intermediate_size: 67,
  max_position_embeddings: 60,
}
const attention = ['q', 'k', 'v', 'o'].map((name) => `self_attn.${name}_proj`)
const mlp = ['gate', 'up', 'down'].map((name) => `mlp.${name}_proj`)
const experts = (count: number, at: string, names: readonly string[]): readonly string[] =>
  Array.from({ length: count }, (_, e) => names.map((name) => `${at}.${e}.${name}`)).flat()

const settings: readonly (readonly [string, DecoderConfig, readonly string[], boolean])[] = [
  ['llama', WIDE, [...attention, ...mlp], true],
  ['qwen2, tied', { ...WIDE, model_type: 'qwen2', tie_word_embeddings: true }, [...attention, ...mlp], false],
  ['qwen3', { ...WIDE, model_type: 'qwen3' }, [...attention, ...mlp], true],
  [
    'gemma3_text',
    {
      ...WIDE,
      model_type: 'gemma3_text',
      hidden_act: 'gelu_pytorch_tanh',
      sliding_window: 9,
      query_pre_attn_scalar: 12,
      sliding_window_pattern: 2,
    },
    [...attention, ...mlp],
    false,
  ],
  [
    'qwen3_moe',
    { ...WIDE, model_type: 'qwen3_moe', num_experts: 5, num_experts_per_tok: 2, moe_intermediate_size: 35 },
    [...attention, ...experts(5, 'mlp.experts', ['gate_proj', 'up_proj', 'down_proj'])],
    true,
  ],
  [
    'mixtral',
    { ...WIDE, model_type: 'mixtral', num_local_experts: 3, num_experts_per_tok: 2 },
    [...attention, ...experts(3, 'block_sparse_moe.experts', ['w1', 'w2', 'w3'])],
    true,
  ],
]

describe.each(settings)('quantised: %s', (_, config, matrices, head) => {
  test.each<readonly ['q8' | 'ternary', 32 | 64]>([
    ['q8', 32],
    ['q8', 64],
    ['ternary', 32],
  ])('as %s in groups of %i computes with the weights that its file stands for', async (to, group) => {
    const tensors = randomDecoder(4, config)
    const dir = writePackage(config, safetensors(tensors))
    const out = newOut()
    await quantizePackage({ dir, out, to, group })
    const [before, after] = [dir, out].map((folder) => readStored(join(folder, 'model.safetensors')))
    // What chooses experts stays as it is.
    expect([...after!.tensors.keys()].filter((name) => after!.tensors.has(`${name}.scales`)).toSorted()).toEqual(
      [
        ...(head ? ['lm_head.weight'] : []),
        ...[0, 1].flatMap((l) => matrices.map((name) => `model.layers.${l}.${name}.weight`)),
      ].toSorted(),
    )
    const reference = decoderReference(config, dequantisedTensors(before!, after!, group))
    const model = await open(out, { threads: 2 })
    const ids = randomIds(24, config.vocab_size, 5)
    const context = model.createContext()
    let [far, size] = [0, 0]
    for (const id of ids) {
      const wanted = reference.feed(id)
      await feed(model, context, [id], false)
      const logits = await model.logits(context)
      far = Math.max(far, farthest(logits, wanted))
      size = Math.max(size, ...wanted.map(Math.abs))
    }
    // Inputs of products are rounded to 8 bits, within half of 1/127 of the largest of their group.
    expect(far / size).toBeLessThan(0.15)
    const whole = model.createContext()
    await feed(model, whole, ids, false)
    expect(whole.chain).toBe(context.chain)
  })
})
