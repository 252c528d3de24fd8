/**
 * Mamba-2 in GGUF, as llama.cpp's converter writes it: A is −exp(A_log), and vectors of heads and of groups have two
 * axes.
 */
import type { TensorEntry } from '../../engine/native.ts'
import { type Architecture, both, flat, renamed, taps } from './architecture.ts'

const layer = 'backbone.layers.{l}'
const RULES: Readonly<Record<string, string>> = {
  'token_embd.weight': 'backbone.embeddings.weight',
  'output_norm.weight': 'backbone.norm_f.weight',
  'output.weight': 'lm_head.weight',
  'blk.{l}.attn_norm.weight': `${layer}.norm.weight`,
  'blk.{l}.ssm_in.weight': `${layer}.mixer.in_proj.weight`,
  ...both('blk.{l}.ssm_conv1d', `${layer}.mixer.conv1d`),
  'blk.{l}.ssm_dt.bias': `${layer}.mixer.dt_bias`,
  'blk.{l}.ssm_a': `${layer}.mixer.A`,
  'blk.{l}.ssm_d': `${layer}.mixer.D`,
  'blk.{l}.ssm_norm.weight': `${layer}.mixer.norm.weight`,
  'blk.{l}.ssm_out.weight': `${layer}.mixer.out_proj.weight`,
}

const shapeOf = (tensor: TensorEntry): readonly number[] =>
  /\.mixer\.(?:A|D|norm\.weight)$/.test(tensor.name) ? flat(tensor) : taps(tensor)

export const mamba2: Architecture = (keys, tensors) => {
  const heads = keys.whole('mamba2.ssm.time_step_rank')
  return {
    config: {
      model_type: 'mamba2',
      vocab_size: tensors.find(({ name }) => name === 'token_embd.weight')?.shape[0] ?? 0,
      hidden_size: keys.whole('mamba2.embedding_length'),
      num_hidden_layers: keys.whole('mamba2.block_count'),
      num_heads: heads,
      head_dim: keys.whole('mamba2.ssm.inner_size') / heads,
      state_size: keys.whole('mamba2.ssm.state_size'),
      n_groups: keys.whole('mamba2.ssm.group_count'),
      conv_kernel: keys.whole('mamba2.ssm.conv_kernel'),
      use_conv_bias: tensors.some(({ name }) => name === 'blk.0.ssm_conv1d.bias'),
      layer_norm_epsilon: keys.real('mamba2.attention.layer_norm_rms_epsilon'),
      tie_word_embeddings: !tensors.some(({ name }) => name === 'output.weight'),
    },
    tensors: renamed(tensors, RULES).map((tensor) => ({ ...tensor, shape: shapeOf(tensor) })),
  }
}
