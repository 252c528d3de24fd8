/**
 * LFM2 (Liquid AI, "LFM2 Technical Report", 2025): short convolutions between two gates, and a few layers of attention. A layer is
 *
 *   x ← x + op(rms(x));  x ← x + w2(silu(w1 n) · w3 n), n = rms(x)
 *   convolution: B, C, u = in_proj n;  out = out_proj(C · conv(B · u)), without an activation
 *
 * Sizes: C channels, H query heads and G key heads of d channels, F channels inside the MLP, T taps.
 */
import { z } from 'zod'
import type { GraphBuilder } from '../engine/builder.ts'
import type { Value } from '../engine/builder-types.ts'
import type { Family } from './family.ts'
import { attention } from './hybrid/attention.ts'
import { languageModel, type Outline, readBySchema, refuseConfig } from './hybrid/language-model.ts'
import type { LayerKind } from './hybrid/layers.ts'
import { feedForward } from './hybrid/mlp.ts'
import { ropeIncrements, ropeMembers, ropeOf } from './rope.ts'

const size = z.int().positive()

const schema = z.looseObject({
  vocab_size: size,
  hidden_size: size,
  num_hidden_layers: size,
  num_attention_heads: size,
  num_key_value_heads: size,
  head_dim: size.nullish(),
  max_position_embeddings: size,
  norm_eps: z.number().positive().default(1e-5),
  conv_L_cache: size.default(3),
  conv_bias: z.boolean().default(false),
  intermediate_size: size.nullish(),
  block_ff_dim: size.nullish(),
  block_auto_adjust_ff_dim: z.boolean().default(true),
  block_ffn_dim_multiplier: z.number().positive().nullish().default(1),
  block_multiple_of: size.default(256),
  layer_types: z.array(z.enum(['conv', 'full_attention'])).nullish(),
  /** Of older packages: which layers attend. */
  full_attn_idxs: z.array(z.int()).nullish(),
  tie_word_embeddings: z.boolean().nullish(),
  /** Of older packages. */
  tie_embedding: z.boolean().nullish(),
  ...ropeMembers,
})
type Config = z.infer<typeof schema>

/** Channels inside the MLP: two thirds of what is written, rounded up, unless the package says that it is adjusted already. */
const innerOf = (config: Config): number => {
  const told = config.block_ff_dim ?? config.intermediate_size
  if (told == null) return refuseConfig('has neither block_ff_dim nor intermediate_size')
  if (!config.block_auto_adjust_ff_dim) return told
  const multiplied = Math.floor((config.block_ffn_dim_multiplier ?? 1) * Math.floor((2 * told) / 3))
  return Math.ceil(multiplied / config.block_multiple_of) * config.block_multiple_of
}

const attendingOf = ({ layer_types: types, full_attn_idxs: places, num_hidden_layers: L }: Config) => {
  if (types != null && types.length !== L) {
    refuseConfig(`names ${types.length} layer_types and says num_hidden_layers is ${L}, expected one for each layer`)
  }
  if (types == null && places == null) refuseConfig('has neither layer_types nor full_attn_idxs')
  return (layer: number): boolean => (types == null ? places!.includes(layer) : types[layer] === 'full_attention')
}

/** Declares the constants and states of short convolutions; what it returns computes a layer's output from its normed input. */
const shortConvolution = (g: GraphBuilder, layers: LayerKind, C: number, T: number, biased: boolean) => {
  const { index } = layers
  const bias = (name: string, width: number) => (biased ? layers.vector(`conv.${name}.bias`, [width]) : null)
  const inward = { weight: layers.matrix('conv.in_proj', [3 * C, C]), bias: bias('in_proj', 3 * C) }
  const conv = { taps: layers.vector('conv.conv.weight', [C, 1, T]), bias: bias('conv', C) }
  const outward = { weight: layers.matrix('conv.out_proj', [C, C]), bias: bias('out_proj', C) }
  const tail = g.table('conv', [index, T - 1, C])
  return (n: Value): Value => {
    const z = g.matmul('conv.in', n, inward.weight(index))
    const all = inward.bias ? g.add('conv.in.b', z, inward.bias(index)) : z
    const [B, c, u] = ['B', 'C', 'u'].map((name, i) => g.slice(`conv.${name}`, all, i * C, (i + 1) * C))
    const y = g.cacheConv('conv.y', tail(index), g.mul('conv.v', B!, u!), conv.taps(index), {
      bias: conv.bias?.(index),
      activation: 'none',
    })
    const out = g.matmul('conv.o', g.mul('conv.g', c!, y), outward.weight(index))
    return outward.bias ? g.add('conv.o.b', out, outward.bias(index)) : out
  }
}

export const lfm2: Family = {
  windows: false,
  build: (parsed, tensors) => {
    const config = readBySchema(schema, parsed, 'an LFM2')
    const { hidden_size: C, num_attention_heads: H, num_key_value_heads: G, norm_eps: eps, conv_L_cache: T } = config
    const d = config.head_dim ?? C / H
    if (!Number.isInteger(d) || d % 2 !== 0) refuseConfig(`says a head has ${d} channels, expected an even number`)
    if (H % G !== 0)
      refuseConfig(`says num_attention_heads is ${H} and num_key_value_heads is ${G}, expected a multiple of it`)
    if (T < 2 || T > 64) refuseConfig(`says conv_L_cache is ${T}, expected 2 to 64`)
    const F = innerOf(config)
    const attends = attendingOf(config)
    const outline: Outline = {
      V: config.vocab_size,
      C,
      P: config.max_position_embeddings,
      eps,
      layers: config.num_hidden_layers,
      layersKey: 'num_hidden_layers',
      names: {
        embedding: 'model.embed_tokens.weight',
        layer: 'model.layers.{l}.',
        norm: 'model.embedding_norm.weight',
        head: 'lm_head.weight',
      },
      tied: config.tie_word_embeddings ?? config.tie_embedding ?? true,
    }
    return languageModel(parsed, tensors, outline, ({ g, kinds, positions }) => {
      const all = kinds.kind('all', () => true)!
      const norms = [all.vector('operator_norm.weight', [C]), all.vector('ffn_norm.weight', [C])] as const
      const mlp = feedForward(g, all, { C, F, gate: 'feed_forward.w1', up: 'feed_forward.w3', down: 'feed_forward.w2' })
      const attending = kinds.kind('attn', attends)
      const attend =
        attending &&
        attention(
          g,
          attending,
          {
            C,
            H,
            G,
            d,
            scale: 1 / Math.sqrt(d),
            increments: ropeIncrements(ropeOf(config, 1_000_000), d),
            names: { q: 'self_attn.q_proj', k: 'self_attn.k_proj', v: 'self_attn.v_proj', o: 'self_attn.out_proj' },
            norms: { q: 'self_attn.q_layernorm.weight', k: 'self_attn.k_layernorm.weight', eps },
          },
          positions(),
        )
      const convolving = kinds.kind('conv', (layer) => !attends(layer))
      const convolve = convolving && shortConvolution(g, convolving, C, T, config.conv_bias)
      return (x: Value) => {
        const n = g.rmsnorm('n', x, norms[0](all.index), { eps })
        kinds.run([
          [convolving, () => void g.add('x', x, convolve!(n))],
          [attending, () => void g.add('x', x, attend!(n))],
        ])
        g.add('x', x, mlp(g.rmsnorm('m', x, norms[1](all.index), { eps })))
      }
    })
  },
}
