/**
 * Mamba-2 (Dao, Gu, 2024): one mixer a layer (layers/mamba2-mixer.ts), no attention, a state of constant size. Two
 * forms of packages: those converted for Hugging Face's library, and the authors' own (state-spaces/mamba2-*), whose
 * configuration has other names and whose embedding is `backbone.embedding`.
 *
 * The norm behind the gate is taken within each of the groups of B and C, as the authors' package and llama.cpp do.
 */
import { z } from 'zod'
import type { Value } from '../../engine/builder-types.ts'
import { readBySchema, refuseConfig, size } from '../config.ts'
import type { Family } from '../family.ts'
import { languageModel, type Outline } from '../layers/language-model.ts'
import { mamba2Mixer, refuseMamba2Sizes, stepLimit } from '../layers/mamba2-mixer.ts'

const converted = z.looseObject({
  vocab_size: size,
  hidden_size: size,
  num_hidden_layers: size,
  num_heads: size.default(128),
  head_dim: size.default(64),
  state_size: size.default(128),
  n_groups: size.default(8),
  conv_kernel: size.default(4),
  use_bias: z.boolean().default(false),
  use_conv_bias: z.boolean().default(true),
  layer_norm_epsilon: z.number().positive().default(1e-5),
  hidden_act: z.literal(['silu', 'swish'], 'must be "silu"').default('silu'),
  rms_norm: z.literal(true, 'must be true: the gated output is normalised').default(true),
  time_step_limit: stepLimit,
  tie_word_embeddings: z.boolean().default(false),
})

/** The authors' configuration; what their package leaves out has the default of its code. */
const authors = z.looseObject({
  d_model: size,
  n_layer: size,
  vocab_size: size,
  pad_vocab_size_multiple: size.default(8),
  d_intermediate: z.literal(0, 'must be 0: there is no MLP between the mixers').default(0),
  attn_layer_idx: z
    .array(z.int())
    .max(0, 'must be empty: layers of attention are not read for this family')
    .default([]),
  rms_norm: z.literal(true, 'must be true').default(true),
  tie_embeddings: z.boolean().default(true),
  ssm_cfg: z.looseObject({
    layer: z.literal('Mamba2', 'must be "Mamba2": the first Mamba is another family'),
    d_state: size.default(128),
    d_conv: size.default(4),
    expand: size.default(2),
    headdim: size.default(64),
    ngroups: size.default(1),
    d_ssm: z.null('must not be there: all inner channels pass the recurrence').optional(),
    rmsnorm: z.literal(true, 'must be true').default(true),
    norm_before_gate: z.literal(false, 'must be false').default(false),
    D_has_hdim: z.literal(false, 'must be false: D has one number a head').default(false),
    bias: z.boolean().default(false),
    conv_bias: z.boolean().default(true),
    dt_limit: stepLimit,
  }),
})

interface Sizes {
  readonly V: number
  readonly C: number
  readonly L: number
  readonly layersKey: string
  readonly embedding: string
  readonly Hd: number
  readonly P: number
  readonly N: number
  readonly G: number
  readonly T: number
  readonly eps: number
  readonly bias: boolean
  readonly convBias: boolean
  readonly limit: readonly [number, number]
  readonly tied: boolean
}

const ofConverted = (parsed: unknown): Sizes => {
  const config = readBySchema(converted, parsed, 'a Mamba-2')
  return {
    V: config.vocab_size,
    C: config.hidden_size,
    L: config.num_hidden_layers,
    layersKey: 'num_hidden_layers',
    embedding: 'backbone.embeddings',
    Hd: config.num_heads,
    P: config.head_dim,
    N: config.state_size,
    G: config.n_groups,
    T: config.conv_kernel,
    eps: config.layer_norm_epsilon,
    bias: config.use_bias,
    convBias: config.use_conv_bias,
    limit: config.time_step_limit,
    tied: config.tie_word_embeddings,
  }
}

const ofAuthors = (parsed: unknown): Sizes => {
  const config = readBySchema(authors, parsed, 'a Mamba-2')
  const { d_model: C, vocab_size, pad_vocab_size_multiple: multiple, ssm_cfg: ssm } = config
  const inner = ssm.expand * C
  if (inner % ssm.headdim !== 0) {
    refuseConfig(`has ${inner} inner channels and heads of ${ssm.headdim}, expected heads of equal width`)
  }
  return {
    // Rows behind the vocabulary pad it; they are tokens that no text has.
    V: Math.ceil(vocab_size / multiple) * multiple,
    C,
    L: config.n_layer,
    layersKey: 'n_layer',
    embedding: 'backbone.embedding',
    Hd: inner / ssm.headdim,
    P: ssm.headdim,
    N: ssm.d_state,
    G: ssm.ngroups,
    T: ssm.d_conv,
    eps: 1e-5,
    bias: ssm.bias,
    convBias: ssm.conv_bias,
    limit: ssm.dt_limit,
    tied: config.tie_embeddings,
  }
}

/** Whether a configuration without model_type is the authors'. */
export const isAuthorsMamba2 = (config: unknown): boolean => {
  const { ssm_cfg, d_model } = Object(config) as { ssm_cfg?: unknown; d_model?: unknown }
  return d_model !== undefined && typeof ssm_cfg === 'object' && ssm_cfg !== null
}

export const mamba2: Family = {
  build: (parsed, tensors) => {
    const sizes = isAuthorsMamba2(parsed) ? ofAuthors(parsed) : ofConverted(parsed)
    refuseMamba2Sizes(sizes)
    const { V, C, L, Hd, P, N, G, T, eps, bias, convBias, limit, tied } = sizes
    const outline: Outline = {
      V,
      C,
      P: null,
      norm: { kind: 'rms', eps },
      layers: L,
      layersKey: sizes.layersKey,
      names: {
        embedding: sizes.embedding,
        layer: 'backbone.layers.{l}.',
        norm: 'backbone.norm_f',
        head: 'lm_head',
      },
      tied,
    }
    return languageModel(parsed, tensors, outline, ({ g, kinds, norm }) => {
      const first = norm(kinds.all, 'norm')
      const mixer = mamba2Mixer(g, kinds.all, {
        ...{ C, Hd, P, N, G, T, convBias, limit },
        at: 'mixer.',
        biases: { inward: bias, outward: bias },
        norm: { eps, groups: G, first: false },
      })
      return (x: Value) => void g.add('x', x, mixer(first('n', x)))
    })
  },
}
