/** GPT-2 small: Hugging Face's tensor names on our side, llama.cpp's on the other. */
import { type Format, GGUF_ONLY, isPackageFormat } from './formats.ts'
import type { MetaValue } from './gguf.ts'
import { matrix, type TensorSpec, vector } from './tensors.ts'

const L = 12
const C = 768
const H = 12
const F = 4 * C
const P = 1024
const V = 50_257

export const gpt2Sizes = { layers: L, vocabulary: V, channels: C, heads: H, positions: P } as const

const unit = (inputs: number, by = 1) => ({ deviation: by / Math.sqrt(inputs) })

const norm = (gguf: string, name: string): readonly TensorSpec[] => [
  vector(`${gguf}.weight`, `${name}.weight`, C, { mean: 1, deviation: 0.1 }),
  vector(`${gguf}.bias`, `${name}.bias`, C, { deviation: 0.05 }),
]

/** Its head is a matrix of its own, and its projections have outputs first. */
const isQuantised = (format: Format): boolean => isPackageFormat(format) || GGUF_ONLY.has(format)

/**
 * Sixteen-bit packages have the projections in the layout of Hugging Face, [inputs, outputs]; quantised ones need
 * [outputs, inputs], as files without a package have them.
 */
const layer = (l: number, format: Format): readonly TensorSpec[] => {
  const role = isQuantised(format) ? 'matrix' : 'fromRight'
  const theirs = (name: string): string => `blk.${l}.${name}`
  const ours = (name: string): string => `h.${l}.${name}`
  const linear = (gguf: string, name: string, size: readonly [number, number], by: number): readonly TensorSpec[] => [
    matrix(role, theirs(`${gguf}.weight`), ours(`${name}.weight`), size, unit(size[1], by)),
    vector(theirs(`${gguf}.bias`), ours(`${name}.bias`), size[0], { deviation: 0.05 }),
  ]
  return [
    ...norm(theirs('attn_norm'), ours('ln_1')),
    ...linear('attn_qkv', 'attn.c_attn', [3 * C, C], 1),
    ...linear('attn_output', 'attn.c_proj', [C, C], 0.5),
    ...norm(theirs('ffn_norm'), ours('ln_2')),
    ...linear('ffn_up', 'mlp.c_fc', [F, C], 1),
    ...linear('ffn_down', 'mlp.c_proj', [C, F], 0.3),
  ]
}

/**
 * The position embeddings are the largest: otherwise a random model with a tied head would choose the same token for
 * ever, and greedy steps would check little. The head is the embedding; a quantised file has it a second time,
 * quantised, so that both sides can read it like their other matrices.
 */
export const gpt2Tensors = (format: Format, positions: number = P): readonly TensorSpec[] => {
  const embedding = { deviation: 0.1, seed: 'wte' }
  const head = matrix('matrix', 'output.weight', 'lm_head.weight', [V, C], embedding)
  return [
    matrix('table', 'token_embd.weight', 'wte.weight', [V, C], embedding),
    {
      ...vector('position_embd.weight', 'wpe.weight', positions * C, { deviation: 1 }, [positions, C]),
      rows: positions,
      columns: C,
      extents: [C, positions],
    },
    ...norm('output_norm', 'ln_f'),
    ...(isQuantised(format) ? [head] : []),
    ...Array.from({ length: L }, (_, l) => layer(l, format)).flat(),
  ]
}

export const gpt2Metadata = (positions: number = P): Readonly<Record<string, MetaValue>> => ({
  'general.architecture': 'gpt2',
  'gpt2.context_length': { u32: positions },
  'gpt2.embedding_length': { u32: C },
  'gpt2.block_count': { u32: L },
  'gpt2.feed_forward_length': { u32: F },
  'gpt2.attention.head_count': { u32: H },
  'gpt2.attention.layer_norm_epsilon': { f32: 1e-5 },
  'gpt2.vocab_size': { u32: V },
})

export const gpt2Config = (format: Format, positions = P) => ({
  model_type: 'gpt2',
  vocab_size: V,
  n_positions: positions,
  n_ctx: positions,
  n_embd: C,
  n_layer: L,
  n_head: H,
  n_inner: null,
  activation_function: 'gelu_new',
  layer_norm_epsilon: 1e-5,
  tie_word_embeddings: !isQuantised(format),
})
