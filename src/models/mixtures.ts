/**
 * Decoders whose MLP is a mixture of experts: Qwen3-MoE (Qwen3 in everything else) and Mixtral (Mistral in everything else; Jiang et al.,
 * "Mixtral of Experts", 2024).
 */
import { z } from 'zod'
import { ContinuoError } from '../errors.ts'
import { buildDecoder } from './decoder.ts'
import type { ExpertsPlan, LayerKind } from './decoder-plan.ts'
import type { Family } from './family.ts'
import { decoderMembers, planOf, readDecoderConfig, windowOf } from './llama.ts'
import { ropeIncrements, ropeOf } from './rope.ts'

const size = z.int().positive()

const checked = (experts: ExpertsPlan): ExpertsPlan => {
  if (experts.chosen <= experts.count) return experts
  throw new ContinuoError(
    'INVALID',
    `config.json says that a token goes to ${experts.chosen} of ${experts.count} experts, expected at most all of them.`,
  )
}

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

const countOf = ({ num_experts, num_local_experts }: z.infer<typeof qwen3MoeConfig>): number => {
  const count = num_experts ?? num_local_experts
  if (count != null) return count
  throw new ContinuoError('INVALID', 'config.json has no num_experts, expected how many experts a layer has.')
}

export const qwen3Moe: Family = {
  windows: false,
  build: (parsed, tensors) => {
    const config = readDecoderConfig(qwen3MoeConfig, parsed)
    const plan = planOf(config)
    const increments = ropeIncrements(ropeOf(config), plan.headWidth)
    const [sparse, dense]: readonly LayerKind[] = [
      { window: null, increments, sparse: true },
      { window: null, increments },
    ]
    const step = config.decoder_sparse_step ?? 1
    const only = new Set(config.mlp_only_layers)
    const experts = checked({
      count: countOf(config),
      chosen: config.num_experts_per_tok,
      inner: config.moe_intermediate_size,
      normalised: config.norm_topk_prob ?? false,
      router: 'mlp.gate',
      gate: 'mlp.experts.{e}.gate_proj',
      up: 'mlp.experts.{e}.up_proj',
      down: 'mlp.experts.{e}.down_proj',
    })
    const all = config.attention_bias ?? false
    return buildDecoder(
      {
        ...plan,
        kinds: (layers) =>
          Array.from({ length: layers }, (_, l) => ((l + 1) % step !== 0 || only.has(l) ? dense! : sparse!)),
        biases: { qkv: all, o: all },
        headNorms: true,
        experts,
        tied: config.tie_word_embeddings ?? false,
      },
      parsed,
      tensors,
    )
  },
}

const mixtralConfig = z.looseObject({ ...decoderMembers, num_local_experts: size, num_experts_per_tok: size })

export const mixtral: Family = {
  windows: false,
  build: (parsed, tensors) => {
    const config = readDecoderConfig(mixtralConfig, parsed)
    const plan = planOf(config)
    const increments = ropeIncrements(ropeOf(config), plan.headWidth)
    const kind: LayerKind = { window: windowOf(config), increments, sparse: true }
    const experts = checked({
      count: config.num_local_experts,
      chosen: config.num_experts_per_tok,
      inner: config.intermediate_size,
      normalised: true,
      router: 'block_sparse_moe.gate',
      gate: 'block_sparse_moe.experts.{e}.w1',
      up: 'block_sparse_moe.experts.{e}.w3',
      down: 'block_sparse_moe.experts.{e}.w2',
    })
    return buildDecoder(
      {
        ...plan,
        kinds: (layers) => Array<LayerKind>(layers).fill(kind),
        experts,
        tied: config.tie_word_embeddings ?? false,
      },
      parsed,
      tensors,
    )
  },
}
