/**
 * Random small packages of GPT-NeoX and GPT-Neo, and both in double precision: written from the formulas of Hugging
 * Face's modelling code, one token after the other, sharing nothing with the engine.
 */
import { random, type Tensor, type Tensors } from '../../engine/safetensors.ts'
import { attended, dot, geluTanh, plus, readerOf, type Vector } from '../float64.ts'

export interface GptConfig {
  readonly model_type: 'gpt_neox' | 'gpt_neo'
  readonly vocab_size: number
  readonly hidden_size: number
  readonly max_position_embeddings: number
  readonly [more: string]: unknown
}

interface Shape {
  readonly L: number
  readonly H: number
  readonly F: number
  readonly eps: number
}
const shapeOf = (config: GptConfig): Shape => {
  const number = (key: string, otherwise = 0): number => (config[key] as number | undefined) ?? otherwise
  return config.model_type === 'gpt_neox'
    ? {
        L: number('num_hidden_layers'),
        H: number('num_attention_heads'),
        F: number('intermediate_size'),
        eps: number('layer_norm_eps', 1e-5),
      }
    : {
        L: number('num_layers'),
        H: number('num_heads'),
        F: number('intermediate_size', 4 * config.hidden_size),
        eps: number('layer_norm_epsilon', 1e-5),
      }
}

/** Weights large enough for every term to matter, under the names of Hugging Face. */
export const randomGpt = (seed: number, config: GptConfig): Map<string, Tensor> => {
  const next = random(seed)
  const out = new Map<string, Tensor>()
  const { vocab_size: V, hidden_size: C, max_position_embeddings: P } = config
  const { L, F } = shapeOf(config)
  const put = (name: string, shape: readonly number[], low: number, high: number): void => {
    const length = shape.reduce((product, extent) => product * extent, 1)
    out.set(name, { shape, data: Float32Array.from({ length }, () => low + (high - low) * next()) })
  }
  const linear = (name: string, outputs: number, inputs: number, biased = true): void => {
    const bound = 1.5 / Math.sqrt(inputs)
    put(`${name}.weight`, [outputs, inputs], -bound, bound)
    if (biased) put(`${name}.bias`, [outputs], -0.3, 0.3)
  }
  const norm = (name: string): void => {
    put(`${name}.weight`, [C], 0.5, 1.5)
    put(`${name}.bias`, [C], -0.3, 0.3)
  }
  if (config.model_type === 'gpt_neox') {
    put('gpt_neox.embed_in.weight', [V, C], -1, 1)
    for (let l = 0; l < L; l += 1) {
      const at = `gpt_neox.layers.${l}`
      norm(`${at}.input_layernorm`)
      norm(`${at}.post_attention_layernorm`)
      linear(`${at}.attention.query_key_value`, 3 * C, C)
      linear(`${at}.attention.dense`, C, C)
      linear(`${at}.mlp.dense_h_to_4h`, F, C)
      linear(`${at}.mlp.dense_4h_to_h`, C, F)
      // Buffers of old checkpoints.
      put(`${at}.attention.bias`, [1, 1, P, P], 1, 1)
      put(`${at}.attention.masked_bias`, [], -1e4, -1e4)
      put(`${at}.attention.rotary_emb.inv_freq`, [2], 0, 1)
    }
    norm('gpt_neox.final_layer_norm')
    put('embed_out.weight', [V, C], -1, 1)
    return out
  }
  put('transformer.wte.weight', [V, C], -1, 1)
  put('transformer.wpe.weight', [P, C], -1, 1)
  for (let l = 0; l < L; l += 1) {
    const at = `transformer.h.${l}`
    norm(`${at}.ln_1`)
    norm(`${at}.ln_2`)
    for (const each of ['q', 'k', 'v']) linear(`${at}.attn.attention.${each}_proj`, C, C, false)
    linear(`${at}.attn.attention.out_proj`, C, C)
    linear(`${at}.mlp.c_fc`, F, C)
    linear(`${at}.mlp.c_proj`, C, F)
    put(`${at}.attn.attention.bias`, [1, 1, P, P], 1, 1)
    put(`${at}.attn.attention.masked_bias`, [], -1e9, -1e9)
  }
  norm('transformer.ln_f')
  return out
}

/**
 * erf by its series, or for larger arguments by the continued fraction of erfc (Abramowitz and Stegun 7.1.5, 7.1.14).
 */
const erf = (x: number): number => {
  const z = Math.abs(x)
  if (z < 3) {
    let [sum, term] = [z, z]
    for (let n = 1; n < 200; n += 1) {
      term *= (-z * z) / n
      sum += term / (2 * n + 1)
    }
    return Math.sign(x) * (2 / Math.sqrt(Math.PI)) * sum
  }
  let fraction = z
  for (let n = 80; n > 0; n -= 1) fraction = z + n / 2 / fraction
  return Math.sign(x) * (1 - Math.exp(-z * z) / fraction / Math.sqrt(Math.PI))
}
const gelu = (u: number): number => 0.5 * u * (1 + erf(u / Math.SQRT2))

export const gptReference = (config: GptConfig, tensors: Tensors): { readonly feed: (token: number) => number[] } => {
  const { vocab_size: V, hidden_size: C } = config
  const { L, H, eps } = shapeOf(config)
  const d = C / H
  const neox = config.model_type === 'gpt_neox'
  const { of, linear } = readerOf(tensors)
  const norm = (x: Vector, name: string): number[] => {
    const [w, b] = [of(`${name}.weight`), of(`${name}.bias`)]
    const mean = x.reduce((a, c) => a + c, 0) / C
    const variance = x.reduce((a, c) => a + (c - mean) ** 2, 0) / C
    return x.map((value, i) => ((value - mean) / Math.sqrt(variance + eps)) * w[i]! + b[i]!)
  }
  const caches = Array.from({ length: L }, () => ({ k: [] as Vector[][], v: [] as Vector[][] }))
  let past = 0
  const turning = Math.trunc(d * ((config.rotary_pct as number | undefined) ?? 0.25))
  const turned = (head: Vector): number[] =>
    head.map((value, i) => {
      if (i >= turning) return value
      const half = turning / 2
      const angle = past * ((config.rotary_emb_base as number | undefined) ?? 10_000) ** ((-2 * (i % half)) / turning)
      const [sin, cos] = [Math.sin(angle), Math.cos(angle)]
      return i < half ? value * cos - head[i + half]! * sin : value * cos + head[i - half]! * sin
    })
  const types = ((config.attention_types as [string[], number][] | undefined) ?? []).flatMap(([kinds, times]) =>
    Array.from({ length: times }, () => kinds).flat(),
  )

  /** q, k, v [head][channel] of a row. */
  const projected = (n: Vector, at: string): readonly [Vector[], Vector[], Vector[]] => {
    if (neox) {
      const all = linear(`${at}.query_key_value`, n)
      const part = (h: number, which: number): Vector => all.slice((3 * h + which) * d, (3 * h + which + 1) * d)
      const heads = (which: number): Vector[] => Array.from({ length: H }, (_, h) => part(h, which))
      return [heads(0).map(turned), heads(1).map(turned), heads(2)]
    }
    const [q, k, v] = ['q', 'k', 'v'].map((each) => {
      const all = linear(`${at}.${each}_proj`, n)
      return Array.from({ length: H }, (_, h) => all.slice(h * d, (h + 1) * d))
    })
    return [q!, k!, v!]
  }
  const attention = (n: Vector, at: string, l: number): number[] => {
    const [q, own, value] = projected(n, at)
    const { k, v } = caches[l]!
    k.push(own)
    v.push(value)
    const first = types[l] === 'local' ? Math.max(0, k.length - ((config.window_size as number) ?? 256)) : 0
    const out = q.flatMap((query, h) => {
      const of = (cache: readonly Vector[][]): Vector[] => cache.slice(first).map((heads) => heads[h]!)
      return attended(query, of(k), of(v), neox ? 1 / Math.sqrt(d) : 1)
    })
    return linear(neox ? `${at}.dense` : `${at}.out_proj`, out)
  }

  return {
    feed: (token) => {
      const row = (name: string, at: number): number[] => Array.from(of(name).subarray(at * C, (at + 1) * C))
      let x = neox
        ? row('gpt_neox.embed_in.weight', token)
        : plus(row('transformer.wte.weight', token), row('transformer.wpe.weight', past))
      for (let l = 0; l < L; l += 1) {
        const at = neox ? `gpt_neox.layers.${l}` : `transformer.h.${l}`
        const names = neox
          ? {
              n: 'input_layernorm',
              a: 'attention',
              m: 'post_attention_layernorm',
              up: 'mlp.dense_h_to_4h',
              down: 'mlp.dense_4h_to_h',
            }
          : { n: 'ln_1', a: 'attn.attention', m: 'ln_2', up: 'mlp.c_fc', down: 'mlp.c_proj' }
        const attended = attention(norm(x, `${at}.${names.n}`), `${at}.${names.a}`, l)
        const seen = neox && config.use_parallel_residual !== false ? x : plus(x, attended)
        const inner = linear(`${at}.${names.up}`, norm(seen, `${at}.${names.m}`))
        const activated = inner.map(neox && (config.hidden_act ?? 'gelu') === 'gelu' ? gelu : geluTanh)
        x = plus(plus(x, attended), linear(`${at}.${names.down}`, activated))
      }
      past += 1
      const last = norm(x, neox ? 'gpt_neox.final_layer_norm' : 'transformer.ln_f')
      const head = of(neox ? 'embed_out.weight' : 'transformer.wte.weight')
      return Array.from({ length: V }, (_, id) => dot(head, last, id * C))
    },
  }
}
