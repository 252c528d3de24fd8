/** Hybrid packages that cannot be served: each is refused at load, by the name of the key or the tensor. */
import { describe, expect, it } from 'vitest'
import { openModel } from '../../../src/models/open.ts'
import { errorOf } from '../../engine/helpers.ts'
import { safetensors, type Tensor, writePackage } from '../../engine/packages.ts'
import {
  falconConfig,
  graniteConfig,
  hybridTensors,
  lfm2Config,
  mamba2Config,
  nemotronConfig,
  qwen35Config,
} from './hybrid-packages.ts'
import type { HybridConfig } from './hybrid-reference.ts'

const refusal = async (config: HybridConfig, tensors: ReadonlyMap<string, Tensor>): Promise<string> => {
  const { code, message } = await errorOf(() => openModel(writePackage(config, safetensors(tensors)), { threads: 1 }))
  expect(code).toBe('INVALID')
  return message
}

type Change = readonly [what: string, good: HybridConfig, change: HybridConfig, message: string]
const changes: readonly Change[] = [
  [
    'no number of layers',
    mamba2Config(),
    { num_hidden_layers: undefined },
    'a Mamba-2 configuration: num_hidden_layers',
  ],
  [
    'other layers than the tensors',
    mamba2Config(),
    { num_hidden_layers: 3 },
    'says num_hidden_layers is 3, but tensors',
  ],
  ['heads that make no groups', mamba2Config(), { n_groups: 4 }, '6 heads in 4 groups'],
  [
    'too large a state',
    mamba2Config(),
    { state_size: 300 },
    'the state has 300 numbers a channel, expected at most 256',
  ],
  ['a single tap', mamba2Config(), { conv_kernel: 1 }, 'has 1 taps, expected 2 to 64'],
  ['limits the wrong way round', mamba2Config(), { time_step_limit: [1, 0.5] }, 'lies between 1 and 0.5'],
  ['another activation', mamba2Config(), { hidden_act: 'gelu' }, 'hidden_act must be "silu"'],
  ['no norm', mamba2Config(), { rms_norm: false }, 'rms_norm must be true'],
  ['sizes of another model', mamba2Config(), { head_dim: 8 }, 'mixer.in_proj.weight" has shape'],
  ['no kinds of layers', lfm2Config(), { layer_types: undefined }, 'neither layer_types nor full_attn_idxs'],
  [
    'too few kinds of layers',
    lfm2Config(),
    { layer_types: ['conv'] },
    'names 1 layer_types and says num_hidden_layers is 4',
  ],
  [
    'an unknown kind of layer',
    lfm2Config(),
    { layer_types: ['conv', 'conv', 'conv', 'mamba'] },
    'an LFM2 configuration: layer_types.3',
  ],
  ['no width of the MLP', lfm2Config(), { intermediate_size: undefined }, 'neither block_ff_dim nor intermediate_size'],
  [
    'heads that share unevenly',
    lfm2Config(),
    { num_key_value_heads: 3 },
    'num_key_value_heads is 3, expected a multiple',
  ],
  [
    'positions of an unknown kind',
    lfm2Config(),
    { rope_scaling: { rope_type: 'yarn', factor: 2 } },
    'rope_scaling has the type "yarn"',
  ],
  [
    'keys of too many channels',
    qwen35Config(),
    { linear_key_head_dim: 257 },
    'linear_key_head_dim is 257, expected at most 256',
  ],
  [
    'values of too many channels',
    qwen35Config(),
    { linear_value_head_dim: 257 },
    'linear_value_head_dim is 257, expected at most 256',
  ],
  [
    'values of another width than the tensors',
    qwen35Config(),
    { linear_value_head_dim: 8 },
    'linear_attn.in_proj_qkv.weight" has shape',
  ],
  [
    'values that share keys unevenly',
    qwen35Config(),
    { linear_num_key_heads: 4 },
    'linear_num_value_heads is 6 and linear_num_key_heads is 4',
  ],
  ['an odd number of turned channels', qwen35Config(), { head_dim: 14 }, 'turns 7 of the 14 channels'],
  ['biases of attention', qwen35Config(), { attention_bias: true }, 'attention_bias must be false'],
  ['attention without its gate', qwen35Config(), { attn_output_gate: false }, 'attn_output_gate must be true'],
  [
    'experts',
    graniteConfig(),
    { num_local_experts: 8, num_experts_per_tok: 9, intermediate_size: 3 },
    '8 experts of 3 channels, of which a token goes to 9',
  ],
  [
    'heads that do not make up the inner channels',
    graniteConfig(),
    { mamba_d_head: 7 },
    '48 inner channels and 6 heads of 7',
  ],
  ['an unknown kind of position', graniteConfig(), { position_embedding_type: 'alibi' }, 'position_embedding_type'],
  ['four factors of five', falconConfig(), { ssm_multipliers: [1, 1, 1, 1] }, 'ssm_multipliers must be five numbers'],
  ['a factor of zero', falconConfig(), { key_multiplier: 0 }, 'key_multiplier must not be 0'],
  ['a factor before a bias', falconConfig(), { mamba_proj_bias: true }, 'mamba_proj_bias and ssm_in_multiplier 1.2'],
  ['an unknown operation', nemotronConfig(), { hybrid_override_pattern: 'M-*X-' }, 'layer 3 is "X"'],
  [
    'no pattern',
    nemotronConfig(),
    { hybrid_override_pattern: undefined },
    'neither hybrid_override_pattern nor layers_block_type',
  ],
  [
    'a pattern of another length',
    nemotronConfig(),
    { hybrid_override_pattern: 'M-*' },
    'says hybrid_override_pattern is 3, but tensors',
  ],
]

describe('hybrid packages', () => {
  it.each(changes)('with %s are refused', async (_, good, change, message) => {
    expect(await refusal({ ...good, ...change }, hybridTensors(1, good))).toContain(message)
  })

  it.each([
    [mamba2Config(), 'backbone.layers.1.mixer.A_log'],
    [mamba2Config(), 'backbone.norm_f.weight'],
    [lfm2Config(), 'model.layers.0.conv.conv.weight'],
    [lfm2Config(), 'model.layers.3.self_attn.q_layernorm.weight'],
    [qwen35Config(), 'model.layers.2.linear_attn.dt_bias'],
    [qwen35Config(), 'model.layers.3.self_attn.k_norm.weight'],
    [graniteConfig(), 'model.layers.1.shared_mlp.input_linear.weight'],
    [falconConfig(), 'model.layers.0.mamba.D'],
    [nemotronConfig(), 'backbone.layers.2.mixer.o_proj.weight'],
  ])('of %o without %s are refused by its name', async (config, name) => {
    const tensors = hybridTensors(1, config)
    expect(tensors.delete(name)).toBe(true)
    expect(await refusal(config, tensors)).toContain(`Tensor "${name}" is missing`)
  })

  it('with a tensor that belongs to no part of them are refused', async () => {
    for (const config of [mamba2Config(), lfm2Config(), qwen35Config()]) {
      const tensors = hybridTensors(1, config)
      tensors.set('model.extra.weight', { shape: [2], data: new Float32Array(2) })
      expect(await refusal(config, tensors)).toContain('Tensor "model.extra.weight" is not part of this model family')
    }
  })

  it('cannot go past their last position, or have none', async () => {
    const overflow = async (config: HybridConfig): Promise<string> => {
      const dir = writePackage(config, safetensors(hybridTensors(1, config)))
      return (await errorOf(() => openModel(dir, { threads: 1, overflow: 'window' }))).message
    }
    expect(await overflow(mamba2Config())).toContain('has no last position')
    expect(await overflow(lfm2Config())).toContain('cannot go past its last position')
  })
})
