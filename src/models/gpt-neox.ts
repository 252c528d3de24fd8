/**
 * GPT-NeoX (Black et al., "GPT-NeoX-20B", 2022), which Pythia is: attention and MLP side by side on one residual stream, and only the first
 * channels of a head turn. Sizes: L layers, C channels, H heads of d channels, F channels inside the MLP, P positions, V tokens.
 *
 * A context is as a decoder's (decoder.ts). The file has q, k and v of each head side by side in one matrix.
 */
import { z } from 'zod'
import { buildGraph } from '../engine/builder.ts'
import { autoDim, plus, type Value } from '../engine/builder-types.ts'
import type { View } from '../engine/graph.ts'
import { ContinuoError } from '../errors.ts'
import { type Family, quantizationOf, tensorSet } from './family.ts'
import { layerConstants } from './layers.ts'
import { readDecoderConfig } from './llama.ts'
import { ropeIncrements, ropeOf, ropeParameters } from './rope.ts'

const size = z.int().positive()
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
  const config = readDecoderConfig(gptNeoxConfig, parsed)
  const { hidden_size: C, num_attention_heads: H, intermediate_size: F, vocab_size: V, layer_norm_eps: eps } = config
  const d = C / H
  const share = config.rope_parameters?.partial_rotary_factor ?? config.rotary_pct ?? 0.25
  const turning = Math.trunc(d * share)
  const refuse = (what: string): never => {
    throw new ContinuoError('INVALID', `config.json says ${what}.`)
  }
  if (!Number.isInteger(d)) refuse(`hidden_size is ${C} and num_attention_heads is ${H}, expected heads of equal width`)
  if (turning === 0 || turning % 2 !== 0) {
    refuse(`${share} of ${d} channels turn, ${turning} of them, expected an even number: channels turn in pairs`)
  }
  const rope = ropeOf({ ...config, rope_theta: config.rope_theta ?? config.rotary_emb_base })
  const increments = ropeIncrements(rope, turning)
  const set = tensorSet(tensors, quantizationOf(parsed))
  const L = set.layers('gpt_neox.layers.', 'num_hidden_layers', config.num_hidden_layers)
  // Buffers of old checkpoints: which positions see each other, what stood for −∞, how fast pairs turn.
  for (const { name } of tensors) if (/\.attention\.((masked_)?bias|rotary_emb\.inv_freq)$/.test(name)) set.ignore(name)

  const g = buildGraph()
  const l = g.index('l', L)
  const constants = layerConstants(g, set, 'gpt_neox.layers.{l}.', l, L)
  const norm = (name: string) => ({
    weight: constants.vector(`${name}.weight`, [C]),
    bias: constants.vector(`${name}.bias`, [C]),
  })
  const linear = (name: string, outputs: number, inputs: number) => ({
    weight: constants.matrix(name, [outputs, inputs]),
    bias: constants.vector(`${name}.bias`, [outputs]),
  })
  /** What stands at place 0, 1 or 2 beside the others for each head: q, k or v. */
  const fused = (place: 0 | 1 | 2) => {
    const view: View = { repeat: H, step: 3 * d, parts: [[place * d, d]] }
    const [name, as] = ['attention.query_key_value', `attention.${['query', 'key', 'value'][place]}`]
    return {
      weight: constants.part(name, as, [3 * C, C], C, view),
      bias: constants.vector(`${name}.bias`, [3 * C], { as: `${as}.bias`, width: C, view }),
    }
  }
  const plain = (name: string) => g.vector(name, C, set.take(`gpt_neox.${name}`, [C]))
  const embedding = g.lookup('embed_in', [V, C], set.take('gpt_neox.embed_in.weight', [V, C]))
  const [inputNorm, feedNorm] = [norm('input_layernorm'), norm('post_attention_layernorm')]
  const [wq, wk, wv] = [fused(0), fused(1), fused(2)]
  const out = linear('attention.dense', C, C)
  const [up, down] = [linear('mlp.dense_h_to_4h', F, C), linear('mlp.dense_4h_to_h', C, F)]
  const last = { weight: plain('final_layer_norm.weight'), bias: plain('final_layer_norm.bias') }
  const tied = config.tie_word_embeddings || !set.has('embed_out.weight')
  if (tied) set.ignore('embed_out.weight')
  const head = g.matrix(
    'embed_out',
    [V, C],
    set.takeMatrix(tied ? 'gpt_neox.embed_in.weight' : 'embed_out.weight', [V, C]),
  )
  const pastLen = g.counter('pastLen', { max: config.max_position_embeddings })
  const K = g.table('keyCache', [l, autoDim(pastLen), C])
  const values = g.table('valueCache', [l, autoDim(pastLen), C])
  const kept = g.table('hidden.last', [C])
  const activated = (name: string, value: Value): Value =>
    config.hidden_act === 'gelu' ? g.geluErf(name, value) : g.gelu(name, value)

  const token = g.dynamic('token', [], 'i32')
  g.block('step', [token], () => {
    g.cacheIncrement(pastLen)
    const x = g.embed('x', token, embedding)
    g.loop(l, {}, () => {
      const n = g.norm('attn.n', x, inputNorm.weight(l), inputNorm.bias(l), { eps })
      const products = [g.matmul('q', n, wq.weight(l)), g.matmul('k', n, wk.weight(l)), g.matmul('v', n, wv.weight(l))]
      const [q, k, v] = [wq, wk, wv].map(({ bias }, i) => g.add(`${'qkv'[i]}.b`, products[i]!, bias(l)))
      const turned = (name: string, value: Value): Value => g.rope(name, value, pastLen, { heads: H, increments })
      g.cacheWrite(K(l, plus(pastLen, -1)), turned('k.turned', k!))
      g.cacheWrite(values(l, plus(pastLen, -1)), v!)
      const y = g.attend('attn.y', turned('q.turned', q!), K(l), values(l), { heads: H, scale: 1 / Math.sqrt(d) })
      const a = g.add('attn.o.b', g.matmul('attn.o', y, out.weight(l)), out.bias(l))
      // In parallel the MLP sees what attention saw.
      const seen = config.use_parallel_residual ? x : g.add('x', x, a)
      const m = g.norm('mlp.n', seen, feedNorm.weight(l), feedNorm.bias(l), { eps })
      const e = activated('mlp.e', g.add('mlp.up.b', g.matmul('mlp.up', m, up.weight(l)), up.bias(l)))
      if (config.use_parallel_residual) g.add('x', x, a)
      g.add('x', x, g.add('mlp.down.b', g.matmul('mlp.down', e, down.weight(l)), down.bias(l)))
    })
    const hidden = g.norm('hidden', x, last.weight, last.bias, { eps })
    return { hidden, previous: g.cacheShift('hidden.previous', kept(), hidden) }
  })
  const input = g.dynamic('predict.hidden', [C], 'f32')
  g.block('predict', [input], () => ({ logits: g.matmul('logits', input, head) }))
  set.finish()
  return { graph: g.finish(), vocabSize: V }
}

export const gptNeox: Family = { windows: false, build }
