/**
 * Gemma 3 (Gemma Team, "Gemma 3 Technical Report", 2025), its text model: alone (`gemma3_text`) or as the part
 * `text_config` of a package that also sees pictures (`gemma3`), whose tensors for pictures are passed over. Most
 * layers see a window and turn by one base, every sixth sees all positions and turns by another.
 */
import { z } from 'zod'
import { readBySchema, size } from '../config.ts'
import type { Family } from '../family.ts'
import type { AttentionPlan, Sight } from '../layers/attention.ts'
import { ropeIncrements, ropeOf, ropeParameters } from '../rope.ts'
import { buildDecoder, decoderMembers, planOf } from './decoder.ts'

const activation = z.literal('gelu_pytorch_tanh', 'must be "gelu_pytorch_tanh"').nullish()
const FULL = 'full_attention'
const SLIDING = 'sliding_attention'

/** The text parts of multimodal packages leave out what is as the published code has it by default. */
const gemma3Config = z.looseObject({
  ...decoderMembers,
  vocab_size: size.default(262_208),
  hidden_size: size.default(2304),
  num_hidden_layers: size.default(26),
  num_attention_heads: size.default(8),
  num_key_value_heads: size.default(4),
  head_dim: size.default(256),
  intermediate_size: size.default(9216),
  max_position_embeddings: size.default(131_072),
  rms_norm_eps: z.number().positive().default(1e-6),
  hidden_act: activation,
  hidden_activation: activation,
  query_pre_attn_scalar: z.number().positive().default(256),
  sliding_window: size.default(4096),
  rope_local_base_freq: z.number().nullish(),
  rope_parameters: z.looseObject({ [FULL]: ropeParameters, [SLIDING]: ropeParameters }).nullish(),
  layer_types: z.array(z.enum([FULL, SLIDING], `must be "${FULL}" or "${SLIDING}"`)).nullish(),
  sliding_window_pattern: size.nullish(),
  _sliding_window_pattern: size.nullish(),
  attn_logit_softcapping: z.null('must be null: scores are not capped').optional(),
  final_logit_softcapping: z.number().positive().nullish(),
  /** What norms add to their weights; 0 where a file has 1 + weight. */
  rms_norm_offset: z.union([z.literal(0), z.literal(1)]).default(1),
  mlp_bias: z.literal(false, 'must be false: the MLP has no biases').nullish(),
})
type Gemma3Config = z.infer<typeof gemma3Config>

/** How layers see positions, with heads of d channels. */
const sightOf =
  (config: Gemma3Config) =>
  (d: number): AttentionPlan['sight'] => {
    const { rope_parameters: newer, sliding_window: window } = config
    const full =
      newer == null ? ropeOf({ ...config, rope_parameters: null }, 1e6) : ropeOf({ rope_parameters: newer[FULL] }, 1e6)
    const local =
      newer == null ? ropeOf({ rope_theta: config.rope_local_base_freq }) : ropeOf({ rope_parameters: newer[SLIDING] })
    const whole: Sight = { window: null, increments: ropeIncrements(full, d) }
    const sliding: Sight = {
      window: Math.min(window, config.max_position_embeddings),
      increments: ropeIncrements(local, d),
    }
    const pattern = config.sliding_window_pattern ?? config._sliding_window_pattern ?? 6
    return (layer) => {
      const type = config.layer_types?.[layer] ?? ((layer + 1) % pattern === 0 ? FULL : SLIDING)
      return type === FULL ? whole : sliding
    }
  }

const PREFIXES = ['model.', 'language_model.model.', 'model.language_model.'] as const

const build: Family['build'] = (parsed, tensors) => {
  const { text_config, model_type, tie_word_embeddings } = Object(parsed) as Readonly<Record<string, unknown>>
  const text = text_config == null ? parsed : { ...Object(text_config), model_type }
  const config = readBySchema(gemma3Config, text)
  const names = new Set(tensors.map(({ name }) => name))
  const all = config.attention_bias ?? false
  const plan = planOf(config, {
    sight: sightOf(config),
    biases: { qkv: all, o: all },
    headNorms: true,
    map: config.rms_norm_offset === 1 ? 'one_plus' : undefined,
    tied: (tie_word_embeddings as boolean | undefined) ?? true,
    root: PREFIXES.find((each) => names.has(`${each}embed_tokens.weight`)) ?? 'model.',
  })
  const pictures = /rotary_emb\.inv_freq$|^(model\.)?(vision_tower|multi_modal_projector)\./
  return buildDecoder(
    {
      outline: {
        ...plan.outline,
        embeddingFactor: Math.sqrt(config.hidden_size),
        logitsCap: config.final_logit_softcapping ?? null,
        ...(text_config == null ? {} : { unused: pictures }),
      },
      attention: { ...plan.attention, scale: config.query_pre_attn_scalar ** -0.5 },
      mlp: { ...plan.mlp, activation: 'gelu' },
      norms: ['input_layernorm', 'pre_feedforward_layernorm', 'post_attention_layernorm', 'post_feedforward_layernorm'],
    },
    parsed,
    tensors,
  )
}

export const gemma3: Family = { windows: false, build }
