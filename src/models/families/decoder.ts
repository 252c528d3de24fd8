/**
 * Decoders of the kind that Llama made common (Touvron et al., "LLaMA", 2023): every layer has attention, then a gated
 * MLP or a mixture of experts. Families say in a `DecoderPlan` what sets them apart.
 *
 *   x ← x + attention(norm(x));  x ← x + feed(norm(x)), where some norm what is added too
 *
 * A context is full after P tokens: its state is that of layers/attention.ts, and `hidden.last`.
 */
import { z } from 'zod'
import type { Value } from '../../engine/builder-types.ts'
import type { TensorEntry } from '../../engine/native.ts'
import { keyHeadsOf, refuseConfig, size } from '../config.ts'
import type { FamilyModel } from '../family.ts'
import {
  ATTENTION_NAMES,
  type AttentionPlan,
  attention,
  HEAD_NORM_NAMES,
  type Sight,
  sightOf,
} from '../layers/attention.ts'
import { type MixturePlan, mixture } from '../layers/experts.ts'
import { languageModel, namesBehind, type Outline } from '../layers/language-model.ts'
import type { Norm } from '../layers/linear.ts'
import { feedForward, MLP_NAMES, type MlpPlan } from '../layers/mlp.ts'
import { ropeIncrements, ropeMembers, ropeOf } from '../rope.ts'
import type { MemoryOption } from './memory-json.ts'

const flag = z.boolean().nullish()

/** What the configurations of all these families have. */
export const decoderMembers = {
  vocab_size: size,
  hidden_size: size,
  num_hidden_layers: size,
  num_attention_heads: size,
  num_key_value_heads: size.nullish(),
  head_dim: size.nullish(),
  intermediate_size: size,
  max_position_embeddings: size,
  rms_norm_eps: z.number().positive(),
  hidden_act: z.literal('silu', 'must be "silu"').nullish(),
  attention_bias: flag,
  mlp_bias: flag,
  tie_word_embeddings: flag,
  sliding_window: size.nullish(),
  use_sliding_window: z
    .literal(false, 'must be false: windows of single layers are not read for this family')
    .nullish(),
  layer_types: z.array(z.literal('full_attention', 'must be "full_attention" for every layer')).nullish(),
  pretraining_tp: z.literal(1, 'must be 1: matrices that were cut for training are not joined').nullish(),
  ...ropeMembers,
}
export const decoderConfig = z.looseObject(decoderMembers)
export type DecoderConfig = z.infer<typeof decoderConfig>

export interface DecoderPlan {
  readonly outline: Outline
  readonly attention: AttentionPlan
  readonly mlp: MlpPlan
  /** The layers that have experts in place of the MLP; default: none. */
  readonly experts?: { readonly plan: MixturePlan; readonly includes: (layer: number) => boolean }
  /**
   * Names of four norms: before attention, before the MLP, of what attention gives and of what the MLP gives. Default:
   * the two of Llama, which normalises only before.
   */
  readonly norms?: readonly [attention: string, feed: string, afterAttention: string, afterFeed: string]
}

/** The members of the configuration that a plan follows from. */
type Sizes = Pick<
  DecoderConfig,
  | 'vocab_size'
  | 'hidden_size'
  | 'num_hidden_layers'
  | 'num_attention_heads'
  | 'num_key_value_heads'
  | 'head_dim'
  | 'intermediate_size'
  | 'max_position_embeddings'
  | 'rms_norm_eps'
  | 'tie_word_embeddings'
>

/** How fast the pairs of a head of d channels turn: the increments of op `rope`. */
export const turningOf = (config: DecoderConfig, d: number): readonly number[] => ropeIncrements(ropeOf(config), d)

export interface PlanOptions {
  /** How layers see positions, with heads of d channels. */
  readonly sight: (d: number) => AttentionPlan['sight']
  readonly biases?: AttentionPlan['biases']
  /** Whether queries and keys are normalised within each head, before they turn. */
  readonly headNorms?: boolean
  /** Of all norms: 1 + weight in place of the weight. */
  readonly map?: 'one_plus' | undefined
  /** Whether the head is the embedding where the configuration does not say; default false. */
  readonly tied?: boolean
  /** In front of the names of tensors; default "model.". */
  readonly root?: string
  /** The external memory, for families that may have one. */
  readonly memory?: MemoryOption | undefined
}

/** The plan that follows from the configuration's sizes. Throws INVALID for sizes that do not fit together. */
export const planOf = (config: Sizes, options: PlanOptions): DecoderPlan => {
  const { hidden_size: C, num_attention_heads: H, rms_norm_eps: eps } = config
  const { sight, biases = {}, headNorms = false, map, tied = false, root = 'model.' } = options
  const memory = options.memory?.({
    layers: config.num_hidden_layers,
    positions: config.max_position_embeddings,
    vocabulary: config.vocab_size,
  })
  const d = config.head_dim ?? C / H
  if (!Number.isInteger(d))
    refuseConfig(`says hidden_size is ${C} and num_attention_heads is ${H}, expected heads of equal width`)
  if (d % 2 !== 0) refuseConfig(`says a head has ${d} channels, expected an even number: channels turn in pairs`)
  const G = keyHeadsOf(H, config.num_key_value_heads)
  const norm = { eps, ...(map === undefined ? {} : { map }) }
  return {
    outline: {
      ...{
        V: config.vocab_size,
        C,
        P: memory === undefined ? config.max_position_embeddings : null,
        norm: { kind: 'rms', ...norm },
      },
      ...{ layers: config.num_hidden_layers, layersKey: 'num_hidden_layers', names: namesBehind(root) },
      tied: config.tie_word_embeddings ?? tied,
      unused: /rotary_emb\.inv_freq$/,
    },
    attention: {
      ...{ C, H, G, d, scale: 1 / Math.sqrt(d), sight: sight(d), names: ATTENTION_NAMES, biases },
      ...(memory === undefined ? {} : { memory }),
      ...(headNorms ? { norms: { ...HEAD_NORM_NAMES, ...norm } } : {}),
    },
    mlp: { C, F: config.intermediate_size, ...MLP_NAMES },
  }
}

/** The window that all of L layers see; null: they see others, or none. */
const windowOf = (plan: AttentionPlan, L: number): number | null => {
  const windows = new Set(Array.from({ length: L }, (_, layer) => sightOf(plan, layer).window))
  const [window = null] = windows
  return windows.size === 1 ? window : null
}

/** The model that a plan and the tensors of its package make. Throws INVALID where they do not fit. */
export const buildDecoder = (plan: DecoderPlan, parsed: unknown, tensors: readonly TensorEntry[]): FamilyModel => {
  const { outline, experts, norms = ['input_layernorm', 'post_attention_layernorm'] } = plan
  let window: number | null = null
  const model = languageModel(parsed, tensors, outline, (build) => {
    const { g, kinds, norm } = build
    const { all } = kinds
    window = windowOf(plan.attention, kinds.L)
    const [first, second, afterAttention, afterFeed] = norms.map((name) => norm(all, name)) as [
      Norm,
      Norm,
      Norm?,
      Norm?,
    ]
    const attend = attention(build, all, plan.attention)
    const includes = experts?.includes ?? (() => false)
    const dense = kinds.kind('dense', (layer) => !includes(layer))
    const feed = dense && feedForward(g, dense, plan.mlp)
    const mixed = kinds.kind('moe', includes)
    const blend = mixed && experts && mixture(g, mixed, experts.plan)
    return (x) => {
      const add = (name: string, y: Value, after?: Norm): void => void g.add('x', x, after ? after(name, y) : y)
      add('attn.post', attend(first('n', x)), afterAttention)
      const m = second('m', x)
      kinds.run([
        [dense, () => add('ff.post', feed!(m), afterFeed)],
        [mixed, () => add('ff.post', blend!(m), afterFeed)],
      ])
    }
  })
  const places = window === null ? null : Math.min(window, outline.P!)
  return places === null ? model : { ...model, memory: { window: { kind: 'sliding', places }, tables: [] } }
}

/** All layers are alike: they see `window` positions (null: all), and turn as the configuration says. */
export const everyLayer =
  (config: DecoderConfig, window: number | null = null): PlanOptions['sight'] =>
  (d): Sight => ({ window, increments: turningOf(config, d) })

/** The window of a configuration; null: it has none, or one that no context outgrows. */
export const slidingWindow = ({
  sliding_window: window,
  max_position_embeddings: P,
}: Pick<DecoderConfig, 'sliding_window' | 'max_position_embeddings'>): number | null =>
  window != null && window < P ? window : null
