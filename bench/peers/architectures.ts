/**
 * Small models of the architectures that both sides read from GGUF: the tensors and keys that llama.cpp's converter writes for each, with
 * random numbers. Sizes are such that every kind of layer is there, twice where there is room.
 */
import type { MetaValue } from './gguf.ts'
import { matrix, type TensorSpec, vector } from './tensors.ts'

export interface SmallModel {
  readonly name: string
  readonly vocabulary: number
  readonly specs: readonly TensorSpec[]
  readonly metadata: Readonly<Record<string, MetaValue>>
  /** Products round activations to the format of their matrix, and a rounded score may choose another expert: F32 alone is compared. */
  readonly routed?: true
}

const V = 1024
const L = 4
const C = 256
const F = 512
const H = 8
const G = 2
const P = 2048

const unit = (inputs: number, by = 1) => ({ deviation: by / Math.sqrt(inputs) })
const norm = (name: string, width = C): TensorSpec => vector(`${name}.weight`, null, width, { mean: 1, deviation: 0.1 })
const product = (name: string, outputs: number, inputs: number, by = 1): TensorSpec =>
  matrix('matrix', `${name}.weight`, null, [outputs, inputs], unit(inputs, by))
/** Matrices of experts, one after the other. */
const stack = (name: string, count: number, outputs: number, inputs: number): TensorSpec => ({
  ...product(name, count * outputs, inputs),
  extents: [inputs, outputs, count],
})
const numbers = (name: string, extents: readonly number[], mean: number, deviation: number): TensorSpec => ({
  ...vector(
    name,
    null,
    extents.reduce((all, extent) => all * extent, 1),
    { mean, deviation },
  ),
  extents,
})
const layers = (of: (l: number) => readonly TensorSpec[], count = L): readonly TensorSpec[] =>
  Array.from({ length: count }, (_, l) => of(l)).flat()

const ends = (lastNorm = 'output_norm'): readonly TensorSpec[] => [
  matrix('table', 'token_embd.weight', null, [V, C], { deviation: 0.7 }),
  norm(lastNorm),
  product('output', V, C, 2),
]

const metadata = (
  architecture: string,
  keys: Readonly<Record<string, MetaValue>>,
): Readonly<Record<string, MetaValue>> => ({
  'general.architecture': { string: architecture },
  [`${architecture}.context_length`]: { u32: P },
  [`${architecture}.embedding_length`]: { u32: C },
  [`${architecture}.block_count`]: { u32: L },
  [`${architecture}.vocab_size`]: { u32: V },
  [`${architecture}.attention.layer_norm_rms_epsilon`]: { f32: 1e-5 },
  ...Object.fromEntries(Object.entries(keys).map(([key, value]) => [`${architecture}.${key}`, value])),
})

const heads = (width: number): Readonly<Record<string, MetaValue>> => ({
  'attention.head_count': { u32: H },
  'attention.head_count_kv': { u32: G },
  'attention.key_length': { u32: width },
  'attention.value_length': { u32: width },
  'rope.dimension_count': { u32: width },
  'rope.freq_base': { f32: 10_000 },
})

const attention = (l: number, width: number, headNorms = false): readonly TensorSpec[] => [
  product(`blk.${l}.attn_q`, H * width, C),
  product(`blk.${l}.attn_k`, G * width, C),
  product(`blk.${l}.attn_v`, G * width, C),
  product(`blk.${l}.attn_output`, C, H * width, 0.7),
  ...(headNorms ? [norm(`blk.${l}.attn_q_norm`, width), norm(`blk.${l}.attn_k_norm`, width)] : []),
]
const feed = (l: number): readonly TensorSpec[] => [
  norm(`blk.${l}.ffn_norm`),
  product(`blk.${l}.ffn_gate`, F, C),
  product(`blk.${l}.ffn_up`, F, C),
  product(`blk.${l}.ffn_down`, C, F),
]

const decoder = (name: string, width: number, headNorms: boolean): SmallModel => ({
  name,
  vocabulary: V,
  specs: [...ends(), ...layers((l) => [norm(`blk.${l}.attn_norm`), ...attention(l, width, headNorms), ...feed(l)])],
  metadata: metadata(name, { ...heads(width), feed_forward_length: { u32: F } }),
})

const EXPERTS = 8
const INNER = 256
const qwen3moe: SmallModel = {
  name: 'qwen3moe',
  vocabulary: V,
  routed: true,
  specs: [
    ...ends(),
    ...layers((l) => [
      norm(`blk.${l}.attn_norm`),
      ...attention(l, 64, true),
      norm(`blk.${l}.ffn_norm`),
      product(`blk.${l}.ffn_gate_inp`, EXPERTS, C, 2),
      stack(`blk.${l}.ffn_gate_exps`, EXPERTS, INNER, C),
      stack(`blk.${l}.ffn_up_exps`, EXPERTS, INNER, C),
      stack(`blk.${l}.ffn_down_exps`, EXPERTS, C, INNER),
    ]),
  ],
  metadata: metadata('qwen3moe', {
    ...heads(64),
    feed_forward_length: { u32: F },
    expert_feed_forward_length: { u32: INNER },
    expert_count: { u32: EXPERTS },
    expert_used_count: { u32: 2 },
  }),
}

/** Every sixth layer sees all positions, the others a window. */
const GEMMA_LAYERS = 7
const gemma3: SmallModel = {
  name: 'gemma3',
  vocabulary: V,
  specs: [
    // Embeddings are multiplied by √C; the head has its own matrix, so that greedy tokens change.
    matrix('table', 'token_embd.weight', null, [V, C], { deviation: 0.06 }),
    norm('output_norm'),
    product('output', V, C, 2),
    ...layers(
      (l) => [
        norm(`blk.${l}.attn_norm`),
        ...attention(l, 64, true),
        norm(`blk.${l}.post_attention_norm`),
        ...feed(l),
        norm(`blk.${l}.post_ffw_norm`),
      ],
      GEMMA_LAYERS,
    ),
  ],
  metadata: metadata('gemma3', {
    ...heads(64),
    block_count: { u32: GEMMA_LAYERS },
    'rope.freq_base': { f32: 1_000_000 },
    'attention.sliding_window': { u32: 32 },
    feed_forward_length: { u32: F },
  }),
}

const TAPS = 4
const STATE = 64
const INSIDE = 2 * C
const SSM_HEADS = INSIDE / 64
const mamba2: SmallModel = {
  name: 'mamba2',
  vocabulary: V,
  specs: [
    ...ends(),
    ...layers((l) => [
      norm(`blk.${l}.attn_norm`),
      product(`blk.${l}.ssm_in`, 2 * INSIDE + 2 * STATE + SSM_HEADS, C),
      numbers(`blk.${l}.ssm_conv1d.weight`, [TAPS, INSIDE + 2 * STATE], 0, 0.5),
      numbers(`blk.${l}.ssm_conv1d.bias`, [INSIDE + 2 * STATE], 0, 0.1),
      numbers(`blk.${l}.ssm_dt.bias`, [SSM_HEADS], -1, 0.5),
      numbers(`blk.${l}.ssm_a`, [1, SSM_HEADS], -1, 0.3),
      numbers(`blk.${l}.ssm_d`, [1, SSM_HEADS], 1, 0.1),
      numbers(`blk.${l}.ssm_norm.weight`, [INSIDE, 1], 1, 0.1),
      product(`blk.${l}.ssm_out`, C, INSIDE),
    ]),
  ],
  metadata: metadata('mamba2', {
    feed_forward_length: { u32: 0 },
    'attention.head_count': { u32: 0 },
    'ssm.conv_kernel': { u32: TAPS },
    'ssm.inner_size': { u32: INSIDE },
    'ssm.state_size': { u32: STATE },
    'ssm.time_step_rank': { u32: SSM_HEADS },
    'ssm.group_count': { u32: 1 },
  }),
}

const lfm2: SmallModel = {
  name: 'lfm2',
  vocabulary: V,
  specs: [
    ...ends('token_embd_norm'),
    ...layers((l) => [
      norm(`blk.${l}.attn_norm`),
      ...(l % 2 === 0
        ? [
            product(`blk.${l}.shortconv.in_proj`, 3 * C, C),
            numbers(`blk.${l}.shortconv.conv.weight`, [3, C], 0, 0.6),
            product(`blk.${l}.shortconv.out_proj`, C, C),
          ]
        : attention(l, C / H, true)),
      ...feed(l),
    ]),
  ],
  metadata: metadata('lfm2', {
    ...heads(C / H),
    'attention.head_count_kv': { i32s: Array.from({ length: L }, (_, l) => (l % 2 === 0 ? 0 : G)) },
    feed_forward_length: { u32: F },
    'shortconv.l_cache': { u32: 3 },
  }),
}

export const smallModels: readonly SmallModel[] = [
  decoder('llama', C / H, false),
  decoder('qwen3', 64, true),
  qwen3moe,
  mamba2,
  lfm2,
  gemma3,
]
