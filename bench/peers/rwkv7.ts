/** RWKV-7 of the 0.1B checkpoints' shape: the official tensor names on our side, llama.cpp's on the other. */
import type { MetaValue } from './gguf.ts'
import { matrix, type TensorSpec, vector } from './tensors.ts'

/** Channels of a head. */
const N = 64

export interface Rwkv7Sizes {
  readonly layers: number
  readonly channels: number
  readonly inner: number
  readonly vocabulary: number
  readonly lowRanks: { readonly w: number; readonly a: number; readonly v: number; readonly g: number }
}

export const rwkv7Sizes: Rwkv7Sizes = {
  layers: 12,
  channels: 768,
  inner: 3072,
  vocabulary: 65_536,
  lowRanks: { w: 64, a: 64, v: 32, g: 128 },
}

/**
 * These deviations keep activations near 1, so that sixteen bits are precise enough and greedy tokens change from step
 * to step.
 */
const unit = (inputs: number, by = 1) => ({ deviation: by / Math.sqrt(inputs) })

const norm = (gguf: string, name: string, C: number): readonly TensorSpec[] => [
  vector(`${gguf}.weight`, `${name}.weight`, C, { mean: 1, deviation: 0.1 }),
  vector(`${gguf}.bias`, `${name}.bias`, C, { deviation: 0.05 }),
]

const layer = (l: number, { channels: C, inner: F, lowRanks }: Rwkv7Sizes): readonly TensorSpec[] => {
  const theirs = (name: string): string => `blk.${l}.${name}`
  const ours = (name: string): string => `blocks.${l}.${name}`
  const channels = (gguf: string, name: string, mean: number, deviation: number): TensorSpec =>
    vector(theirs(`${gguf}.weight`), ours(name), C, { mean, deviation }, [1, 1, C])
  const square = (name: string, deviation: { readonly deviation: number }): TensorSpec =>
    matrix('matrix', theirs(`time_mix_${name}.weight`), ours(`att.${name}.weight`), [C, C], deviation)
  const lowRank = (which: keyof Rwkv7Sizes['lowRanks'], mean: number, deviation: number, reach: number) => {
    const D = lowRanks[which]
    const first = matrix('fromRight', theirs(`time_mix_${which}1.weight`), ours(`att.${which}1`), [D, C], unit(C))
    const second = matrix(
      'fromRight',
      theirs(`time_mix_${which}2.weight`),
      ours(`att.${which}2`),
      [C, D],
      unit(D, reach),
    )
    if (which === 'g') return [first, second]
    return [channels(`time_mix_${which}0`, `att.${which}0`, mean, deviation), first, second]
  }
  // Layer 0 has no value residual. llama.cpp requires its weights nevertheless, in the width of the in-context learning
  // rate.
  const noValueResidual = [
    vector(theirs('time_mix_v0.weight'), null, C, { deviation: 0 }),
    matrix('fromRight', theirs('time_mix_v1.weight'), null, [lowRanks.a, C], { deviation: 0 }),
    matrix('fromRight', theirs('time_mix_v2.weight'), null, [C, lowRanks.a], { deviation: 0 }),
  ]
  const mixes: TensorSpec = {
    role: 'plain',
    rows: 6,
    columns: C,
    gguf: theirs('time_mix_lerp_fused.weight'),
    extents: [C, 1, 1, 6],
    names: ['r', 'w', 'k', 'v', 'a', 'g'].map((which) => ours(`att.x_${which}`)),
    shape: [1, 1, C],
    seed: theirs('time_mix_lerp_fused.weight'),
    mean: 0.5,
    deviation: 0.2,
  }
  return [
    ...norm(theirs('attn_norm'), ours('ln1'), C),
    ...norm(theirs('attn_norm_2'), ours('ln2'), C),
    mixes,
    ...lowRank('w', -2, 1.5, 0.5),
    ...lowRank('a', 0, 1, 0.5),
    ...(l === 0 ? noValueResidual : lowRank('v', 0, 1, 0.5)),
    ...lowRank('g', 0, 0, 1.5),
    channels('time_mix_k_k', 'att.k_k', 0.85, 0.1),
    channels('time_mix_k_a', 'att.k_a', 1, 0.1),
    vector(theirs('time_mix_r_k.weight'), ours('att.r_k'), C, { deviation: 0.1 }, [C / N, N]),
    square('receptance', unit(C)),
    square('key', unit(C)),
    square('value', unit(C)),
    ...norm(theirs('time_mix_ln'), ours('att.ln_x'), C),
    square('output', unit(C, 0.7)),
    channels('channel_mix_lerp_k', 'ffn.x_k', 0.5, 0.2),
    matrix('matrix', theirs('channel_mix_key.weight'), ours('ffn.key.weight'), [F, C], unit(C)),
    matrix('matrix', theirs('channel_mix_value.weight'), ours('ffn.value.weight'), [C, F], unit(F, 0.5)),
  ]
}

export const rwkv7Tensors = (sizes: Rwkv7Sizes = rwkv7Sizes): readonly TensorSpec[] => {
  const { layers: L, channels: C, vocabulary: V } = sizes
  return [
    matrix('table', 'token_embd.weight', 'emb.weight', [V, C], { deviation: 0.5 }),
    ...norm('token_embd_norm', 'blocks.0.ln0', C),
    ...norm('output_norm', 'ln_out', C),
    matrix('matrix', 'output.weight', 'head.weight', [V, C], unit(C, 2)),
    ...Array.from({ length: L }, (_, l) => layer(l, sizes)).flat(),
  ]
}

export const rwkv7MetadataOf = (sizes: Rwkv7Sizes): Readonly<Record<string, MetaValue>> => ({
  'general.architecture': 'rwkv7',
  'rwkv7.context_length': { u32: 1_048_576 },
  'rwkv7.embedding_length': { u32: sizes.channels },
  'rwkv7.block_count': { u32: sizes.layers },
  'rwkv7.feed_forward_length': { u32: sizes.inner },
  'rwkv7.attention.head_count': { u32: 0 },
  'rwkv7.attention.layer_norm_epsilon': { f32: 1e-5 },
  'rwkv7.wkv.head_size': { u32: N },
  'rwkv7.attention.decay_lora_rank': { u32: sizes.lowRanks.w },
  'rwkv7.attention.iclr_lora_rank': { u32: sizes.lowRanks.a },
  'rwkv7.attention.value_residual_mix_lora_rank': { u32: sizes.lowRanks.v },
  'rwkv7.attention.gate_lora_rank': { u32: sizes.lowRanks.g },
  'rwkv7.vocab_size': { u32: sizes.vocabulary },
})

export const rwkv7Metadata = rwkv7MetadataOf(rwkv7Sizes)

export const rwkv7Config = {
  model_type: 'rwkv7',
  vocab_size: rwkv7Sizes.vocabulary,
  hidden_size: rwkv7Sizes.channels,
  num_hidden_layers: rwkv7Sizes.layers,
  head_dim: N,
  num_heads: rwkv7Sizes.channels / N,
  intermediate_size: rwkv7Sizes.inner,
  decay_low_rank_dim: rwkv7Sizes.lowRanks.w,
  a_low_rank_dim: rwkv7Sizes.lowRanks.a,
  v_low_rank_dim: rwkv7Sizes.lowRanks.v,
  gate_low_rank_dim: rwkv7Sizes.lowRanks.g,
  norm_eps: 1e-5,
} as const
