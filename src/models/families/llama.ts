/**
 * Llama and the families that differ from it in a detail: Mistral (a window, where its configuration names one), Qwen2
 * (biases on q, k and v). Folders of Hugging Face as they are; SmolLM2 and others say that they are `llama`.
 */
import { z } from 'zod'
import { readBySchema, size } from '../config.ts'
import type { Family } from '../family.ts'
import type { Sight } from '../layers/attention.ts'
import {
  buildDecoder,
  type DecoderConfig,
  type DecoderPlan,
  decoderConfig,
  decoderMembers,
  everyLayer,
  planOf,
  slidingWindow,
  turningOf,
} from './decoder.ts'
import type { MemoryOption } from './memory-json.ts'

const family = <C extends DecoderConfig>(schema: z.ZodType<C>, planFor: (config: C) => DecoderPlan): Family => ({
  windows: false,
  build: (parsed, tensors) => buildDecoder(planFor(readBySchema(schema, parsed)), parsed, tensors),
})
/** A family whose models may have their contexts outside. */
const remembering = <C extends DecoderConfig>(
  schema: z.ZodType<C>,
  planFor: (config: C, memory: MemoryOption | undefined) => DecoderPlan,
): Family => ({
  windows: false,
  remembers: true,
  build: (parsed, tensors, { memory } = {}) =>
    buildDecoder(planFor(readBySchema(schema, parsed), memory), parsed, tensors),
})

/** `attention_bias` gives q, k, v and the output biases. */
const biasesOf = ({ attention_bias: all }: DecoderConfig) => ({ qkv: all ?? false, o: all ?? false })

const llamaPlan = (config: DecoderConfig, options: Partial<Parameters<typeof planOf>[1]> = {}): DecoderPlan => {
  const plan = planOf(config, { sight: everyLayer(config), biases: biasesOf(config), ...options })
  return { ...plan, mlp: { ...plan.mlp, biased: config.mlp_bias ?? false } }
}

/** Llama, and what is Llama under another name. */
export const llama = remembering(decoderConfig, (config, memory) => llamaPlan(config, { memory }))

/** Jiang et al., "Mistral 7B" (2023). */
export const mistral = family(decoderConfig, (config) =>
  planOf(config, { sight: everyLayer(config, slidingWindow(config)) }),
)

/** Yang et al., "Qwen2 Technical Report" (2024). */
export const qwen2 = remembering(decoderConfig, (config, memory) =>
  planOf(config, { sight: everyLayer(config), biases: { qkv: true }, memory }),
)

/** Yang et al., "Qwen3 Technical Report" (2025). */
export const qwen3 = remembering(z.looseObject({ ...decoderMembers, head_dim: size }), (config, memory) =>
  planOf(config, { sight: everyLayer(config), biases: biasesOf(config), headNorms: true, memory }),
)

const smollm3Config = z.looseObject({
  ...decoderMembers,
  no_rope_layers: z.array(z.int()).nullish(),
  no_rope_layer_interval: size.nullish(),
})

/** Bakouch et al., "SmolLM3" (2025): Llama in which every fourth layer knows no positions. */
export const smollm3 = family(smollm3Config, (config) => {
  const { no_rope_layers: told, no_rope_layer_interval: interval } = config
  // The published name says the opposite of what it holds: 1 where a layer turns.
  const turns = (layer: number): boolean => (told == null ? (layer + 1) % (interval ?? 4) !== 0 : told[layer] !== 0)
  return llamaPlan(config, {
    sight: (d) => {
      const turning: Sight = { window: null, increments: turningOf(config, d) }
      const still: Sight = { window: null, increments: null }
      return (layer) => (turns(layer) ? turning : still)
    },
    tied: true,
  })
})
