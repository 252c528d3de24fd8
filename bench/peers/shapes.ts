/**
 * Decoders of people's sizes, as llama.cpp's converter writes them: Llama, and Qwen3.5 (three layers of the gated delta
 * rule, then one of attention). Every side is a multiple of 256, because Q4_K has blocks of that length.
 */
import type { MetaValue } from './gguf.ts'
import { matrix, type TensorSpec, vector } from './tensors.ts'

export interface Shape {
  readonly vocabulary: number
  readonly layers: number
  readonly specs: readonly TensorSpec[]
  readonly metadata: Readonly<Record<string, MetaValue>>
}

export interface DecoderSizes {
  readonly vocabulary: number
  readonly channels: number
  readonly layers: number
  readonly inner: number
  readonly positions: number
  readonly heads: number
  readonly keyHeads: number
  /** Channels of a head. */
  readonly width: number
}

export interface HybridSizes extends DecoderSizes {
  /** Heads of keys and of values of the gated delta rule, and the channels of each. */
  readonly deltaKeyHeads: number
  readonly deltaHeads: number
  readonly deltaWidth: number
}

export const unit = (inputs: number, by = 1) => ({ deviation: by / Math.sqrt(inputs) })
export const norm = (name: string, width: number): TensorSpec =>
  vector(`${name}.weight`, null, width, { mean: 1, deviation: 0.1 })
export const product = (name: string, outputs: number, inputs: number, by = 1): TensorSpec =>
  matrix('matrix', `${name}.weight`, null, [outputs, inputs], unit(inputs, by))
/** Numbers in f32, extents in GGUF's order. */
export const numbers = (name: string, extents: readonly number[], mean: number, deviation: number): TensorSpec => ({
  ...vector(
    name,
    null,
    extents.reduce((all, extent) => all * extent, 1),
    { mean, deviation },
  ),
  extents,
})
export const layersOf = (count: number, of: (l: number) => readonly TensorSpec[]): readonly TensorSpec[] =>
  Array.from({ length: count }, (_, l) => of(l)).flat()

/** Embeddings, the last norm and a head of its own. */
export const ends = (vocabulary: number, channels: number, lastNorm = 'output_norm'): readonly TensorSpec[] => [
  matrix('table', 'token_embd.weight', null, [vocabulary, channels], { deviation: 0.7 }),
  norm(lastNorm, channels),
  product('output', vocabulary, channels, 2),
]

export const metadataOf = (
  architecture: string,
  sizes: Pick<DecoderSizes, 'vocabulary' | 'channels' | 'layers' | 'positions'>,
  keys: Readonly<Record<string, MetaValue>>,
): Readonly<Record<string, MetaValue>> => ({
  'general.architecture': architecture,
  [`${architecture}.context_length`]: { u32: sizes.positions },
  [`${architecture}.embedding_length`]: { u32: sizes.channels },
  [`${architecture}.block_count`]: { u32: sizes.layers },
  [`${architecture}.vocab_size`]: { u32: sizes.vocabulary },
  [`${architecture}.attention.layer_norm_rms_epsilon`]: { f32: 1e-5 },
  ...Object.fromEntries(Object.entries(keys).map(([key, value]) => [`${architecture}.${key}`, value])),
})

export const headKeys = ({ heads, keyHeads, width }: DecoderSizes): Readonly<Record<string, MetaValue>> => ({
  'attention.head_count': { u32: heads },
  'attention.head_count_kv': { u32: keyHeads },
  'attention.key_length': { u32: width },
  'attention.value_length': { u32: width },
  'rope.dimension_count': { u32: width },
  'rope.freq_base': { f32: 10_000 },
})

export const attention = (
  l: number,
  { channels, heads, keyHeads, width }: DecoderSizes,
  { headNorms = false, gated = false } = {},
): readonly TensorSpec[] => [
  product(`blk.${l}.attn_q`, (gated ? 2 : 1) * heads * width, channels),
  product(`blk.${l}.attn_k`, keyHeads * width, channels),
  product(`blk.${l}.attn_v`, keyHeads * width, channels),
  product(`blk.${l}.attn_output`, channels, heads * width, 0.7),
  ...(headNorms ? [norm(`blk.${l}.attn_q_norm`, width), norm(`blk.${l}.attn_k_norm`, width)] : []),
]

export const feed = (l: number, { channels, inner }: DecoderSizes): readonly TensorSpec[] => [
  product(`blk.${l}.ffn_gate`, inner, channels),
  product(`blk.${l}.ffn_up`, inner, channels),
  product(`blk.${l}.ffn_down`, channels, inner),
]

/** Of `llama`, and, with norms of the heads of queries and keys, of `qwen3`. */
export const decoder = (architecture: string, sizes: DecoderSizes, headNorms = false): Shape => ({
  vocabulary: sizes.vocabulary,
  layers: sizes.layers,
  specs: [
    ...ends(sizes.vocabulary, sizes.channels),
    ...layersOf(sizes.layers, (l) => [
      norm(`blk.${l}.attn_norm`, sizes.channels),
      ...attention(l, sizes, { headNorms }),
      norm(`blk.${l}.ffn_norm`, sizes.channels),
      ...feed(l, sizes),
    ]),
  ],
  metadata: metadataOf(architecture, sizes, { ...headKeys(sizes), feed_forward_length: { u32: sizes.inner } }),
})

const TAPS = 4
/** Every fourth layer has attention. */
export const ATTENTION_INTERVAL = 4

const delta = (l: number, { channels, deltaKeyHeads, deltaHeads, deltaWidth }: HybridSizes): readonly TensorSpec[] => {
  const values = deltaHeads * deltaWidth
  const through = 2 * deltaKeyHeads * deltaWidth + values
  return [
    product(`blk.${l}.attn_qkv`, through, channels),
    product(`blk.${l}.attn_gate`, values, channels),
    product(`blk.${l}.ssm_beta`, deltaHeads, channels),
    product(`blk.${l}.ssm_alpha`, deltaHeads, channels),
    numbers(`blk.${l}.ssm_conv1d.weight`, [TAPS, through], 0, 0.5),
    numbers(`blk.${l}.ssm_dt.bias`, [deltaHeads], -1, 0.5),
    numbers(`blk.${l}.ssm_a`, [deltaHeads], -1, 0.3),
    norm(`blk.${l}.ssm_norm`, deltaWidth),
    product(`blk.${l}.ssm_out`, channels, values),
  ]
}

export const qwen35 = (sizes: HybridSizes): Shape => ({
  vocabulary: sizes.vocabulary,
  layers: sizes.layers,
  specs: [
    ...ends(sizes.vocabulary, sizes.channels),
    ...layersOf(sizes.layers, (l) => [
      norm(`blk.${l}.attn_norm`, sizes.channels),
      ...((l + 1) % ATTENTION_INTERVAL === 0 ? attention(l, sizes, { headNorms: true, gated: true }) : delta(l, sizes)),
      norm(`blk.${l}.post_attention_norm`, sizes.channels),
      ...feed(l, sizes),
    ]),
  ],
  metadata: metadataOf('qwen35', sizes, {
    ...headKeys(sizes),
    // A quarter of a head turns; three sections, of which text uses one position for all.
    'rope.dimension_count': { u32: sizes.width / 4 },
    'rope.dimension_sections': {
      i32s: [
        sizes.width / 8 - 2 * Math.floor(sizes.width / 24),
        Math.floor(sizes.width / 24),
        Math.floor(sizes.width / 24),
        0,
      ],
    },
    full_attention_interval: { u32: ATTENTION_INTERVAL },
    feed_forward_length: { u32: sizes.inner },
    'ssm.conv_kernel': { u32: TAPS },
    'ssm.state_size': { u32: sizes.deltaWidth },
    'ssm.group_count': { u32: sizes.deltaKeyHeads },
    'ssm.time_step_rank': { u32: sizes.deltaHeads },
    'ssm.inner_size': { u32: sizes.deltaHeads * sizes.deltaWidth },
  }),
})
