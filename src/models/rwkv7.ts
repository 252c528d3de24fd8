/**
 * RWKV-7 (x070). The forward pass is that of the inference code in github.com/BlinkDL/RWKV-LM (RWKV-v7); letters below are
 * the paper's. Sizes: L layers, C channels, H heads of N channels, F channels inside the channel mix, V tokens.
 *
 * Two sets of tensor names load: the official checkpoints' (`blocks.0.att.key.weight`) and those of flash-linear-attention's
 * Hugging Face models (`model.layers.0.attn.k_proj.weight`). They differ in the low-rank matrices too: official w1 is [C, D],
 * w2 [D, C], used from the right; fla stores Linear weights [out, in].
 */
import { z } from 'zod'
import { buildGraph, type GraphBuilder, type Variable, type WeightSource } from '../engine/graph.ts'
import type { TensorEntry } from '../engine/native.ts'
import { ContinuoError } from '../errors.ts'
import { type Family, type FamilyModel, type TensorSet, tensorSet } from './family.ts'

const size = z.int().positive()

/** Sizes may be left out: the tensors tell. What stands here must agree with them. */
export const rwkv7Config = z.looseObject({
  model_type: z.literal('rwkv7'),
  vocab_size: size.nullish(),
  hidden_size: size.nullish(),
  num_hidden_layers: size.nullish(),
  head_dim: size.nullish(),
  num_heads: size.nullish(),
  intermediate_size: size.nullish(),
  decay_low_rank_dim: size.nullish(),
  a_low_rank_dim: size.nullish(),
  v_low_rank_dim: size.nullish(),
  gate_low_rank_dim: size.nullish(),
  norm_eps: z.number().positive().default(1e-5),
  norm_first: z.literal(true, 'must be true: the embedding is normalised').default(true),
  norm_bias: z.literal(true, 'must be true: norms have a bias').default(true),
  hidden_act: z.literal('sqrelu', 'must be "sqrelu"').default('sqrelu'),
  attn: z.null('must be null: layers of softmax attention are not RWKV-7').optional(),
  tie_word_embeddings: z.boolean().default(false),
})
type Config = z.infer<typeof rwkv7Config>

type LowRank = 'w' | 'a' | 'v' | 'g'

/** Where each weight stands in the file. `att` and `ffn` take the official short name. */
interface Names {
  readonly embedding: string
  readonly head: string
  readonly lastNorm: string
  readonly layer: (l: number) => string
  readonly norm: { readonly ln0: string; readonly ln1: string; readonly ln2: string }
  readonly ffn: string
  readonly att: Readonly<
    Record<'receptance' | 'key' | 'value' | 'output' | 'ln_x' | 'x_' | 'r_k' | 'k_k' | 'k_a', string>
  >
  readonly lowRank: (which: LowRank, part: 0 | 1 | 2) => string
  /** Whether w1 is [C, D] and w2 [D, C] (applied from the right). */
  readonly lowRankFromRight: boolean
  /** Group norm's eps, which the official code fixes and fla scales with the head. */
  readonly groupEps: (headSize: number, normEps: number) => number
}

const official: Names = {
  embedding: 'emb.weight',
  head: 'head.weight',
  lastNorm: 'ln_out',
  layer: (l) => `blocks.${l}`,
  norm: { ln0: 'ln0', ln1: 'ln1', ln2: 'ln2' },
  ffn: 'ffn',
  att: {
    receptance: 'att.receptance.weight',
    key: 'att.key.weight',
    value: 'att.value.weight',
    output: 'att.output.weight',
    ln_x: 'att.ln_x',
    x_: 'att.x_',
    r_k: 'att.r_k',
    k_k: 'att.k_k',
    k_a: 'att.k_a',
  },
  lowRank: (which, part) => `att.${which}${part}`,
  lowRankFromRight: true,
  groupEps: () => 64e-5,
}

const fla: Names = {
  embedding: 'model.embeddings.weight',
  head: 'lm_head.weight',
  lastNorm: 'model.norm',
  layer: (l) => `model.layers.${l}`,
  norm: { ln0: 'pre_norm', ln1: 'attn_norm', ln2: 'ffn_norm' },
  ffn: 'ffn',
  att: {
    receptance: 'attn.r_proj.weight',
    key: 'attn.k_proj.weight',
    value: 'attn.v_proj.weight',
    output: 'attn.o_proj.weight',
    ln_x: 'attn.g_norm',
    x_: 'attn.x_',
    r_k: 'attn.r_k',
    k_k: 'attn.k_k',
    k_a: 'attn.k_a',
  },
  lowRank: (which, part) => `attn.${which}_lora.lora.${part === 1 ? '0.weight' : part === 2 ? '2.weight' : '2.bias'}`,
  lowRankFromRight: false,
  groupEps: (headSize, normEps) => headSize * normEps,
}

interface Sizes {
  readonly L: number
  readonly C: number
  readonly H: number
  readonly N: number
  readonly F: number
  readonly V: number
}

const readSizes = (config: Config, names: Names, set: TensorSet, tensors: readonly TensorEntry[]): Sizes => {
  const agree = (key: string, told: number | null | undefined, found: number, tensor: string): number => {
    if (told != null && told !== found) {
      throw new ContinuoError(
        'INVALID',
        `config.json says ${key} is ${told}, but tensor "${tensor}" says ${found}. They belong to different models.`,
      )
    }
    return found
  }
  const extents = (name: string, what: string): readonly [number, number] => {
    const shape = set.shape(name, what)
    const [rows, columns] = shape
    if (shape.length !== 2 || rows === undefined || columns === undefined || rows < 1 || columns < 1) {
      throw new ContinuoError('INVALID', `Tensor "${name}" has shape [${shape.join(', ')}], expected ${what}.`)
    }
    return [rows, columns]
  }
  const prefix = `${names.layer(0).slice(0, -1)}`
  const layers = tensors.flatMap(({ name }) => {
    const index = name.startsWith(prefix) ? /^\d{1,6}(?=\.)/.exec(name.slice(prefix.length))?.[0] : undefined
    return index === undefined ? [] : [Number(index)]
  })
  const L = agree(
    'num_hidden_layers',
    config.num_hidden_layers,
    1 + layers.reduce((a, b) => Math.max(a, b), 0),
    `${prefix}*`,
  )
  const [V, C] = extents(names.embedding, '[vocabulary, channels]')
  const keyName = `${names.layer(0)}.${names.ffn}.key.weight`
  const [F] = extents(keyName, '[inner channels, channels]')
  const bonusName = `${names.layer(0)}.${names.att.r_k}`
  const [H, N] = extents(bonusName, '[heads, channels of a head]')
  if (H * N !== C) {
    throw new ContinuoError(
      'INVALID',
      `Tensor "${bonusName}" has shape [${H}, ${N}], but the model has ${C} channels, expected heads × channels of a head.`,
    )
  }
  agree('vocab_size', config.vocab_size, V, names.embedding)
  agree('hidden_size', config.hidden_size, C, names.embedding)
  agree('intermediate_size', config.intermediate_size, F, keyName)
  agree('head_dim', config.head_dim, N, bonusName)
  agree('num_heads', config.num_heads, H, bonusName)
  return { L, C, H, N, F, V }
}

/** Low-rank maps: `in` is [D, C] · x, `out` is [C, D] · x. */
interface LowRankWeights {
  readonly in: Variable
  readonly out: Variable
}

/** Declares the weights of layer l under their official names. */
const layerWeights = (
  g: GraphBuilder,
  set: TensorSet,
  names: Names,
  { C, H, N, F }: Sizes,
  config: Config,
  l: number,
) => {
  const file = names.layer(l)
  const own = (name: string): string => `blocks.${l}.${name}`
  const vector = (name: string, tensor: string, shape: readonly number[] = [C]): Variable =>
    g.vector(own(name), C, { tensor: set.take(`${file}.${tensor}`, shape) })
  const matrix = (name: string, tensor: string, outputs: number, inputs: number): Variable =>
    g.matrix(own(name), outputs, inputs, { tensor: set.take(`${file}.${tensor}`, [outputs, inputs]) })
  const norm = (name: string, tensor: string) => ({
    weight: vector(`${name}.weight`, `${tensor}.weight`),
    bias: vector(`${name}.bias`, `${tensor}.bias`),
  })
  const fromRight = (name: string, tensor: string, outputs: number, inputs: number): Variable => {
    const transposed = names.lowRankFromRight
    const shape = transposed ? [inputs, outputs] : [outputs, inputs]
    return g.matrix(own(name), outputs, inputs, { tensor: set.take(`${file}.${tensor}`, shape), transposed })
  }
  const widths: Record<LowRank, readonly [string, number | null | undefined]> = {
    w: ['decay_low_rank_dim', config.decay_low_rank_dim],
    a: ['a_low_rank_dim', config.a_low_rank_dim],
    v: ['v_low_rank_dim', config.v_low_rank_dim],
    g: ['gate_low_rank_dim', config.gate_low_rank_dim],
  }
  const lowRank = (which: LowRank): LowRankWeights => {
    const first = names.lowRank(which, 1)
    const [key, told] = widths[which]
    const shape = set.shape(`${file}.${first}`, 'a low-rank matrix')
    const D = shape[names.lowRankFromRight ? 1 : 0] ?? 0
    if (told != null && told !== D) {
      throw new ContinuoError(
        'INVALID',
        `config.json says ${key} is ${told}, but tensor "${file}.${first}" has shape [${shape.join(', ')}].`,
      )
    }
    return {
      in: fromRight(`att.${which}1`, first, D, C),
      out: fromRight(`att.${which}2`, names.lowRank(which, 2), C, D),
    }
  }
  // Early fla checkpoints keep the six mixes as rows of one tensor.
  const joined = `${file}.${names.att.x_}x`
  const mix = (c: string, row: number): Variable => {
    const source: WeightSource = set.has(joined)
      ? { tensor: set.take(joined, [6, C]), row }
      : { tensor: set.take(`${file}.${names.att.x_}${c}`, [C]) }
    return g.vector(own(`att.x_${c}`), C, source)
  }
  // Layer 0 has no value residual; files may carry its weights all the same.
  if (l === 0) for (const part of [0, 1, 2] as const) set.ignore(`${file}.${names.lowRank('v', part)}`)
  return {
    ln0: l === 0 ? norm('ln0', names.norm.ln0) : undefined,
    ln1: norm('ln1', names.norm.ln1),
    ln2: norm('ln2', names.norm.ln2),
    mix: { r: mix('r', 0), w: mix('w', 1), k: mix('k', 2), v: mix('v', 3), a: mix('a', 4), g: mix('g', 5) },
    receptance: matrix('att.receptance.weight', names.att.receptance, C, C),
    key: matrix('att.key.weight', names.att.key, C, C),
    value: matrix('att.value.weight', names.att.value, C, C),
    output: matrix('att.output.weight', names.att.output, C, C),
    ln_x: norm('att.ln_x', names.att.ln_x),
    w0: vector('att.w0', names.lowRank('w', 0)),
    a0: vector('att.a0', names.lowRank('a', 0)),
    v0: l === 0 ? undefined : vector('att.v0', names.lowRank('v', 0)),
    w: lowRank('w'),
    a: lowRank('a'),
    v: l === 0 ? undefined : lowRank('v'),
    g: lowRank('g'),
    k_k: vector('att.k_k', names.att.k_k),
    k_a: vector('att.k_a', names.att.k_a),
    r_k: vector('att.r_k', names.att.r_k, [H, N]),
    ffn: {
      x_k: vector('ffn.x_k', `${names.ffn}.x_k`),
      key: matrix('ffn.key.weight', `${names.ffn}.key.weight`, F, C),
      value: matrix('ffn.value.weight', `${names.ffn}.value.weight`, C, F),
    },
    // The previous token's inputs to time mix (p) and channel mix (q), and the matrix memory [head, key, value].
    p: g.persistent(own('att.p'), [C]),
    q: g.persistent(own('ffn.q'), [C]),
    S: g.persistent(own('att.S'), [H, N, N]),
  }
}

const build = (parsed: unknown, tensors: readonly TensorEntry[]): FamilyModel => {
  const result = rwkv7Config.safeParse(parsed)
  if (!result.success) {
    const issue = result.error.issues[0]
    throw new ContinuoError(
      'INVALID',
      `config.json is not an RWKV-7 configuration: ${issue?.path.join('.')} ${issue?.message}.`,
    )
  }
  const config = result.data
  const set = tensorSet(tensors)
  const names = set.has(fla.embedding) ? fla : official
  const sizes = readSizes(config, names, set, tensors)
  const { L, C, H, N, V } = sizes
  const eps = config.norm_eps
  const g = buildGraph()

  const token = g.begin('step', { name: 'token', shape: [], dtype: 'i32' })
  const embedding = g.table('emb.weight', V, C, { tensor: set.take(names.embedding, [V, C]) })
  let x = g.embed('x.emb', token, embedding)
  let vFirst: Variable | undefined

  for (let l = 0; l < L; l++) {
    const weights = layerWeights(g, set, names, sizes, config, l)
    const at = (name: string): string => `x.${l}.${name}`
    const lowRank = (
      name: string,
      input: Variable,
      { in: first, out }: LowRankWeights,
      bend?: 'tanh' | 'sigmoid',
    ): Variable => {
      const narrow = g.matmul(at(`${name}.1`), input, first)
      return g.matmul(at(`${name}.2`), bend ? g[bend](at(`${name}.bend`), narrow) : narrow, out)
    }
    if (weights.ln0) x = g.norm('x.ln0', x, weights.ln0.weight, weights.ln0.bias, { eps })

    // Time mix.
    const u = g.norm(at('att.u'), x, weights.ln1.weight, weights.ln1.bias, { eps })
    const p = g.cacheShift(at('att.p'), weights.p, u)
    const mixed = (c: keyof typeof weights.mix): Variable => g.lerp(at(`att.u_${c}`), u, p, weights.mix[c])
    const r = g.matmul(at('att.r'), mixed('r'), weights.receptance)
    const w = g.decay(at('att.w'), g.add(at('att.w.z'), lowRank('att.w', mixed('w'), weights.w, 'tanh'), weights.w0))
    const k = g.matmul(at('att.k'), mixed('k'), weights.key)
    const uv = mixed('v')
    let v = g.matmul(at('att.v'), uv, weights.value)
    if (weights.v && weights.v0 && vFirst) {
      const share = g.sigmoid(at('att.v.share'), g.add(at('att.v.z'), lowRank('att.v', uv, weights.v), weights.v0))
      v = g.lerp(at('att.v.mixed'), v, vFirst, share)
    } else {
      vFirst = v
    }
    const a = g.sigmoid(at('att.a'), g.add(at('att.a.z'), lowRank('att.a', mixed('a'), weights.a), weights.a0))
    const gate = lowRank('att.g', mixed('g'), weights.g, 'sigmoid')
    const kk = g.l2norm(at('att.kk'), g.mul(at('att.kk.raw'), k, weights.k_k), { groups: H, eps: 1e-12 })
    // k ⊙ (1 + (a − 1) ⊙ k_a), as a step from k towards k ⊙ a.
    const k2 = g.lerp(at('att.k2'), k, g.mul(at('att.ka'), k, a), weights.k_a)
    const read = g.cacheWkv7(at('att.y'), weights.S, { r, w, k: k2, v, kk, a }, H)
    const normed = g.norm(at('att.ln_x'), read, weights.ln_x.weight, weights.ln_x.bias, {
      groups: H,
      eps: names.groupEps(N, eps),
    })
    const y = g.bonus(at('att.bonus'), { y: normed, r, k: k2, u: weights.r_k, v }, H)
    x = g.add(at('att'), x, g.matmul(at('att.o'), g.mul(at('att.yg'), y, gate), weights.output))

    // Channel mix.
    const u2 = g.norm(at('ffn.u'), x, weights.ln2.weight, weights.ln2.bias, { eps })
    const q = g.cacheShift(at('ffn.q'), weights.q, u2)
    const m = g.lerp(at('ffn.m'), u2, q, weights.ffn.x_k)
    const e = g.relu2(at('ffn.e'), g.matmul(at('ffn.k'), m, weights.ffn.key))
    x = g.add(at('ffn'), x, g.matmul(at('ffn.v'), e, weights.ffn.value))
  }

  const lastNorm = (part: 'weight' | 'bias'): Variable =>
    g.vector(`ln_out.${part}`, C, { tensor: set.take(`${names.lastNorm}.${part}`, [C]) })
  const hidden = g.norm('hidden', x, lastNorm('weight'), lastNorm('bias'), { eps })
  const previous = g.cacheShift('hidden.previous', g.persistent('hidden.last', [C]), hidden)

  const input = g.begin('predict', { name: 'predict.hidden', shape: [C], dtype: 'f32' })
  const tied = config.tie_word_embeddings && !set.has(names.head)
  const head = g.matrix('head.weight', V, C, { tensor: set.take(tied ? names.embedding : names.head, [V, C]) })
  const logits = g.matmul('logits', input, head)

  set.finish()
  return { graph: g.finish({ hidden, previous, logits }), vocabSize: V }
}

export const rwkv7: Family = { build }
