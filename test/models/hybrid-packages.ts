/** Random small hybrid packages: configurations with widths that no vector divides, and the tensors that they ask for. */
import { random, type Tensor } from '../engine/safetensors.ts'
import type { HybridConfig } from './hybrid-reference.ts'

/** Weights large enough for every term to matter. */
const writer = (seed: number) => {
  const next = random(seed)
  const out = new Map<string, Tensor>()
  const put = (name: string, shape: readonly number[], low: number, high: number): void => {
    const length = shape.reduce((product, extent) => product * extent, 1)
    out.set(name, { shape, data: Float32Array.from({ length }, () => low + (high - low) * next()) })
  }
  const linear = (name: string, outputs: number, inputs: number, biased = false): void => {
    const bound = 1.5 / Math.sqrt(inputs)
    put(`${name}.weight`, [outputs, inputs], -bound, bound)
    if (biased) put(`${name}.bias`, [outputs], -0.5, 0.5)
  }
  const gain = (name: string, n: number): void => put(`${name}.weight`, [n], 0.5, 1.5)
  /** Of norms that multiply by 1 + weight. */
  const shift = (name: string, n: number): void => put(`${name}.weight`, [n], -0.5, 0.5)
  return { out, put, linear, gain, shift }
}
type Writer = ReturnType<typeof writer>

const mixerTensors = (
  w: Writer,
  at: string,
  C: number,
  sizes: Record<'Hd' | 'P' | 'N' | 'G' | 'T', number>,
  more: { bias: boolean; convBias: boolean; norm: boolean },
): void => {
  const { Hd, P, N, G, T } = sizes
  const [D, K] = [Hd * P, G * N]
  w.linear(`${at}in_proj`, 2 * D + 2 * K + Hd, C, more.bias)
  w.put(`${at}conv1d.weight`, [D + 2 * K, 1, T], -0.8, 0.8)
  if (more.convBias) w.put(`${at}conv1d.bias`, [D + 2 * K], -0.5, 0.5)
  w.put(`${at}A_log`, [Hd], -1, 1.5)
  w.put(`${at}D`, [Hd], -1, 1)
  w.put(`${at}dt_bias`, [Hd], -3, 1)
  if (more.norm) w.gain(`${at}norm`, D)
  w.linear(`${at}out_proj`, C, D, more.bias)
}

export const mamba2Config = (change: HybridConfig = {}): HybridConfig => ({
  model_type: 'mamba2',
  vocab_size: 37,
  hidden_size: 18,
  num_hidden_layers: 2,
  num_heads: 6,
  head_dim: 7,
  state_size: 11,
  n_groups: 2,
  conv_kernel: 4,
  expand: 42 / 18,
  use_bias: false,
  use_conv_bias: true,
  layer_norm_epsilon: 1e-5,
  time_step_limit: [0, 1e30],
  tie_word_embeddings: false,
  ...change,
})

const mamba2Tensors = (seed: number, config: HybridConfig): Map<string, Tensor> => {
  const w = writer(seed)
  const { vocab_size: V, hidden_size: C, num_heads: Hd, head_dim: P, state_size: N, n_groups: G } = config
  w.put('backbone.embeddings.weight', [V, C], -1, 1)
  for (let l = 0; l < config.num_hidden_layers; l += 1) {
    w.gain(`backbone.layers.${l}.norm`, C)
    const more = { bias: config.use_bias, convBias: config.use_conv_bias, norm: true }
    mixerTensors(w, `backbone.layers.${l}.mixer.`, C, { Hd, P, N, G, T: config.conv_kernel }, more)
  }
  w.gain('backbone.norm_f', C)
  if (!config.tie_word_embeddings) w.linear('lm_head', V, C)
  return w.out
}

export const lfm2Config = (change: HybridConfig = {}): HybridConfig => ({
  model_type: 'lfm2',
  vocab_size: 37,
  hidden_size: 24,
  num_hidden_layers: 4,
  num_attention_heads: 4,
  num_key_value_heads: 2,
  max_position_embeddings: 400,
  norm_eps: 1e-5,
  conv_L_cache: 3,
  conv_bias: false,
  rope_theta: 1000,
  intermediate_size: 31,
  block_auto_adjust_ff_dim: false,
  layer_types: ['conv', 'full_attention', 'conv', 'full_attention'],
  ...change,
})

const lfm2Tensors = (seed: number, config: HybridConfig, F: number): Map<string, Tensor> => {
  const w = writer(seed)
  const { vocab_size: V, hidden_size: C, num_attention_heads: H, num_key_value_heads: G, conv_bias: biased } = config
  const d = C / H
  w.put('model.embed_tokens.weight', [V, C], -1, 1)
  for (let l = 0; l < config.num_hidden_layers; l += 1) {
    const at = `model.layers.${l}.`
    w.gain(`${at}operator_norm`, C)
    w.gain(`${at}ffn_norm`, C)
    const attends = config.layer_types ? config.layer_types[l] === 'full_attention' : config.full_attn_idxs.includes(l)
    if (attends) {
      w.linear(`${at}self_attn.q_proj`, H * d, C)
      w.linear(`${at}self_attn.k_proj`, G * d, C)
      w.linear(`${at}self_attn.v_proj`, G * d, C)
      w.linear(`${at}self_attn.out_proj`, C, H * d)
      w.gain(`${at}self_attn.q_layernorm`, d)
      w.gain(`${at}self_attn.k_layernorm`, d)
    } else {
      w.linear(`${at}conv.in_proj`, 3 * C, C, biased)
      w.put(`${at}conv.conv.weight`, [C, 1, config.conv_L_cache], -1, 1)
      if (biased) w.put(`${at}conv.conv.bias`, [C], -0.5, 0.5)
      w.linear(`${at}conv.out_proj`, C, C, biased)
    }
    w.linear(`${at}feed_forward.w1`, F, C)
    w.linear(`${at}feed_forward.w3`, F, C)
    w.linear(`${at}feed_forward.w2`, C, F)
  }
  w.gain('model.embedding_norm', C)
  if (config.tie_word_embeddings === false) w.linear('lm_head', V, C)
  return w.out
}

const qwenSizes: HybridConfig = {
  vocab_size: 37,
  hidden_size: 22,
  num_hidden_layers: 4,
  num_attention_heads: 6,
  num_key_value_heads: 2,
  head_dim: 12,
  max_position_embeddings: 400,
  rms_norm_eps: 1e-6,
  full_attention_interval: 4,
  linear_conv_kernel_dim: 4,
  linear_num_key_heads: 2,
  linear_num_value_heads: 6,
  linear_key_head_dim: 9,
  linear_value_head_dim: 9,
  intermediate_size: 31,
  tie_word_embeddings: false,
}

export const qwen35Config = (change: HybridConfig = {}): HybridConfig => ({
  model_type: 'qwen3_5_text',
  ...qwenSizes,
  rope_parameters: { rope_theta: 1000, rope_type: 'default', partial_rotary_factor: 0.5 },
  ...change,
})
export const qwen3NextConfig = (change: HybridConfig = {}): HybridConfig => ({
  model_type: 'qwen3_next',
  ...qwenSizes,
  rope_theta: 1000,
  partial_rotary_factor: 0.5,
  num_experts: 7,
  num_experts_per_tok: 3,
  moe_intermediate_size: 13,
  shared_expert_intermediate_size: 10,
  norm_topk_prob: true,
  decoder_sparse_step: 1,
  mlp_only_layers: [],
  ...change,
})

/** How experts stand in the file: a tensor each, or all of a layer in one. */
export type ExpertForm = 'single' | 'fused'

const qwenTensors = (seed: number, whole: HybridConfig, form: ExpertForm): Map<string, Tensor> => {
  const w = writer(seed)
  const config: HybridConfig = whole.text_config ?? whole
  const root = whole.text_config ? 'model.language_model.' : 'model.'
  const { vocab_size: V, hidden_size: C, num_attention_heads: H, num_key_value_heads: G, head_dim: d } = config
  const { linear_num_key_heads: Hk, linear_num_value_heads: Hv, linear_conv_kernel_dim: T } = config
  const [keys, values] = [Hk * config.linear_key_head_dim, Hv * config.linear_value_head_dim]
  const mlp = (at: string, F: number): void => {
    w.linear(`${at}gate_proj`, F, C)
    w.linear(`${at}up_proj`, F, C)
    w.linear(`${at}down_proj`, C, F)
  }
  w.put(`${root}embed_tokens.weight`, [V, C], -1, 1)
  for (let l = 0; l < config.num_hidden_layers; l += 1) {
    const at = `${root}layers.${l}.`
    w.shift(`${at}input_layernorm`, C)
    w.shift(`${at}post_attention_layernorm`, C)
    const full = config.layer_types
      ? config.layer_types[l] === 'full_attention'
      : (l + 1) % config.full_attention_interval === 0
    if (full) {
      w.linear(`${at}self_attn.q_proj`, 2 * H * d, C)
      w.linear(`${at}self_attn.k_proj`, G * d, C)
      w.linear(`${at}self_attn.v_proj`, G * d, C)
      w.linear(`${at}self_attn.o_proj`, C, H * d)
      w.shift(`${at}self_attn.q_norm`, d)
      w.shift(`${at}self_attn.k_norm`, d)
    } else {
      const own = `${at}linear_attn.`
      if (config.model_type === 'qwen3_next') {
        w.linear(`${own}in_proj_qkvz`, 2 * keys + 2 * values, C)
        w.linear(`${own}in_proj_ba`, 2 * Hv, C)
      } else {
        w.linear(`${own}in_proj_qkv`, 2 * keys + values, C)
        w.linear(`${own}in_proj_z`, values, C)
        w.linear(`${own}in_proj_b`, Hv, C)
        w.linear(`${own}in_proj_a`, Hv, C)
      }
      w.put(`${own}conv1d.weight`, [2 * keys + values, 1, T], -0.8, 0.8)
      w.put(`${own}A_log`, [Hv], -1, 1.5)
      w.put(`${own}dt_bias`, [Hv], -3, 1)
      w.gain(`${own}norm`, config.linear_value_head_dim)
      w.linear(`${own}out_proj`, C, values)
    }
    const {
      num_experts: E,
      moe_intermediate_size: F,
      mlp_only_layers: only = [],
      decoder_sparse_step: step = 1,
    } = config
    if (E === undefined || only.includes(l) || (l + 1) % step !== 0) {
      mlp(`${at}mlp.`, config.intermediate_size)
      continue
    }
    w.linear(`${at}mlp.gate`, E, C)
    w.linear(`${at}mlp.shared_expert_gate`, 1, C)
    mlp(`${at}mlp.shared_expert.`, config.shared_expert_intermediate_size)
    if (form === 'fused') {
      w.put(`${at}mlp.experts.gate_up_proj`, [E, 2 * F, C], -0.4, 0.4)
      w.put(`${at}mlp.experts.down_proj`, [E, C, F], -0.5, 0.5)
    } else for (let e = 0; e < E; e += 1) mlp(`${at}mlp.experts.${e}.`, F)
  }
  w.shift(`${root}norm`, C)
  if (!config.tie_word_embeddings) w.linear('lm_head', V, C)
  return w.out
}

/** Tensors for a configuration; `inner`: channels inside the MLP of an LFM2. */
export const hybridTensors = (
  seed: number,
  config: HybridConfig,
  { inner = config.intermediate_size, form = 'single' }: { inner?: number; form?: ExpertForm } = {},
): Map<string, Tensor> => {
  if (config.model_type === 'mamba2') return mamba2Tensors(seed, config)
  if (config.model_type === 'lfm2') return lfm2Tensors(seed, config, inner)
  return qwenTensors(seed, config, form)
}
