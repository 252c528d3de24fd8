/**
 * Titans, one token at a time in double precision and plain arrays: the equations of docs/titans.md in their order, and
 * nothing shared with src/ or native/. It keeps keys and the convolutions' inputs in lists by position, matrices as
 * [value][key], and angles by Math.sin, where the engine has rings, tables [key][value], and polynomials over integer
 * phases.
 */
import type { Tensors } from '../../engine/packages.ts'

export type Composition = 'mag' | 'mal' | 'mac'
export type Rule = 'titans' | 'delta' | 'hebbian'
export type Retention = 'l2' | 'kl' | 'sphere' | 'elastic' | 'none'
type PerLevel = number | readonly number[]

/** config.json as a package has it. */
export interface TitansPackageConfig {
  readonly model_type: 'titans'
  readonly vocab_size: number
  readonly hidden_size: number
  readonly num_hidden_layers: number
  readonly num_attention_heads: number
  readonly num_key_value_heads: number
  readonly head_dim: number
  readonly sliding_window: number
  readonly num_persistent_tokens: number
  readonly rope_theta: number
  readonly rope_increments: readonly number[]
  readonly intermediate_size: number
  readonly rms_norm_eps: number
  readonly tie_word_embeddings: boolean
  readonly composition: Composition | readonly Composition[]
  readonly segment_size?: number
  readonly memory: {
    readonly rule: Rule
    readonly heads: number
    readonly head_dim: number
    readonly conv_width: number
    readonly levels: readonly number[]
    readonly retention: Retention
    readonly init: 'learned' | 'zero'
    readonly alpha_min?: PerLevel
    readonly alpha_max?: PerLevel
    readonly eta_max?: PerLevel
    readonly theta_max?: PerLevel
    readonly norm_max?: number | null
    readonly elastic_l1?: number
    readonly elastic_l2?: number
    readonly sphere_radius?: number | null
    readonly kl_floor?: number
    readonly qk_norm_eps?: number
  }
}

export type Vector = readonly number[]
export type Matrix = readonly Vector[]
/** [level][head], each [value][key]. */
export type Memories = readonly (readonly Matrix[])[]

interface Seen {
  readonly position: number
  readonly k: Vector
  readonly v: Vector
  readonly hk: Vector
  readonly hv: Vector
}
interface LayerState {
  M: Memories
  S: Memories
  G: Memories
  /** Of each head; mac. */
  seg: readonly Matrix[]
  tails: Map<string, Vector[]>
  seen: Seen[]
}

const range = (n: number): readonly number[] => Array.from({ length: n }, (_, i) => i)
const sum = (terms: Vector): number => terms.reduce((total, term) => total + term, 0)
const dot = (a: Vector, b: Vector): number => a.reduce((total, x, i) => total + x * b[i]!, 0)
const added = (a: Vector, b: Vector): Vector => a.map((x, i) => x + b[i]!)
const times = (M: Matrix, x: Vector): Vector => M.map((row) => dot(row, x))
const sigmoid = (x: number): number => 1 / (1 + Math.exp(-x))
const silu = (x: number): number => x * sigmoid(x)
const softmax = (x: Vector): Vector => {
  const most = Math.max(...x)
  const powers = x.map((each) => Math.exp(each - most))
  return powers.map((power) => power / sum(powers))
}
/** ‖M‖ of Frobenius. */
export const frobenius = (M: Matrix): number => Math.sqrt(sum(M.map((row) => dot(row, row))))
const norm = (M: Matrix): number => Math.sqrt(frobenius(M) ** 2 + 1e-12)
const scaled = (M: Matrix, by: number): Matrix => M.map((row) => row.map((x) => x * by))
const parts = (x: Vector, count: number): readonly Vector[] =>
  range(count).map((i) => x.slice((i * x.length) / count, ((i + 1) * x.length) / count))

export interface TitansReference {
  /** Feeds a token and gives the logits behind it. */
  step(token: number): Vector
  /** A new context at the present clock. */
  reset(): void
  /** Frobenius norms [layer][level][head]; S without momentum, and G of a level that has no buffer, are 0. */
  norms(): Record<'M' | 'S' | 'G', readonly (readonly Vector[])[]>
  memories(layer: number): Memories
}

/** `clock`: the pulse of the first token, below 2^53. */
export const titansReference = (config: TitansPackageConfig, tensors: Tensors, clock = 0): TitansReference => {
  const { hidden_size: D, num_hidden_layers: L, num_attention_heads: H, num_key_value_heads: Hkv, head_dim: d } = config
  const { num_persistent_tokens: P, rms_norm_eps: eps, sliding_window: w, composition: told, memory } = config
  const { heads: Hm, head_dim: N, conv_width: W, levels, rule, retention } = memory
  const B = config.segment_size ?? 1
  const compositions = typeof told === 'string' ? range(L).map(() => told) : told
  const K = levels.length
  const of = (value: PerLevel, level: number): number => (typeof value === 'number' ? value : value[level]!)

  const flat = (name: string): Vector => {
    const tensor = tensors.get(name)
    if (!tensor) throw new Error(`the reference needs ${name}`)
    return [...tensor.data]
  }
  // Read once: a step asks for each many times.
  const kept = new Map<string, Matrix>()
  const matrix = (name: string, columns: number): Matrix => {
    const found = kept.get(name) ?? parts(flat(name), flat(name).length / columns)
    kept.set(name, found)
    return found
  }
  const vector = (name: string): Vector => matrix(name, tensors.get(name)!.data.length)[0]!
  const linear = (name: string, x: Vector): Vector => times(matrix(`${name}.weight`, x.length), x)
  const rms = (x: Vector, gain: Vector): Vector => {
    const by = Math.sqrt(dot(x, x) / x.length + eps)
    return x.map((each, i) => (each / by) * gain[i]!)
  }
  const unit = (x: Vector): readonly Vector[] =>
    parts(x, Hm).map((head) => {
      const by = Math.sqrt(dot(head, head) + (memory.qk_norm_eps ?? 1e-6))
      return head.map((each) => each / by)
    })

  const rope = (x: Vector, heads: number, t: number): Vector =>
    parts(x, heads).flatMap((head) => {
      const turned = range(d).map(() => 0)
      for (let i = 0; i < d / 2; i += 1) {
        const phase = Number((BigInt(config.rope_increments[i]!) * BigInt(t)) % 2n ** 32n)
        const angle = (phase * 2 * Math.PI) / 2 ** 32
        const [a, b] = [head[i]!, head[i + d / 2]!]
        turned[i] = a * Math.cos(angle) - b * Math.sin(angle)
        turned[i + d / 2] = b * Math.cos(angle) + a * Math.sin(angle)
      }
      return turned
    })

  const layers = range(L).map((l) => {
    const at = `model.layers.${l}`
    const inMemory = `${at}.memory`
    const logits = matrix(`${inMemory}.level_logits`, Hm)
    const shares = range(Hm).map((h) => softmax(logits.map((level) => level[h]!)))
    const zeros = (): Memories => levels.map(() => range(Hm).map(() => range(N).map(() => range(N).map(() => 0))))
    const mixed = (M: Memories): readonly Matrix[] =>
      range(Hm).map((h) =>
        range(N).map((a) => range(N).map((b) => sum(M.map((level, i) => shares[h]![i]! * level[h]![a]![b]!)))),
      )

    const first = (): LayerState => {
      const init =
        memory.init === 'zero'
          ? zeros()
          : parts(flat(`${inMemory}.init_state`), K).map((level) => parts(level, Hm).map((head) => parts(head, N)))
      const M = init.map((level) =>
        level.map((head) => {
          if (retention === 'kl') return head.map(softmax)
          return retention === 'sphere' ? scaled(head, (memory.sphere_radius ?? Math.sqrt(N)) / norm(head)) : head
        }),
      )
      return { M, S: zeros(), G: zeros(), seg: mixed(M), tails: new Map(), seen: [] }
    }
    let state = first()

    const conv = (name: 'q' | 'k' | 'v' | 'context_q', x: Vector): Vector => {
      const taps = matrix(`${inMemory}.${name}_conv.weight`, W)
      const tail = state.tails.get(name) ?? range(W - 1).map(() => x.map(() => 0))
      const rows = [...tail, x]
      state.tails.set(name, rows.slice(1))
      return x.map((_, c) => silu(sum(rows.map((row, j) => taps[c]![j]! * row[c]!))))
    }
    const headNorm = (y: readonly Vector[]): Vector => {
      const gains = parts(vector(`${inMemory}.out_norm.weight`), Hm)
      return y.flatMap((head, h) => rms(head, gains[h]!))
    }
    const gate = (name: string, u: Vector): Vector =>
      added(linear(`${inMemory}.${name}_proj`, u), vector(`${inMemory}.${name}_proj.bias`)).map(sigmoid)

    const retain = (M: Matrix, U: Matrix, level: number, z: number): Matrix => {
      const [low, high] = [of(memory.alpha_min ?? 0, level), of(memory.alpha_max ?? 1, level)]
      const alpha = low + (high - low) * z
      const each = (f: (m: number, u: number) => number): Matrix =>
        M.map((row, a) => row.map((m, b) => f(m, U[a]![b]!)))
      if (retention === 'kl') {
        return each((m, u) => (1 - alpha) * Math.log(Math.max(m, memory.kl_floor ?? 1e-12)) + u).map(softmax)
      }
      const plain = each((m, u) => m + u)
      if (retention === 'sphere') return scaled(plain, (memory.sphere_radius ?? Math.sqrt(N)) / norm(plain))
      const kept = { none: plain, l2: each((m, u) => (1 - alpha) * m + u), elastic: plain }[retention]
      const { elastic_l1: l1 = 0, elastic_l2: l2 = 1 } = memory
      const out =
        retention === 'elastic'
          ? each((m, u) => {
              const A = (1 - alpha * l2) * m + u
              return Math.sign(A) * Math.max(Math.abs(A) - alpha * l1, 0)
            })
          : kept
      return memory.norm_max == null ? out : scaled(out, memory.norm_max / Math.max(norm(out), memory.norm_max))
    }

    const remember = (u: Vector, t: number): Vector => {
      const q = unit(conv('q', linear(`${inMemory}.q_proj`, u)))
      const k = unit(conv('k', linear(`${inMemory}.k_proj`, u)))
      const v = parts(conv('v', linear(`${inMemory}.v_proj`, u)), Hm)
      const theta = gate('theta', u)
      const eta = rule === 'titans' ? gate('eta', u) : []
      const alpha = ['l2', 'elastic', 'kl'].includes(retention) ? gate('alpha', u) : []
      const next = { M: zeros() as Matrix[][], S: zeros() as Matrix[][], G: zeros() as Matrix[][] }
      for (const [i, C] of levels.entries()) {
        for (const h of range(Hm)) {
          const [M, S, G] = [state.M[i]![h]!, state.S[i]![h]!, state.G[i]![h]!]
          const recalled = rule === 'hebbian' ? v[h]!.map(() => 0) : times(M, k[h]!)
          const rate = of(memory.theta_max ?? 1, i) * theta[i * Hm + h]!
          const g = G.map((row, a) => row.map((x, b) => x + rate * (recalled[a]! - v[h]![a]!) * k[h]![b]!))
          next.M[i]![h] = M
          next.S[i]![h] = S
          if (t % C !== 0) {
            next.G[i]![h] = g
            continue
          }
          const step = scaled(g, 1 / C)
          let U = scaled(step, -1)
          if (rule === 'titans') {
            const carried = of(memory.eta_max!, i) * eta[i * Hm + h]!
            U = S.map((row, a) => row.map((s, b) => carried * s - (1 - carried) * step[a]![b]!))
            next.S[i]![h] = U
          }
          next.M[i]![h] = retain(M, U, i, alpha[i * Hm + h]!)
        }
      }
      Object.assign(state, next)
      const read = range(Hm).map((h) =>
        range(N).map((a) => sum(levels.map((_, i) => shares[h]![i]! * dot(state.M[i]![h]![a]!, q[h]!)))),
      )
      return headNorm(read)
    }

    /** `context`: also the context tokens, before the tokens. */
    const attention = (q: Vector, t: number, visible: readonly Seen[], context: boolean): Vector => {
      const pair = (x: Vector, g: number): Vector => parts(x, Hkv)[g]!
      const learned = (which: 'k' | 'v', g: number): readonly Vector[] =>
        P === 0 ? [] : parts(parts(vector(`${at}.attn.persistent_${which}`), Hkv)[g]!, P)
      const turned = parts(rope(q, H, t), H)
      const heads = parts(q, H).flatMap((plain, h) => {
        const g = Math.floor(h / (H / Hkv))
        const rotated = (keys: readonly Vector[]): Vector => keys.map((key) => dot(pair(key, g), turned[h]!))
        const scores = [
          ...learned('k', g).map((key) => dot(key, plain)),
          ...(context ? rotated(visible.map(({ hk }) => hk)) : []),
          ...rotated(visible.map(({ k }) => k)),
        ]
        const values = [
          ...learned('v', g),
          ...(context ? visible.map(({ hv }) => pair(hv, g)) : []),
          ...visible.map(({ v }) => pair(v, g)),
        ]
        const shares = softmax(scores.map((score) => score / Math.sqrt(d)))
        return range(d).map((i) => sum(values.map((value, p) => shares[p]! * value[i]!)))
      })
      return linear(`${at}.attn.o_proj`, heads)
    }
    const window = (n: Vector, t: number): Vector => {
      const k = rope(linear(`${at}.attn.k_proj`, n), Hkv, t)
      const v = linear(`${at}.attn.v_proj`, n)
      state.seen = [...state.seen, { position: t, k, v, hk: [], hv: [] }].filter(({ position }) => position > t - w)
      return attention(linear(`${at}.attn.q_proj`, n), t, state.seen, false)
    }

    const block: Record<Composition, (x: Vector, t: number) => Vector> = {
      mag: (x, t) => {
        const n = rms(x, vector(`${at}.input_layernorm.weight`))
        const [r, a] = [remember(n, t), window(n, t)]
        const m = linear(`${inMemory}.o_proj`, r)
        return gate('gate', r).map((g, i) => x[i]! + g * a[i]! + (1 - g) * m[i]!)
      },
      mal: (x, t) => {
        const r = remember(rms(x, vector(`${at}.input_layernorm.weight`)), t)
        const between = added(x, linear(`${inMemory}.o_proj`, r))
        return added(between, window(rms(between, vector(`${at}.attn_layernorm.weight`)), t))
      },
      mac: (x, t) => {
        if (t % B === 0) state.seg = mixed(state.M)
        const n = rms(x, vector(`${at}.input_layernorm.weight`))
        const c = unit(conv('context_q', linear(`${inMemory}.context_q_proj`, n)))
        const recalled = headNorm(state.seg.map((M, h) => times(M, c[h]!)))
        const h = rms(linear(`${inMemory}.o_proj`, recalled), vector(`${inMemory}.context_norm.weight`))
        const [k, hk] = [n, h].map((each) => rope(linear(`${at}.attn.k_proj`, each), Hkv, t)) as [Vector, Vector]
        const [v, hv] = [n, h].map((each) => linear(`${at}.attn.v_proj`, each)) as [Vector, Vector]
        state.seen = [...state.seen, { position: t, k, v, hk, hv }].filter(({ position }) => position >= t - (t % B))
        const y = attention(linear(`${at}.attn.q_proj`, n), t, state.seen, true)
        const r = remember(rms(y, vector(`${inMemory}.write_norm.weight`)), t)
        return gate('gate', r).map((g, i) => x[i]! + g * y[i]!)
      },
    }
    return {
      reset: () => {
        state = first()
      },
      state: () => state,
      feed: (x: Vector, t: number): Vector => {
        const between = block[compositions[l]!](x, t)
        const n = rms(between, vector(`${at}.post_attention_layernorm.weight`))
        const up = linear(`${at}.mlp.up_proj`, n)
        const inner = linear(`${at}.mlp.gate_proj`, n).map((z, i) => silu(z) * up[i]!)
        return added(between, linear(`${at}.mlp.down_proj`, inner))
      },
    }
  })

  let t = clock
  const embedding = matrix('model.embed_tokens.weight', D)
  return {
    step: (token) => {
      const x = layers.reduce((each, layer) => layer.feed(each, t), embedding[token]!)
      t += 1
      const hidden = rms(x, vector('model.norm.weight'))
      return config.tie_word_embeddings ? times(embedding, hidden) : linear('lm_head', hidden)
    },
    reset: () => {
      for (const layer of layers) layer.reset()
    },
    norms: () => {
      const each = (which: 'M' | 'S' | 'G') =>
        layers.map((layer) => layer.state()[which].map((level) => level.map(frobenius)))
      return { M: each('M'), S: each('S'), G: each('G') }
    },
    memories: (layer) => layers[layer]!.state().M,
  }
}
