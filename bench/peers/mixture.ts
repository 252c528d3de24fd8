/**
 * A random mixture of experts that is written twice, as GGUF of the architecture `qwen3moe` and as a package
 * `qwen3_moe`, with the same numbers: layers of 1,024 channels, 64 experts of 256 inner channels in each, of which a
 * token goes to 2. In q8 an expert is 786,432 codes and 24,576 scales, 835,584 bytes on both sides, in Continuo's store
 * (204 pages, nothing is padded) as in the GGUF.
 *
 * Where two experts are nearly equal to the router, rounding of activations may exchange them. So that logits can still
 * be compared, an expert adds little to the sum that it is a part of.
 */
import type { MetaValue } from './gguf.ts'
import { ends, headKeys, layersOf, metadataOf, norm, product } from './shapes.ts'
import type { TensorSpec } from './tensors.ts'

const V = 1024
const C = 1024
const F = 256
const EXPERTS = 64
const CHOSEN = 2
const POSITIONS = 2048
const HEADS = { heads: 8, keyHeads: 2, width: 128 }
const ROUTER = 4
const DOWN = 0.2

/** The tensor under its names in the package; several of them share its rows. */
const named = (spec: TensorSpec, ...names: readonly string[]): TensorSpec => ({
  ...spec,
  names,
  shape: spec.role === 'plain' && spec.rows === 1 ? [spec.columns] : [spec.rows / names.length, spec.columns],
})

const experts = (l: number, part: 'gate' | 'up' | 'down', outputs: number, inputs: number): TensorSpec =>
  named(
    {
      ...product(`blk.${l}.ffn_${part}_exps`, EXPERTS * outputs, inputs, part === 'down' ? DOWN : 1),
      extents: [inputs, outputs, EXPERTS],
    },
    ...Array.from({ length: EXPERTS }, (_, e) => `model.layers.${l}.mlp.experts.${e}.${part}_proj.weight`),
  )

const layer = (l: number): readonly TensorSpec[] => {
  const at = (name: string): string => `model.layers.${l}.${name}.weight`
  const { heads, keyHeads, width } = HEADS
  return [
    named(norm(`blk.${l}.attn_norm`, C), at('input_layernorm')),
    named(product(`blk.${l}.attn_q`, heads * width, C), at('self_attn.q_proj')),
    named(product(`blk.${l}.attn_k`, keyHeads * width, C), at('self_attn.k_proj')),
    named(product(`blk.${l}.attn_v`, keyHeads * width, C), at('self_attn.v_proj')),
    named(product(`blk.${l}.attn_output`, C, heads * width, 0.7), at('self_attn.o_proj')),
    named(norm(`blk.${l}.attn_q_norm`, width), at('self_attn.q_norm')),
    named(norm(`blk.${l}.attn_k_norm`, width), at('self_attn.k_norm')),
    named(norm(`blk.${l}.ffn_norm`, C), at('post_attention_layernorm')),
    // What chooses experts is kept in f32, as llama.cpp's converter writes it.
    named({ ...product(`blk.${l}.ffn_gate_inp`, EXPERTS, C, ROUTER), role: 'plain' }, at('mlp.gate')),
    experts(l, 'gate', F, C),
    experts(l, 'up', F, C),
    experts(l, 'down', C, F),
  ]
}

const [embedding, lastNorm, head] = ends(V, C) as readonly [TensorSpec, TensorSpec, TensorSpec]

export interface Mixture {
  readonly vocabulary: number
  readonly layers: number
  readonly specs: readonly TensorSpec[]
  readonly metadata: Readonly<Record<string, MetaValue>>
  readonly config: Readonly<Record<string, unknown>>
}

export const mixtureOf = (layers: number): Mixture => ({
  vocabulary: V,
  layers,
  specs: [
    named(embedding, 'model.embed_tokens.weight'),
    named(lastNorm, 'model.norm.weight'),
    named(head, 'lm_head.weight'),
    ...layersOf(layers, layer),
  ],
  metadata: metadataOf(
    'qwen3moe',
    { vocabulary: V, channels: C, layers, positions: POSITIONS },
    {
      ...headKeys({ ...HEADS, vocabulary: V, channels: C, layers, inner: F, positions: POSITIONS }),
      feed_forward_length: { u32: F },
      expert_feed_forward_length: { u32: F },
      expert_count: { u32: EXPERTS },
      expert_used_count: { u32: CHOSEN },
    },
  ),
  config: {
    model_type: 'qwen3_moe',
    architectures: ['Qwen3MoeForCausalLM'],
    vocab_size: V,
    hidden_size: C,
    num_hidden_layers: layers,
    num_attention_heads: HEADS.heads,
    num_key_value_heads: HEADS.keyHeads,
    head_dim: HEADS.width,
    intermediate_size: F,
    moe_intermediate_size: F,
    num_experts: EXPERTS,
    num_experts_per_tok: CHOSEN,
    norm_topk_prob: true,
    decoder_sparse_step: 1,
    hidden_act: 'silu',
    max_position_embeddings: POSITIONS,
    rms_norm_eps: 1e-5,
    rope_theta: 10_000,
    tie_word_embeddings: false,
  },
})

/**
 * Bytes of the experts of so many layers in q8, on either side: a code for each number, and for 32 of them a scale of
 * two bytes.
 */
export const expertBytes = (layers: number): number => layers * EXPERTS * 3 * F * C * (1 + 2 / 32)
