/**
 * Hybrid models in float64, one token at a time, from their published equations alone: nothing here knows how the
 * engine computes. States are plain arrays, positions are counted, attention looks at lists of keys and values.
 */
import type { Tensors } from '../../engine/packages.ts'
import { attended, plus, readerOf, sigmoid, silu } from '../float64.ts'

type Vec = number[]
/** A configuration as config.json has it. */
// biome-ignore lint/suspicious/noExplicitAny: members differ from family to family
export type HybridConfig = Record<string, any>

export interface Told {
  /** Behind the last token. */
  readonly logits: Vec
  /** Of each token but the first. */
  readonly nats: Vec
}

const softplus = (x: number): number => Math.max(x, 0) + Math.log1p(Math.exp(-Math.abs(x)))
const sum = (x: Vec): number => x.reduce((a, b) => a + b, 0)
const times = (a: Vec, b: Vec): Vec => a.map((value, i) => value * b[i]!)
const by = (a: Vec, factor: number): Vec => a.map((value) => value * factor)
const range = (n: number): Vec => Array.from({ length: n }, (_, i) => i)

type Reader = ReturnType<typeof readerOf>

const rms = (x: Vec, eps: number): Vec => by(x, 1 / Math.sqrt(sum(times(x, x)) / x.length + eps))
const heads = (x: Vec, count: number): Vec[] =>
  range(count).map((h) => x.slice((h * x.length) / count, ((h + 1) * x.length) / count))

/** One layer's mixer: its output for the normed input of the next token. */
type Mixer = (n: Vec) => Vec

/** A causal convolution of each channel, its input kept. */
const convolution = (weights: Vec, channels: number, bias: Vec | null): ((x: Vec) => Vec) => {
  const taps = weights.length / channels
  const rows: Vec[] = range(taps - 1).map(() => Array<number>(channels).fill(0))
  return (x) => {
    rows.push(x)
    const out = range(channels).map(
      (c) => (bias?.[c] ?? 0) + sum(rows.map((row, j) => row[c]! * weights[c * taps + j]!)),
    )
    rows.shift()
    return out
  }
}

interface Attention {
  readonly H: number
  readonly G: number
  readonly d: number
  readonly scale: number
  /** Channels of a head that turn, and θ; 0: none. */
  readonly turned: number
  readonly theta: number
  readonly names: readonly [q: string, k: string, v: string, o: string]
  readonly norm?: (x: Vec, which: 'q' | 'k') => Vec
  readonly gated?: boolean
  readonly biased?: readonly [qkv: boolean, o: boolean]
  readonly keyFactor?: number
}

const attention = ({ linear }: Reader, plan: Attention): Mixer => {
  const { H, G, d, scale, turned, theta, names, norm = (x) => x, gated = false, biased = [false, false] } = plan
  const past: { readonly k: Vec[]; readonly v: Vec[] }[] = []
  const turn = (x: Vec): Vec => {
    const out = [...x]
    for (let i = 0; i < turned / 2; i += 1) {
      const angle = past.length * theta ** ((-2 * i) / turned)
      const [a, b] = [x[i]!, x[i + turned / 2]!]
      out[i] = a * Math.cos(angle) - b * Math.sin(angle)
      out[i + turned / 2] = b * Math.cos(angle) + a * Math.sin(angle)
    }
    return out
  }
  return (n) => {
    const wide = heads(linear(names[0], n, biased[0]), H)
    const q = wide.map((head) => turn(norm(head.slice(0, d), 'q')))
    const keys = by(linear(names[1], n, biased[0]), plan.keyFactor ?? 1)
    const k = heads(keys, G).map((head) => turn(norm(head, 'k')))
    past.push({ k, v: heads(linear(names[2], n, biased[0]), G) })
    const out = q.flatMap((head, h) => {
      const own = Math.floor((h * G) / H)
      const of = (which: 'k' | 'v'): Vec[] => past.map((each) => each[which][own]!)
      const y = attended(head, of('k'), of('v'), scale)
      return gated ? y.map((value, i) => value * sigmoid(wide[h]![d + i]!)) : y
    })
    return linear(names[3], out, biased[1])
  }
}

interface Ssm {
  readonly Hd: number
  readonly P: number
  readonly N: number
  readonly G: number
  readonly at: string
  readonly bias: readonly [inward: boolean, outward: boolean]
  readonly convBias: boolean
  readonly limit: readonly [number, number]
  /** From y and z to what the last projection takes. */
  readonly gate: (y: Vec, z: Vec) => Vec
  readonly factors?: Readonly<Record<'z' | 'x' | 'B' | 'C' | 'dt', number>>
}

const mamba2 = ({ vector, linear }: Reader, plan: Ssm): Mixer => {
  const { Hd, P, N, G, at, bias, convBias, limit, gate, factors = { z: 1, x: 1, B: 1, C: 1, dt: 1 } } = plan
  const [D, K] = [Hd * P, G * N]
  const conv = convolution(vector(`${at}conv1d.weight`), D + 2 * K, convBias ? vector(`${at}conv1d.bias`) : null)
  const [A, skip, stepBias] = [vector(`${at}A_log`), vector(`${at}D`), vector(`${at}dt_bias`)]
  const S = range(Hd * P * N).map(() => 0)
  return (n) => {
    const all = linear(`${at}in_proj`, n, bias[0])
    const z = by(all.slice(0, D), factors.z)
    const x = by(all.slice(D, 2 * D), factors.x)
    const B = by(all.slice(2 * D, 2 * D + K), factors.B)
    const C = by(all.slice(2 * D + K, 2 * D + 2 * K), factors.C)
    const dt = by(all.slice(2 * D + 2 * K), factors.dt)
    const mixed = conv([...x, ...B, ...C]).map(silu)
    const y = range(D).map((i) => {
      const h = Math.floor(i / P)
      const group = Math.floor(h / (Hd / G))
      const step = Math.min(Math.max(softplus(dt[h]! + stepBias[h]!), limit[0]), limit[1])
      const keep = Math.exp(-Math.exp(A[h]!) * step)
      let out = skip[h]! * mixed[i]!
      for (let j = 0; j < N; j += 1) {
        const s = keep * S[i * N + j]! + step * mixed[i]! * mixed[D + group * N + j]!
        S[i * N + j] = s
        out += s * mixed[D + K + group * N + j]!
      }
      return out
    })
    return linear(`${at}out_proj`, gate(y, z), bias[1])
  }
}

const mamba2Model = (config: HybridConfig, r: Reader) => {
  const { num_heads: Hd, head_dim: P, state_size: N, n_groups: G, layer_norm_epsilon: eps } = config
  const layers = range(config.num_hidden_layers).map((l) => {
    const at = `backbone.layers.${l}.`
    const weight = r.vector(`${at}mixer.norm.weight`)
    const gate = (y: Vec, z: Vec): Vec => {
      const gated = times(y, z.map(silu))
      return times(
        heads(gated, G).flatMap((group) => rms(group, eps)),
        weight,
      )
    }
    const limit = config.time_step_limit ?? [0, Infinity]
    const { use_bias: biased = false, use_conv_bias: convBias = true } = config
    const bias = [biased, biased] as const
    const mixer = mamba2(r, { Hd, P, N, G, at: `${at}mixer.`, bias, convBias, limit, gate })
    const norm = r.vector(`${at}norm.weight`)
    return (x: Vec): Vec => plus(x, mixer(times(rms(x, eps), norm)))
  })
  const [embedding, norm] = ['backbone.embeddings', r.vector('backbone.norm_f.weight')]
  return { embedding, layers, last: (x: Vec) => times(rms(x, eps), norm) }
}

const lfm2Model = (config: HybridConfig, r: Reader) => {
  const {
    hidden_size: C,
    num_attention_heads: H,
    num_key_value_heads: G,
    norm_eps: eps,
    conv_bias: biased = false,
  } = config
  const d = C / H
  const layers = range(config.num_hidden_layers).map((l) => {
    const at = `model.layers.${l}.`
    const attends = config.layer_types ? config.layer_types[l] === 'full_attention' : config.full_attn_idxs.includes(l)
    const mixer = (): Mixer => {
      if (attends) {
        const self = `${at}self_attn.`
        const weights = { q: r.vector(`${self}q_layernorm.weight`), k: r.vector(`${self}k_layernorm.weight`) }
        return attention(r, {
          H,
          G,
          d,
          scale: 1 / Math.sqrt(d),
          turned: d,
          theta: config.rope_theta,
          names: [`${self}q_proj`, `${self}k_proj`, `${self}v_proj`, `${self}out_proj`],
          norm: (x, which) => times(rms(x, eps), weights[which]),
        })
      }
      const conv = convolution(r.vector(`${at}conv.conv.weight`), C, biased ? r.vector(`${at}conv.conv.bias`) : null)
      return (n) => {
        const all = r.linear(`${at}conv.in_proj`, n, biased)
        const [B, c, u] = [all.slice(0, C), all.slice(C, 2 * C), all.slice(2 * C)]
        return r.linear(`${at}conv.out_proj`, times(c, conv(times(B, u))), biased)
      }
    }
    const mix = mixer()
    const [first, second] = [r.vector(`${at}operator_norm.weight`), r.vector(`${at}ffn_norm.weight`)]
    return (x: Vec): Vec => {
      const between = plus(x, mix(times(rms(x, eps), first)))
      const m = times(rms(between, eps), second)
      const feed = `${at}feed_forward.`
      const inner = times(r.linear(`${feed}w1`, m).map(silu), r.linear(`${feed}w3`, m))
      return plus(between, r.linear(`${feed}w2`, inner))
    }
  })
  const norm = r.vector('model.embedding_norm.weight')
  return { embedding: 'model.embed_tokens', layers, last: (x: Vec) => times(rms(x, eps), norm) }
}

/** The gated delta rule, as written: decay, error, write, read. */
const deltaNet = (r: Reader, config: HybridConfig, at: string): Mixer => {
  const { linear_num_key_heads: Hk, linear_num_value_heads: Hv, rms_norm_eps: eps } = config
  const [dk, dv] = [config.linear_key_head_dim, config.linear_value_head_dim]
  const [keys, values, each] = [Hk * dk, Hv * dv, Hv / Hk]
  const conv = convolution(r.vector(`${at}conv1d.weight`), 2 * keys + values, null)
  const [A, bias, norm] = [r.vector(`${at}A_log`), r.vector(`${at}dt_bias`), r.vector(`${at}norm.weight`)]
  const S: Vec[][] = range(Hv).map(() => range(dk).map(() => Array<number>(dv).fill(0)))
  const parts = (n: Vec) => {
    if (!r.has(`${at}in_proj_qkvz.weight`)) {
      const z = r.linear(`${at}in_proj_z`, n)
      return {
        qkv: r.linear(`${at}in_proj_qkv`, n),
        z,
        b: r.linear(`${at}in_proj_b`, n),
        a: r.linear(`${at}in_proj_a`, n),
      }
    }
    const wide = heads(r.linear(`${at}in_proj_qkvz`, n), Hk)
    const narrow = heads(r.linear(`${at}in_proj_ba`, n), Hk)
    const cut = (from: number, to: number) => wide.flatMap((head) => head.slice(from, to))
    return {
      qkv: [...cut(0, dk), ...cut(dk, 2 * dk), ...cut(2 * dk, 2 * dk + each * dv)],
      z: cut(2 * dk + each * dv, 2 * dk + 2 * each * dv),
      b: narrow.flatMap((head) => head.slice(0, each)),
      a: narrow.flatMap((head) => head.slice(each)),
    }
  }
  const l2 = (x: Vec): Vec => by(x, 1 / Math.sqrt(sum(times(x, x)) + 1e-6))
  return (n) => {
    const { qkv, z, b, a } = parts(n)
    const mixed = conv(qkv).map(silu)
    const q = heads(mixed.slice(0, keys), Hk).map((head) => by(l2(head), 1 / Math.sqrt(dk)))
    const k = heads(mixed.slice(keys, 2 * keys), Hk).map(l2)
    const v = heads(mixed.slice(2 * keys), Hv)
    const out = range(Hv).flatMap((h) => {
      const own = Math.floor(h / each)
      const beta = sigmoid(b[h]!)
      const gamma = Math.exp(-Math.exp(A[h]!) * softplus(a[h]! + bias[h]!))
      const state = S[h]!
      for (const row of state) for (let j = 0; j < dv; j += 1) row[j]! *= gamma
      const error = range(dv).map((j) => beta * (v[h]![j]! - sum(state.map((row, i) => row[j]! * k[own]![i]!))))
      for (const [i, row] of state.entries()) for (let j = 0; j < dv; j += 1) row[j]! += k[own]![i]! * error[j]!
      const y = range(dv).map((j) => sum(state.map((row, i) => row[j]! * q[own]![i]!)))
      return times(times(rms(y, eps), norm), z.slice(h * dv, (h + 1) * dv).map(silu))
    })
    return r.linear(`${at}out_proj`, out)
  }
}

/** The experts of a layer that chooses among them, and the one that all tokens share. */
const experts = (r: Reader, config: HybridConfig, at: string): Mixer => {
  const { num_experts: E, num_experts_per_tok: K, moe_intermediate_size: F } = config
  const divides = config.norm_topk_prob ?? true
  const fused = r.has(`${at}experts.gate_up_proj`)
  const [gateUp, downs] = fused ? [r.vector(`${at}experts.gate_up_proj`), r.vector(`${at}experts.down_proj`)] : [[], []]
  const expert = (e: number, x: Vec): Vec => {
    if (!fused) {
      const own = `${at}experts.${e}.`
      const inner = times(r.linear(`${own}gate_proj`, x).map(silu), r.linear(`${own}up_proj`, x))
      return r.linear(`${own}down_proj`, inner)
    }
    const C = x.length
    const both = range(2 * F).map((row) => sum(x.map((value, c) => value * gateUp[(e * 2 * F + row) * C + c]!)))
    const inner = times(both.slice(0, F).map(silu), both.slice(F))
    return range(C).map((row) => sum(inner.map((value, i) => value * downs[(e * C + row) * F + i]!)))
  }
  return (x) => {
    const scores = r.linear(`${at}gate`, x)
    const most = Math.max(...scores)
    const raised = scores.map((score) => Math.exp(score - most))
    const p = by(raised, 1 / sum(raised))
    const chosen = range(E)
      .sort((a, b) => p[b]! - p[a]! || a - b)
      .slice(0, K)
    const total = divides ? sum(chosen.map((e) => p[e]!)) : 1
    const routed = chosen.map((e) => by(expert(e, x), p[e]! / total)).reduce(plus)
    const own = `${at}shared_expert.`
    const inner = times(r.linear(`${own}gate_proj`, x).map(silu), r.linear(`${own}up_proj`, x))
    const gate = sigmoid(r.linear(`${at}shared_expert_gate`, x)[0]!)
    return plus(routed, by(r.linear(`${own}down_proj`, inner), gate))
  }
}

const qwenModel = (whole: HybridConfig, r: Reader) => {
  const config: HybridConfig = whole.text_config ?? whole
  const root = whole.text_config ? 'model.language_model.' : 'model.'
  const { num_attention_heads: H, num_key_value_heads: G, head_dim: d, rms_norm_eps: eps } = config
  const rope = config.rope_parameters ?? config
  const turned = Math.floor(d * (rope.partial_rotary_factor ?? 0.25))
  const one = (x: Vec, weight: Vec): Vec => rms(x, eps).map((value, i) => value * (1 + weight[i]!))
  const layers = range(config.num_hidden_layers).map((l) => {
    const at = `${root}layers.${l}.`
    const full = config.layer_types
      ? config.layer_types[l] === 'full_attention'
      : (l + 1) % config.full_attention_interval === 0
    const self = `${at}self_attn.`
    const gains = full ? { q: r.vector(`${self}q_norm.weight`), k: r.vector(`${self}k_norm.weight`) } : null
    const mixer = gains
      ? attention(r, {
          H,
          G,
          d,
          scale: 1 / Math.sqrt(d),
          turned,
          theta: rope.rope_theta,
          names: [`${self}q_proj`, `${self}k_proj`, `${self}v_proj`, `${self}o_proj`],
          norm: (x, which) => one(x, gains[which]),
          gated: true,
        })
      : deltaNet(r, config, `${at}linear_attn.`)
    const mlp = `${at}mlp.`
    const feed: Mixer = r.has(`${mlp}gate.weight`)
      ? experts(r, config, mlp)
      : (x) =>
          r.linear(`${mlp}down_proj`, times(r.linear(`${mlp}gate_proj`, x).map(silu), r.linear(`${mlp}up_proj`, x)))
    const [first, second] = [r.vector(`${at}input_layernorm.weight`), r.vector(`${at}post_attention_layernorm.weight`)]
    return (x: Vec): Vec => {
      const between = plus(x, mixer(one(x, first)))
      return plus(between, feed(one(between, second)))
    }
  })
  const norm = r.vector(`${root}norm.weight`)
  return { embedding: `${root}embed_tokens`, layers, last: (x: Vec) => one(x, norm) }
}

const graniteExperts = (r: Reader, config: HybridConfig, at: string, x: Vec): Vec => {
  const { num_local_experts: E, num_experts_per_tok: K, intermediate_size: F } = config
  const [into, out] = [r.vector(`${at}input_linear.weight`), r.vector(`${at}output_linear.weight`)]
  const scores = r.linear(`${at}router.layer`, x)
  const chosen = range(E)
    .sort((a, b) => scores[b]! - scores[a]! || a - b)
    .slice(0, K)
  const raised = chosen.map((e) => Math.exp(scores[e]! - scores[chosen[0]!]!))
  const C = x.length
  const each = chosen.map((e, i) => {
    const both = range(2 * F).map((row) => sum(x.map((value, c) => value * into[(e * 2 * F + row) * C + c]!)))
    const inner = times(both.slice(0, F).map(silu), both.slice(F))
    const y = range(C).map((row) => sum(inner.map((value, j) => value * out[(e * C + row) * F + j]!)))
    return by(y, raised[i]! / sum(raised))
  })
  return each.reduce(plus)
}

const granite = (config: HybridConfig, r: Reader) => {
  const { hidden_size: C, num_attention_heads: H, num_key_value_heads: G, rms_norm_eps: eps } = config
  const d = C / H
  const share = config.residual_multiplier
  const layers = range(config.num_hidden_layers).map((l) => {
    const at = `model.layers.${l}.`
    const self = `${at}self_attn.`
    const mixer =
      config.layer_types[l] === 'attention'
        ? attention(r, {
            ...{ H, G, d, scale: config.attention_multiplier, theta: config.rope_theta },
            turned: config.position_embedding_type === 'rope' ? d : 0,
            names: [`${self}q_proj`, `${self}k_proj`, `${self}v_proj`, `${self}o_proj`],
            biased: [config.attention_bias, config.attention_bias],
          })
        : mamba2(r, {
            Hd: config.mamba_n_heads,
            P: config.mamba_d_head,
            N: config.mamba_d_state,
            G: config.mamba_n_groups,
            at: `${at}mamba.`,
            bias: [config.mamba_proj_bias, config.mamba_proj_bias],
            convBias: config.mamba_conv_bias,
            limit: [0, Infinity],
            gate: (y, z) => times(rms(times(y, z.map(silu)), eps), r.vector(`${at}mamba.norm.weight`)),
          })
    const [first, second] = [r.vector(`${at}input_layernorm.weight`), r.vector(`${at}post_attention_layernorm.weight`)]
    return (x: Vec): Vec => {
      const between = plus(x, by(mixer(times(rms(x, eps), first)), share))
      const m = times(rms(between, eps), second)
      const both = r.linear(`${at}shared_mlp.input_linear`, m)
      const inner = times(both.slice(0, both.length / 2).map(silu), both.slice(both.length / 2))
      const shared = r.linear(`${at}shared_mlp.output_linear`, inner)
      const all =
        config.num_local_experts > 0 ? plus(shared, graniteExperts(r, config, `${at}block_sparse_moe.`, m)) : shared
      return plus(between, by(all, share))
    }
  })
  const norm = r.vector('model.norm.weight')
  return {
    embedding: 'model.embed_tokens',
    layers,
    last: (x: Vec) => times(rms(x, eps), norm),
    read: config.embedding_multiplier,
    write: 1 / config.logits_scaling,
  }
}

const falcon = (config: HybridConfig, r: Reader) => {
  const { num_attention_heads: H, num_key_value_heads: G, head_dim: d, rms_norm_eps: eps } = config
  const { mamba_d_ssm: D, mamba_n_heads: Hd, mamba_n_groups: groups } = config
  const [z, x, B, C, dt] = config.ssm_multipliers
  const [gateFactor, downFactor] = config.mlp_multipliers
  const layers = range(config.num_hidden_layers).map((l) => {
    const at = `model.layers.${l}.`
    const self = `${at}self_attn.`
    const attend = attention(r, {
      ...{ H, G, d, scale: 1 / Math.sqrt(d), theta: config.rope_theta, turned: d },
      names: [`${self}q_proj`, `${self}k_proj`, `${self}v_proj`, `${self}o_proj`],
      biased: [config.attention_bias, config.attention_bias],
      keyFactor: config.key_multiplier,
    })
    const gain = config.mamba_rms_norm ? r.vector(`${at}mamba.norm.weight`) : []
    const normed = (y: Vec): Vec =>
      times(
        heads(y, groups).flatMap((group) => rms(group, eps)),
        gain,
      )
    const gate = (y: Vec, zs: Vec): Vec => {
      const gates = zs.map(silu)
      if (!config.mamba_rms_norm) return times(y, gates)
      return config.mamba_norm_before_gate ? times(normed(y), gates) : normed(times(y, gates))
    }
    const mix = mamba2(r, {
      ...{ Hd, P: D / Hd, N: config.mamba_d_state, G: groups, at: `${at}mamba.`, gate },
      bias: [config.mamba_proj_bias, config.projectors_bias],
      convBias: config.mamba_conv_bias,
      limit: [0, Infinity],
      factors: { z, x, B, C, dt },
    })
    const [first, second] = [r.vector(`${at}input_layernorm.weight`), r.vector(`${at}pre_ff_layernorm.weight`)]
    return (input: Vec): Vec => {
      const n = times(rms(input, eps), first)
      const mixed = by(mix(by(n, config.ssm_in_multiplier)), config.ssm_out_multiplier)
      const seen = by(attend(by(n, config.attention_in_multiplier)), config.attention_out_multiplier)
      const between = plus(input, plus(mixed, seen))
      const m = times(rms(between, eps), second)
      const feed = `${at}feed_forward.`
      const gates = by(r.linear(`${feed}gate_proj`, m, config.mlp_bias), gateFactor).map(silu)
      const inner = times(gates, r.linear(`${feed}up_proj`, m, config.mlp_bias))
      return plus(between, by(r.linear(`${feed}down_proj`, inner, config.mlp_bias), downFactor))
    }
  })
  const norm = r.vector('model.final_layernorm.weight')
  return {
    embedding: 'model.embed_tokens',
    layers,
    last: (input: Vec) => times(rms(input, eps), norm),
    read: config.embedding_multiplier,
    write: config.lm_head_multiplier,
  }
}

const nemotron = (config: HybridConfig, r: Reader) => {
  const { num_attention_heads: H, num_key_value_heads: G, head_dim: d, layer_norm_epsilon: eps, n_groups } = config
  const layers = [...config.hybrid_override_pattern].map((operation, l) => {
    const at = `backbone.layers.${l}.mixer.`
    const operations: Readonly<Record<string, () => Mixer>> = {
      M: () =>
        mamba2(r, {
          ...{ Hd: config.mamba_num_heads, P: config.mamba_head_dim, N: config.ssm_state_size, G: n_groups, at },
          bias: [config.use_bias, config.use_bias],
          convBias: config.use_conv_bias,
          limit: [0, Infinity],
          gate: (y, z) => {
            const gated = heads(times(y, z.map(silu)), n_groups)
            return times(
              gated.flatMap((group) => rms(group, eps)),
              r.vector(`${at}norm.weight`),
            )
          },
        }),
      '*': () =>
        attention(r, {
          ...{ H, G, d, scale: 1 / Math.sqrt(d), theta: 1, turned: 0 },
          names: [`${at}q_proj`, `${at}k_proj`, `${at}v_proj`, `${at}o_proj`],
          biased: [config.attention_bias, config.attention_bias],
        }),
      '-': () => (n) => {
        const inner = r.linear(`${at}up_proj`, n, config.mlp_bias).map((value) => Math.max(value, 0) ** 2)
        return r.linear(`${at}down_proj`, inner, config.mlp_bias)
      },
      E: () => (n) => {
        const scores = r.linear(`${at}gate`, n).map(sigmoid)
        const bias = r.vector(`${at}gate.e_score_correction_bias`)
        const chosen = range(config.n_routed_experts)
          .sort((a, b) => scores[b]! + bias[b]! - scores[a]! - bias[a]! || a - b)
          .slice(0, config.num_experts_per_tok)
        const total = sum(chosen.map((e) => scores[e]!))
        const expert = (name: string): Vec => {
          const inner = r.linear(`${at}${name}.up_proj`, n).map((value) => Math.max(value, 0) ** 2)
          return r.linear(`${at}${name}.down_proj`, inner)
        }
        const share = (e: number): number => (config.routed_scaling_factor * scores[e]!) / total
        return chosen.map((e) => by(expert(`experts.${e}`), share(e))).reduce(plus, expert('shared_experts'))
      },
    }
    const mixer = operations[operation]!()
    const norm = r.vector(`backbone.layers.${l}.norm.weight`)
    return (x: Vec): Vec => plus(x, mixer(times(rms(x, eps), norm)))
  })
  const norm = r.vector('backbone.norm_f.weight')
  return { embedding: 'backbone.embeddings', layers, last: (x: Vec) => times(rms(x, eps), norm) }
}

interface Layered {
  readonly embedding: string
  readonly layers: readonly ((x: Vec) => Vec)[]
  readonly last: (x: Vec) => Vec
  /** What embeddings, and logits, are multiplied by. */
  readonly read?: number
  readonly write?: number
}

const models: Readonly<Record<string, (config: HybridConfig, r: Reader) => Layered>> = {
  falcon_h1: falcon,
  granitemoehybrid: granite,
  nemotron_h: nemotron,
  mamba2: mamba2Model,
  lfm2: lfm2Model,
  qwen3_next: qwenModel,
  qwen3_5: qwenModel,
  qwen3_5_text: qwenModel,
  qwen3_5_moe: qwenModel,
  qwen3_5_moe_text: qwenModel,
}

export const hybridReference = (config: HybridConfig, tensors: Tensors, tokens: readonly number[]): Told => {
  const r = readerOf(tensors)
  const model = models[config.model_type]!(config, r)
  const embedding = r.vector(`${model.embedding}.weight`)
  const C = tensors.get(`${model.embedding}.weight`)!.shape[1]!
  const head = r.has('lm_head.weight') ? 'lm_head' : model.embedding
  const nats: Vec = []
  let logits: Vec = []
  for (const [t, token] of tokens.entries()) {
    if (t > 0) {
      const most = Math.max(...logits)
      nats.push(most + Math.log(sum(logits.map((each) => Math.exp(each - most)))) - logits[token]!)
    }
    const read = embedding.slice(token * C, (token + 1) * C)
    const first = by(read, model.read ?? 1)
    const last = model.last(model.layers.reduce((x, layer) => layer(x), first))
    logits = by(r.linear(head, last), model.write ?? 1)
  }
  return { logits, nats }
}
