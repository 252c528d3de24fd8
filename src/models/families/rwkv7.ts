/**
 * RWKV-7 (x070). The forward pass is that of the inference code in github.com/BlinkDL/RWKV-LM (RWKV-v7); letters below
 * are the paper's. Sizes: L layers, C channels, H heads of N channels, F channels inside the channel mix, V tokens.
 *
 * Two sets of tensor names load: the official checkpoints' (`blocks.0.att.key.weight`) and those of
 * flash-linear-attention's Hugging Face models (`model.layers.0.attn.k_proj.weight`). They differ in the low-rank
 * matrices too: official w1 is [C, D], w2 [D, C], used from the right; fla stores Linear weights [out, in].
 */
import { z } from 'zod'
import { buildGraph, type GraphBuilder } from '../../engine/builder.ts'
import type { Index, Matrix, Member, Over, Value } from '../../engine/builder-types.ts'
import type { TensorEntry } from '../../engine/native.ts'
import { ContinuoError } from '../../errors.ts'
import { readBySchema, size } from '../config.ts'
import {
  type Family,
  type FamilyModel,
  type Layers,
  quantizationOf,
  type Range,
  type TensorSet,
  tensorSet,
} from '../family.ts'

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
  readonly layer: (l: number | '{l}') => string
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
  readonly L: Layers
  readonly C: number
  readonly H: number
  readonly N: number
  readonly F: number
  readonly V: number
}

const readSizes = (config: Config, names: Names, set: TensorSet): Sizes => {
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
  const prefix = names.layer('{l}').slice(0, -'{l}'.length)
  const [V, C] = extents(names.embedding, '[vocabulary, channels]')
  const L = set.layers(prefix, 'num_hidden_layers', config.num_hidden_layers)
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
  readonly in: Member<Matrix>
  readonly out: Member<Matrix>
}

/** Declares the weights of all layers under their official names: families over l. */
const layerWeights = (
  g: GraphBuilder,
  set: TensorSet,
  names: Names,
  { L, C, H, N, F }: Sizes,
  config: Config,
  l: Index,
) => {
  const file = names.layer('{l}')
  const all: Over & Range = { over: l, to: L }
  const vector = (name: string, tensor: string, shape: readonly number[] = [C], over: Over & Range = all) =>
    g.vectors(name, C, set.takeAll(`${file}.${tensor}`, over, shape), over)
  const matrix = (name: string, tensor: string, outputs: number, inputs: number) =>
    g.matrices(name, [outputs, inputs], set.takeMatrices(`${file}.${tensor}`, all, [outputs, inputs]), all)
  const norm = (name: string, tensor: string) => ({
    weight: vector(`${name}.weight`, `${tensor}.weight`),
    bias: vector(`${name}.bias`, `${tensor}.bias`),
  })
  const fromRight = (name: string, tensor: string, outputs: number, inputs: number, over: Over & Range) => {
    const path = `${file}.${tensor}`
    const source = names.lowRankFromRight
      ? { ...set.takeAll(path, over, [inputs, outputs]), transposed: true }
      : set.takeMatrices(path, over, [outputs, inputs])
    return g.matrices(name, [outputs, inputs], source, over)
  }
  const widths: Record<LowRank, readonly [string, number | null | undefined]> = {
    w: ['decay_low_rank_dim', config.decay_low_rank_dim],
    a: ['a_low_rank_dim', config.a_low_rank_dim],
    v: ['v_low_rank_dim', config.v_low_rank_dim],
    g: ['gate_low_rank_dim', config.gate_low_rank_dim],
  }
  const lowRank = (which: LowRank, over: Over & Range = all): LowRankWeights => {
    const first = names.lowRank(which, 1)
    const [key, told] = widths[which]
    const path = `${names.layer(over.from ?? 0)}.${first}`
    const shape = set.shape(path, 'a low-rank matrix')
    const D = shape[names.lowRankFromRight ? 1 : 0] ?? 0
    if (told != null && told !== D) {
      throw new ContinuoError(
        'INVALID',
        `config.json says ${key} is ${told}, but tensor "${path}" has shape [${shape.join(', ')}].`,
      )
    }
    return {
      in: fromRight(`att.${which}1`, first, D, C, over),
      out: fromRight(`att.${which}2`, names.lowRank(which, 2), C, D, over),
    }
  }
  // Early fla checkpoints keep the six mixes as rows of one tensor.
  const joined = `${names.att.x_}x`
  const mix = (c: string, row: number) =>
    set.has(`${names.layer(0)}.${joined}`)
      ? g.vectors(`att.x_${c}`, C, { ...set.takeAll(`${file}.${joined}`, all, [6, C]), row }, all)
      : vector(`att.x_${c}`, `${names.att.x_}${c}`)
  // Layer 0 has no value residual; files may carry its weights all the same.
  for (const part of [0, 1, 2] as const) set.ignore(`${names.layer(0)}.${names.lowRank('v', part)}`)
  const residual: Over & Range = { ...all, from: 1 }
  return {
    ln1: norm('ln1', names.norm.ln1),
    ln2: norm('ln2', names.norm.ln2),
    mix: { r: mix('r', 0), w: mix('w', 1), k: mix('k', 2), v: mix('v', 3), a: mix('a', 4), g: mix('g', 5) },
    receptance: matrix('att.receptance', names.att.receptance, C, C),
    key: matrix('att.key', names.att.key, C, C),
    value: matrix('att.value', names.att.value, C, C),
    output: matrix('att.output', names.att.output, C, C),
    ln_x: norm('att.ln_x', names.att.ln_x),
    w0: vector('att.w0', names.lowRank('w', 0)),
    a0: vector('att.a0', names.lowRank('a', 0)),
    w: lowRank('w'),
    a: lowRank('a'),
    v: L > 1 ? { ...lowRank('v', residual), bias: vector('att.v0', names.lowRank('v', 0), [C], residual) } : undefined,
    g: lowRank('g'),
    k_k: vector('att.k_k', names.att.k_k),
    k_a: vector('att.k_a', names.att.k_a),
    r_k: vector('att.r_k', names.att.r_k, [H, N]),
    ffn: {
      x_k: vector('ffn.x_k', `${names.ffn}.x_k`),
      key: matrix('ffn.key', `${names.ffn}.key.weight`, F, C),
      value: matrix('ffn.value', `${names.ffn}.value.weight`, C, F),
    },
    // The previous token's inputs to time mix (p) and channel mix (q), and the matrix memory [head, key, value].
    p: g.table('att.p', [l, C]),
    q: g.table('ffn.q', [l, C]),
    S: g.table('att.S', [l, H, N, N]),
  }
}

const build = (parsed: unknown, tensors: readonly TensorEntry[]): FamilyModel => {
  const config = readBySchema(rwkv7Config, parsed, 'an RWKV-7')
  const set = tensorSet(tensors, quantizationOf(parsed))
  const names = set.has(fla.embedding) ? fla : official
  const sizes = readSizes(config, names, set)
  const { L, C, H, N, V } = sizes
  const eps = config.norm_eps
  const g = buildGraph()
  const l = g.index('l', L)
  const norm = (name: string, tensor: string) => ({
    weight: g.vector(`${name}.weight`, C, set.take(`${tensor}.weight`, [C])),
    bias: g.vector(`${name}.bias`, C, set.take(`${tensor}.bias`, [C])),
  })
  const embedding = g.lookup('emb', [V, C], set.take(names.embedding, [V, C]))
  const ln0 = norm('ln0', `${names.layer(0)}.${names.norm.ln0}`)
  const weights = layerWeights(g, set, names, sizes, config, l)
  const lastNorm = norm('ln_out', names.lastNorm)
  const last = g.table('hidden.last', [C])

  const token = g.dynamic('token', [], 'i32')
  g.block('step', [token], () => {
    const x = g.norm('x', g.embed('x.emb', token, embedding), ln0.weight, ln0.bias, { eps })
    g.loop(l, {}, () => {
      // Time mix.
      const u = g.norm('att.u', x, weights.ln1.weight(l), weights.ln1.bias(l), { eps })
      const p = g.cacheShift('att.before', weights.p(l), u)
      const mixed = (c: keyof typeof weights.mix): Value => g.lerp(`att.u_${c}`, u, p, weights.mix[c](l))
      const [ur, uw, uk, uv, ua, ug] = (['r', 'w', 'k', 'v', 'a', 'g'] as const).map(mixed) as [
        Value,
        Value,
        Value,
        Value,
        Value,
        Value,
      ]
      // Products that do not depend on each other stand side by side: a device may run them as one.
      const { v: residual } = weights
      const beyondFirst = (make: (weights: NonNullable<typeof residual>) => Value): Value | undefined => {
        let made: Value | undefined
        const there = (): void => {
          if (residual) made = make(residual)
        }
        if (residual) g.branch({ index: l, equals: 0 }, () => {}, there)
        return made
      }
      const narrow = (name: string, input: Value, { in: first }: LowRankWeights): Value =>
        g.matmul(`${name}.1`, input, first(l))
      const wide = (name: string, input: Value, { out }: LowRankWeights): Value => g.matmul(`${name}.2`, input, out(l))
      const r = g.matmul('att.r', ur, weights.receptance(l))
      const k = g.matmul('att.k', uk, weights.key(l))
      const read = g.matmul('att.v.read', uv, weights.value(l))
      const w1 = narrow('att.w', uw, weights.w)
      const a1 = narrow('att.a', ua, weights.a)
      const g1 = narrow('att.g', ug, weights.g)
      const v1 = beyondFirst((low) => narrow('att.v', uv, low))
      const wBend = g.tanh('att.w.bend', w1)
      const gBend = g.sigmoid('att.g.bend', g1)
      const wz = wide('att.w', wBend, weights.w)
      const az = wide('att.a', a1, weights.a)
      const gate = wide('att.g', gBend, weights.g)
      const v2 = v1 && beyondFirst((low) => wide('att.v', v1, low))
      const first = (): void => {
        g.slice('v.first', read, 0, C)
        g.slice('att.v', read, 0, C)
      }
      const vFirst: Value = { name: 'v.first', shape: [C], dtype: 'f32' }
      const v: Value = { name: 'att.v', shape: [C], dtype: 'f32' }
      if (!residual || !v2) first()
      else {
        g.branch({ index: l, equals: 0 }, first, () => {
          const z = g.add('att.v.z', v2, residual.bias(l))
          g.lerp('att.v', read, vFirst, g.sigmoid('att.v.share', z))
        })
      }
      const w = g.decay('att.w', g.add('att.w.z', wz, weights.w0(l)))
      const a = g.sigmoid('att.a', g.add('att.a.z', az, weights.a0(l)))
      const kk = g.l2norm('att.kk', g.mul('att.kk.raw', k, weights.k_k(l)), { groups: H, eps: 1e-12 })
      // k ⊙ (1 + (a − 1) ⊙ k_a), as a step from k towards k ⊙ a.
      const k2 = g.lerp('att.k2', k, g.mul('att.ka', k, a), weights.k_a(l))
      const y = g.cacheWkv7('att.y', weights.S(l), { r, w, k: k2, v, kk, a }, H)
      const normed = g.norm('att.y.norm', y, weights.ln_x.weight(l), weights.ln_x.bias(l), {
        groups: H,
        eps: names.groupEps(N, eps),
      })
      const bonus = g.bonus('att.y.bonus', { y: normed, r, k: k2, u: weights.r_k(l), v }, H)
      g.add('x', x, g.matmul('att.o', g.mul('att.y.gated', bonus, gate), weights.output(l)))

      // Channel mix.
      const u2 = g.norm('ffn.u', x, weights.ln2.weight(l), weights.ln2.bias(l), { eps })
      const q = g.cacheShift('ffn.before', weights.q(l), u2)
      const m = g.lerp('ffn.m', u2, q, weights.ffn.x_k(l))
      const e = g.relu2('ffn.e', g.matmul('ffn.k', m, weights.ffn.key(l)))
      g.add('x', x, g.matmul('ffn.v', e, weights.ffn.value(l)))
    })
    const hidden = g.norm('hidden', x, lastNorm.weight, lastNorm.bias, { eps })
    return { hidden, previous: g.cacheShift('hidden.previous', last(), hidden) }
  })

  const tied = config.tie_word_embeddings && !set.has(names.head)
  const head = g.matrix('head', [V, C], set.takeMatrix(tied ? names.embedding : names.head, [V, C]))
  const input = g.dynamic('predict.hidden', [C], 'f32')
  g.block('predict', [input], () => ({ logits: g.matmul('logits', input, head) }))

  set.finish()
  return { graph: g.finish(), vocabSize: V }
}

export const rwkv7: Family = { build }
