/**
 * Random small GPT-2 packages, and GPT-2 in double precision: written from the formulas of the paper and of Hugging
 * Face's modelling code, sharing nothing with the engine.
 */
import { random, type Tensor, type Tensors } from '../../engine/safetensors.ts'

export interface Gpt2Sizes {
  readonly L: number
  readonly H: number
  /** Channels of a head. */
  readonly N: number
  /** Channels inside the MLP; null: four times the width. */
  readonly F: number | null
  readonly V: number
  /** Positions. */
  readonly P: number
  readonly tied?: boolean
  readonly eps?: number
}

export const gpt2ConfigOf = ({ L, H, N, F, V, P, tied = true, eps = 1e-5 }: Gpt2Sizes) => ({
  model_type: 'gpt2',
  vocab_size: V,
  n_positions: P,
  n_ctx: P,
  n_embd: H * N,
  n_layer: L,
  n_head: H,
  n_inner: F,
  activation_function: 'gelu_new',
  layer_norm_epsilon: eps,
  tie_word_embeddings: tied,
})

/** Weights large enough for every term to matter, under names without a prefix. */
export const randomGpt2 = (seed: number, { L, H, N, F, V, P, tied = true }: Gpt2Sizes): Map<string, Tensor> => {
  const next = random(seed)
  const C = H * N
  const inner = F ?? 4 * C
  const out = new Map<string, Tensor>()
  const put = (name: string, shape: readonly number[], low: number, high: number): void => {
    const length = shape.reduce((product, extent) => product * extent, 1)
    out.set(name, { shape, data: Float32Array.from({ length }, () => low + (high - low) * next()) })
  }
  const linear = (name: string, inputs: number, outputs: number): void => {
    const bound = 1.5 / Math.sqrt(inputs)
    put(`${name}.weight`, [inputs, outputs], -bound, bound)
    put(`${name}.bias`, [outputs], -0.3, 0.3)
  }
  const norm = (name: string): void => {
    put(`${name}.weight`, [C], 0.5, 1.5)
    put(`${name}.bias`, [C], -0.3, 0.3)
  }
  put('wte.weight', [V, C], -1, 1)
  put('wpe.weight', [P, C], -1, 1)
  for (let l = 0; l < L; l += 1) {
    norm(`h.${l}.ln_1`)
    linear(`h.${l}.attn.c_attn`, C, 3 * C)
    linear(`h.${l}.attn.c_proj`, C, C)
    norm(`h.${l}.ln_2`)
    linear(`h.${l}.mlp.c_fc`, C, inner)
    linear(`h.${l}.mlp.c_proj`, inner, C)
  }
  norm('ln_f')
  if (!tied) put('lm_head.weight', [V, C], -1, 1)
  return out
}

/** The same tensors as Hugging Face's language model names them. */
export const withPrefix = (tensors: Tensors): Map<string, Tensor> =>
  new Map([...tensors].map(([name, tensor]) => [name === 'lm_head.weight' ? name : `transformer.${name}`, tensor]))

/** What old checkpoints hold beside the weights. */
export const withBuffers = (tensors: Tensors, { L, P }: Gpt2Sizes, prefix = ''): Map<string, Tensor> => {
  const out = new Map(tensors)
  for (let l = 0; l < L; l += 1) {
    out.set(`${prefix}h.${l}.attn.bias`, { shape: [1, 1, P, P], data: new Float32Array(P * P).fill(1) })
    out.set(`${prefix}h.${l}.attn.masked_bias`, { shape: [], data: Float32Array.of(-1e4) })
  }
  return out
}

export interface Gpt2Oracle {
  /** Feeds a token; returns the logits that follow it. */
  readonly feed: (token: number) => number[]
  /** Of one layer: per position the keys, or values, of all heads side by side. */
  readonly cache: (layer: number, which: 'k' | 'v') => readonly (readonly number[])[]
}

/** With `window` attention sees the last `P` positions, and position p takes row p mod P of wpe. */
export const gpt2Oracle = (tensors: Tensors, sizes: Gpt2Sizes, window = false): Gpt2Oracle => {
  const { L, H, N, V, P, tied = true, eps = 1e-5 } = sizes
  const C = H * N
  const of = (name: string): Float32Array => {
    const tensor = tensors.get(name)
    if (tensor === undefined) throw new Error(`the oracle lacks ${name}`)
    return tensor.data
  }
  const linear = (x: readonly number[], name: string): number[] => {
    const [w, b] = [of(`${name}.weight`), of(`${name}.bias`)]
    return Array.from(b, (bias, o) => x.reduce((sum, value, i) => sum + value * w[i * b.length + o]!, bias))
  }
  const layerNorm = (x: readonly number[], name: string): number[] => {
    const [w, b] = [of(`${name}.weight`), of(`${name}.bias`)]
    const mean = x.reduce((a, c) => a + c, 0) / C
    const variance = x.reduce((a, c) => a + (c - mean) ** 2, 0) / C
    return x.map((value, i) => ((value - mean) / Math.sqrt(variance + eps)) * w[i]! + b[i]!)
  }
  const geluNew = (u: number): number => 0.5 * u * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (u + 0.044715 * u ** 3)))
  const caches = Array.from({ length: L }, () => ({ k: [] as number[][], v: [] as number[][] }))

  const attention = (q: readonly number[], { k, v }: (typeof caches)[number]): number[] => {
    const first = window ? Math.max(0, k.length - P) : 0
    return Array.from({ length: H }, (_, h) => {
      const at = (row: readonly number[]) => row.slice(h * N, (h + 1) * N)
      const query = at(q)
      const scores = k
        .slice(first)
        .map((key) => at(key).reduce((sum, value, i) => sum + value * query[i]!, 0) / Math.sqrt(N))
      const most = Math.max(...scores)
      const weights = scores.map((score) => Math.exp(score - most))
      const total = weights.reduce((a, b) => a + b, 0)
      const out = new Array<number>(N).fill(0)
      v.slice(first).forEach((value, s) => {
        at(value).forEach((each, i) => {
          out[i]! += (weights[s]! / total) * each
        })
      })
      return out
    }).flat()
  }

  let past = 0
  return {
    cache: (layer, which) => caches[layer]![which],
    feed: (token) => {
      const row = window ? past % P : past
      past += 1
      let x = Array.from({ length: C }, (_, i) => of('wte.weight')[token * C + i]! + of('wpe.weight')[row * C + i]!)
      for (let l = 0; l < L; l += 1) {
        const qkv = linear(layerNorm(x, `h.${l}.ln_1`), `h.${l}.attn.c_attn`)
        caches[l]!.k.push(qkv.slice(C, 2 * C))
        caches[l]!.v.push(qkv.slice(2 * C))
        const a = linear(attention(qkv.slice(0, C), caches[l]!), `h.${l}.attn.c_proj`)
        x = x.map((value, i) => value + a[i]!)
        const u = linear(layerNorm(x, `h.${l}.ln_2`), `h.${l}.mlp.c_fc`)
        const m = linear(u.map(geluNew), `h.${l}.mlp.c_proj`)
        x = x.map((value, i) => value + m[i]!)
      }
      const last = layerNorm(x, 'ln_f')
      const head = of(tied ? 'wte.weight' : 'lm_head.weight')
      return Array.from({ length: V }, (_, id) => last.reduce((sum, value, i) => sum + value * head[id * C + i]!, 0))
    },
  }
}
