/**
 * Qwen3-Next and Qwen3.5 in GGUF, as llama.cpp's converter writes them: norms are stored as 1 + weight, A is
 * −exp(A_log), q, k and v stand behind each other in one matrix, and the experts of a layer in one tensor for gate, up
 * and down each. In Qwen3.5 the heads of values are told apart by their key head last: head j · Hk + i reads key head
 * i.
 */
import type { TensorEntry } from '../../engine/native.ts'
import { type Architecture, renamed, taps } from './architecture.ts'

const layer = 'model.layers.{l}'
const named = (pairs: Readonly<Record<string, string>>, inside: string): Readonly<Record<string, string>> =>
  Object.fromEntries(
    Object.entries(pairs).map(([from, to]) => [`blk.{l}.${from}.weight`, `${layer}.${inside}${to}.weight`]),
  )
const RULES: Readonly<Record<string, string>> = {
  'token_embd.weight': 'model.embed_tokens.weight',
  'output_norm.weight': 'model.norm.weight',
  'output.weight': 'lm_head.weight',
  ...named({ attn_norm: 'input_layernorm', post_attention_norm: 'post_attention_layernorm' }, ''),
  ...named({ attn_q: 'q_proj', attn_k: 'k_proj', attn_v: 'v_proj', attn_output: 'o_proj' }, 'self_attn.'),
  ...named({ attn_q_norm: 'q_norm', attn_k_norm: 'k_norm' }, 'self_attn.'),
  ...named({ attn_qkv: 'in_proj_qkv', attn_gate: 'in_proj_z', ssm_ba: 'in_proj_ba' }, 'linear_attn.'),
  ...named({ ssm_beta: 'in_proj_b', ssm_alpha: 'in_proj_a', ssm_conv1d: 'conv1d' }, 'linear_attn.'),
  ...named({ ssm_norm: 'norm', ssm_out: 'out_proj' }, 'linear_attn.'),
  'blk.{l}.ssm_a': `${layer}.linear_attn.A`,
  'blk.{l}.ssm_dt.bias': `${layer}.linear_attn.dt_bias`,
  ...named({ ffn_gate: 'gate_proj', ffn_up: 'up_proj', ffn_down: 'down_proj', ffn_gate_inp: 'gate' }, 'mlp.'),
  ...named({ ffn_gate_shexp: 'gate_proj', ffn_up_shexp: 'up_proj', ffn_down_shexp: 'down_proj' }, 'mlp.shared_expert.'),
  ...named({ ffn_gate_inp_shexp: 'shared_expert_gate' }, 'mlp.'),
  'blk.{l}.ffn_gate_exps.weight': `${layer}.mlp.experts.gate_proj`,
  'blk.{l}.ffn_up_exps.weight': `${layer}.mlp.experts.up_proj`,
  'blk.{l}.ffn_down_exps.weight': `${layer}.mlp.experts.down_proj`,
}

/** The router of the shared expert is a vector in the file. */
const shapeOf = (tensor: TensorEntry): readonly number[] =>
  tensor.name.endsWith('.shared_expert_gate.weight') && tensor.shape.length === 1 ? [1, ...tensor.shape] : taps(tensor)

/** The architecture of this name, as a model of this type. */
export const qwenHybrid =
  (A: string, type: string): Architecture =>
  (keys, tensors) => {
    const heads = keys.whole(`${A}.ssm.time_step_rank`)
    const width = keys.whole(`${A}.attention.key_length`)
    const turned = keys.whole(`${A}.rope.dimension_count`)
    return {
      config: {
        model_type: type,
        vocab_size: tensors.find(({ name }) => name === 'token_embd.weight')?.shape[0] ?? 0,
        hidden_size: keys.whole(`${A}.embedding_length`),
        num_hidden_layers: keys.whole(`${A}.block_count`),
        num_attention_heads: keys.whole(`${A}.attention.head_count`),
        num_key_value_heads: keys.whole(`${A}.attention.head_count_kv`),
        head_dim: width,
        max_position_embeddings: keys.whole(`${A}.context_length`),
        rms_norm_eps: keys.real(`${A}.attention.layer_norm_rms_epsilon`),
        rope_theta: keys.realOr(`${A}.rope.freq_base`, 10_000),
        partial_rotary_factor: turned / width,
        full_attention_interval: keys.wholeOr(`${A}.full_attention_interval`, 4),
        linear_conv_kernel_dim: keys.whole(`${A}.ssm.conv_kernel`),
        linear_num_key_heads: keys.whole(`${A}.ssm.group_count`),
        linear_num_value_heads: heads,
        linear_key_head_dim: keys.whole(`${A}.ssm.state_size`),
        linear_value_head_dim: keys.whole(`${A}.ssm.inner_size`) / heads,
        intermediate_size: keys.wholeOr(`${A}.feed_forward_length`, null) || null,
        num_experts: keys.wholeOr(`${A}.expert_count`, null),
        num_experts_per_tok: keys.wholeOr(`${A}.expert_used_count`, null),
        moe_intermediate_size: keys.wholeOr(`${A}.expert_feed_forward_length`, null),
        shared_expert_intermediate_size: keys.wholeOr(`${A}.expert_shared_feed_forward_length`, null),
        rms_norm_offset: 0,
        linear_value_head_order: A === 'qwen3next' ? 'by_key_head' : 'tiled',
        tie_word_embeddings: !tensors.some(({ name }) => name === 'output.weight'),
      },
      tensors: renamed(tensors, RULES).map((tensor) => ({ ...tensor, shape: shapeOf(tensor) })),
    }
  }
