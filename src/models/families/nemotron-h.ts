/**
 * Nemotron-H (NVIDIA, "Nemotron-H: A Family of Accurate and Efficient Hybrid Mamba-Transformer Models", 2025): one
 * operation a layer, as the pattern says: M Mamba-2 with a grouped norm, * attention without positions, - an MLP with
 * relu², E a mixture of such MLPs beside one that all tokens share. x ← x + op(rms(x)).
 */
import { z } from 'zod'
import { keyHeadsOf, readBySchema, refuseConfig, size } from '../config.ts'
import type { Family } from '../family.ts'
import { attention } from '../layers/attention.ts'
import { mixture } from '../layers/experts.ts'
import { languageModel, type Outline } from '../layers/language-model.ts'
import { mamba2Mixer, refuseMamba2Sizes, stepLimit } from '../layers/mamba2-mixer.ts'
import { feedForward } from '../layers/mlp.ts'

const schema = z.looseObject({
  vocab_size: size,
  hidden_size: size,
  intermediate_size: size,
  num_hidden_layers: size.nullish(),
  hybrid_override_pattern: z.string().nullish(),
  /** The same in newer packages, which may also say layer_types. */
  layers_block_type: z.array(z.string()).nullish(),
  layer_types: z.array(z.string()).nullish(),
  num_attention_heads: size,
  num_key_value_heads: size,
  head_dim: size.nullish(),
  /** The same under its older name. */
  attention_head_dim: size.nullish(),
  attention_bias: z.boolean().default(false),
  mlp_bias: z.boolean().default(false),
  mlp_hidden_act: z.literal('relu2', 'must be "relu2"').default('relu2'),
  max_position_embeddings: size,
  layer_norm_epsilon: z.number().positive().default(1e-5),
  mamba_num_heads: size.default(128),
  mamba_head_dim: size.default(64),
  mamba_hidden_act: z.literal('silu', 'must be "silu"').default('silu'),
  mamba_proj_bias: z.boolean().default(false),
  ssm_state_size: size.default(128),
  n_groups: size.default(8),
  conv_kernel: size.default(4),
  use_bias: z.boolean().default(false),
  use_conv_bias: z.boolean().default(true),
  time_step_limit: stepLimit,
  sliding_window: z.null('must be null: windows are not read for this family').optional(),
  tie_word_embeddings: z.boolean().default(false),
  n_routed_experts: size.default(8),
  num_experts_per_tok: size.default(2),
  moe_intermediate_size: size.default(7688),
  moe_shared_expert_intermediate_size: size.default(7688),
  n_shared_experts: z.literal(1, 'must be 1').default(1),
  moe_latent_size: z.null('must be null: experts of a narrower width are not read').optional(),
  routed_scaling_factor: z.number().default(1),
  norm_topk_prob: z.literal(true, 'must be true').default(true),
  n_group: z.literal(1, 'must be 1: groups of experts are not read').default(1),
})
type Config = z.infer<typeof schema>

type Operation = 'M' | '*' | '-' | 'E'
const WORDS: Readonly<Record<string, Operation>> = {
  M: 'M',
  '*': '*',
  '-': '-',
  E: 'E',
  moe: 'E',
  mamba: 'M',
  linear_attention: 'M',
  attention: '*',
  full_attention: '*',
  mlp: '-',
}

const operationsOf = (config: Config): readonly Operation[] => {
  const words = config.layers_block_type ?? config.layer_types ?? [...(config.hybrid_override_pattern ?? '')]
  if (words.length === 0) refuseConfig('has neither hybrid_override_pattern nor layers_block_type')
  return words.map((word, layer) => {
    const found = WORDS[word]
    return (
      found ??
      refuseConfig(
        `says layer ${layer} is ${JSON.stringify(word)}, expected Mamba (M), attention (*), an MLP (-) or experts (E)`,
      )
    )
  })
}

export const nemotronH: Family = {
  windows: false,
  build: (parsed, tensors) => {
    const config = readBySchema(schema, parsed, 'a Nemotron-H')
    const operations = operationsOf(config)
    const { hidden_size: C, num_attention_heads: H, num_key_value_heads: G, layer_norm_epsilon: eps } = config
    const d = config.head_dim ?? config.attention_head_dim ?? C / H
    if (!Number.isInteger(d))
      refuseConfig(`says hidden_size is ${C} and num_attention_heads is ${H}, expected heads of equal width`)
    keyHeadsOf(H, G)
    const mamba = {
      ...{ C, Hd: config.mamba_num_heads, P: config.mamba_head_dim, N: config.ssm_state_size, G: config.n_groups },
      ...{ T: config.conv_kernel, limit: config.time_step_limit },
    }
    refuseMamba2Sizes(mamba)
    const is = (operation: Operation) => (layer: number) => operations[layer] === operation
    const outline: Outline = {
      V: config.vocab_size,
      C,
      P: operations.includes('*') ? config.max_position_embeddings : null,
      norm: { kind: 'rms', eps },
      layers: operations.length,
      layersKey: 'hybrid_override_pattern',
      names: {
        embedding: 'backbone.embeddings',
        layer: 'backbone.layers.{l}.',
        norm: 'backbone.norm_f',
        head: 'lm_head',
      },
      tied: config.tie_word_embeddings,
      unused: /^mtp\./,
    }
    return languageModel(parsed, tensors, outline, (build) => {
      const { g, kinds } = build
      const norm = build.norm(kinds.all, 'norm')
      const mixing = kinds.kind('mamba', is('M'))
      const mix =
        mixing &&
        mamba2Mixer(g, mixing, {
          ...mamba,
          at: 'mixer.',
          biases: { inward: config.use_bias, outward: config.use_bias },
          convBias: config.use_conv_bias,
          norm: { eps, groups: config.n_groups, first: false },
        })
      const full = kinds.kind('attn', is('*'))
      const attend =
        full &&
        attention(build, full, {
          ...{ C, H, G, d, scale: 1 / Math.sqrt(d), sight: { window: null, increments: null } },
          names: { q: 'mixer.q_proj', k: 'mixer.k_proj', v: 'mixer.v_proj', o: 'mixer.o_proj' },
          biases: { qkv: config.attention_bias, o: config.attention_bias },
        })
      const feeding = kinds.kind('mlp', is('-'))
      const feed =
        feeding &&
        feedForward(g, feeding, {
          ...{ C, F: config.intermediate_size, biased: config.mlp_bias },
          ...{ up: 'mixer.up_proj', down: 'mixer.down_proj', activation: 'relu2' },
        })
      const choosing = kinds.kind('moe', is('E'))
      const [E, K] = [config.n_routed_experts, config.num_experts_per_tok]
      if (choosing && K > E)
        refuseConfig(`says that a token goes to ${K} of ${E} experts, expected at most all of them`)
      const blend =
        choosing &&
        mixture(g, choosing, {
          ...{ C, E, K, F: config.moe_intermediate_size, weights: 'sigmoid', factor: config.routed_scaling_factor },
          names: {
            router: 'mixer.gate',
            bias: 'mixer.gate.e_score_correction_bias',
            up: { single: 'mixer.experts.{e}.up_proj.weight', all: 'mixer.experts.up_proj' },
            down: { single: 'mixer.experts.{e}.down_proj.weight', all: 'mixer.experts.down_proj' },
          },
        })
      const shared =
        choosing &&
        feedForward(g, choosing, {
          ...{ C, F: config.moe_shared_expert_intermediate_size, biased: config.mlp_bias, as: 'shared' },
          ...{ up: 'mixer.shared_experts.up_proj', down: 'mixer.shared_experts.down_proj', activation: 'relu2' },
        })
      return (x) => {
        const n = norm('n', x)
        kinds.run([
          [mixing, () => void g.add('x', x, mix!(n))],
          [full, () => void g.add('x', x, attend!(n))],
          [feeding, () => void g.add('x', x, feed!(n))],
          [choosing, () => void g.add('x', x, g.add('feed.y', blend!(n), shared!(n)))],
        ])
      }
    })
  },
}
