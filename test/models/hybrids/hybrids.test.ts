/**
 * Families with recurrent layers, against expected results made elsewhere and against a float64 reference at other
 * sizes and settings.
 */
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { openModel } from '../../../src/models/open.ts'
import { errorOf, feed, generate, open } from '../../engine/helpers.ts'
import { random, safetensors, type Tensors, temporaryFolder, writePackage } from '../../engine/packages.ts'
import { hasShared, sharedModel } from '../../engine/paths.ts'
import { torchFile } from '../files/containers.ts'
import {
  type ExpertForm,
  falconConfig,
  graniteConfig,
  hybridTensors,
  lfm2Config,
  mamba2Config,
  nemotronConfig,
  qwen3NextConfig,
  qwen35Config,
} from './hybrid-packages.ts'
import { type HybridConfig, hybridReference } from './hybrid-reference.ts'

const write = (config: HybridConfig, tensors: Tensors): string => writePackage(config, safetensors(tensors))
const farthest = (got: ArrayLike<number>, want: readonly number[]): number => {
  expect(got.length).toBe(want.length)
  return want.reduce((most, value, i) => Math.max(most, Math.abs(got[i]! - value)), 0)
}
const someTokens = (seed: number, count: number, vocabulary: number): number[] => {
  const next = random(seed)
  return Array.from({ length: count }, () => Math.floor(next() * vocabulary))
}

interface Expected {
  readonly total_nll: number
  readonly nll: readonly number[]
  readonly argmax: number
  readonly logits: readonly number[]
}

describe.skipIf(!hasShared).each(['mamba2-tiny', 'lfm2-tiny', 'qwen35-tiny', 'qwen3next-tiny'])('%s', (name) => {
  it.each([1, 7, 64, 1000])('gives the expected logits and nats, cut into %i', async (size) => {
    const dir = sharedModel(name)
    const { input_ids: ids } = JSON.parse(readFileSync(join(dir, 'input.json'), 'utf8')) as { input_ids: number[] }
    const expected = JSON.parse(readFileSync(join(dir, 'expected.json'), 'utf8')) as Expected
    const model = await open(dir, { threads: 2 })
    const context = model.createContext()
    const nats: number[] = []
    for (let at = 0; at < ids.length; at += size) nats.push(...(await feed(model, context, ids.slice(at, at + size))))
    const own = nats.slice(1)
    const logits = await model.logits(context)
    expect(farthest(logits, expected.logits)).toBeLessThan(5e-4)
    expect(farthest(own, expected.nll)).toBeLessThan(5e-4)
    expect(Math.abs(own.reduce((a, b) => a + b, 0) - expected.total_nll)).toBeLessThan(1e-2)
    expect(logits.indexOf(Math.max(...logits))).toBe(expected.argmax)
  })
})

it('a step without a limit may stand as transformers 5 writes Infinity', async () => {
  const tensors = hybridTensors(3, mamba2Config())
  const logitsOf = async (limit: unknown): Promise<Float32Array> => {
    const model = await open(write(mamba2Config({ time_step_limit: limit }), tensors))
    const context = model.createContext()
    await feed(model, context, [1, 2, 3])
    return model.logits(context)
  }
  expect(await logitsOf([0, { __float__: 'Infinity' }])).toEqual(await logitsOf([0, 1e30]))
})

interface Setting {
  readonly config: HybridConfig
  readonly inner?: number
  readonly form?: ExpertForm
}
const settings: Readonly<Record<string, Setting>> = {
  'mamba2, groups of heads': { config: mamba2Config() },
  'mamba2, one group, tied': { config: mamba2Config({ n_groups: 1, tie_word_embeddings: true }) },
  'mamba2, biases, no bias of the convolution, two taps': {
    config: mamba2Config({ use_bias: true, use_conv_bias: false, conv_kernel: 2 }),
  },
  'mamba2, a step within limits': { config: mamba2Config({ time_step_limit: [0.2, 0.5] }) },
  'mamba2, a step above a limit': { config: mamba2Config({ time_step_limit: [0.4, 1e30], layer_norm_epsilon: 1e-3 }) },
  lfm2: { config: lfm2Config() },
  'lfm2, biases, four taps, a head of its own': {
    config: lfm2Config({ conv_bias: true, conv_L_cache: 4, tie_word_embeddings: false }),
  },
  'lfm2, older names, an adjusted MLP': {
    config: lfm2Config({
      layer_types: undefined,
      full_attn_idxs: [0],
      block_ff_dim: 30,
      block_auto_adjust_ff_dim: true,
      block_ffn_dim_multiplier: 1.3,
      block_multiple_of: 8,
    }),
    inner: 32,
  },
  'qwen3_5_text, three heads of values to a head of keys': { config: qwen35Config() },
  'qwen3_5_text, as many heads of keys, tied, every second layer attends': {
    config: qwen35Config({ linear_num_key_heads: 6, tie_word_embeddings: true, full_attention_interval: 2 }),
  },
  'qwen3_5_text, keys wider than values': {
    config: qwen35Config({ linear_key_head_dim: 19, linear_value_head_dim: 5, rms_norm_eps: 1e-2 }),
  },
  'qwen3_5_text, values wider than keys, a head of keys to each': {
    config: qwen35Config({ linear_num_key_heads: 6, linear_key_head_dim: 7, linear_value_head_dim: 33 }),
  },
  'qwen3_5_text, keys as wide as may be, values of one channel': {
    config: qwen35Config({ num_hidden_layers: 2, linear_key_head_dim: 256, linear_value_head_dim: 1 }),
  },
  'qwen3_5_text, values as wide as may be, a single head': {
    config: qwen35Config({
      ...{ num_hidden_layers: 2, linear_num_key_heads: 1, linear_num_value_heads: 1 },
      ...{ linear_key_head_dim: 3, linear_value_head_dim: 256 },
    }),
  },
  'qwen3_5_text, layers named': {
    config: qwen35Config({
      layer_types: ['full_attention', 'linear_attention', 'linear_attention', 'full_attention'],
      linear_conv_kernel_dim: 3,
      rms_norm_eps: 1e-2,
    }),
  },
  'qwen3_5, the text model of a multimodal package': {
    config: {
      model_type: 'qwen3_5',
      tie_word_embeddings: true,
      text_config: qwen35Config({ model_type: 'qwen3_5_text', tie_word_embeddings: true }),
      vision_config: { depth: 2 },
    },
  },
  qwen3_next: { config: qwen3NextConfig() },
  'qwen3_next, chosen weights as they are, every second layer dense and another': {
    config: qwen3NextConfig({ norm_topk_prob: false, decoder_sparse_step: 2, mlp_only_layers: [3] }),
  },
  'qwen3_next, keys wider than values': {
    config: qwen3NextConfig({ linear_key_head_dim: 13, linear_value_head_dim: 6 }),
  },
  'qwen3_next, values wider than keys': {
    config: qwen3NextConfig({ linear_key_head_dim: 6, linear_value_head_dim: 13 }),
  },
  'qwen3_next, experts of a layer in one tensor': { config: qwen3NextConfig(), form: 'fused' },
  qwen3_5_moe_text: {
    config: qwen35Config({
      ...{ model_type: 'qwen3_5_moe_text', num_experts: 5, num_experts_per_tok: 5, moe_intermediate_size: 11 },
      ...{ shared_expert_intermediate_size: 9, intermediate_size: undefined },
    }),
    form: 'fused',
  },
  'qwen3_5_moe, the text model of a multimodal package': {
    config: {
      model_type: 'qwen3_5_moe',
      text_config: qwen35Config({
        ...{ model_type: 'qwen3_5_moe_text', num_experts: 6, num_experts_per_tok: 1, moe_intermediate_size: 11 },
        ...{ shared_expert_intermediate_size: 9, intermediate_size: undefined },
      }),
    },
  },
  granitemoehybrid: { config: graniteConfig() },
  'granitemoehybrid, with positions, biases and a head': {
    config: graniteConfig({
      ...{ position_embedding_type: 'rope', attention_bias: true, mamba_proj_bias: true, mamba_conv_bias: false },
      ...{ tie_word_embeddings: false, residual_multiplier: 1, logits_scaling: 1, embedding_multiplier: 1 },
    }),
  },
  'granitemoehybrid, with experts': {
    config: graniteConfig({ num_local_experts: 6, num_experts_per_tok: 2, intermediate_size: 13 }),
  },
  'granitemoehybrid, without attention': { config: graniteConfig({ layer_types: ['mamba', 'mamba', 'mamba'] }) },
  'falcon_h1, every factor': { config: falconConfig() },
  'falcon_h1, the norm behind the gate': { config: falconConfig({ mamba_rms_norm: true }) },
  'falcon_h1, the norm before the gate, biases, no factors': {
    config: falconConfig({
      ...{ mamba_rms_norm: true, mamba_norm_before_gate: true, attention_bias: true, mlp_bias: true },
      ...{ projectors_bias: true, mamba_proj_bias: true, ssm_multipliers: [1, 1, 1, 1, 1], mlp_multipliers: [1, 1] },
      ...{ embedding_multiplier: 1, lm_head_multiplier: 1, key_multiplier: 1, ssm_in_multiplier: 1 },
      ...{ ssm_out_multiplier: 1, attention_in_multiplier: 1, attention_out_multiplier: 1 },
    }),
  },
  nemotron_h: { config: nemotronConfig() },
  'nemotron_h, with experts': {
    config: nemotronConfig({
      ...{ hybrid_override_pattern: 'ME*E', n_routed_experts: 7, num_experts_per_tok: 3, moe_intermediate_size: 13 },
      ...{ moe_shared_expert_intermediate_size: 10, routed_scaling_factor: 2.5, n_group: 1 },
    }),
  },
  'nemotron_h, biases, Mamba alone, tied': {
    config: nemotronConfig({ use_bias: true, hybrid_override_pattern: 'MM', tie_word_embeddings: true }),
  },
  'nemotron_h, biases of attention and MLP, attention first': {
    config: nemotronConfig({ attention_bias: true, mlp_bias: true, hybrid_override_pattern: '*-M*' }),
  },
}

describe.each(Object.entries(settings))('%s', (_, { config, inner, form = 'single' }) => {
  it('is what the equations give, at any cut', async () => {
    const tensors = hybridTensors(3, config, { form, ...(inner === undefined ? {} : { inner }) })
    const vocabulary = (config.text_config ?? config).vocab_size
    const tokens = someTokens(5, 45, vocabulary)
    const told = hybridReference(config, tensors, tokens)
    if (config.text_config) tensors.set('model.visual.blocks.0.norm1.weight', { shape: [3], data: new Float32Array(3) })
    const model = await open(write(config, tensors), { threads: 2 })
    let first: { chain: string; logits: number[] } | undefined
    for (const size of [45, 1, 16]) {
      const context = model.createContext()
      const nats: number[] = []
      for (let at = 0; at < tokens.length; at += size)
        nats.push(...(await feed(model, context, tokens.slice(at, at + size))))
      const logits = [...(await model.logits(context))]
      expect(farthest(logits, told.logits)).toBeLessThan(1e-4)
      expect(farthest(nats.slice(1), told.nats)).toBeLessThan(1e-4)
      first ??= { chain: context.chain, logits }
      expect({ chain: context.chain, logits }).toEqual(first)
    }
  })
})

describe("the authors' packages of Mamba-2", () => {
  it('have a pytorch_model.bin, other names, and rows that pad the vocabulary', async () => {
    const config = mamba2Config({ vocab_size: 40, n_groups: 1, hidden_size: 21, tie_word_embeddings: true })
    const tensors = hybridTensors(3, config)
    const tokens = someTokens(5, 30, 37)
    const told = hybridReference(config, tensors, tokens)
    const own = new Map(tensors)
    own.set('backbone.embedding.weight', tensors.get('backbone.embeddings.weight')!)
    own.delete('backbone.embeddings.weight')
    // The head is there once more.
    own.set('lm_head.weight', tensors.get('backbone.embeddings.weight')!)
    const dir = temporaryFolder()
    writeFileSync(join(dir, 'pytorch_model.bin'), torchFile(own))
    const authors = {
      ...{
        d_model: 21,
        n_layer: 2,
        vocab_size: 37,
        pad_vocab_size_multiple: 8,
        tie_embeddings: true,
        d_intermediate: 0,
      },
      ...{ rms_norm: true, residual_in_fp32: true, fused_add_norm: true, attn_layer_idx: [], attn_cfg: {} },
      ssm_cfg: { layer: 'Mamba2', headdim: 7, d_state: 11 },
    }
    writeFileSync(join(dir, 'config.json'), JSON.stringify(authors))
    const model = await open(dir)
    expect(model.vocabSize).toBe(40)
    const context = model.createContext()
    const nats = await feed(model, context, tokens)
    expect(farthest(await model.logits(context), told.logits)).toBeLessThan(1e-4)
    expect(farthest(nats.slice(1), told.nats)).toBeLessThan(1e-4)

    writeFileSync(join(dir, 'config.json'), JSON.stringify({ ...authors, ssm_cfg: { layer: 'Mamba1' } }))
    expect((await errorOf(() => openModel(dir))).message).toContain('the first Mamba is another family')
    writeFileSync(join(dir, 'config.json'), JSON.stringify({ ...authors, attn_layer_idx: [1] }))
    expect((await errorOf(() => openModel(dir))).message).toContain('layers of attention are not read')
  })
})

describe('hybrid packages', () => {
  it('go on from a snapshot, and from a reset as from the beginning', async () => {
    const widths = qwen35Config({ linear_key_head_dim: 5, linear_value_head_dim: 14 })
    for (const config of [mamba2Config(), lfm2Config(), qwen35Config(), widths]) {
      const model = await open(write(config, hybridTensors(7, config)))
      const tokens = someTokens(9, 30, config.vocab_size)
      const [whole, cut, again] = [model.createContext(), model.createContext(), model.createContext()]
      await feed(model, whole, tokens)
      await feed(model, cut, tokens.slice(0, 13))
      again.restore(cut.serialize(), cut)
      await feed(model, again, tokens.slice(13))
      expect(again.chain).toBe(whole.chain)
      expect(Buffer.from(again.serialize())).toEqual(Buffer.from(whole.serialize()))
      const [fresh, used] = [model.createContext(), whole]
      used.reset()
      for (const context of [fresh, used]) await feed(model, context, tokens.slice(0, 3))
      expect((await generate(model, used, 5)).generated).toEqual((await generate(model, fresh, 5)).generated)
    }
  })

  it('of Mamba-2 have no last position; the others end at theirs', async () => {
    const mamba = mamba2Config()
    expect((await open(write(mamba, hybridTensors(1, mamba)))).positions).toBeNull()
    const config = qwen35Config({ max_position_embeddings: 9 })
    const model = await open(write(config, hybridTensors(1, config)))
    expect(model.positions).toBe(9)
    await feed(model, model.createContext(), someTokens(1, 9, 37))
    const full = await errorOf(() => feed(model, model.createContext(), someTokens(1, 10, 37)))
    expect(full.message).toContain('9')
  })
})
