/**
 * GPT-Neo (Black, Gao, Wang, Leahy, Biderman, "GPT-Neo", 2021), which TinyStories uses: GPT-2 whose layers see all
 * positions (`global`) or a window (`local`), and whose scores are not divided by √d. Sizes: C channels, H heads of d
 * channels, F channels inside the MLP.
 */
import { z } from 'zod'
import { readBySchema, refuseConfig, size } from '../config.ts'
import type { Family } from '../family.ts'
import { attention, type Sight } from '../layers/attention.ts'
import { languageModel, type Outline } from '../layers/language-model.ts'
import { feedForward } from '../layers/mlp.ts'

const KINDS = ['global', 'local'] as const
type Kind = (typeof KINDS)[number]

const gptNeoConfig = z.looseObject({
  vocab_size: size,
  hidden_size: size,
  num_layers: size,
  num_heads: size,
  intermediate_size: size.nullish(),
  max_position_embeddings: size,
  window_size: size.default(256),
  /** [[kinds, how often they repeat], …] */
  attention_types: z.array(z.tuple([z.array(z.enum(KINDS)).min(1), size])).min(1),
  activation_function: z.literal('gelu_new', 'must be "gelu_new"').default('gelu_new'),
  layer_norm_epsilon: z.number().positive().default(1e-5),
  tie_word_embeddings: z.boolean().default(true),
})

/** The kind of each of L layers. */
const kindsOf = (types: readonly (readonly [readonly Kind[], number])[], L: number): readonly Kind[] => {
  // How often kinds repeat may be any number in the file: at most one layer too many is listed, which is enough to
  // refuse it.
  const kinds = types.flatMap(([kinds, times]) => Array.from({ length: Math.min(times, L + 1) }, () => kinds).flat())
  if (kinds.length === L) return kinds
  return refuseConfig(
    `lists ${kinds.length > L ? 'more' : kinds.length} attention_types, expected ${L}, one for each layer`,
  )
}

const build: Family['build'] = (parsed, tensors) => {
  const config = readBySchema(gptNeoConfig, parsed)
  const { hidden_size: C, num_heads: H, max_position_embeddings: P } = config
  const F = config.intermediate_size ?? 4 * C
  const d = C / H
  if (!Number.isInteger(d))
    refuseConfig(`says hidden_size is ${C} and num_heads is ${H}, expected heads of equal width`)
  const outline: Outline = {
    ...{ V: config.vocab_size, C, P, norm: { kind: 'layer', eps: config.layer_norm_epsilon } },
    ...{ layers: config.num_layers, layersKey: 'num_layers' },
    names: {
      embedding: 'transformer.wte',
      positions: 'transformer.wpe',
      layer: 'transformer.h.{l}.',
      norm: 'transformer.ln_f',
      head: 'lm_head',
    },
    tied: config.tie_word_embeddings,
    // Buffers of old checkpoints: which positions see each other, and what stood for −∞.
    unused: /\.attn\.attention\.(masked_)?bias$/,
  }
  const sights: Readonly<Record<Kind, Sight>> = {
    global: { window: null, increments: null },
    local: { window: Math.min(config.window_size, P), increments: null },
  }
  return languageModel(parsed, tensors, outline, (build) => {
    const { g, kinds, norm } = build
    const { all, L } = kinds
    const types = kindsOf(config.attention_types, L)
    const at = 'attn.attention.'
    const [first, second] = [norm(all, 'ln_1'), norm(all, 'ln_2')]
    const attend = attention(build, all, {
      ...{ C, H, G: H, d, scale: 1, sight: (layer) => sights[types[layer]!], biases: { o: true } },
      names: { q: `${at}q_proj`, k: `${at}k_proj`, v: `${at}v_proj`, o: `${at}out_proj` },
    })
    const feed = feedForward(g, all, { C, F, up: 'mlp.c_fc', down: 'mlp.c_proj', activation: 'gelu', biased: true })
    return (x) => {
      g.add('x', x, attend(first('n', x)))
      g.add('x', x, feed(second('m', x)))
    }
  })
}

export const gptNeo: Family = { windows: false, build }
