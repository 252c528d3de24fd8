/**
 * Llama and the families that differ from it in a detail: Mistral (a window, where its configuration names one), Qwen2 (biases on q, k
 * and v). Folders of Hugging Face as they are; SmolLM2 and others say that they are `llama`.
 */
import { z } from 'zod'
import { ContinuoError } from '../errors.ts'
import { buildDecoder, type DecoderPlan, type LayerKind } from './decoder.ts'
import type { Family } from './family.ts'
import { ropeIncrements, ropeMembers, ropeOf } from './rope.ts'

const size = z.int().positive()
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
const decoderConfig = z.looseObject(decoderMembers)
export type DecoderConfig = z.infer<typeof decoderConfig>

/** The sizes among them. */
export type DecoderSizes = Pick<
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
>

/** Reads config.json by a schema. Throws INVALID, naming the family and the key. */
export const readDecoderConfig = <T>(schema: z.ZodType<T>, parsed: unknown): T => {
  const result = schema.safeParse(parsed)
  if (result.success) return result.data
  const issue = result.error.issues[0]
  const { model_type: family } = Object(parsed) as { model_type?: unknown }
  throw new ContinuoError(
    'INVALID',
    `config.json is not a ${family} configuration: ${issue?.path.join('.')} ${issue?.message}.`,
  )
}

/** The part of a plan that follows from these members alone. */
export const planOf = (config: DecoderSizes): Omit<DecoderPlan, 'kinds' | 'tied'> => {
  const { hidden_size: D, num_attention_heads: H } = config
  const G = config.num_key_value_heads ?? H
  const d = config.head_dim ?? D / H
  const refuse = (what: string): never => {
    throw new ContinuoError('INVALID', `config.json says ${what}.`)
  }
  if (!Number.isInteger(d)) refuse(`hidden_size is ${D} and num_attention_heads is ${H}, expected heads of equal width`)
  if (d % 2 !== 0) refuse(`a head has ${d} channels, expected an even number: channels turn in pairs`)
  if (H % G !== 0) refuse(`num_attention_heads is ${H} and num_key_value_heads is ${G}, expected a multiple of it`)
  return {
    vocab: config.vocab_size,
    width: D,
    layers: config.num_hidden_layers,
    heads: H,
    keyHeads: G,
    headWidth: d,
    inner: config.intermediate_size,
    positions: config.max_position_embeddings,
    eps: config.rms_norm_eps,
  }
}

const qwen3Config = z.looseObject({ ...decoderMembers, head_dim: size })
const smollm3Config = z.looseObject({
  ...decoderMembers,
  no_rope_layers: z.array(z.int()).nullish(),
  no_rope_layer_interval: size.nullish(),
})

const alike = (kind: LayerKind) => (layers: number) => Array<LayerKind>(layers).fill(kind)

/** A window that no context outgrows is none. */
export const windowOf = ({
  sliding_window: window,
  max_position_embeddings: P,
}: Pick<DecoderConfig, 'sliding_window' | 'max_position_embeddings'>): number | null =>
  window != null && window < P ? window : null

const llamaPlan = (parsed: unknown, change: (config: DecoderConfig) => Partial<DecoderPlan>): DecoderPlan => {
  const config = readDecoderConfig(decoderConfig, parsed)
  const plan = planOf(config)
  const increments = ropeIncrements(ropeOf(config), plan.headWidth)
  return {
    ...plan,
    kinds: alike({ window: null, increments }),
    tied: config.tie_word_embeddings ?? false,
    ...change(config),
  }
}

/** Llama, and what is Llama under another name. */
export const llama: Family = {
  windows: false,
  build: (parsed, tensors) => {
    const plan = llamaPlan(parsed, ({ attention_bias, mlp_bias }) => ({
      biases: { qkv: attention_bias ?? false, o: attention_bias ?? false, mlp: mlp_bias ?? false },
    }))
    return buildDecoder(plan, parsed, tensors)
  },
}

/** Jiang et al., "Mistral 7B" (2023). */
export const mistral: Family = {
  windows: false,
  build: (parsed, tensors) => {
    const plan = llamaPlan(parsed, (config) => {
      const increments = ropeIncrements(ropeOf(config), planOf(config).headWidth)
      return { kinds: alike({ window: windowOf(config), increments }) }
    })
    return buildDecoder(plan, parsed, tensors)
  },
}

/** Yang et al., "Qwen2 Technical Report" (2024). */
export const qwen2: Family = {
  windows: false,
  build: (parsed, tensors) =>
    buildDecoder(
      llamaPlan(parsed, () => ({ biases: { qkv: true } })),
      parsed,
      tensors,
    ),
}

/** Yang et al., "Qwen3 Technical Report" (2025). */
export const qwen3: Family = {
  windows: false,
  build: (parsed, tensors) => {
    const { attention_bias: all } = readDecoderConfig(qwen3Config, parsed)
    const plan = llamaPlan(parsed, () => ({ headNorms: true, biases: { qkv: all ?? false, o: all ?? false } }))
    return buildDecoder(plan, parsed, tensors)
  },
}

/** Bakouch et al., "SmolLM3" (2025): Llama in which every fourth layer knows no positions. */
export const smollm3: Family = {
  windows: false,
  build: (parsed, tensors) => {
    const { no_rope_layers: told, no_rope_layer_interval: interval } = readDecoderConfig(smollm3Config, parsed)
    const plan = llamaPlan(parsed, (config) => {
      const { attention_bias, mlp_bias, tie_word_embeddings } = config
      const turning: LayerKind = { window: null, increments: ropeIncrements(ropeOf(config), planOf(config).headWidth) }
      const still: LayerKind = { window: null, increments: null }
      return {
        biases: { qkv: attention_bias ?? false, o: attention_bias ?? false, mlp: mlp_bias ?? false },
        // The published name says the opposite of what it holds: 1 where a layer turns.
        kinds: (layers) =>
          Array.from({ length: layers }, (_, l) => {
            const turns = told == null ? (l + 1) % (interval ?? 4) !== 0 : told[l] !== 0
            return turns ? turning : still
          }),
        tied: tie_word_embeddings ?? true,
      }
    })
    return buildDecoder(plan, parsed, tensors)
  },
}
