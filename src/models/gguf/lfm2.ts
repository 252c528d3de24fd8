/**
 * LFM2 in GGUF, as llama.cpp's converter writes it: the last norm is `token_embd_norm` in spite of its name, and layers
 * without key heads convolve.
 */
import { type Architecture, both, renamed, taps } from './architecture.ts'

const layer = 'model.layers.{l}'
const RULES: Readonly<Record<string, string>> = {
  'token_embd.weight': 'model.embed_tokens.weight',
  'token_embd_norm.weight': 'model.embedding_norm.weight',
  'output.weight': 'lm_head.weight',
  'blk.{l}.attn_norm.weight': `${layer}.operator_norm.weight`,
  'blk.{l}.ffn_norm.weight': `${layer}.ffn_norm.weight`,
  ...both('blk.{l}.shortconv.in_proj', `${layer}.conv.in_proj`),
  ...both('blk.{l}.shortconv.conv', `${layer}.conv.conv`),
  ...both('blk.{l}.shortconv.out_proj', `${layer}.conv.out_proj`),
  'blk.{l}.attn_q.weight': `${layer}.self_attn.q_proj.weight`,
  'blk.{l}.attn_k.weight': `${layer}.self_attn.k_proj.weight`,
  'blk.{l}.attn_v.weight': `${layer}.self_attn.v_proj.weight`,
  'blk.{l}.attn_output.weight': `${layer}.self_attn.out_proj.weight`,
  'blk.{l}.attn_q_norm.weight': `${layer}.self_attn.q_layernorm.weight`,
  'blk.{l}.attn_k_norm.weight': `${layer}.self_attn.k_layernorm.weight`,
  'blk.{l}.ffn_gate.weight': `${layer}.feed_forward.w1.weight`,
  'blk.{l}.ffn_up.weight': `${layer}.feed_forward.w3.weight`,
  'blk.{l}.ffn_down.weight': `${layer}.feed_forward.w2.weight`,
}

export const lfm2: Architecture = (keys, tensors) => {
  const layers = keys.whole('lfm2.block_count')
  const keyHeads = keys.wholes('lfm2.attention.head_count_kv', layers)
  return {
    config: {
      model_type: 'lfm2',
      vocab_size: tensors.find(({ name }) => name === 'token_embd.weight')?.shape[0] ?? 0,
      hidden_size: keys.whole('lfm2.embedding_length'),
      num_hidden_layers: layers,
      num_attention_heads: keys.whole('lfm2.attention.head_count'),
      num_key_value_heads: Math.max(1, ...keyHeads),
      max_position_embeddings: keys.whole('lfm2.context_length'),
      norm_eps: keys.real('lfm2.attention.layer_norm_rms_epsilon'),
      conv_L_cache: keys.whole('lfm2.shortconv.l_cache'),
      conv_bias: tensors.some(({ name }) => /^blk\.\d+\.shortconv\.conv\.bias$/.test(name)),
      rope_theta: keys.realOr('lfm2.rope.freq_base', 1_000_000),
      intermediate_size: keys.whole('lfm2.feed_forward_length'),
      block_auto_adjust_ff_dim: false,
      layer_types: keyHeads.map((heads) => (heads === 0 ? 'conv' : 'full_attention')),
      tie_word_embeddings: !tensors.some(({ name }) => name === 'output.weight'),
    },
    tensors: renamed(tensors, RULES).map((tensor) => ({ ...tensor, shape: taps(tensor) })),
  }
}
