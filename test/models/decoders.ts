/**
 * Random small packages of decoders, and decoders in double precision: written from the formulas that their authors and Hugging Face's
 * modelling code publish, one token after the other, sharing nothing with the engine.
 */
import { random, type Tensor, type Tensors } from '../engine/safetensors.ts'

/** config.json as Hugging Face has it, as far as a reference reads it. */
export interface DecoderConfig {
  readonly model_type: string
  readonly vocab_size: number
  readonly hidden_size: number
  readonly num_hidden_layers: number
  readonly num_attention_heads: number
  readonly num_key_value_heads?: number
  readonly head_dim?: number
  readonly intermediate_size: number
  readonly max_position_embeddings: number
  readonly rms_norm_eps: number
  readonly rope_theta?: number
  readonly rope_scaling?: Scaling | null
  readonly rope_parameters?: Scaling & { readonly rope_theta: number }
  readonly attention_bias?: boolean
  readonly mlp_bias?: boolean
  readonly tie_word_embeddings?: boolean
  readonly sliding_window?: number | null
  readonly [more: string]: unknown
}
interface Scaling {
  readonly rope_type?: string
  readonly type?: string
  readonly factor?: number
  readonly low_freq_factor?: number
  readonly high_freq_factor?: number
  readonly original_max_position_embeddings?: number
}

type Vector = readonly number[]

const headWidth = ({ head_dim, hidden_size: D, num_attention_heads: H }: DecoderConfig): number => head_dim ?? D / H
const keyHeads = ({ num_key_value_heads: G, num_attention_heads: H }: DecoderConfig): number => G ?? H
const biasesOf = ({ model_type: type, attention_bias: all = false, mlp_bias: mlp = false }: DecoderConfig) => ({
  qkv: type === 'qwen2' || all,
  o: all,
  mlp,
})

/** Weights large enough for every term to matter, under the names of Hugging Face. */
export const randomDecoder = (seed: number, config: DecoderConfig): Map<string, Tensor> => {
  const next = random(seed)
  const out = new Map<string, Tensor>()
  const put = (name: string, shape: readonly number[], low: number, high: number): void => {
    const length = shape.reduce((product, extent) => product * extent, 1)
    out.set(name, { shape, data: Float32Array.from({ length }, () => low + (high - low) * next()) })
  }
  const linear = (name: string, outputs: number, inputs: number, biased = false): void => {
    const bound = 1.5 / Math.sqrt(inputs)
    put(`${name}.weight`, [outputs, inputs], -bound, bound)
    if (biased) put(`${name}.bias`, [outputs], -0.5, 0.5)
  }
  const { vocab_size: V, hidden_size: D, num_attention_heads: H, intermediate_size: I } = config
  const [d, G, biases] = [headWidth(config), keyHeads(config), biasesOf(config)]
  const norm = (name: string, width = D): void => put(`${name}.weight`, [width], 0.5, 1.5)
  put('model.embed_tokens.weight', [V, D], -1, 1)
  for (let l = 0; l < config.num_hidden_layers; l += 1) {
    const at = `model.layers.${l}`
    norm(`${at}.input_layernorm`)
    linear(`${at}.self_attn.q_proj`, H * d, D, biases.qkv)
    linear(`${at}.self_attn.k_proj`, G * d, D, biases.qkv)
    linear(`${at}.self_attn.v_proj`, G * d, D, biases.qkv)
    linear(`${at}.self_attn.o_proj`, D, H * d, biases.o)
    norm(`${at}.post_attention_layernorm`)
    linear(`${at}.mlp.gate_proj`, I, D, biases.mlp)
    linear(`${at}.mlp.up_proj`, I, D, biases.mlp)
    linear(`${at}.mlp.down_proj`, D, I, biases.mlp)
  }
  norm('model.norm')
  if (!config.tie_word_embeddings) put('lm_head.weight', [V, D], -1, 1)
  return out
}

/** The angle of pair i of a head at position p. */
const anglesOf = (config: DecoderConfig, d: number) => {
  const told = config.rope_parameters ?? config.rope_scaling ?? {}
  const base = config.rope_parameters?.rope_theta ?? config.rope_theta ?? 10_000
  const type = told.rope_type ?? told.type ?? 'default'
  const speed = (i: number): number => {
    const f = base ** ((-2 * i) / d)
    if (type === 'default') return f
    const slow = f / told.factor!
    if (type === 'linear') return slow
    const [low, high] = [told.low_freq_factor!, told.high_freq_factor!]
    const turns = (told.original_max_position_embeddings! * f) / (2 * Math.PI)
    if (turns < low) return slow
    if (turns > high) return f
    const share = (turns - low) / (high - low)
    return (1 - share) * slow + share * f
  }
  const speeds = Array.from({ length: d / 2 }, (_, i) => speed(i))
  return (i: number, p: number): number => speeds[i]! * p
}

const silu = (x: number): number => x / (1 + Math.exp(-x))
const plus = (a: Vector, b: Vector): number[] => a.map((value, i) => value + b[i]!)
const dot = (a: ArrayLike<number>, b: Vector, at = 0): number =>
  b.reduce((sum, value, i) => sum + value * a[at + i]!, 0)

export interface DecoderReference {
  /** Feeds a token; returns the logits that follow it. */
  readonly feed: (token: number) => number[]
}

export const decoderReference = (config: DecoderConfig, tensors: Tensors): DecoderReference => {
  const { vocab_size: V, hidden_size: D, num_attention_heads: H, num_hidden_layers: L, rms_norm_eps: eps } = config
  const [d, G] = [headWidth(config), keyHeads(config)]
  const angle = anglesOf(config, d)
  const of = (name: string): Float32Array => {
    const tensor = tensors.get(name)
    if (tensor === undefined) throw new Error(`the reference lacks ${name}`)
    return tensor.data
  }
  const linear = (x: Vector, name: string): number[] => {
    const [w, b] = [of(`${name}.weight`), tensors.get(`${name}.bias`)?.data]
    return Array.from({ length: w.length / x.length }, (_, o) => dot(w, x, o * x.length) + (b?.[o] ?? 0))
  }
  const norm = (x: Vector, name: string): number[] => {
    const w = of(`${name}.weight`)
    const scale = 1 / Math.sqrt(dot(x as number[], x) / x.length + eps)
    return x.map((value, i) => value * scale * w[i]!)
  }
  const headsOf = (x: Vector, count: number): number[][] =>
    Array.from({ length: count }, (_, h) => x.slice(h * d, (h + 1) * d))
  const turned = (head: Vector, p: number): number[] =>
    head.map((value, i) => {
      const pair = i % (d / 2)
      const [sin, cos] = [Math.sin(angle(pair, p)), Math.cos(angle(pair, p))]
      return i < d / 2 ? value * cos - head[i + d / 2]! * sin : value * cos + head[pair]! * sin
    })
  const caches = Array.from({ length: L }, () => ({ k: [] as number[][][], v: [] as number[][][] }))
  let past = 0

  const attention = (at: string, l: number, n: Vector): number[] => {
    const q = headsOf(linear(n, `${at}.q_proj`), H).map((head) => turned(head, past))
    const { k, v } = caches[l]!
    k.push(headsOf(linear(n, `${at}.k_proj`), G).map((head) => turned(head, past)))
    v.push(headsOf(linear(n, `${at}.v_proj`), G))
    const first = config.sliding_window == null ? 0 : Math.max(0, k.length - config.sliding_window)
    const out = q.flatMap((query, h) => {
      const g = Math.floor(h / (H / G))
      const scores = k.slice(first).map((heads) => dot(query, heads[g]!) / Math.sqrt(d))
      const most = Math.max(...scores)
      const weights = scores.map((score) => Math.exp(score - most))
      const total = weights.reduce((a, b) => a + b, 0)
      return Array.from({ length: d }, (_, i) =>
        v.slice(first).reduce((sum, heads, p) => sum + (weights[p]! / total) * heads[g]![i]!, 0),
      )
    })
    return linear(out, `${at}.o_proj`)
  }

  return {
    feed: (token) => {
      let x: number[] = Array.from(of('model.embed_tokens.weight').subarray(token * D, (token + 1) * D))
      for (let l = 0; l < L; l += 1) {
        const at = `model.layers.${l}`
        x = plus(x, attention(`${at}.self_attn`, l, norm(x, `${at}.input_layernorm`)))
        const n = norm(x, `${at}.post_attention_layernorm`)
        const up = linear(n, `${at}.mlp.up_proj`)
        const gated = linear(n, `${at}.mlp.gate_proj`).map((value, i) => silu(value) * up[i]!)
        x = plus(x, linear(gated, `${at}.mlp.down_proj`))
      }
      past += 1
      const last = norm(x, 'model.norm')
      const head = of(
        tensors.has('lm_head.weight') && !config.tie_word_embeddings ? 'lm_head.weight' : 'model.embed_tokens.weight',
      )
      return Array.from({ length: V }, (_, id) => dot(head, last, id * D))
    },
  }
}
