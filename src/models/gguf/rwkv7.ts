/**
 * RWKV-7 in GGUF, as llama.cpp's converter writes it. The names are those of flash-linear-attention's packages:
 * low-rank matrices have outputs first, and the six mixes are rows of one tensor.
 */
import type { TensorEntry } from '../../engine/native.ts'
import { type Architecture, both, renamed } from './architecture.ts'

const layer = 'model.layers.{l}'
const lowRank = (which: string): Readonly<Record<string, string>> => ({
  [`blk.{l}.time_mix_${which}0.weight`]: `${layer}.attn.${which}_lora.lora.2.bias`,
  [`blk.{l}.time_mix_${which}1.weight`]: `${layer}.attn.${which}_lora.lora.0.weight`,
  [`blk.{l}.time_mix_${which}2.weight`]: `${layer}.attn.${which}_lora.lora.2.weight`,
})

const RULES: Readonly<Record<string, string>> = {
  'token_embd.weight': 'model.embeddings.weight',
  'output.weight': 'lm_head.weight',
  ...both('token_embd_norm', 'model.layers.0.pre_norm'),
  ...both('output_norm', 'model.norm'),
  ...both('blk.{l}.attn_norm', `${layer}.attn_norm`),
  ...both('blk.{l}.attn_norm_2', `${layer}.ffn_norm`),
  ...both('blk.{l}.time_mix_ln', `${layer}.attn.g_norm`),
  'blk.{l}.time_mix_lerp_fused.weight': `${layer}.attn.x_x`,
  ...lowRank('w'),
  ...lowRank('a'),
  ...lowRank('v'),
  ...lowRank('g'),
  'blk.{l}.time_mix_k_k.weight': `${layer}.attn.k_k`,
  'blk.{l}.time_mix_k_a.weight': `${layer}.attn.k_a`,
  'blk.{l}.time_mix_r_k.weight': `${layer}.attn.r_k`,
  'blk.{l}.time_mix_receptance.weight': `${layer}.attn.r_proj.weight`,
  'blk.{l}.time_mix_key.weight': `${layer}.attn.k_proj.weight`,
  'blk.{l}.time_mix_value.weight': `${layer}.attn.v_proj.weight`,
  'blk.{l}.time_mix_output.weight': `${layer}.attn.o_proj.weight`,
  'blk.{l}.channel_mix_lerp_k.weight': `${layer}.ffn.x_k`,
  'blk.{l}.channel_mix_key.weight': `${layer}.ffn.key.weight`,
  'blk.{l}.channel_mix_value.weight': `${layer}.ffn.value.weight`,
}

export const rwkv7: Architecture = (keys, tensors) => {
  const C = keys.whole('rwkv7.embedding_length')
  const N = keys.whole('rwkv7.wkv.head_size')
  const shapeOf = ({ name, shape }: TensorEntry): readonly number[] => {
    if (name.endsWith('.attn.x_x')) return shape.filter((extent, axis) => axis === 0 || extent !== 1)
    // Flat in the file. A width that does not divide stays as it is and is refused by the family.
    return name.endsWith('.attn.r_k') && shape.length === 1 && shape[0]! % N === 0 ? [shape[0]! / N, N] : shape
  }
  return {
    config: {
      model_type: 'rwkv7',
      hidden_size: C,
      num_hidden_layers: keys.whole('rwkv7.block_count'),
      intermediate_size: keys.wholeOr('rwkv7.feed_forward_length', null),
      head_dim: N,
      decay_low_rank_dim: keys.wholeOr('rwkv7.attention.decay_lora_rank', null),
      a_low_rank_dim: keys.wholeOr('rwkv7.attention.iclr_lora_rank', null),
      v_low_rank_dim: keys.wholeOr('rwkv7.attention.value_residual_mix_lora_rank', null),
      gate_low_rank_dim: keys.wholeOr('rwkv7.attention.gate_lora_rank', null),
      norm_eps: keys.real('rwkv7.attention.layer_norm_epsilon'),
      tie_word_embeddings: true,
    },
    tensors: renamed(tensors, RULES).map((tensor) => ({ ...tensor, shape: shapeOf(tensor) })),
  }
}
