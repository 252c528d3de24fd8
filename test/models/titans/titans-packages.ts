/** Random small Titans packages: configurations of every kind, and the tensors they ask for. */
import { random, safetensors, type Tensor, type Tensors, writePackage } from '../../engine/packages.ts'
import type { TitansPackageConfig } from './titans-reference.ts'

type Memory = TitansPackageConfig['memory']
export type TitansChange = Partial<Omit<TitansPackageConfig, 'memory' | 'rope_increments'>> & {
  readonly memory?: Partial<Memory>
}

/** floor(2³²/(2π) · theta^(−2i/d) + ½) for each pair of a head. */
export const increments = (theta: number, d: number): readonly number[] =>
  Array.from({ length: d / 2 }, (_, i) => Math.floor((2 ** 32 / (2 * Math.PI)) * theta ** ((-2 * i) / d) + 0.5))

/** Widths that no vector divides, query heads that share key heads, levels out of order; `change` comes over it. */
export const titansConfig = ({ memory, ...change }: TitansChange = {}): TitansPackageConfig => {
  const sizes = {
    model_type: 'titans',
    vocab_size: 37,
    hidden_size: 18,
    num_hidden_layers: 2,
    num_attention_heads: 6,
    num_key_value_heads: 2,
    head_dim: 6,
    sliding_window: 7,
    num_persistent_tokens: 3,
    rope_theta: 100,
    intermediate_size: 29,
    rms_norm_eps: 1e-5,
    tie_word_embeddings: false,
    composition: 'mag',
    segment_size: 6,
    ...change,
  } as const
  const inner = { rule: 'titans', heads: 3, head_dim: 5, conv_width: 4, levels: [4, 1, 6], ...memory } as const
  return {
    ...sizes,
    rope_increments: increments(sizes.rope_theta, sizes.head_dim),
    memory: { retention: 'l2', init: 'learned', alpha_min: 0.01, alpha_max: 0.5, eta_max: 0.95, ...inner },
  }
}

/**
 * Tensors for a configuration, with weights large enough for every term to matter. context_norm stays small, so that
 * the loop memory → context → attention → memory of MAC contracts and rounding does not grow.
 */
export const randomTitans = (seed: number, config: TitansPackageConfig): Map<string, Tensor> => {
  const next = random(seed)
  const { vocab_size: V, hidden_size: D, num_hidden_layers: L, intermediate_size: I, composition, memory } = config
  const { num_attention_heads: H, num_key_value_heads: Hkv, head_dim: d, num_persistent_tokens: P } = config
  const { heads: Hm, head_dim: N, conv_width: W, rule, retention } = memory
  const [E, K] = [Hm * N, memory.levels.length]
  const out = new Map<string, Tensor>()
  const put = (name: string, shape: readonly number[], low: number, high: number): void => {
    const length = shape.reduce((product, extent) => product * extent, 1)
    out.set(name, { shape, data: Float32Array.from({ length }, () => low + (high - low) * next()) })
  }
  const linear = (name: string, outputs: number, inputs: number): void => {
    const bound = 1.7 / Math.sqrt(inputs)
    put(`${name}.weight`, [outputs, inputs], -bound, bound)
  }
  const gain = (name: string, n: number): void => put(`${name}.weight`, [n], 0.5, 1.5)
  const gate = (name: string, outputs: number, inputs: number): void => {
    linear(name, outputs, inputs)
    put(`${name}.bias`, [outputs], -1, 1)
  }
  const conv = (name: string): void => {
    linear(`${name}_proj`, E, D)
    put(`${name}_conv.weight`, [E, W], -1, 1)
  }
  put('model.embed_tokens.weight', [V, D], -1, 1)
  for (let l = 0; l < L; l += 1) {
    const at = `model.layers.${l}`
    const mem = `${at}.memory`
    const kind = typeof composition === 'string' ? composition : composition[l]!
    gain(`${at}.input_layernorm`, D)
    linear(`${at}.attn.q_proj`, H * d, D)
    linear(`${at}.attn.k_proj`, Hkv * d, D)
    linear(`${at}.attn.v_proj`, Hkv * d, D)
    linear(`${at}.attn.o_proj`, D, H * d)
    if (P > 0) for (const c of 'kv') put(`${at}.attn.persistent_${c}`, [Hkv, P, d], -1, 1)
    for (const c of 'qkv') conv(`${mem}.${c}`)
    gate(`${mem}.theta_proj`, K * Hm, D)
    if (rule === 'titans') gate(`${mem}.eta_proj`, K * Hm, D)
    if (retention !== 'none' && retention !== 'sphere') gate(`${mem}.alpha_proj`, K * Hm, D)
    if (memory.init === 'learned') put(`${mem}.init_state`, [K, Hm, N, N], -0.5, 0.5)
    put(`${mem}.level_logits`, [K, Hm], -1, 1)
    gain(`${mem}.out_norm`, E)
    linear(`${mem}.o_proj`, D, E)
    if (kind !== 'mal') gate(`${mem}.gate_proj`, D, E)
    if (kind === 'mac') {
      conv(`${mem}.context_q`)
      put(`${mem}.context_norm.weight`, [D], 0.2, 0.4)
      gain(`${mem}.write_norm`, D)
    }
    if (kind === 'mal') gain(`${at}.attn_layernorm`, D)
    gain(`${at}.post_attention_layernorm`, D)
    linear(`${at}.mlp.gate_proj`, I, D)
    linear(`${at}.mlp.up_proj`, I, D)
    linear(`${at}.mlp.down_proj`, D, I)
  }
  gain('model.norm', D)
  if (!config.tie_word_embeddings) linear('lm_head', V, D)
  return out
}

export const writeTitans = (config: TitansPackageConfig, tensors: Tensors): string =>
  writePackage(config, safetensors(tensors))

/** `count` token ids below `vocabulary`. */
export const someTokens = (seed: number, count: number, vocabulary: number): readonly number[] => {
  const next = random(seed)
  return Array.from({ length: count }, () => Math.floor(next() * vocabulary))
}

/**
 * One of each composition and one of all, with every rule and every retention that looks at a whole matrix among them.
 */
export const KINDS = {
  mag: titansConfig({ hidden_size: 70, memory: { head_dim: 40, levels: [1, 8, 64], norm_max: 2 } }),
  mal: titansConfig({ composition: 'mal', memory: { rule: 'delta', retention: 'kl', head_dim: 17, theta_max: 4 } }),
  mac: titansConfig({ composition: 'mac', segment_size: 10, memory: { retention: 'sphere', head_dim: 20 } }),
  mixed: titansConfig({
    num_hidden_layers: 3,
    composition: ['mac', 'mag', 'mal'],
    memory: { rule: 'hebbian', retention: 'elastic', elastic_l1: 0.02, levels: [3, 2], conv_width: 3 },
  }),
}
export type Kind = keyof typeof KINDS
export const KIND_NAMES = Object.keys(KINDS) as Kind[]
export const kindTensors = (kind: Kind): Map<string, Tensor> => randomTitans(KIND_NAMES.indexOf(kind) + 50, KINDS[kind])
