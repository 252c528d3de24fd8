/**
 * Packages for bench/long.ts: shapes of published models, and small ones whose last position is 32,768; random weights
 * in bf16.
 */
import { type Entry, type RandomPackage, writeRandom } from './random-package.ts'
import { RWKV7_0B1, writeRwkv7 } from './rwkv7-package.ts'

const matrix = (name: string, outputs: number, inputs: number): Entry => [
  `${name}.weight`,
  [outputs, inputs],
  0.7 / Math.sqrt(inputs),
]
const norm = (name: string, width: number): Entry => [`${name}.weight`, [width], 0.75]
const layers = (count: number, of: (l: number) => readonly Entry[]): readonly Entry[] =>
  Array.from({ length: count }, (_, l) => of(l)).flat()

/** The shape of the published 130M model: 24 layers of 768 channels, 24 heads of 64 × 128. */
const mamba2 = (): RandomPackage => {
  const [L, C, V, T] = [24, 768, 50_288, 4]
  const [heads, width, state] = [24, 64, 128]
  const inner = heads * width
  return {
    config: {
      model_type: 'mamba2',
      vocab_size: V,
      hidden_size: C,
      num_hidden_layers: L,
      num_heads: heads,
      head_dim: width,
      state_size: state,
      n_groups: 1,
      conv_kernel: T,
      expand: 2,
      use_bias: false,
      use_conv_bias: true,
      layer_norm_epsilon: 1e-5,
      tie_word_embeddings: true,
    },
    entries: [
      ['backbone.embeddings.weight', [V, C], 0.5],
      ...layers(L, (l) => {
        const at = `backbone.layers.${l}.mixer`
        return [
          norm(`backbone.layers.${l}.norm`, C),
          matrix(`${at}.in_proj`, 2 * inner + 2 * state + heads, C),
          [`${at}.conv1d.weight`, [inner + 2 * state, 1, T], 0.25],
          [`${at}.conv1d.bias`, [inner + 2 * state], 0.1],
          [`${at}.A_log`, [heads], 0.5],
          [`${at}.D`, [heads], 0.5],
          [`${at}.dt_bias`, [heads], 1],
          norm(`${at}.norm`, inner),
          matrix(`${at}.out_proj`, C, inner),
        ]
      }),
      norm('backbone.norm_f', C),
    ],
    positive: /(norm\w*\.weight|\.D)$/,
  }
}

interface DecoderShape {
  readonly layers: number
  readonly channels: number
  readonly heads: number
  readonly keyHeads: number
  readonly intermediate: number
  readonly vocabulary: number
  readonly positions: number
}

const attention = (at: string, C: number, [H, G, d]: readonly [number, number, number], queries = 1) => [
  matrix(`${at}.q_proj`, queries * H * d, C),
  matrix(`${at}.k_proj`, G * d, C),
  matrix(`${at}.v_proj`, G * d, C),
  matrix(`${at}.o_proj`, C, H * d),
]
const feed = (at: string, C: number, F: number) => [
  matrix(`${at}.gate_proj`, F, C),
  matrix(`${at}.up_proj`, F, C),
  matrix(`${at}.down_proj`, C, F),
]

const llama = (shape: DecoderShape): RandomPackage => {
  const { layers: L, channels: C, heads: H, keyHeads: G, intermediate: F, vocabulary: V, positions } = shape
  return {
    config: {
      model_type: 'llama',
      vocab_size: V,
      hidden_size: C,
      num_hidden_layers: L,
      num_attention_heads: H,
      num_key_value_heads: G,
      intermediate_size: F,
      max_position_embeddings: positions,
      rms_norm_eps: 1e-5,
      rope_theta: 100_000,
      hidden_act: 'silu',
      tie_word_embeddings: true,
    },
    entries: [
      ['model.embed_tokens.weight', [V, C], 0.5],
      ...layers(L, (l) => {
        const at = `model.layers.${l}`
        return [
          norm(`${at}.input_layernorm`, C),
          ...attention(`${at}.self_attn`, C, [H, G, C / H]),
          norm(`${at}.post_attention_layernorm`, C),
          ...feed(`${at}.mlp`, C, F),
        ]
      }),
      norm('model.norm', C),
    ],
    positive: /norm\.weight$/,
  }
}

const small: DecoderShape = {
  layers: 4,
  channels: 256,
  heads: 4,
  keyHeads: 1,
  intermediate: 704,
  vocabulary: 256,
  positions: 32_768,
}
const smollm2: DecoderShape = {
  layers: 30,
  channels: 576,
  heads: 9,
  keyHeads: 3,
  intermediate: 1536,
  vocabulary: 49_152,
  positions: 8192,
}

/** Qwen3.5 in small: of eight layers two see all positions. */
const qwen35 = (): RandomPackage => {
  const [L, C, F, V, T] = [8, 256, 704, 256, 4]
  const [H, G, d] = [4, 1, 64]
  const [heads, width] = [4, 64]
  const inner = heads * width
  return {
    config: {
      model_type: 'qwen3_5_text',
      vocab_size: V,
      hidden_size: C,
      num_hidden_layers: L,
      num_attention_heads: H,
      num_key_value_heads: G,
      head_dim: d,
      intermediate_size: F,
      max_position_embeddings: 32_768,
      rms_norm_eps: 1e-6,
      full_attention_interval: 4,
      linear_conv_kernel_dim: T,
      linear_num_key_heads: heads,
      linear_num_value_heads: heads,
      linear_key_head_dim: width,
      linear_value_head_dim: width,
      rope_parameters: { rope_theta: 10_000_000, rope_type: 'default', partial_rotary_factor: 0.25 },
      hidden_act: 'silu',
      tie_word_embeddings: true,
    },
    entries: [
      ['model.embed_tokens.weight', [V, C], 0.5],
      ...layers(L, (l) => {
        const at = `model.layers.${l}`
        const own = `${at}.linear_attn`
        return [
          norm(`${at}.input_layernorm`, C),
          norm(`${at}.post_attention_layernorm`, C),
          ...(l % 4 === 3
            ? [
                ...attention(`${at}.self_attn`, C, [H, G, d], 2),
                norm(`${at}.self_attn.q_norm`, d),
                norm(`${at}.self_attn.k_norm`, d),
              ]
            : [
                matrix(`${own}.in_proj_qkv`, 3 * inner, C),
                matrix(`${own}.in_proj_z`, inner, C),
                matrix(`${own}.in_proj_b`, heads, C),
                matrix(`${own}.in_proj_a`, heads, C),
                [`${own}.conv1d.weight`, [3 * inner, 1, T], 0.25] as const,
                [`${own}.A_log`, [heads], 0.5] as const,
                [`${own}.dt_bias`, [heads], 1] as const,
                norm(`${own}.norm`, width),
                matrix(`${own}.out_proj`, C, inner),
              ]),
          ...feed(`${at}.mlp`, C, F),
        ]
      }),
      norm('model.norm', C),
    ],
    positive: /norm\.weight$/,
  }
}

export const SHAPES: Readonly<Record<string, (dir: string) => Promise<void>>> = {
  'mamba2-130m': (dir) => writeRandom(dir, mamba2()),
  'rwkv7-0.1b': (dir) => writeRwkv7(dir, RWKV7_0B1),
  'smollm2-135m': (dir) => writeRandom(dir, llama(smollm2)),
  'llama-small': (dir) => writeRandom(dir, llama(small)),
  'qwen35-small': (dir) => writeRandom(dir, qwen35()),
}
