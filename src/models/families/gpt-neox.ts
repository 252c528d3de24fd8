/**
 * GPT-NeoX (Black et al., "GPT-NeoX-20B", 2022), which Pythia is: attention and MLP side by side on one residual
 * stream, and only the first channels of a head turn. The file has the rows of q, k and v of each head side by side in
 * one matrix. Sizes: C channels, H heads of d channels, F channels inside the MLP.
 */
import { z } from 'zod'
import { readBySchema, refuseConfig, size } from '../config.ts'
import type { Family } from '../family.ts'
import { attention } from '../layers/attention.ts'
import { languageModel, type Outline } from '../layers/language-model.ts'
import type { Place } from '../layers/linear.ts'
import { feedForward } from '../layers/mlp.ts'
import { ropeIncrements, ropeOf, ropeParameters } from '../rope.ts'

const ACTIVATIONS = ['gelu', 'gelu_new', 'gelu_fast', 'gelu_pytorch_tanh'] as const

const gptNeoxConfig = z.looseObject({
  vocab_size: size,
  hidden_size: size,
  num_hidden_layers: size,
  num_attention_heads: size,
  intermediate_size: size,
  max_position_embeddings: size,
  hidden_act: z.enum(ACTIVATIONS, `must be one of ${ACTIVATIONS.join(', ')}`).default('gelu'),
  layer_norm_eps: z.number().positive().default(1e-5),
  rotary_pct: z.number().positive().max(1).nullish(),
  rotary_emb_base: z.number().nullish(),
  rope_theta: z.number().nullish(),
  rope_scaling: ropeParameters.nullish(),
  rope_parameters: ropeParameters.extend({ partial_rotary_factor: z.number().positive().max(1).nullish() }).nullish(),
  use_parallel_residual: z.boolean().default(true),
  attention_bias: z.literal(true, 'must be true: q, k, v and the output have biases').default(true),
  tie_word_embeddings: z.boolean().default(false),
})

const build: Family['build'] = (parsed, tensors) => {
  const config = readBySchema(gptNeoxConfig, parsed)
  const { hidden_size: C, num_attention_heads: H, intermediate_size: F } = config
  const d = C / H
  const share = config.rope_parameters?.partial_rotary_factor ?? config.rotary_pct ?? 0.25
  const turning = Math.trunc(d * share)
  if (!Number.isInteger(d))
    refuseConfig(`says hidden_size is ${C} and num_attention_heads is ${H}, expected heads of equal width`)
  if (turning === 0 || turning % 2 !== 0) {
    refuseConfig(
      `says ${share} of ${d} channels turn, ${turning} of them, expected an even number: channels turn in pairs`,
    )
  }
  const rope = ropeOf({ ...config, rope_theta: config.rope_theta ?? config.rotary_emb_base })
  const increments = ropeIncrements(rope, turning)
  const outline: Outline = {
    ...{ V: config.vocab_size, C, P: config.max_position_embeddings },
    norm: { kind: 'layer', eps: config.layer_norm_eps },
    ...{ layers: config.num_hidden_layers, layersKey: 'num_hidden_layers' },
    names: {
      embedding: 'gpt_neox.embed_in',
      layer: 'gpt_neox.layers.{l}.',
      norm: 'gpt_neox.final_layer_norm',
      head: 'embed_out',
    },
    tied: config.tie_word_embeddings,
    // Buffers of old checkpoints: which positions see each other, what stood for −∞, how fast pairs turn.
    unused: /\.attention\.((masked_)?bias|rotary_emb\.inv_freq)$/,
  }
  /** The rows of each head at place 0, 1 or 2: q, k or v. */
  const fused = (as: string, place: 0 | 1 | 2): Place => ({
    ...{ name: 'attention.query_key_value', as: `attention.${as}`, rows: 3 * C },
    view: { repeat: H, step: 3 * d, parts: [[place * d, d]] },
  })
  return languageModel(parsed, tensors, outline, (build) => {
    const { g, kinds, norm } = build
    const { all } = kinds
    const [first, second] = [norm(all, 'input_layernorm'), norm(all, 'post_attention_layernorm')]
    const attend = attention(build, all, {
      ...{ C, H, G: H, d, scale: 1 / Math.sqrt(d), sight: { window: null, increments } },
      names: { q: fused('query', 0), k: fused('key', 1), v: fused('value', 2), o: 'attention.dense' },
      biases: { qkv: true, o: true },
    })
    const feed = feedForward(g, all, {
      ...{ C, F, up: 'mlp.dense_h_to_4h', down: 'mlp.dense_4h_to_h', biased: true },
      activation: config.hidden_act === 'gelu' ? 'gelu_erf' : 'gelu',
    })
    return (x) => {
      const a = attend(first('n', x))
      if (!config.use_parallel_residual) g.add('x', x, a)
      // In parallel the MLP sees what attention saw.
      const y = feed(second('m', x))
      if (config.use_parallel_residual) g.add('x', x, a)
      g.add('x', x, y)
    }
  })
}

export const gptNeox: Family = { windows: false, build }
