/**
 * LFM2 (Liquid AI, "LFM2 Technical Report", 2025): short convolutions between two gates, and a few layers of attention.
 * A layer is
 *
 *   x ← x + op(rms(x));  x ← x + w2(silu(w1 n) · w3 n), n = rms(x)
 *   convolution: B, C, u = in_proj n;  out = out_proj(C · conv(B · u)), without an activation
 *
 * Sizes: C channels, H query heads and G key heads of d channels, F channels inside the MLP, T taps.
 */
import { z } from 'zod'
import type { GraphBuilder } from '../../engine/builder.ts'
import type { Value } from '../../engine/builder-types.ts'
import { keyHeadsOf, readBySchema, refuseConfig, refuseLayerTypes, size, turningHeadWidth } from '../config.ts'
import type { Family } from '../family.ts'
import { attention } from '../layers/attention.ts'
import type { LayerKind } from '../layers/kinds.ts'
import { languageModel, namesBehind, type Outline } from '../layers/language-model.ts'
import { linear } from '../layers/linear.ts'
import { feedForward } from '../layers/mlp.ts'
import { ropeIncrements, ropeMembers, ropeOf } from '../rope.ts'

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

/**
 * Channels inside the MLP: two thirds of what is written, rounded up, unless the package says that it is adjusted
 * already.
 */
const innerOf = (config: Config): number => {
  const told = config.block_ff_dim ?? config.intermediate_size
  if (told == null) return refuseConfig('has neither block_ff_dim nor intermediate_size')
  if (!config.block_auto_adjust_ff_dim) return told
  const multiplied = Math.floor((config.block_ffn_dim_multiplier ?? 1) * Math.floor((2 * told) / 3))
  return Math.ceil(multiplied / config.block_multiple_of) * config.block_multiple_of
}

const attendingOf = ({ layer_types: types, full_attn_idxs: places, num_hidden_layers: L }: Config) => {
  refuseLayerTypes(types, L)
  if (types == null && places == null) refuseConfig('has neither layer_types nor full_attn_idxs')
  return (layer: number): boolean => (types == null ? places!.includes(layer) : types[layer] === 'full_attention')
}

/**
 * Declares the constants and states of short convolutions; what it returns computes a layer's output from its normed
 * input.
 */
const shortConvolution = (g: GraphBuilder, layers: LayerKind, C: number, T: number, biased: boolean) => {
  const { index } = layers
  const inward = linear(g, layers, 'conv.in_proj', [3 * C, C], biased)
  const taps = layers.vector('conv.conv.weight', [C, 1, T])
  const bias = biased ? layers.vector('conv.conv.bias', [C]) : null
  const outward = linear(g, layers, 'conv.out_proj', [C, C], biased)
  const tail = g.table('conv', [index, T - 1, C])
  return (n: Value): Value => {
    const all = inward.apply('conv.in', n)
    const [B, c, u] = ['B', 'C', 'u'].map((name, i) => g.slice(`conv.${name}`, all, i * C, (i + 1) * C))
    const y = g.cacheConv('conv.y', tail(index), g.mul('conv.v', B!, u!), taps(index), {
      bias: bias?.(index),
      activation: 'none',
    })
    return outward.apply('conv.o', g.mul('conv.g', c!, y))
  }
}

export const lfm2: Family = {
  windows: false,
  build: (parsed, tensors) => {
    const config = readBySchema(schema, parsed, 'an LFM2')
    const { hidden_size: C, num_attention_heads: H, num_key_value_heads: G, norm_eps: eps, conv_L_cache: T } = config
    const d = turningHeadWidth(C, H, config.head_dim)
    keyHeadsOf(H, G)
    if (T < 2 || T > 64) refuseConfig(`says conv_L_cache is ${T}, expected 2 to 64`)
    const F = innerOf(config)
    const attends = attendingOf(config)
    const outline: Outline = {
      V: config.vocab_size,
      C,
      P: config.max_position_embeddings,
      norm: { kind: 'rms', eps },
      layers: config.num_hidden_layers,
      layersKey: 'num_hidden_layers',
      names: {
        ...namesBehind('model.'),
        norm: 'model.embedding_norm',
      },
      tied: config.tie_word_embeddings ?? config.tie_embedding ?? true,
    }
    return languageModel(parsed, tensors, outline, (build) => {
      const { g, kinds, norm } = build
      const { all } = kinds
      const [first, second] = [norm(all, 'operator_norm'), norm(all, 'ffn_norm')]
      const mlp = feedForward(g, all, { C, F, gate: 'feed_forward.w1', up: 'feed_forward.w3', down: 'feed_forward.w2' })
      const attending = kinds.kind('attn', attends)
      const attend =
        attending &&
        attention(build, attending, {
          C,
          H,
          G,
          d,
          scale: 1 / Math.sqrt(d),
          sight: { window: null, increments: ropeIncrements(ropeOf(config, 1_000_000), d) },
          names: { q: 'self_attn.q_proj', k: 'self_attn.k_proj', v: 'self_attn.v_proj', o: 'self_attn.out_proj' },
          norms: { q: 'self_attn.q_layernorm.weight', k: 'self_attn.k_layernorm.weight', eps },
        })
      const convolving = kinds.kind('conv', (layer) => !attends(layer))
      const convolve = convolving && shortConvolution(g, convolving, C, T, config.conv_bias)
      return (x: Value) => {
        const n = first('n', x)
        kinds.run([
          [convolving, () => void g.add('x', x, convolve!(n))],
          [attending, () => void g.add('x', x, attend!(n))],
        ])
        g.add('x', x, mlp(second('m', x)))
      }
    })
  },
}
