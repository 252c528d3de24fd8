/**
 * Hybrid Qwen: Qwen3-Next and Qwen3.5, one architecture in three packings (Yang et al., "Qwen3 Technical Report", 2025,
 * and the published configurations). Most layers are Gated DeltaNet (layers/delta-net.ts), every fourth attends with a
 * gate on its output:
 *
 *   x ← x + mixer(rms(x));  x ← x + feed(rms(x))        norms multiply by 1 + weight, all but the DeltaNet's
 *
 * `qwen3_5` and `qwen3_5_moe` are multimodal packages, whose text model stands in `text_config` and under
 * `model.language_model.`; their vision is passed over, and so are the layers that predict several tokens (`mtp.`).
 * With text all three sections of their positions are equal: plain rotary positions.
 *
 * Sizes: C channels, H query heads and G key heads of d channels; Hk heads of keys of K channels and Hv of values of N;
 * T taps; F channels inside an MLP.
 */
import { z } from 'zod'
import type { GraphBuilder } from '../../engine/builder.ts'
import type { Value } from '../../engine/builder-types.ts'
import { keyHeadsOf, readBySchema, refuseConfig, refuseLayerTypes, size } from '../config.ts'
import type { Family } from '../family.ts'
import { ATTENTION_NAMES, attention, HEAD_NORM_NAMES } from '../layers/attention.ts'
import { deltaNet } from '../layers/delta-net.ts'
import { type ExpertNames, mixture } from '../layers/experts.ts'
import type { LayerKind } from '../layers/kinds.ts'
import { type Build, languageModel, namesBehind, type Outline } from '../layers/language-model.ts'
import { feedForward, MLP_NAMES } from '../layers/mlp.ts'
import { ropeIncrements, ropeMembers, ropeOf } from '../rope.ts'

const share = z.number().positive().max(1).nullish()

const members = z.looseObject({
  vocab_size: size,
  hidden_size: size,
  num_hidden_layers: size,
  num_attention_heads: size,
  num_key_value_heads: size,
  head_dim: size.default(256),
  max_position_embeddings: size,
  rms_norm_eps: z.number().positive().default(1e-6),
  hidden_act: z.literal('silu', 'must be "silu"').default('silu'),
  attention_bias: z.literal(false, 'must be false: biases of attention are not read for this family').default(false),
  attn_output_gate: z.literal(true, 'must be true: attention passes a gate').default(true),
  full_attention_interval: size.default(4),
  layer_types: z.array(z.enum(['linear_attention', 'full_attention'])).nullish(),
  linear_conv_kernel_dim: size.default(4),
  linear_key_head_dim: size.default(128),
  linear_value_head_dim: size.default(128),
  linear_num_key_heads: size.default(16),
  linear_num_value_heads: size.default(32),
  use_sliding_window: z.literal(false, 'must be false: windows are not read for this family').nullish(),
  tie_word_embeddings: z.boolean().default(false),
  /** What norms add to their weights; 0 in GGUF, where it is added already. */
  rms_norm_offset: z.union([z.literal(0), z.literal(1)]).default(1),
  /** Tiled in GGUF's Qwen3.5: head h of values reads head h mod Hk of keys. */
  linear_value_head_order: z.enum(['by_key_head', 'tiled']).default('by_key_head'),
  ...ropeMembers,
  partial_rotary_factor: share,
  rope_parameters: ropeMembers.rope_parameters.unwrap().unwrap().extend({ partial_rotary_factor: share }).nullish(),
})
type Config = z.infer<typeof members>

/** The text model's own configuration, and whether it stands in one of a multimodal package. */
const textConfig = (parsed: unknown): { readonly text: unknown; readonly multimodal: boolean } => {
  const { text_config: text, tie_word_embeddings: tied } = Object(parsed) as Record<string, unknown>
  if (typeof text !== 'object' || text === null) return { text: parsed, multimodal: false }
  return { text: { ...text, ...(tied === undefined ? {} : { tie_word_embeddings: tied }) }, multimodal: true }
}

const refuseSizes = (config: Config): void => {
  const { linear_conv_kernel_dim: T } = config
  const [Hk, Hv] = [config.linear_num_key_heads, config.linear_num_value_heads]
  const [H, G, L] = [config.num_attention_heads, config.num_key_value_heads, config.num_hidden_layers]
  for (const key of ['linear_key_head_dim', 'linear_value_head_dim'] as const) {
    if (config[key] > 256) refuseConfig(`says ${key} is ${config[key]}, expected at most 256`)
  }
  if (Hv % Hk !== 0) {
    refuseConfig(`says linear_num_value_heads is ${Hv} and linear_num_key_heads is ${Hk}, expected a multiple of it`)
  }
  keyHeadsOf(H, G)
  if (T < 2 || T > 64) refuseConfig(`says linear_conv_kernel_dim is ${T}, expected 2 to 64`)
  refuseLayerTypes(config.layer_types, L)
}

/** The channels of a head that turn: an even number. */
const turnedOf = (config: Config): number => {
  const factor = config.rope_parameters?.partial_rotary_factor ?? config.partial_rotary_factor ?? 0.25
  const turned = Math.floor(config.head_dim * factor)
  if (turned < 2 || turned % 2 !== 0) {
    refuseConfig(
      `turns ${turned} of the ${config.head_dim} channels of a head, expected an even number: channels turn in pairs`,
    )
  }
  return turned
}

/** Adds the feed forward of the layer that the loop is at to x, from its normed input. */
type Feed = (x: Value, n: Value) => void
type FeedOf = (build: Build, config: Config) => Feed

const denseMembers = z.looseObject({ intermediate_size: size })
const dense: FeedOf = ({ g, kinds }, config) => {
  const { intermediate_size: F } = readBySchema(denseMembers, config, 'a hybrid Qwen')
  const feed = feedForward(g, kinds.all, { C: config.hidden_size, F, ...MLP_NAMES })
  return (x, n) => void g.add('x', x, feed(n))
}

const sparseMembers = z.looseObject({
  intermediate_size: size.nullish(),
  num_experts: size,
  num_experts_per_tok: size,
  moe_intermediate_size: size,
  shared_expert_intermediate_size: size,
  norm_topk_prob: z.boolean().default(true),
  decoder_sparse_step: size.default(1),
  mlp_only_layers: z.array(z.int()).nullish(),
})

/** The tensors of an expert's matrices, and of the same of all experts. */
const expertNames = (which: string): ExpertNames => ({
  single: `mlp.experts.{e}.${which}_proj.weight`,
  all: `mlp.experts.${which}_proj`,
})

/** The expert that all tokens share: sigmoid(shared_expert_gate x) · shared_expert(x), S channels inside. */
const sharedExpert = (g: GraphBuilder, layers: LayerKind, C: number, S: number) => {
  const at = 'mlp.shared_expert'
  const gate = layers.matrix(`${at}_gate`, [1, C])
  const feed = feedForward(g, layers, {
    ...{ C, F: S, as: 'shared' },
    ...{ gate: `${at}.gate_proj`, up: `${at}.up_proj`, down: `${at}.down_proj` },
  })
  return (n: Value): Value => {
    const share = g.sigmoid('share', g.matmul('share.z', n, gate(layers.index)))
    return g.mul('shared.y', feed(n), g.repeat('share.wide', share, { groups: 1, times: C }))
  }
}

/** A mixture in every layer but those that the configuration leaves dense. */
const sparse: FeedOf = ({ g, kinds }, config) => {
  const own = readBySchema(sparseMembers, config, 'a hybrid Qwen')
  const { hidden_size: C } = config
  const { num_experts: E, num_experts_per_tok: K, decoder_sparse_step: step, intermediate_size: F } = own
  if (K > E) refuseConfig(`says that a token goes to ${K} of ${E} experts, expected at most all of them`)
  const only = new Set(own.mlp_only_layers)
  const mixed = (layer: number): boolean => !only.has(layer) && (layer + 1) % step === 0
  const mixtures = kinds.kind('moe', mixed)
  const blend =
    mixtures &&
    mixture(g, mixtures, {
      ...{ C, E, K, F: own.moe_intermediate_size },
      weights: own.norm_topk_prob ? 'divided' : 'softmax',
      names: {
        router: 'mlp.gate',
        gateUp: 'mlp.experts.gate_up_proj',
        gate: expertNames('gate'),
        up: expertNames('up'),
        down: expertNames('down'),
      },
    })
  const shared = mixtures && sharedExpert(g, mixtures, C, own.shared_expert_intermediate_size)
  const denses = kinds.kind('dense', (layer) => !mixed(layer))
  if (denses && F == null) refuseConfig('has layers without experts and no intermediate_size')
  const feed = denses && feedForward(g, denses, { C, F: F!, ...MLP_NAMES })
  return (x, n) =>
    kinds.run([
      [mixtures, () => void g.add('x', x, g.add('feed.y', blend!(n), shared!(n)))],
      [denses, () => void g.add('x', x, feed!(n))],
    ])
}

const build =
  (feedOf: FeedOf): Family['build'] =>
  (parsed, tensors) => {
    const { text, multimodal } = textConfig(parsed)
    const config = readBySchema(members, text, 'a hybrid Qwen')
    refuseSizes(config)
    const { hidden_size: C, rms_norm_eps: eps, head_dim: d, num_attention_heads: H, num_key_value_heads: G } = config
    const turned = turnedOf(config)
    const { layer_types: types, full_attention_interval: interval } = config
    const attends = (layer: number): boolean =>
      types == null ? (layer + 1) % interval === 0 : types[layer] === 'full_attention'
    const map = config.rms_norm_offset === 1 ? { map: 'one_plus' as const } : {}
    const root = multimodal ? 'model.language_model.' : 'model.'
    const outline: Outline = {
      V: config.vocab_size,
      C,
      P: config.max_position_embeddings,
      norm: { kind: 'rms', eps, ...map },
      layers: config.num_hidden_layers,
      layersKey: 'num_hidden_layers',
      names: namesBehind(root),
      tied: config.tie_word_embeddings,
      unused: multimodal ? /^(model\.)?(mtp|visual)\./ : /^(model\.)?mtp\./,
    }
    return languageModel(parsed, tensors, outline, (build) => {
      const { g, kinds, norm } = build
      const { all } = kinds
      const [first, second] = [norm(all, 'input_layernorm'), norm(all, 'post_attention_layernorm')]
      const linear = kinds.kind('delta', (layer) => !attends(layer))
      const delta =
        linear &&
        deltaNet(g, linear, {
          C,
          Hk: config.linear_num_key_heads,
          Hv: config.linear_num_value_heads,
          K: config.linear_key_head_dim,
          N: config.linear_value_head_dim,
          T: config.linear_conv_kernel_dim,
          eps,
          tiled: config.linear_value_head_order === 'tiled',
        })
      const full = kinds.kind('attn', attends)
      const attend =
        full &&
        attention(build, full, {
          C,
          H,
          G,
          d,
          scale: 1 / Math.sqrt(d),
          sight: { window: null, increments: ropeIncrements(ropeOf(config), turned) },
          names: ATTENTION_NAMES,
          norms: { ...HEAD_NORM_NAMES, eps, ...map },
          gated: true,
        })
      const feed = feedOf(build, config)
      return (x) => {
        const n = first('n', x)
        kinds.run([
          [linear, () => void g.add('x', x, delta!(n))],
          [full, () => void g.add('x', x, attend!(n))],
        ])
        feed(x, second('m', x))
      }
    })
  }

/** Dense layers; `qwen3_5_text` alone, `qwen3_5` within a multimodal package. */
export const qwen35: Family = { windows: false, build: build(dense) }
/** The same with experts: `qwen3_5_moe_text`, `qwen3_5_moe`. */
export const qwen35Moe: Family = { windows: false, build: build(sparse) }
export const qwen3Next: Family = { windows: false, build: build(sparse) }
