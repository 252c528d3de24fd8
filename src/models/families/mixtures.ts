/**
 * Decoders whose MLP is a mixture of experts: Qwen3-MoE (Qwen3 in everything else) and Mixtral (Mistral in everything
 * else; Jiang et al., "Mixtral of Experts", 2024).
 */
import { z } from 'zod'
import { readBySchema, refuseConfig, size } from '../config.ts'
import type { Family } from '../family.ts'
import type { MixturePlan } from '../layers/experts.ts'
import { buildDecoder, decoderMembers, everyLayer, planOf, slidingWindow } from './decoder.ts'

const checked = (experts: MixturePlan): MixturePlan => {
  const { K, E } = experts
  return K <= E ? experts : refuseConfig(`says that a token goes to ${K} of ${E} experts, expected at most all of them`)
}

/** Experts stand in the file one by one. */
const expertNames = (router: string, at: string, [gate, up, down]: readonly [string, string, string]) => ({
  router,
  gate: { single: `${at}.{e}.${gate}.weight` },
  up: { single: `${at}.{e}.${up}.weight` },
  down: { single: `${at}.{e}.${down}.weight` },
})

const qwen3MoeConfig = z.looseObject({
  ...decoderMembers,
  head_dim: size,
  num_experts: size.nullish(),
  /** The same as transformers 5 writes it. */
  num_local_experts: size.nullish(),
  num_experts_per_tok: size,
  moe_intermediate_size: size,
  norm_topk_prob: z.boolean().nullish(),
  decoder_sparse_step: size.nullish(),
  mlp_only_layers: z.array(z.int().nonnegative()).nullish(),
})

const countOf = ({ num_experts, num_local_experts }: z.infer<typeof qwen3MoeConfig>): number =>
  num_experts ?? num_local_experts ?? refuseConfig('has no num_experts, expected how many experts a layer has')

export const qwen3Moe: Family = {
  windows: false,
  build: (parsed, tensors) => {
    const config = readBySchema(qwen3MoeConfig, parsed)
    const all = config.attention_bias ?? false
    const plan = planOf(config, { sight: everyLayer(config), biases: { qkv: all, o: all }, headNorms: true })
    const step = config.decoder_sparse_step ?? 1
    const only = new Set(config.mlp_only_layers)
    const experts = checked({
      ...{ C: config.hidden_size, E: countOf(config), K: config.num_experts_per_tok },
      F: config.moe_intermediate_size,
      weights: config.norm_topk_prob ? 'divided' : 'softmax',
      names: expertNames('mlp.gate', 'mlp.experts', ['gate_proj', 'up_proj', 'down_proj']),
    })
    const includes = (layer: number): boolean => (layer + 1) % step === 0 && !only.has(layer)
    return buildDecoder({ ...plan, experts: { plan: experts, includes } }, parsed, tensors)
  },
}

const mixtralConfig = z.looseObject({ ...decoderMembers, num_local_experts: size, num_experts_per_tok: size })

export const mixtral: Family = {
  windows: false,
  build: (parsed, tensors) => {
    const config = readBySchema(mixtralConfig, parsed)
    const plan = planOf(config, { sight: everyLayer(config, slidingWindow(config)) })
    const experts = checked({
      ...{ C: config.hidden_size, E: config.num_local_experts, K: config.num_experts_per_tok },
      F: config.intermediate_size,
      weights: 'divided',
      names: expertNames('block_sparse_moe.gate', 'block_sparse_moe.experts', ['w1', 'w3', 'w2']),
    })
    return buildDecoder({ ...plan, experts: { plan: experts, includes: () => true } }, parsed, tensors)
  },
}
