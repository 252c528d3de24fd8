/**
 * Random small hybrid packages: configurations with widths that no vector divides, and the tensors that they ask for.
 */
import { random, type Tensor } from '../../engine/safetensors.ts'
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

/** The last norm and the output projection, and with them all tensors. */
const ended = (
  w: Writer,
  norm: string,
  [V, C]: readonly [number, number],
  tied: boolean,
  kind: 'gain' | 'shift' = 'gain',
): Map<string, Tensor> => {
  w[kind](norm, C)
  if (!tied) w.linear('lm_head', V, C)
  return w.out
}

interface MixerSizes {
  readonly Hd: number
  readonly P: number
  readonly N: number
  readonly G: number
  readonly T: number
  readonly bias: readonly [inward: boolean, outward: boolean]
  readonly convBias: boolean
  readonly norm: boolean
}

const mixerTensors = (w: Writer, at: string, C: number, sizes: MixerSizes): void => {
  const { Hd, P, N, G, T, bias, convBias, norm } = sizes
  const [D, K] = [Hd * P, G * N]
  w.linear(`${at}in_proj`, 2 * D + 2 * K + Hd, C, bias[0])
  w.put(`${at}conv1d.weight`, [D + 2 * K, 1, T], -0.8, 0.8)
  if (convBias) w.put(`${at}conv1d.bias`, [D + 2 * K], -0.5, 0.5)
  w.put(`${at}A_log`, [Hd], -1, 1.5)
  w.put(`${at}D`, [Hd], -1, 1)
  w.put(`${at}dt_bias`, [Hd], -3, 1)
  if (norm) w.gain(`${at}norm`, D)
  w.linear(`${at}out_proj`, C, D, bias[1])
}

const attentionTensors = (
  w: Writer,
  at: string,
  C: number,
  [H, G, d]: readonly [number, number, number],
  biased: boolean,
): void => {
  w.linear(`${at}q_proj`, H * d, C, biased)
  w.linear(`${at}k_proj`, G * d, C, biased)
  w.linear(`${at}v_proj`, G * d, C, biased)
  w.linear(`${at}o_proj`, C, H * d, biased)
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
    const { use_bias: biased, use_conv_bias: convBias, conv_kernel: T } = config
    const sizes = { Hd, P, N, G, T, bias: [biased, biased] as const, convBias, norm: true }
    mixerTensors(w, `backbone.layers.${l}.mixer.`, C, sizes)
  }
  return ended(w, 'backbone.norm_f', [V, C], config.tie_word_embeddings)
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
  return ended(w, 'model.embedding_norm', [V, C], config.tie_word_embeddings !== false)
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
  return ended(w, `${root}norm`, [V, C], config.tie_word_embeddings, 'shift')
}

export const graniteConfig = (change: HybridConfig = {}): HybridConfig => ({
  model_type: 'granitemoehybrid',
  vocab_size: 37,
  hidden_size: 24,
  num_hidden_layers: 3,
  num_attention_heads: 4,
  num_key_value_heads: 2,
  max_position_embeddings: 400,
  rms_norm_eps: 1e-5,
  attention_bias: false,
  embedding_multiplier: 3,
  residual_multiplier: 0.4,
  attention_multiplier: 0.3,
  logits_scaling: 2,
  shared_intermediate_size: 29,
  num_local_experts: 0,
  position_embedding_type: 'nope',
  rope_theta: 1000,
  layer_types: ['mamba', 'attention', 'mamba'],
  mamba_n_heads: 6,
  mamba_d_head: 8,
  mamba_n_groups: 2,
  mamba_d_state: 9,
  mamba_d_conv: 4,
  mamba_expand: 2,
  mamba_conv_bias: true,
  mamba_proj_bias: false,
  tie_word_embeddings: true,
  ...change,
})

const graniteTensors = (seed: number, config: HybridConfig): Map<string, Tensor> => {
  const w = writer(seed)
  const { vocab_size: V, hidden_size: C, num_attention_heads: H, num_key_value_heads: G } = config
  const { mamba_proj_bias: biased, shared_intermediate_size: F } = config
  w.put('model.embed_tokens.weight', [V, C], -1, 1)
  for (let l = 0; l < config.num_hidden_layers; l += 1) {
    const at = `model.layers.${l}.`
    w.gain(`${at}input_layernorm`, C)
    w.gain(`${at}post_attention_layernorm`, C)
    if (config.layer_types[l] === 'attention') {
      attentionTensors(w, `${at}self_attn.`, C, [H, G, C / H], config.attention_bias)
    } else {
      mixerTensors(w, `${at}mamba.`, C, {
        Hd: config.mamba_n_heads,
        P: config.mamba_d_head,
        N: config.mamba_d_state,
        G: config.mamba_n_groups,
        T: config.mamba_d_conv,
        bias: [biased, biased],
        convBias: config.mamba_conv_bias,
        norm: true,
      })
    }
    w.linear(`${at}shared_mlp.input_linear`, 2 * F, C)
    w.linear(`${at}shared_mlp.output_linear`, C, F)
    const { num_local_experts: E, intermediate_size: Fe } = config
    if (E > 0) {
      w.linear(`${at}block_sparse_moe.router.layer`, E, C)
      w.put(`${at}block_sparse_moe.input_linear.weight`, [E, 2 * Fe, C], -0.4, 0.4)
      w.put(`${at}block_sparse_moe.output_linear.weight`, [E, C, Fe], -0.5, 0.5)
    }
  }
  return ended(w, 'model.norm', [V, C], config.tie_word_embeddings)
}

export const falconConfig = (change: HybridConfig = {}): HybridConfig => ({
  model_type: 'falcon_h1',
  vocab_size: 37,
  hidden_size: 22,
  intermediate_size: 29,
  num_hidden_layers: 2,
  num_attention_heads: 4,
  num_key_value_heads: 2,
  head_dim: 6,
  max_position_embeddings: 400,
  rms_norm_eps: 1e-5,
  rope_theta: 1000,
  attention_bias: false,
  mlp_bias: false,
  projectors_bias: false,
  mamba_d_ssm: 30,
  mamba_n_heads: 6,
  mamba_d_head: 5,
  mamba_n_groups: 2,
  mamba_d_state: 9,
  mamba_d_conv: 4,
  mamba_expand: 2,
  mamba_conv_bias: true,
  mamba_proj_bias: false,
  mamba_norm_before_gate: false,
  mamba_rms_norm: false,
  embedding_multiplier: 2.5,
  lm_head_multiplier: 0.7,
  key_multiplier: 0.6,
  attention_in_multiplier: 0.9,
  attention_out_multiplier: 0.8,
  ssm_in_multiplier: 1.2,
  ssm_out_multiplier: 0.7,
  ssm_multipliers: [0.5, 0.6, 1.3, 0.9, 1.1],
  mlp_multipliers: [1.4, 0.5],
  tie_word_embeddings: false,
  ...change,
})

const falconTensors = (seed: number, config: HybridConfig): Map<string, Tensor> => {
  const w = writer(seed)
  const { vocab_size: V, hidden_size: C, intermediate_size: F, mlp_bias: biased } = config
  const { num_attention_heads: H, num_key_value_heads: G, head_dim: d } = config
  w.put('model.embed_tokens.weight', [V, C], -1, 1)
  for (let l = 0; l < config.num_hidden_layers; l += 1) {
    const at = `model.layers.${l}.`
    w.gain(`${at}input_layernorm`, C)
    w.gain(`${at}pre_ff_layernorm`, C)
    attentionTensors(w, `${at}self_attn.`, C, [H, G, d], config.attention_bias)
    mixerTensors(w, `${at}mamba.`, C, {
      Hd: config.mamba_n_heads,
      P: config.mamba_d_ssm / config.mamba_n_heads,
      N: config.mamba_d_state,
      G: config.mamba_n_groups,
      T: config.mamba_d_conv,
      bias: [config.mamba_proj_bias, config.projectors_bias],
      convBias: config.mamba_conv_bias,
      norm: config.mamba_rms_norm,
    })
    w.linear(`${at}feed_forward.gate_proj`, F, C, biased)
    w.linear(`${at}feed_forward.up_proj`, F, C, biased)
    w.linear(`${at}feed_forward.down_proj`, C, F, biased)
  }
  return ended(w, 'model.final_layernorm', [V, C], config.tie_word_embeddings)
}

export const nemotronConfig = (change: HybridConfig = {}): HybridConfig => ({
  model_type: 'nemotron_h',
  vocab_size: 37,
  hidden_size: 22,
  intermediate_size: 29,
  hybrid_override_pattern: 'M-*M-',
  num_attention_heads: 4,
  num_key_value_heads: 2,
  head_dim: 6,
  attention_bias: false,
  mlp_bias: false,
  max_position_embeddings: 400,
  layer_norm_epsilon: 1e-5,
  mamba_num_heads: 6,
  mamba_head_dim: 5,
  ssm_state_size: 9,
  n_groups: 2,
  conv_kernel: 4,
  use_bias: false,
  use_conv_bias: true,
  tie_word_embeddings: false,
  ...change,
})

const nemotronTensors = (seed: number, config: HybridConfig): Map<string, Tensor> => {
  const w = writer(seed)
  const { vocab_size: V, hidden_size: C, intermediate_size: F, mlp_bias, use_bias } = config
  const { num_attention_heads: H, num_key_value_heads: G, head_dim: d } = config
  w.put('backbone.embeddings.weight', [V, C], -1, 1)
  for (const [l, operation] of [...(config.hybrid_override_pattern as string)].entries()) {
    const at = `backbone.layers.${l}.mixer.`
    w.gain(`backbone.layers.${l}.norm`, C)
    if (operation === '*') attentionTensors(w, at, C, [H, G, d], config.attention_bias)
    else if (operation === '-') {
      w.linear(`${at}up_proj`, F, C, mlp_bias)
      w.linear(`${at}down_proj`, C, F, mlp_bias)
    } else if (operation === 'E') {
      const { n_routed_experts: E, moe_intermediate_size: Fe, moe_shared_expert_intermediate_size: S } = config
      w.linear(`${at}gate`, E, C)
      w.put(`${at}gate.e_score_correction_bias`, [E], -0.5, 0.5)
      for (const [name, width] of [
        ...Array.from({ length: E }, (_, e) => [`experts.${e}`, Fe] as const),
        ['shared_experts', S] as const,
      ]) {
        w.linear(`${at}${name}.up_proj`, width, C)
        w.linear(`${at}${name}.down_proj`, C, width)
      }
    } else {
      mixerTensors(w, at, C, {
        Hd: config.mamba_num_heads,
        P: config.mamba_head_dim,
        N: config.ssm_state_size,
        G: config.n_groups,
        T: config.conv_kernel,
        bias: [use_bias, use_bias],
        convBias: config.use_conv_bias,
        norm: true,
      })
    }
  }
  return ended(w, 'backbone.norm_f', [V, C], config.tie_word_embeddings)
}

/** Tensors for a configuration; `inner`: channels inside the MLP of an LFM2. */
export const hybridTensors = (
  seed: number,
  config: HybridConfig,
  { inner = config.intermediate_size, form = 'single' }: { inner?: number; form?: ExpertForm } = {},
): Map<string, Tensor> => {
  const writers: Readonly<Record<string, () => Map<string, Tensor>>> = {
    falcon_h1: () => falconTensors(seed, config),
    granitemoehybrid: () => graniteTensors(seed, config),
    lfm2: () => lfm2Tensors(seed, config, inner),
    mamba2: () => mamba2Tensors(seed, config),
    nemotron_h: () => nemotronTensors(seed, config),
  }
  return (writers[config.model_type] ?? (() => qwenTensors(seed, config, form)))()
}
