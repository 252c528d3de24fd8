/**
 * Small models of the architectures that both sides read from GGUF: the tensors and keys that llama.cpp's converter
 * writes for each, with random numbers. Sizes are such that every kind of layer is there, twice where there is room.
 */
import { type Rwkv7Sizes, rwkv7MetadataOf, rwkv7Tensors } from './rwkv7.ts'
import {
  attention,
  decoder,
  ends,
  feed,
  headKeys,
  layersOf,
  metadataOf,
  norm,
  numbers,
  product,
  qwen35,
  type Shape,
} from './shapes.ts'
import { matrix, type TensorSpec } from './tensors.ts'

export interface SmallModel extends Omit<Shape, 'layers'> {
  readonly name: string
  /**
   * Products round activations to the format of their matrix, and a rounded score may choose another expert: F32 alone
   * is compared.
   */
  readonly routed?: true
}

const V = 1024
const L = 4
const C = 256
const F = 512
const H = 8
const G = 2
const P = 2048

const sizes = { vocabulary: V, channels: C, layers: L, inner: F, positions: P, heads: H, keyHeads: G, width: C / H }
const wide = { ...sizes, width: 64 }

/** Matrices of experts, one after the other. */
const stack = (name: string, count: number, outputs: number, inputs: number): TensorSpec => ({
  ...product(name, count * outputs, inputs),
  extents: [inputs, outputs, count],
})

const EXPERTS = 8
const INNER = 256
const qwen3moe: SmallModel = {
  name: 'qwen3moe',
  vocabulary: V,
  routed: true,
  specs: [
    ...ends(V, C),
    ...layersOf(L, (l) => [
      norm(`blk.${l}.attn_norm`, C),
      ...attention(l, wide, { headNorms: true }),
      norm(`blk.${l}.ffn_norm`, C),
      product(`blk.${l}.ffn_gate_inp`, EXPERTS, C, 2),
      stack(`blk.${l}.ffn_gate_exps`, EXPERTS, INNER, C),
      stack(`blk.${l}.ffn_up_exps`, EXPERTS, INNER, C),
      stack(`blk.${l}.ffn_down_exps`, EXPERTS, C, INNER),
    ]),
  ],
  metadata: metadataOf('qwen3moe', sizes, {
    ...headKeys(wide),
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
    norm('output_norm', C),
    product('output', V, C, 2),
    ...layersOf(GEMMA_LAYERS, (l) => [
      norm(`blk.${l}.attn_norm`, C),
      ...attention(l, wide, { headNorms: true }),
      norm(`blk.${l}.post_attention_norm`, C),
      norm(`blk.${l}.ffn_norm`, C),
      ...feed(l, wide),
      norm(`blk.${l}.post_ffw_norm`, C),
    ]),
  ],
  metadata: metadataOf(
    'gemma3',
    { ...sizes, layers: GEMMA_LAYERS },
    {
      ...headKeys(wide),
      'rope.freq_base': { f32: 1_000_000 },
      'attention.sliding_window': { u32: 32 },
      feed_forward_length: { u32: F },
    },
  ),
}

const TAPS = 4
const STATE = 64
const INSIDE = 2 * C
const SSM_HEADS = INSIDE / 64
const mamba2: SmallModel = {
  name: 'mamba2',
  vocabulary: V,
  specs: [
    ...ends(V, C),
    ...layersOf(L, (l) => [
      norm(`blk.${l}.attn_norm`, C),
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
  metadata: metadataOf('mamba2', sizes, {
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
    ...ends(V, C, 'token_embd_norm'),
    ...layersOf(L, (l) => [
      norm(`blk.${l}.attn_norm`, C),
      ...(l % 2 === 0
        ? [
            product(`blk.${l}.shortconv.in_proj`, 3 * C, C),
            numbers(`blk.${l}.shortconv.conv.weight`, [3, C], 0, 0.6),
            product(`blk.${l}.shortconv.out_proj`, C, C),
          ]
        : attention(l, sizes, { headNorms: true })),
      norm(`blk.${l}.ffn_norm`, C),
      ...feed(l, sizes),
    ]),
  ],
  metadata: metadataOf('lfm2', sizes, {
    ...headKeys(sizes),
    'attention.head_count_kv': { i32s: Array.from({ length: L }, (_, l) => (l % 2 === 0 ? 0 : G)) },
    feed_forward_length: { u32: F },
    'shortconv.l_cache': { u32: 3 },
  }),
}

const rwkv7Small: Rwkv7Sizes = {
  layers: L,
  channels: C,
  inner: F,
  vocabulary: V,
  lowRanks: { w: 32, a: 32, v: 32, g: 64 },
}
const rwkv7: SmallModel = {
  name: 'rwkv7',
  vocabulary: V,
  specs: rwkv7Tensors(rwkv7Small),
  metadata: rwkv7MetadataOf(rwkv7Small),
}

export const smallModels: readonly SmallModel[] = [
  { name: 'llama', ...decoder('llama', sizes) },
  { name: 'qwen3', ...decoder('qwen3', wide, true) },
  { name: 'qwen35', ...qwen35({ ...wide, deltaKeyHeads: 2, deltaHeads: 4, deltaWidth: 64 }) },
  qwen3moe,
  mamba2,
  lfm2,
  gemma3,
  rwkv7,
]
