/**
 * Granite 4.0-H (IBM, `granitemoehybrid`): layers of Mamba-2 and a few of attention, mostly without positions, and
 * behind each an MLP that all tokens share; larger models have experts beside it, which are weighed by softmax over the
 * scores of the chosen alone. With the factors e, r, a and s of its configuration
 *
 *   x = e · embed[id];  x ← x + r · mixer(rms(x));  x ← x + r · mlp(rms(x));  logits = head · rms(x) / s;  scores · a
 *
 * and the norm behind Mamba's gate over all channels, whatever the groups.
 */
import { z } from 'zod'
import { readBySchema, refuseConfig, refuseLayerTypes, size } from '../config.ts'
import type { Family } from '../family.ts'
import { ATTENTION_NAMES, attention } from '../layers/attention.ts'
import { mixture } from '../layers/experts.ts'
import { languageModel, namesBehind, type Outline } from '../layers/language-model.ts'
import { mamba2Members, mamba2Mixer, mamba2SizesOf } from '../layers/mamba2-mixer.ts'
import { feedForward } from '../layers/mlp.ts'
import { ropeIncrements, ropeMembers, ropeOf } from '../rope.ts'

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
  tie_word_embeddings: z.boolean().default(false),
  ...mamba2Members,
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
    const mamba = mamba2SizesOf(C, config)
    if (C % H !== 0 || H % G !== 0)
      refuseConfig(
        `says num_attention_heads is ${H}, expected a divisor of hidden_size ${C} and a multiple of num_key_value_heads ${G}`,
      )
    refuseLayerTypes(types, L)
    const attends = (layer: number): boolean => types[layer] === 'attention' || types[layer] === 'full_attention'
    const d = C / H
    const outline: Outline = {
      V: config.vocab_size,
      C,
      P: config.max_position_embeddings,
      norm: { kind: 'rms', eps },
      layers: L,
      layersKey: 'num_hidden_layers',
      names: namesBehind('model.'),
      tied: config.tie_word_embeddings,
      embeddingFactor: config.embedding_multiplier,
      logitsFactor: 1 / config.logits_scaling,
    }
    return languageModel(parsed, tensors, outline, (build) => {
      const { g, kinds, norm } = build
      const { all } = kinds
      const [first, second] = [norm(all, 'input_layernorm'), norm(all, 'post_attention_layernorm')]
      const mixing = kinds.kind('mamba', (layer) => !attends(layer))
      const mix =
        mixing &&
        mamba2Mixer(g, mixing, {
          ...mamba,
          at: 'mamba.',
          biases: { inward: config.mamba_proj_bias, outward: config.mamba_proj_bias },
          norm: { eps, groups: 1, first: false },
        })
      const full = kinds.kind('attn', attends)
      const attend =
        full &&
        attention(build, full, {
          ...{ C, H, G, d },
          scale: config.attention_multiplier,
          sight: {
            window: null,
            increments: config.position_embedding_type === 'rope' ? ropeIncrements(ropeOf(config), d) : null,
          },
          names: ATTENTION_NAMES,
          biases: { qkv: config.attention_bias, o: config.attention_bias },
        })
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
                down: { all: `${at}output_linear.weight` },
              },
            })
      return (x) => {
        const added = (name: string, y: typeof x): void =>
          void g.add('x', x, share === 1 ? y : g.scale(`${name}.r`, y, share))
        const n = first('n', x)
        kinds.run([
          [mixing, () => added('ssm.o', mix!(n))],
          [full, () => added('attn.o', attend!(n))],
        ])
        const m = second('m', x)
        const own = feed(m)
        added('mlp.o', blend ? g.add('feed.y', blend(m), own) : own)
      }
    })
  },
}
