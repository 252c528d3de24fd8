/**
 * Llama, Qwen2, Qwen3, their mixtures and Gemma 3 in GGUF, as llama.cpp's converter writes them. In the architecture
 * `llama` the rows of q and k are permuted within each head, for turning neighbours: row 2i of the file is the family's
 * row i, row 2i + 1 its row i + d/2.
 */
import type { View } from '../../engine/graph.ts'
import type { TensorEntry } from '../../engine/native.ts'
import { ContinuoError } from '../../errors.ts'
import { type Architecture, both, type Numbers, renamed } from './architecture.ts'
import type { Keys } from './metadata.ts'

const layer = 'model.layers.{l}'

const RULES: Readonly<Record<string, string>> = {
  'token_embd.weight': 'model.embed_tokens.weight',
  'output.weight': 'lm_head.weight',
  'output_norm.weight': 'model.norm.weight',
  ...both('blk.{l}.attn_norm', `${layer}.input_layernorm`),
  ...both('blk.{l}.attn_q', `${layer}.self_attn.q_proj`),
  ...both('blk.{l}.attn_k', `${layer}.self_attn.k_proj`),
  ...both('blk.{l}.attn_v', `${layer}.self_attn.v_proj`),
  ...both('blk.{l}.attn_output', `${layer}.self_attn.o_proj`),
  ...both('blk.{l}.attn_q_norm', `${layer}.self_attn.q_norm`),
  ...both('blk.{l}.attn_k_norm', `${layer}.self_attn.k_norm`),
  ...both('blk.{l}.ffn_norm', `${layer}.post_attention_layernorm`),
  ...both('blk.{l}.ffn_gate', `${layer}.mlp.gate_proj`),
  ...both('blk.{l}.ffn_up', `${layer}.mlp.up_proj`),
  ...both('blk.{l}.ffn_down', `${layer}.mlp.down_proj`),
}

/** Tensors of the experts of all of a layer, [experts, outputs, inputs]: `{e}` in the family's name says so. */
const experts = (router: string, gate: string, up: string, down: string): Readonly<Record<string, string>> => ({
  'blk.{l}.ffn_gate_inp.weight': `${layer}.${router}.weight`,
  'blk.{l}.ffn_gate_exps.weight': `${layer}.${gate}.weight`,
  'blk.{l}.ffn_up_exps.weight': `${layer}.${up}.weight`,
  'blk.{l}.ffn_down_exps.weight': `${layer}.${down}.weight`,
})
const QWEN_EXPERTS = experts(
  'mlp.gate',
  'mlp.experts.{e}.gate_proj',
  'mlp.experts.{e}.up_proj',
  'mlp.experts.{e}.down_proj',
)
const MIXTRAL_EXPERTS = experts(
  'block_sparse_moe.gate',
  'block_sparse_moe.experts.{e}.w1',
  'block_sparse_moe.experts.{e}.w3',
  'block_sparse_moe.experts.{e}.w2',
)

const SCALINGS: ReadonlySet<string> = new Set(['none', 'linear'])

/** What the families' configurations have in common. */
const configOf = (keys: Keys, tensors: readonly TensorEntry[], { ropeFactors }: Numbers) => {
  const A = keys.text('general.architecture')
  const key = (name: string): string => `${A}.${name}`
  const layers = keys.whole(key('block_count'))
  const width = keys.whole(key('embedding_length'))
  const heads = keys.whole(key('attention.head_count'))
  const keyHeads = new Set(
    keys.has(key('attention.head_count_kv')) ? keys.wholes(key('attention.head_count_kv'), layers) : [heads],
  )
  const refuse = (what: string): never => {
    throw new ContinuoError('INVALID', `${keys.file} ${what}`)
  }
  if (keyHeads.size !== 1) refuse('has layers with different numbers of key heads, which this family does not have.')
  const channels = keys.wholeOr(key('attention.key_length'), Math.floor(width / Math.max(1, heads)))
  const values = keys.wholeOr(key('attention.value_length'), channels)
  if (values !== channels)
    refuse(`has heads with ${channels} channels of keys and ${values} of values, expected as many.`)
  const turned = keys.wholeOr(key('rope.dimension_count'), channels)
  if (turned !== channels) refuse(`turns ${turned} of ${channels} channels of a head, expected all of them.`)
  const scaling = keys.has(key('rope.scaling.type')) ? keys.text(key('rope.scaling.type')) : 'none'
  if (!SCALINGS.has(scaling)) refuse(`has rope.scaling.type "${scaling}", expected none or linear.`)
  return {
    channels,
    heads,
    keyHeads: [...keyHeads][0]!,
    config: {
      vocab_size: tensors.find(({ name }) => name === 'token_embd.weight')?.shape[0] ?? 0,
      hidden_size: width,
      num_hidden_layers: layers,
      num_attention_heads: heads,
      num_key_value_heads: [...keyHeads][0]!,
      head_dim: channels,
      intermediate_size: keys.wholeOr(key('feed_forward_length'), 1),
      max_position_embeddings: keys.whole(key('context_length')),
      rms_norm_eps: keys.real(key('attention.layer_norm_rms_epsilon')),
      rope_theta: keys.realOr(key('rope.freq_base'), 10_000),
      rope_scaling:
        ropeFactors !== null
          ? { rope_type: 'factors', factors: ropeFactors }
          : scaling === 'linear'
            ? { rope_type: 'linear', factor: keys.real(key('rope.scaling.factor')) }
            : null,
      tie_word_embeddings: !tensors.some(({ name }) => name === 'output.weight'),
    },
  }
}

/** The family's rows of a matrix whose heads of d rows have neighbours where the family has halves. */
const permuted = (heads: number, d: number): View => ({
  repeat: heads,
  step: d,
  parts: [
    [0, d / 2, 2],
    [1, d / 2, 2],
  ],
})

export const llama: Architecture = (keys, tensors, numbers) => {
  const { config, channels, heads, keyHeads } = configOf(keys, tensors, numbers)
  const mixture = keys.wholeOr('llama.expert_count', 0) > 0
  const viewOf = (name: string): View | undefined => {
    if (channels % 2 !== 0) return undefined // Refused by the family.
    if (/\.self_attn\.q_proj\.(weight|bias)$/.test(name)) return permuted(heads, channels)
    return /\.self_attn\.k_proj\.(weight|bias)$/.test(name) ? permuted(keyHeads, channels) : undefined
  }
  return {
    config: {
      ...config,
      ...(mixture
        ? {
            model_type: 'mixtral',
            num_local_experts: keys.whole('llama.expert_count'),
            num_experts_per_tok: keys.whole('llama.expert_used_count'),
          }
        : {
            model_type: 'llama',
            attention_bias: tensors.some(({ name }) => name === 'blk.0.attn_q.bias'),
            mlp_bias: tensors.some(({ name }) => name === 'blk.0.ffn_gate.bias'),
          }),
    },
    tensors: renamed(tensors, mixture ? { ...RULES, ...MIXTRAL_EXPERTS } : RULES).map((tensor) => {
      const view = viewOf(tensor.name)
      return view === undefined ? tensor : { ...tensor, stored: { ...tensor.stored!, view } }
    }),
  }
}

const plain =
  (model_type: string): Architecture =>
  (keys, tensors, numbers) => ({
    config: { ...configOf(keys, tensors, numbers).config, model_type },
    tensors: renamed(tensors, RULES),
  })

export const qwen2 = plain('qwen2')
export const qwen3 = plain('qwen3')

export const qwen3moe: Architecture = (keys, tensors, numbers) => ({
  config: {
    ...configOf(keys, tensors, numbers).config,
    model_type: 'qwen3_moe',
    num_experts: keys.whole('qwen3moe.expert_count'),
    num_experts_per_tok: keys.whole('qwen3moe.expert_used_count'),
    moe_intermediate_size: keys.whole('qwen3moe.expert_feed_forward_length'),
    // llama.cpp divides the chosen weights by their sum, whatever the model's own configuration says.
    norm_topk_prob: true,
  },
  tensors: renamed(tensors, { ...RULES, ...QWEN_EXPERTS }),
})

/**
 * Norms are stored as 1 + weight. Every sixth layer sees all positions; the scaling of positions is for these alone.
 */
export const gemma3: Architecture = (keys, tensors, numbers) => {
  const { config, channels } = configOf(keys, tensors, numbers)
  return {
    config: {
      ...config,
      model_type: 'gemma3_text',
      rope_theta: keys.realOr('gemma3.rope.freq_base', 1_000_000),
      rope_local_base_freq: keys.realOr('gemma3.rope.freq_base_swa', 10_000),
      sliding_window: keys.whole('gemma3.attention.sliding_window'),
      query_pre_attn_scalar: channels,
      final_logit_softcapping: keys.realOr('gemma3.final_logit_softcapping', null),
      rms_norm_offset: 0,
    },
    tensors: renamed(tensors, {
      ...RULES,
      'blk.{l}.post_attention_norm.weight': `${layer}.post_attention_layernorm.weight`,
      'blk.{l}.ffn_norm.weight': `${layer}.pre_feedforward_layernorm.weight`,
      'blk.{l}.post_ffw_norm.weight': `${layer}.post_feedforward_layernorm.weight`,
    }),
  }
}
