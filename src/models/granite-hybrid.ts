/**
 * Granite 4.0-H (IBM, `granitemoehybrid`): layers of Mamba-2 and a few of attention, mostly without positions, and behind each an MLP that
 * all tokens share; larger models have experts beside it, which are weighed by softmax over the scores of the chosen alone. With the factors
 * e, r, a and s of its configuration
 *
 *   x = e · embed[id];  x ← x + r · mixer(rms(x));  x ← x + r · mlp(rms(x));  logits = head · rms(x) / s;  scores · a
 *
 * and the norm behind Mamba's gate over all channels, whatever the groups.
 */
import { z } from 'zod'
import type { Family } from './family.ts'
import { attention } from './hybrid/attention.ts'
import { mixture } from './hybrid/experts.ts'
import { languageModel, type Outline, readBySchema, refuseConfig } from './hybrid/language-model.ts'
import { mamba2Mixer, refuseMamba2Sizes, stepLimit } from './hybrid/mamba2-mixer.ts'
import { feedForward } from './hybrid/mlp.ts'
import { ropeIncrements, ropeMembers, ropeOf } from './rope.ts'

const size = z.int().positive()
const factor = z.number().positive().default(1)

const schema = z.looseObject({
  vocab_size: size,
  hidden_size: size,
  num_hidden_layers: size,
  num_attention_heads: size,
  num_key_value_heads: size.nullish(),
  max_position_embeddings: size,
  rms_norm_eps: z.number().positive().default(1e-6),
  hidden_act: z.literal('silu', 'must be "silu"').default('silu'),
  attention_bias: z.boolean().default(false),
  embedding_multiplier: factor,
  residual_multiplier: factor,
  attention_multiplier: factor,
  logits_scaling: factor,
  shared_intermediate_size: size,
  num_local_experts: z.int().nonnegative().default(8),
  num_experts_per_tok: z.int().nonnegative().default(2),
  /** Channels inside an expert. */
  intermediate_size: size.nullish(),
  position_embedding_type: z.enum(['rope', 'nope']).nullish(),
  layer_types: z.array(z.enum(['mamba', 'attention', 'linear_attention', 'full_attention'])),
  mamba_n_heads: size.default(128),
  mamba_d_head: z.union([size, z.literal('auto')]).default('auto'),
  mamba_n_groups: size.default(1),
  mamba_d_state: size.default(256),
  mamba_d_conv: size.default(4),
  mamba_expand: size.default(2),
  mamba_conv_bias: z.boolean().default(true),
  mamba_proj_bias: z.boolean().default(false),
  time_step_limit: stepLimit,
  tie_word_embeddings: z.boolean().default(false),
  ...ropeMembers,
})

export const graniteHybrid: Family = {
  windows: false,
  build: (parsed, tensors) => {
    const config = readBySchema(schema, parsed, 'a Granite hybrid')
    const {
      hidden_size: C,
      num_hidden_layers: L,
      rms_norm_eps: eps,
      num_attention_heads: H,
      layer_types: types,
    } = config
    const G = config.num_key_value_heads ?? H
    const D = config.mamba_expand * C
    const Hd = config.mamba_n_heads
    const P = config.mamba_d_head === 'auto' ? D / Hd : config.mamba_d_head
    if (P * Hd !== D) refuseConfig(`has ${D} inner channels and ${Hd} heads of ${P}, expected heads that make them up`)
    if (C % H !== 0 || H % G !== 0)
      refuseConfig(
        `says num_attention_heads is ${H}, expected a divisor of hidden_size ${C} and a multiple of num_key_value_heads ${G}`,
      )
    if (types.length !== L)
      refuseConfig(`names ${types.length} layer_types and says num_hidden_layers is ${L}, expected one for each layer`)
    const mamba = {
      C,
      Hd,
      P,
      N: config.mamba_d_state,
      G: config.mamba_n_groups,
      T: config.mamba_d_conv,
      limit: config.time_step_limit,
    }
    refuseMamba2Sizes(mamba)
    const attends = (layer: number): boolean => types[layer] === 'attention' || types[layer] === 'full_attention'
    const d = C / H
    const outline: Outline = {
      V: config.vocab_size,
      C,
      P: config.max_position_embeddings,
      eps,
      layers: L,
      layersKey: 'num_hidden_layers',
      names: {
        embedding: 'model.embed_tokens.weight',
        layer: 'model.layers.{l}.',
        norm: 'model.norm.weight',
        head: 'lm_head.weight',
      },
      tied: config.tie_word_embeddings,
      embeddingFactor: config.embedding_multiplier,
      logitsFactor: 1 / config.logits_scaling,
    }
    return languageModel(parsed, tensors, outline, ({ g, kinds, positions }) => {
      const all = kinds.kind('all', () => true)!
      const [first, second] = [
        all.vector('input_layernorm.weight', [C]),
        all.vector('post_attention_layernorm.weight', [C]),
      ]
      const mixing = kinds.kind('mamba', (layer) => !attends(layer))
      const mix =
        mixing &&
        mamba2Mixer(g, mixing, {
          ...mamba,
          at: 'mamba.',
          biases: { inward: config.mamba_proj_bias, outward: config.mamba_proj_bias },
          convBias: config.mamba_conv_bias,
          norm: { eps, groups: 1, first: false },
        })
      const full = kinds.kind('attn', attends)
      const attend =
        full &&
        attention(
          g,
          full,
          {
            ...{ C, H, G, d },
            scale: config.attention_multiplier,
            increments: config.position_embedding_type === 'rope' ? ropeIncrements(ropeOf(config), d) : null,
            names: { q: 'self_attn.q_proj', k: 'self_attn.k_proj', v: 'self_attn.v_proj', o: 'self_attn.o_proj' },
            norms: null,
            biases: { qkv: config.attention_bias, o: config.attention_bias },
          },
          positions(),
        )
      const inward = 'shared_mlp.input_linear'
      const feed = feedForward(g, all, {
        ...{ C, F: config.shared_intermediate_size, gate: inward, up: inward },
        down: 'shared_mlp.output_linear',
      })
      const { residual_multiplier: share, num_local_experts: E, num_experts_per_tok: K, intermediate_size: F } = config
      if (E > 0 && (K < 1 || K > E || F == null)) {
        refuseConfig(`has ${E} experts of ${F} channels, of which a token goes to ${K}, expected from 1 to all of them`)
      }
      const at = 'block_sparse_moe.'
      const blend =
        E === 0
          ? null
          : mixture(g, all, {
              ...{ C, E, K, F: F!, weights: 'chosen' },
              names: {
                router: `${at}router.layer`,
                gateUp: `${at}input_linear.weight`,
                down: [null, `${at}output_linear.weight`],
              },
            })
      return (x) => {
        const added = (name: string, y: typeof x): void =>
          void g.add('x', x, share === 1 ? y : g.scale(`${name}.r`, y, share))
        const n = g.rmsnorm('n', x, first(all.index), { eps })
        kinds.run([
          [mixing, () => added('ssm.o', mix!(n))],
          [full, () => added('attn.o', attend!(n))],
        ])
        const m = g.rmsnorm('m', x, second(all.index), { eps })
        const own = feed(m)
        added('mlp.o', blend ? g.add('feed.y', blend(m), own) : own)
      }
    })
  },
}
