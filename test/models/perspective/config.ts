/** config.json of the `perspective` family. */

export const TARGETS = [
  'pdr.p_proj',
  'pdr.k_proj',
  'pdr.q_proj',
  'pdr.v_proj',
  'pdr.o_proj',
  'attn.q_proj',
  'attn.k_proj',
  'attn.v_proj',
  'attn.o_proj',
] as const
export type Target = (typeof TARGETS)[number]
export type Perspective = 'base' | 'jitter' | 'temperature' | 'dropout' | 'second' | 'antipode' | 'random'
export type Kind = 'pdr' | 'gqa'

export interface PerspectiveConfig {
  readonly model_type: 'perspective'
  readonly architectures: readonly string[]
  readonly vocab_size: number
  readonly hidden_size: number
  readonly num_hidden_layers: number
  readonly layer_types: readonly Kind[]
  readonly ffn_types: readonly ('experts' | 'dense')[]
  readonly intermediate_size: number
  readonly rms_norm_eps: number
  readonly tie_word_embeddings: boolean
  readonly num_attention_heads: number
  readonly num_key_value_heads: number
  readonly head_dim: number
  readonly sliding_window: number
  readonly rope_theta: number
  readonly rope_increments: readonly number[]
  readonly pdr: {
    readonly width: number
    readonly rank: number
    readonly gamma_min?: number
    readonly gamma_max?: number
    readonly write: 'convex' | 'plain'
  }
  readonly experts: {
    readonly count: number
    readonly torus: readonly [number, number]
    readonly intermediate_size: number
    readonly top_k: number
    readonly temperature: number
    readonly format: 'ternary3'
    readonly group_size: 32 | 64
    readonly digest: string
  }
  readonly recent: number
  readonly spp: { readonly half_spaces: number; readonly iterations: number; readonly inflation: number } | null
  readonly mpd: {
    readonly layers: number
    readonly perspectives: readonly Perspective[]
    readonly max_p: number
    readonly entropy: number
    readonly jsd: number
    readonly jitter_std: number
    readonly temperature: number
    readonly dropout: number
  } | null
  readonly hdm: {
    readonly bits: number
    readonly banks: number
    readonly seed: number
    readonly hit_max: number
    readonly blend: number
    readonly write_nats: number
  } | null
  readonly fmea: {
    readonly targets: readonly Target[]
    readonly rank: number
    readonly seed: number
    readonly directions: number
    readonly learning_rate: number
    readonly anchor: number
    readonly population: number
    readonly sigma: number
    readonly router_rate: number
    readonly router_anchor: number
  } | null
}

export const kindOf = (target: Target): Kind => (target.startsWith('pdr.') ? 'pdr' : 'gqa')
export const layersOf = (config: PerspectiveConfig, kind: Kind): number =>
  config.layer_types.filter((each) => each === kind).length

/** Outputs and inputs of a map that can be adapted. */
export const sizesOf = (config: PerspectiveConfig, target: Target): readonly [outputs: number, inputs: number] => {
  const { hidden_size: D, head_dim: d, num_attention_heads: H, num_key_value_heads: Hkv } = config
  const { width: E, rank: r } = config.pdr
  const sizes: Readonly<Record<Target, readonly [number, number]>> = {
    'pdr.p_proj': [E, D],
    'pdr.k_proj': [r, D],
    'pdr.q_proj': [r, D],
    'pdr.v_proj': [E, D],
    'pdr.o_proj': [D, E],
    'attn.q_proj': [H * d, D],
    'attn.k_proj': [Hkv * d, D],
    'attn.v_proj': [Hkv * d, D],
    'attn.o_proj': [D, H * d],
  }
  return sizes[target]
}
