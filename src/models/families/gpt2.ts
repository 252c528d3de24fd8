/**
 * GPT-2 (Radford, Wu, Child, Luan, Amodei, Sutskever, "Language Models are Unsupervised Multitask Learners", 2019) as a
 * stateful decoder: folders of Hugging Face as they are. A context is its key and value caches and how many positions
 * are active; what the first tokens do and what every later one does is the same step. Sizes: L layers, C channels, H
 * heads, F channels inside the MLP, P positions, V tokens.
 *
 * Tensor names stand with `transformer.` in front, or without. The four projections of a layer are `Conv1D`: stored
 * [inputs, outputs], y = x · W + b. In packages that Continuo quantised, and in GGUF files, the stored
 * matrices are [outputs, inputs], like every quantised matrix.
 */
import { z } from 'zod'
import { buildGraph } from '../../engine/builder.ts'
import { autoDim, plus, ring } from '../../engine/builder-types.ts'
import { readBySchema, refuseConfig, size } from '../config.ts'
import { type Family, type Layers, quantizationOf, type TensorSet, tensorSet } from '../family.ts'

export const gpt2Config = z.looseObject({
  model_type: z.literal('gpt2'),
  vocab_size: size,
  n_positions: size,
  /** The same number under its older name. */
  n_ctx: size.nullish(),
  n_embd: size,
  n_layer: size,
  n_head: size,
  n_inner: size.nullish(),
  activation_function: z.literal('gelu_new', 'must be "gelu_new"').default('gelu_new'),
  layer_norm_epsilon: z.number().positive().default(1e-5),
  scale_attn_weights: z.literal(true, 'must be true: scores are divided by √(channels of a head)').default(true),
  scale_attn_by_inverse_layer_idx: z
    .literal(false, 'must be false: scores are not divided by the number of their layer')
    .default(false),
  add_cross_attention: z.literal(false, 'must be false: there is no encoder to attend to').default(false),
  tie_word_embeddings: z.boolean().default(true),
})
type Config = z.infer<typeof gpt2Config>

const readConfig = (parsed: unknown): Config => {
  const config = readBySchema(gpt2Config, parsed, 'a GPT-2')
  const { n_ctx, n_positions, n_embd, n_head } = config
  if (n_ctx != null && n_ctx !== n_positions)
    refuseConfig(`says n_ctx is ${n_ctx} and n_positions is ${n_positions}, expected one number`)
  if (n_embd % n_head !== 0)
    refuseConfig(`says n_embd is ${n_embd} and n_head is ${n_head}, expected heads of equal width`)
  return config
}

/** Buffers of old checkpoints: a triangle of ones, and what stood for −∞. */
const ignoreBuffers = (set: TensorSet, prefix: string, layers: Layers): void => {
  for (let l = 0; l < layers; l += 1) {
    for (const buffer of ['bias', 'masked_bias']) set.ignore(`${prefix}h.${l}.attn.${buffer}`)
  }
}

const build: Family['build'] = (parsed, tensors, { overflow } = {}) => {
  const config = readConfig(parsed)
  const { n_embd: C, n_head: H, n_positions: P, vocab_size: V, layer_norm_epsilon: eps } = config
  const F = config.n_inner ?? 4 * C
  const set = tensorSet(tensors, quantizationOf(parsed))
  const prefix = set.has('transformer.wte.weight') ? 'transformer.' : ''
  const layer = `${prefix}h.{l}.`
  const L = set.layers(`${prefix}h.`, 'n_layer', config.n_layer)
  ignoreBuffers(set, prefix, L)

  const g = buildGraph()
  const l = g.index('l', L)
  const all = { over: l, to: L }
  const vectors = (name: string, width: number) =>
    g.vectors(name, width, set.takeAll(`${layer}${name}`, all, [width]), all)
  const norms = (name: string) => ({ weight: vectors(`${name}.weight`, C), bias: vectors(`${name}.bias`, C) })
  const linear = (name: string, outputs: number, inputs: number) => {
    const tensor = `${layer}${name}.weight`
    const first = tensor.replace('{l}', '0')
    const source =
      set.has(`${first}.scales`) || set.outputsFirst(first)
        ? set.takeMatrices(tensor, all, [outputs, inputs])
        : { ...set.takeAll(tensor, all, [inputs, outputs]), transposed: true }
    return {
      weight: g.matrices(`${name}.weight`, [outputs, inputs], source, all),
      bias: vectors(`${name}.bias`, outputs),
    }
  }
  const vector = (name: string) => g.vector(name, C, set.take(`${prefix}${name}`, [C]))
  const wte = g.lookup('wte', [V, C], set.take(`${prefix}wte.weight`, [V, C]))
  const wpe = g.lookup('wpe', [P, C], set.take(`${prefix}wpe.weight`, [P, C]))
  const [ln1, ln2] = [norms('ln_1'), norms('ln_2')]
  const [attn, proj] = [linear('attn.c_attn', 3 * C, C), linear('attn.c_proj', C, C)]
  const [up, down] = [linear('mlp.c_fc', F, C), linear('mlp.c_proj', C, F)]
  const lnF = { weight: vector('ln_f.weight'), bias: vector('ln_f.bias') }
  // A tied head may stand in the file once more.
  if (config.tie_word_embeddings) set.ignore('lm_head.weight')
  const headTensor = config.tie_word_embeddings ? `${prefix}wte.weight` : 'lm_head.weight'
  const head = g.matrix('lm_head', [V, C], set.takeMatrix(headTensor, [V, C]))

  // The state. Keys and values of all heads stand side by side: [layer, position, head · channel of a head].
  const windowed = overflow === 'window'
  const pastLen = g.counter('pastLen', windowed ? {} : { max: P })
  const positions = windowed ? ring(P, pastLen) : autoDim(pastLen)
  const K = g.table('keyCache', [l, positions, C])
  const values = g.table('valueCache', [l, positions, C])
  const last = g.table('hidden.last', [C])

  const token = g.dynamic('token', [], 'i32')
  g.block('step', [token], () => {
    const position = g.cacheCount('position', pastLen, windowed ? { modulo: P } : {})
    g.cacheIncrement(pastLen)
    const x = g.add('x', g.embed('x.token', token, wte), g.embed('x.position', position, wpe))
    g.loop(l, {}, () => {
      const n = g.norm('attn.n', x, ln1.weight(l), ln1.bias(l), { eps })
      const qkv = g.add('attn.qkv', g.matmul('attn.qkv.z', n, attn.weight(l)), attn.bias(l))
      g.cacheWrite(K(l, plus(pastLen, -1)), g.slice('attn.k', qkv, C, 2 * C))
      g.cacheWrite(values(l, plus(pastLen, -1)), g.slice('attn.v', qkv, 2 * C, 3 * C))
      const q = g.slice('attn.q', qkv, 0, C)
      const a = g.attend('attn.a', q, K(l), values(l), { heads: H, scale: 1 / Math.sqrt(C / H) })
      g.add('x', x, g.add('attn.o', g.matmul('attn.o.z', a, proj.weight(l)), proj.bias(l)))
      const m = g.norm('mlp.n', x, ln2.weight(l), ln2.bias(l), { eps })
      const e = g.gelu('mlp.e', g.add('mlp.u', g.matmul('mlp.u.z', m, up.weight(l)), up.bias(l)))
      g.add('x', x, g.add('mlp.d', g.matmul('mlp.d.z', e, down.weight(l)), down.bias(l)))
    })
    const hidden = g.norm('hidden', x, lnF.weight, lnF.bias, { eps })
    return { hidden, previous: g.cacheShift('hidden.previous', last(), hidden) }
  })
  const input = g.dynamic('predict.hidden', [C], 'f32')
  g.block('predict', [input], () => ({ logits: g.matmul('logits', input, head) }))

  set.finish()
  const decoder = { layers: L, heads: H, positions: P, channels: C / H }
  const window = { kind: 'sliding', places: P } as const
  return { graph: g.finish(), vocabSize: V, ...(windowed ? {} : { decoder }), memory: { window, tables: [] } }
}

export const gpt2: Family = { build, windows: true, quantizesTransposed: true }
