/**
 * Falcon-H1 (Zuo et al., "Falcon-H1: A Family of Hybrid-Head Language Models", 2025): in every layer Mamba-2 and
 * attention read one norm side by side and their outputs are added. Many of its parts are multiplied by numbers of the
 * configuration.
 */
import { z } from 'zod'
import type { Value } from '../../engine/builder-types.ts'
import { keyHeadsOf, readBySchema, refuseConfig, size, turningHeadWidth } from '../config.ts'
import type { Family } from '../family.ts'
import { ATTENTION_NAMES, attention } from '../layers/attention.ts'
import { languageModel, namesBehind, type Outline } from '../layers/language-model.ts'
import { mamba2Members, mamba2Mixer, mamba2SizesOf } from '../layers/mamba2-mixer.ts'
import { feedForward } from '../layers/mlp.ts'
import { ropeIncrements, ropeMembers, ropeOf } from '../rope.ts'

const number = z.number().refine((value) => value !== 0, 'must not be 0')
const factor = number.nullish().transform((value) => value ?? 1)

const schema = z.looseObject({
  vocab_size: size,
  hidden_size: size,
  intermediate_size: size,
  num_hidden_layers: size,
  num_attention_heads: size,
  num_key_value_heads: size.nullish(),
  head_dim: size.nullish(),
  max_position_embeddings: size,
  rms_norm_eps: z.number().positive().default(1e-5),
  hidden_act: z.literal('silu', 'must be "silu"').default('silu'),
  attention_bias: z.boolean().default(false),
  mlp_bias: z.boolean().default(false),
  projectors_bias: z.boolean().default(false),
  mamba_d_ssm: size.nullish(),
  mamba_norm_before_gate: z.boolean().default(true),
  mamba_rms_norm: z.boolean().default(false),
  embedding_multiplier: factor,
  lm_head_multiplier: factor,
  key_multiplier: factor,
  attention_in_multiplier: factor,
  attention_out_multiplier: factor,
  ssm_in_multiplier: factor,
  ssm_out_multiplier: factor,
  ssm_multipliers: z.array(number).length(5, 'must be five numbers').nullish(),
  mlp_multipliers: z.array(number).length(2, 'must be two numbers').nullish(),
  tie_word_embeddings: z.boolean().default(false),
  ...mamba2Members,
  ...ropeMembers,
})

export const falconH1: Family = {
  windows: false,
  build: (parsed, tensors) => {
    const config = readBySchema(schema, parsed, 'a Falcon-H1')
    const { hidden_size: C, num_attention_heads: H, rms_norm_eps: eps } = config
    const G = keyHeadsOf(H, config.num_key_value_heads)
    const d = turningHeadWidth(C, H, config.head_dim)
    const mamba = mamba2SizesOf(C, config, config.mamba_d_ssm ?? undefined)
    const [z0 = 1, x0 = 1, B0 = 1, C0 = 1, dt0 = 1] = config.ssm_multipliers ?? []
    const inward = config.ssm_in_multiplier
    const parts = { z: z0 * inward, x: x0 * inward, B: B0 * inward, C: C0 * inward, dt: dt0 * inward }
    const even = Object.values(parts).every((value) => value === 1)
    // A factor before a projection with a bias is none behind it.
    if (config.mamba_proj_bias && inward !== 1) {
      refuseConfig(
        `has mamba_proj_bias and ssm_in_multiplier ${inward}, expected one of them: no published model has both`,
      )
    }
    if (config.attention_bias && config.attention_in_multiplier !== 1) {
      refuseConfig(
        `has attention_bias and attention_in_multiplier ${config.attention_in_multiplier}, expected one of them: no published model has both`,
      )
    }
    const outline: Outline = {
      V: config.vocab_size,
      C,
      P: config.max_position_embeddings,
      norm: { kind: 'rms', eps },
      layers: config.num_hidden_layers,
      layersKey: 'num_hidden_layers',
      names: {
        ...namesBehind('model.'),
        norm: 'model.final_layernorm',
      },
      tied: config.tie_word_embeddings,
      embeddingFactor: config.embedding_multiplier,
      logitsFactor: config.lm_head_multiplier,
    }
    return languageModel(parsed, tensors, outline, (build) => {
      const { g, kinds, norm } = build
      const { all } = kinds
      const [first, second] = [norm(all, 'input_layernorm'), norm(all, 'pre_ff_layernorm')]
      const mix = mamba2Mixer(g, all, {
        ...mamba,
        at: 'mamba.',
        biases: { inward: config.mamba_proj_bias, outward: config.projectors_bias },
        norm: config.mamba_rms_norm
          ? { eps, groups: config.mamba_n_groups, first: config.mamba_norm_before_gate }
          : null,
        ...(even ? {} : { factors: parts }),
      })
      const attend = attention(build, all, {
        ...{ C, H, G, d },
        scale: 1 / Math.sqrt(d),
        sight: { window: null, increments: ropeIncrements(ropeOf(config), d) },
        names: ATTENTION_NAMES,
        biases: { qkv: config.attention_bias, o: config.attention_bias },
        keyFactor: config.key_multiplier,
      })
      const [gate = 1, down = 1] = config.mlp_multipliers ?? []
      const feed = feedForward(g, all, {
        ...{ C, F: config.intermediate_size, biased: config.mlp_bias, factors: [gate, down] },
        gate: 'feed_forward.gate_proj',
        up: 'feed_forward.up_proj',
        down: 'feed_forward.down_proj',
      })
      const times = (name: string, x: Value, by: number): Value => (by === 1 ? x : g.scale(name, x, by))
      return (x) => {
        const n = first('n', x)
        const mixed = times('ssm.o.s', mix(n), config.ssm_out_multiplier)
        const seen = attend(times('attn.n', n, config.attention_in_multiplier))
        const between = g.add('x.mixed', x, g.add('y', mixed, times('attn.o.s', seen, config.attention_out_multiplier)))
        g.add('x', between, feed(second('m', between)))
      }
    })
  },
}
