/**
 * Random small packages of decoders, and decoders in double precision: written from the formulas that their authors and
 * Hugging Face's modelling code publish, one token after the other, sharing nothing with the engine.
 */
import { random, type Tensor, type Tensors } from '../engine/safetensors.ts'
import { attended, dot, geluTanh, plus, readerOf, silu, type Vector } from './float64.ts'

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
  readonly rope_parameters?: Scaling & { readonly rope_theta?: number }
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

/** A small configuration of Llama; other families change what they have otherwise. */
export const BASE: DecoderConfig = {
  model_type: 'llama',
  vocab_size: 29,
  hidden_size: 24,
  num_hidden_layers: 2,
  num_attention_heads: 4,
  num_key_value_heads: 2,
  intermediate_size: 37,
  max_position_embeddings: 90,
  rms_norm_eps: 1e-5,
  rope_theta: 10_000,
  hidden_act: 'silu',
}

/** Of a Gemma 3 with two layers: one with a window of so many positions, one that sees all. */
export const windowedGemma3 = (window: number) => {
  const { hidden_act: _, rope_theta: __, ...sizes } = BASE
  return {
    ...sizes,
    model_type: 'gemma3_text',
    head_dim: 6,
    max_position_embeddings: 4000,
    sliding_window: window,
    query_pre_attn_scalar: 10,
    hidden_activation: 'gelu_pytorch_tanh',
    layer_types: ['sliding_attention', 'full_attention'],
  }
}

export const headWidth = ({ head_dim, hidden_size: D, num_attention_heads: H }: DecoderConfig): number =>
  head_dim ?? D / H
export const keyHeads = ({ num_key_value_heads: G, num_attention_heads: H }: DecoderConfig): number => G ?? H
const biasesOf = ({ model_type: type, attention_bias: all = false, mlp_bias: mlp = false }: DecoderConfig) => ({
  qkv: type === 'qwen2' || all,
  o: all,
  mlp,
})

const gemma = ({ model_type: type }: DecoderConfig): boolean => type.startsWith('gemma3')
const normed = (config: DecoderConfig): boolean => config.model_type.startsWith('qwen3') || gemma(config)

/** Of a layer: the positions that it sees (null: all) and how its pairs turn (null: they do not). */
export const layerOf = (
  config: DecoderConfig,
  l: number,
): { readonly window: number | null; readonly turn: Turn | null } => {
  const window = config.sliding_window ?? null
  if (gemma(config)) {
    const { layer_types: types, rope_local_base_freq: local = 10_000, rope_parameters: newer } = config
    const pattern = (config.sliding_window_pattern ?? config._sliding_window_pattern ?? 6) as number
    const full = types === undefined ? (l + 1) % pattern === 0 : (types as string[])[l] === 'full_attention'
    const own = newer as unknown as Readonly<Record<string, Scaling & { rope_theta: number }>> | undefined
    if (full) {
      const told = own?.full_attention ?? config.rope_scaling ?? {}
      return { window: null, turn: { base: own?.full_attention?.rope_theta ?? config.rope_theta ?? 1e6, ...told } }
    }
    const told = own?.sliding_attention ?? {}
    return { window, turn: { base: own?.sliding_attention?.rope_theta ?? (local as number), ...told } }
  }
  const told = config.rope_parameters ?? config.rope_scaling ?? {}
  const turn = { base: config.rope_parameters?.rope_theta ?? config.rope_theta ?? 10_000, ...told }
  const slides = config.model_type === 'mistral' || config.model_type === 'mixtral'
  if (config.model_type === 'smollm3') {
    const turns = (config.no_rope_layers as number[] | undefined)?.[l] ?? ((l + 1) % 4 === 0 ? 0 : 1)
    return { window: null, turn: turns === 0 ? null : turn }
  }
  return { window: slides ? window : null, turn }
}

interface Experts {
  readonly count: number
  readonly chosen: number
  readonly inner: number
  readonly normalised: boolean
  readonly router: string
  readonly at: (e: number) => string
  readonly names: readonly [gate: string, up: string, down: string]
}
/** The experts of a layer; null: it has an MLP. */
const expertsOf = (config: DecoderConfig, l: number): Experts | null => {
  const number = (key: string): number => config[key] as number
  if (config.model_type === 'mixtral') {
    return {
      count: number('num_local_experts'),
      chosen: number('num_experts_per_tok'),
      inner: config.intermediate_size,
      normalised: true,
      router: 'block_sparse_moe.gate',
      at: (e) => `block_sparse_moe.experts.${e}`,
      names: ['w1', 'w3', 'w2'],
    }
  }
  const dense = (config.mlp_only_layers as number[] | undefined)?.includes(l) ?? false
  if (config.model_type !== 'qwen3_moe' || dense || (l + 1) % ((config.decoder_sparse_step as number) ?? 1) !== 0)
    return null
  return {
    count: number('num_experts'),
    chosen: number('num_experts_per_tok'),
    inner: number('moe_intermediate_size'),
    normalised: (config.norm_topk_prob as boolean) ?? false,
    router: 'mlp.gate',
    at: (e) => `mlp.experts.${e}`,
    names: ['gate_proj', 'up_proj', 'down_proj'],
  }
}

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
  const norm = (name: string, width = D): void =>
    gemma(config) ? put(`${name}.weight`, [width], -0.5, 0.5) : put(`${name}.weight`, [width], 0.5, 1.5)
  put('model.embed_tokens.weight', [V, D], -1, 1)
  for (let l = 0; l < config.num_hidden_layers; l += 1) {
    const at = `model.layers.${l}`
    norm(`${at}.input_layernorm`)
    linear(`${at}.self_attn.q_proj`, H * d, D, biases.qkv)
    linear(`${at}.self_attn.k_proj`, G * d, D, biases.qkv)
    linear(`${at}.self_attn.v_proj`, G * d, D, biases.qkv)
    linear(`${at}.self_attn.o_proj`, D, H * d, biases.o)
    if (normed(config)) for (const each of ['q', 'k']) norm(`${at}.self_attn.${each}_norm`, d)
    norm(`${at}.post_attention_layernorm`)
    if (gemma(config)) for (const each of ['pre', 'post']) norm(`${at}.${each}_feedforward_layernorm`)
    const experts = expertsOf(config, l)
    if (experts === null) {
      linear(`${at}.mlp.gate_proj`, I, D, biases.mlp)
      linear(`${at}.mlp.up_proj`, I, D, biases.mlp)
      linear(`${at}.mlp.down_proj`, D, I, biases.mlp)
      continue
    }
    const [gate, up, down] = experts.names
    linear(`${at}.${experts.router}`, experts.count, D)
    for (let e = 0; e < experts.count; e += 1) {
      linear(`${at}.${experts.at(e)}.${gate}`, experts.inner, D)
      linear(`${at}.${experts.at(e)}.${up}`, experts.inner, D)
      linear(`${at}.${experts.at(e)}.${down}`, D, experts.inner)
    }
  }
  norm('model.norm')
  if (!config.tie_word_embeddings && !gemma(config)) put('lm_head.weight', [V, D], -1, 1)
  return out
}

export interface Turn extends Scaling {
  readonly base: number
}
/** By how much pair i of d channels turns at each position. */
const speedOf = (told: Turn, i: number, d: number): number => {
  const type = told.rope_type ?? told.type ?? 'default'
  const f = told.base ** ((-2 * i) / d)
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

export interface DecoderReference {
  /** Feeds a token; returns the logits that follow it. */
  readonly feed: (token: number) => number[]
  /** The vector from which the logits of the last token are made. */
  readonly hidden: () => Vector
}

/** A head of d channels as it is at position p. */
export const turnedHead = (head: Vector, turn: Turn, p: number): Vector =>
  head.map((value, i) => {
    const d = head.length
    const pair = i % (d / 2)
    const angle = speedOf(turn, pair, d) * p
    const [sin, cos] = [Math.sin(angle), Math.cos(angle)]
    return i < d / 2 ? value * cos - head[i + d / 2]! * sin : value * cos + head[pair]! * sin
  })

/** In place of attention to all positions: heads of a layer before they turn → what its heads read, [H][d]. */
export type Attention = (layer: number, q: readonly Vector[], k: readonly Vector[], v: readonly Vector[]) => Vector[]

export const decoderReference = (
  config: DecoderConfig,
  tensors: Tensors,
  elsewhere: Attention | null = null,
): DecoderReference => {
  const { vocab_size: V, hidden_size: D, num_attention_heads: H, num_hidden_layers: L, rms_norm_eps: eps } = config
  const [d, G] = [headWidth(config), keyHeads(config)]
  const activated = gemma(config) ? geluTanh : silu
  const { of, linear } = readerOf(tensors)
  const norm = (x: Vector, name: string): number[] => {
    const w = of(`${name}.weight`)
    const scale = 1 / Math.sqrt(dot(x, x) / x.length + eps)
    return x.map((value, i) => value * scale * ((gemma(config) ? 1 : 0) + w[i]!))
  }
  const headsOf = (x: Vector, count: number): number[][] =>
    Array.from({ length: count }, (_, h) => x.slice(h * d, (h + 1) * d))
  const turned = (head: Vector, turn: Turn | null, p: number): Vector =>
    turn === null ? head : turnedHead(head, turn, p)
  const caches = Array.from({ length: L }, () => ({ k: [] as Vector[][], v: [] as Vector[][] }))
  const scale = gemma(config) ? (config.query_pre_attn_scalar as number) ** -0.5 : 1 / Math.sqrt(d)
  let past = 0

  const attention = (at: string, l: number, n: Vector): number[] => {
    const { window, turn } = layerOf(config, l)
    const projected = (which: 'q' | 'k', heads: number): Vector[] =>
      headsOf(linear(`${at}.${which}_proj`, n), heads)
        .map((head) => (normed(config) ? norm(head, `${at}.${which}_norm`) : head))
        .map((head) => (elsewhere === null ? turned(head, turn, past) : head))
    const q = projected('q', H)
    const value = headsOf(linear(`${at}.v_proj`, n), G)
    if (elsewhere !== null) return linear(`${at}.o_proj`, elsewhere(l, q, projected('k', G), value).flat())
    const { k, v } = caches[l]!
    k.push(projected('k', G))
    v.push(value)
    const first = window === null ? 0 : Math.max(0, k.length - window)
    const out = q.flatMap((query, h) => {
      const g = Math.floor(h / (H / G))
      const of = (cache: readonly Vector[][]): Vector[] => cache.slice(first).map((heads) => heads[g]!)
      return attended(query, of(k), of(v), scale)
    })
    return linear(`${at}.o_proj`, out)
  }

  const gated = (n: Vector, at: string, [gate, up, down]: readonly string[]): number[] => {
    const factor = linear(`${at}.${up}`, n)
    const inner = linear(`${at}.${gate}`, n).map((value, i) => activated(value) * factor[i]!)
    return linear(`${at}.${down}`, inner)
  }

  const feed = (at: string, l: number, n: Vector): Vector => {
    const experts = expertsOf(config, l)
    if (experts === null) return gated(n, `${at}.mlp`, ['gate_proj', 'up_proj', 'down_proj'])
    const scores = linear(`${at}.${experts.router}`, n)
    const most = Math.max(...scores)
    const raised = scores.map((score) => Math.exp(score - most))
    const total = raised.reduce((a, b) => a + b, 0)
    const chosen = raised
      .map((each, e) => ({ e, share: each / total }))
      .sort((a, b) => b.share - a.share || a.e - b.e)
      .slice(0, experts.chosen)
    const sum = experts.normalised ? chosen.reduce((acc, { share }) => acc + share, 0) : 1
    return chosen
      .map(({ e, share }) => gated(n, `${at}.${experts.at(e)}`, experts.names).map((value) => (share / sum) * value))
      .reduce(plus)
  }

  let hidden: Vector = []
  return {
    hidden: () => hidden,
    feed: (token) => {
      const factor = gemma(config) ? Math.sqrt(D) : 1
      let x: number[] = Array.from(
        of('model.embed_tokens.weight').subarray(token * D, (token + 1) * D),
        (value) => value * factor,
      )
      for (let l = 0; l < L; l += 1) {
        const at = `model.layers.${l}`
        const attended = attention(`${at}.self_attn`, l, norm(x, `${at}.input_layernorm`))
        if (gemma(config)) {
          x = plus(x, norm(attended, `${at}.post_attention_layernorm`))
          const fed = feed(at, l, norm(x, `${at}.pre_feedforward_layernorm`))
          x = plus(x, norm(fed, `${at}.post_feedforward_layernorm`))
        } else {
          x = plus(x, attended)
          x = plus(x, feed(at, l, norm(x, `${at}.post_attention_layernorm`)))
        }
      }
      past += 1
      const last = norm(x, 'model.norm')
      hidden = last
      const tied = config.tie_word_embeddings || !tensors.has('lm_head.weight')
      const head = of(tied ? 'model.embed_tokens.weight' : 'lm_head.weight')
      const cap = config.final_logit_softcapping as number | null | undefined
      return Array.from({ length: V }, (_, id) => dot(head, last, id * D)).map((logit) =>
        cap == null ? logit : cap * Math.tanh(logit / cap),
      )
    },
  }
}
