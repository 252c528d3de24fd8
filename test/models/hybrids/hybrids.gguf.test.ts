/**
 * Mamba-2, LFM2 and hybrid Qwen in GGUF, written as llama.cpp's converter writes them, against the references on the
 * same weights.
 */
/// <reference lib="esnext.float16" />
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { feed, open } from '../../engine/helpers.ts'
import { random, type Tensor, type Tensors, temporaryFolder } from '../../engine/packages.ts'
import { type GgufValue, ggufFile, plainF32, q8Blocks, type Stored } from '../files/containers.ts'
import { hybridTensors, lfm2Config, mamba2Config, qwen3NextConfig, qwen35Config } from './hybrid-packages.ts'
import { type HybridConfig, hybridReference } from './hybrid-reference.ts'

type Metadata = Readonly<Record<string, GgufValue>>
const u32 = (value: number): GgufValue => ({ u32: value })
const changed = (tensor: Tensor, change: (value: number) => number): Tensor => ({
  ...tensor,
  data: Float32Array.from(tensor.data, change),
})
const reshaped = (tensor: Tensor, shape: readonly number[]): Tensor => ({ ...tensor, shape })
/** Rows of `each` elements in another order. */
const reordered = (tensor: Tensor, each: number, order: readonly number[]): Tensor => ({
  ...tensor,
  data: Float32Array.from(order.flatMap((row) => [...tensor.data.subarray(row * each, (row + 1) * each)])),
})

interface Converted {
  readonly metadata: Metadata
  readonly rules: Readonly<Record<string, string>>
  readonly change: (name: string, tensor: Tensor) => Tensor
  /** Names of layers begin so, and then with a number. */
  readonly prefix: string
}

const mamba2 = (config: HybridConfig): Converted => {
  const D = config.num_heads * config.head_dim
  const mixer: Readonly<Record<string, string>> = {
    'norm.weight': 'attn_norm.weight',
    'mixer.in_proj.weight': 'ssm_in.weight',
    'mixer.conv1d.weight': 'ssm_conv1d.weight',
    'mixer.conv1d.bias': 'ssm_conv1d.bias',
    'mixer.dt_bias': 'ssm_dt.bias',
    'mixer.A_log': 'ssm_a',
    'mixer.D': 'ssm_d',
    'mixer.norm.weight': 'ssm_norm.weight',
    'mixer.out_proj.weight': 'ssm_out.weight',
  }
  return {
    prefix: 'backbone.layers.',
    rules: {
      'backbone.embeddings.weight': 'token_embd.weight',
      'backbone.norm_f.weight': 'output_norm.weight',
      'lm_head.weight': 'output.weight',
      ...mixer,
    },
    metadata: {
      'general.architecture': 'mamba2',
      'mamba2.embedding_length': u32(config.hidden_size),
      'mamba2.block_count': u32(config.num_hidden_layers),
      'mamba2.attention.layer_norm_rms_epsilon': { f32: config.layer_norm_epsilon },
      'mamba2.ssm.conv_kernel': u32(config.conv_kernel),
      'mamba2.ssm.inner_size': u32(D),
      'mamba2.ssm.state_size': u32(config.state_size),
      'mamba2.ssm.time_step_rank': u32(config.num_heads),
      'mamba2.ssm.group_count': u32(config.n_groups),
    },
    change: (name, tensor) => {
      if (name.endsWith('A_log'))
        return reshaped(
          changed(tensor, (value) => -Math.exp(value)),
          [config.num_heads, 1],
        )
      if (name.endsWith('mixer.D')) return reshaped(tensor, [config.num_heads, 1])
      if (name.endsWith('mixer.norm.weight')) return reshaped(tensor, [config.n_groups, D / config.n_groups])
      return name.endsWith('conv1d.weight') ? reshaped(tensor, [tensor.shape[0]!, config.conv_kernel]) : tensor
    },
  }
}

const lfm2 = (config: HybridConfig): Converted => ({
  prefix: 'model.layers.',
  rules: {
    'model.embed_tokens.weight': 'token_embd.weight',
    'model.embedding_norm.weight': 'token_embd_norm.weight',
    'operator_norm.weight': 'attn_norm.weight',
    'ffn_norm.weight': 'ffn_norm.weight',
    'conv.in_proj.weight': 'shortconv.in_proj.weight',
    'conv.conv.weight': 'shortconv.conv.weight',
    'conv.out_proj.weight': 'shortconv.out_proj.weight',
    'self_attn.q_proj.weight': 'attn_q.weight',
    'self_attn.k_proj.weight': 'attn_k.weight',
    'self_attn.v_proj.weight': 'attn_v.weight',
    'self_attn.out_proj.weight': 'attn_output.weight',
    'self_attn.q_layernorm.weight': 'attn_q_norm.weight',
    'self_attn.k_layernorm.weight': 'attn_k_norm.weight',
    'feed_forward.w1.weight': 'ffn_gate.weight',
    'feed_forward.w3.weight': 'ffn_up.weight',
    'feed_forward.w2.weight': 'ffn_down.weight',
  },
  metadata: {
    'general.architecture': 'lfm2',
    'lfm2.embedding_length': u32(config.hidden_size),
    'lfm2.block_count': u32(config.num_hidden_layers),
    'lfm2.context_length': u32(config.max_position_embeddings),
    'lfm2.feed_forward_length': u32(config.intermediate_size),
    'lfm2.attention.head_count': u32(config.num_attention_heads),
    'lfm2.attention.head_count_kv': {
      i32s: config.layer_types.map((type: string) => (type === 'conv' ? 0 : config.num_key_value_heads)),
    },
    'lfm2.attention.layer_norm_rms_epsilon': { f32: config.norm_eps },
    'lfm2.rope.freq_base': { f32: config.rope_theta },
    'lfm2.shortconv.l_cache': u32(config.conv_L_cache),
  },
  change: (name, tensor) =>
    name.endsWith('conv.conv.weight') ? reshaped(tensor, [tensor.shape[0]!, config.conv_L_cache]) : tensor,
})

/** `tiled`: heads of values by the key head that they read last. */
const qwen = (A: string, config: HybridConfig, tiled: boolean): Converted => {
  const { linear_num_key_heads: Hk, linear_num_value_heads: Hv, hidden_size: C } = config
  const { linear_key_head_dim: K, linear_value_head_dim: N } = config
  const rope = config.rope_parameters ?? config
  const each = Hv / Hk
  const order = Array.from({ length: Hv }, (_, h) => (tiled ? (h % Hk) * each + Math.floor(h / Hk) : h))
  /** Rows that belong to heads of values, `width` numbers a head, behind `before` numbers. */
  const heads = (tensor: Tensor, width: number, before = 0): Tensor => {
    const rest = reordered({ ...tensor, data: tensor.data.subarray(before) }, width, order)
    return { ...tensor, data: Float32Array.from([...tensor.data.subarray(0, before), ...rest.data]) }
  }
  const change = (name: string, tensor: Tensor): Tensor => {
    const T = config.linear_conv_kernel_dim
    if (/(?:layernorm|[qk]_norm|model\.norm)\.weight$/.test(name)) return changed(tensor, (value) => value + 1)
    if (name.endsWith('A_log'))
      return heads(
        changed(tensor, (value) => -Math.exp(value)),
        1,
      )
    if (name.endsWith('dt_bias')) return heads(tensor, 1)
    if (/in_proj_[ab]\.weight$/.test(name)) return heads(tensor, C)
    if (name.endsWith('in_proj_z.weight')) return heads(tensor, N * C)
    if (name.endsWith('in_proj_qkv.weight')) return heads(tensor, N * C, 2 * Hk * K * C)
    if (name.endsWith('conv1d.weight')) return reshaped(heads(tensor, N * T, 2 * Hk * K * T), [tensor.shape[0]!, T])
    if (name.endsWith('linear_attn.out_proj.weight')) {
      const columns = order.flatMap((head) => Array.from({ length: N }, (_, i) => head * N + i))
      return {
        ...tensor,
        data: Float32Array.from(
          tensor.data,
          (_, at) => tensor.data[Math.floor(at / (Hv * N)) * Hv * N + columns[at % (Hv * N)]!]!,
        ),
      }
    }
    return name.endsWith('shared_expert_gate.weight') ? reshaped(tensor, [C]) : tensor
  }
  const experts: Metadata =
    config.num_experts === undefined
      ? {}
      : {
          [`${A}.expert_count`]: u32(config.num_experts),
          [`${A}.expert_used_count`]: u32(config.num_experts_per_tok),
          [`${A}.expert_feed_forward_length`]: u32(config.moe_intermediate_size),
          [`${A}.expert_shared_feed_forward_length`]: u32(config.shared_expert_intermediate_size),
        }
  return {
    prefix: 'model.layers.',
    change,
    rules: {
      'model.embed_tokens.weight': 'token_embd.weight',
      'model.norm.weight': 'output_norm.weight',
      'lm_head.weight': 'output.weight',
      'input_layernorm.weight': 'attn_norm.weight',
      'post_attention_layernorm.weight': 'post_attention_norm.weight',
      'self_attn.q_proj.weight': 'attn_q.weight',
      'self_attn.k_proj.weight': 'attn_k.weight',
      'self_attn.v_proj.weight': 'attn_v.weight',
      'self_attn.o_proj.weight': 'attn_output.weight',
      'self_attn.q_norm.weight': 'attn_q_norm.weight',
      'self_attn.k_norm.weight': 'attn_k_norm.weight',
      'linear_attn.in_proj_qkv.weight': 'attn_qkv.weight',
      'linear_attn.in_proj_z.weight': 'attn_gate.weight',
      'linear_attn.in_proj_b.weight': 'ssm_beta.weight',
      'linear_attn.in_proj_a.weight': 'ssm_alpha.weight',
      'linear_attn.in_proj_ba.weight': 'ssm_ba.weight',
      'linear_attn.conv1d.weight': 'ssm_conv1d.weight',
      'linear_attn.A_log': 'ssm_a',
      'linear_attn.dt_bias': 'ssm_dt.bias',
      'linear_attn.norm.weight': 'ssm_norm.weight',
      'linear_attn.out_proj.weight': 'ssm_out.weight',
      'mlp.gate_proj.weight': 'ffn_gate.weight',
      'mlp.up_proj.weight': 'ffn_up.weight',
      'mlp.down_proj.weight': 'ffn_down.weight',
      'mlp.gate.weight': 'ffn_gate_inp.weight',
      'mlp.shared_expert_gate.weight': 'ffn_gate_inp_shexp.weight',
      'mlp.shared_expert.gate_proj.weight': 'ffn_gate_shexp.weight',
      'mlp.shared_expert.up_proj.weight': 'ffn_up_shexp.weight',
      'mlp.shared_expert.down_proj.weight': 'ffn_down_shexp.weight',
      'mlp.experts.gate_proj': 'ffn_gate_exps.weight',
      'mlp.experts.up_proj': 'ffn_up_exps.weight',
      'mlp.experts.down_proj': 'ffn_down_exps.weight',
    },
    metadata: {
      'general.architecture': A,
      [`${A}.embedding_length`]: u32(C),
      [`${A}.block_count`]: u32(config.num_hidden_layers),
      [`${A}.context_length`]: u32(config.max_position_embeddings),
      [`${A}.feed_forward_length`]: u32(config.intermediate_size ?? 0),
      [`${A}.attention.head_count`]: u32(config.num_attention_heads),
      [`${A}.attention.head_count_kv`]: u32(config.num_key_value_heads),
      [`${A}.attention.key_length`]: u32(config.head_dim),
      [`${A}.attention.layer_norm_rms_epsilon`]: { f32: config.rms_norm_eps },
      [`${A}.rope.freq_base`]: { f32: rope.rope_theta },
      [`${A}.rope.dimension_count`]: u32(config.head_dim * rope.partial_rotary_factor),
      [`${A}.full_attention_interval`]: u32(config.full_attention_interval),
      [`${A}.ssm.conv_kernel`]: u32(config.linear_conv_kernel_dim),
      [`${A}.ssm.state_size`]: u32(K),
      [`${A}.ssm.group_count`]: u32(Hk),
      [`${A}.ssm.time_step_rank`]: u32(Hv),
      [`${A}.ssm.inner_size`]: u32(Hv * N),
      ...experts,
    },
  }
}

/** Experts that stand one by one, as one tensor of a layer. */
const together = (tensors: Tensors, config: HybridConfig): Map<string, Tensor> => {
  const out = new Map<string, Tensor>()
  for (const [name, tensor] of tensors) {
    const [, at, e, which] = /^(.*\.mlp\.experts\.)(\d+)\.(\w+)\.weight$/.exec(name) ?? []
    if (at === undefined) out.set(name, tensor)
    else if (e === '0') {
      const all = Array.from({ length: config.num_experts }, (_, i) => tensors.get(`${at}${i}.${which}.weight`)!)
      const data = Float32Array.from(all.flatMap((each) => [...each.data]))
      out.set(`${at}${which}`, { shape: [config.num_experts, ...tensor.shape], data })
    }
  }
  return out
}

/** qwen3next has q, k and v behind each other, and z by itself: what stands by head of keys, apart. */
const apart = (tensors: Tensors, config: HybridConfig): Map<string, Tensor> => {
  const { linear_num_key_heads: Hk, linear_num_value_heads: Hv, hidden_size: C } = config
  const { linear_key_head_dim: K, linear_value_head_dim: N } = config
  const each = Hv / Hk
  const out = new Map<string, Tensor>()
  for (const [name, tensor] of tensors) {
    if (!name.endsWith('in_proj_qkvz.weight')) {
      out.set(name, tensor)
      continue
    }
    const head = 2 * (K + each * N) * C
    const cut = (from: number, to: number): number[] =>
      Array.from({ length: Hk }, (_, h) => [...tensor.data.subarray(h * head + from * C, h * head + to * C)]).flat()
    const v = 2 * K + each * N
    const qkv = [...cut(0, K), ...cut(K, 2 * K), ...cut(2 * K, v)]
    const at = name.replace('qkvz.weight', '')
    out.set(`${at}qkv.weight`, { shape: [2 * Hk * K + Hv * N, C], data: Float32Array.from(qkv) })
    out.set(`${at}z.weight`, { shape: [Hv * N, C], data: Float32Array.from(cut(v, v + each * N)) })
  }
  return out
}

type Store = (tensor: Tensor) => Stored

/** What a converter leaves in F32: vectors, the taps of convolutions, numbers a head, routers. */
const small = /norm|conv1d|shortconv\.conv\.|ssm_(?:a|d|dt)\b|gate_inp/
const stays = (name: string, { shape }: Tensor): boolean => shape.length < 2 || small.test(name)

const write = (tensors: Tensors, { metadata, rules, change, prefix }: Converted, store: Store = plainF32): string => {
  const stored = [...tensors].map(([name, tensor]): [string, Stored] => {
    const [, l, rest] = name.startsWith(prefix) ? (/^(\d+)\.(.*)$/.exec(name.slice(prefix.length)) ?? []) : []
    const own = rules[rest ?? name]
    if (own === undefined) throw new Error(`there is no rule for ${name}`)
    const whole = l === undefined ? own : `blk.${l}.${own}`
    return [whole, (stays(own, tensor) ? plainF32 : store)(change(name, tensor))]
  })
  const path = join(temporaryFolder(), 'model.gguf')
  writeFileSync(path, ggufFile(metadata, new Map(stored)))
  return path
}

const moe = { num_experts: 5, num_experts_per_tok: 2, moe_intermediate_size: 11, shared_expert_intermediate_size: 9 }
const byName: Readonly<Record<string, (config: HybridConfig, tensors: Tensors, store?: Store) => string>> = {
  mamba2: (config, tensors, store) => write(tensors, mamba2(config), store),
  lfm2: (config, tensors, store) => write(tensors, lfm2(config), store),
  qwen35: (config, tensors, store) => write(tensors, qwen('qwen35', config, true), store),
  qwen35moe: (config, tensors, store) => write(together(tensors, config), qwen('qwen35moe', config, true), store),
  qwen3next: (config, tensors, store) =>
    write(together(apart(tensors, config), config), qwen('qwen3next', config, false), store),
}
const qwen35Moe = (change: HybridConfig = {}): HybridConfig =>
  qwen35Config({ model_type: 'qwen3_5_moe_text', intermediate_size: undefined, ...moe, ...change })
const cases: readonly (readonly [title: string, architecture: string, config: HybridConfig])[] = [
  ['mamba2', 'mamba2', mamba2Config()],
  ['mamba2, tied, of one group', 'mamba2', mamba2Config({ tie_word_embeddings: true, n_groups: 1 })],
  ['lfm2', 'lfm2', lfm2Config()],
  ['qwen35', 'qwen35', qwen35Config()],
  ['qwen35, values wider than keys', 'qwen35', qwen35Config({ linear_key_head_dim: 7, linear_value_head_dim: 12 })],
  ['qwen35moe', 'qwen35moe', qwen35Moe()],
  [
    'qwen3next, keys wider than values',
    'qwen3next',
    qwen3NextConfig({ linear_key_head_dim: 12, linear_value_head_dim: 7 }),
  ],
  ['qwen3next', 'qwen3next', qwen3NextConfig()],
]

/** Sizes of which blocks of 32 make whole rows, also a head of values. */
const even = {
  ...{ hidden_size: 64, intermediate_size: 96, num_attention_heads: 4, head_dim: 16 },
  ...{ linear_num_value_heads: 4, linear_key_head_dim: 32, linear_value_head_dim: 32 },
}
/** All experts are chosen: a score that is rounded may choose another one. */
const evenExperts = {
  ...{ moe_intermediate_size: 32, shared_expert_intermediate_size: 32 },
  ...{ num_experts: 4, num_experts_per_tok: 4 },
}
const evenCases: typeof cases = [
  ['mamba2', 'mamba2', mamba2Config({ hidden_size: 32, num_heads: 4, head_dim: 16, expand: 2, state_size: 16 })],
  ['lfm2', 'lfm2', lfm2Config({ hidden_size: 64, intermediate_size: 96 })],
  ['qwen35', 'qwen35', qwen35Config(even)],
  ['qwen35, keys wider than values', 'qwen35', qwen35Config({ ...even, linear_key_head_dim: 64 })],
  ['qwen35moe', 'qwen35moe', qwen35Moe({ ...even, intermediate_size: undefined, ...evenExperts })],
  ['qwen3next', 'qwen3next', qwen3NextConfig({ ...even, ...evenExperts })],
]

const f16: Store = ({ shape, data }) => ({ shape, type: 1, data: new Uint8Array(Float16Array.from(data).buffer) })

/** The numbers that stored ones stand for. */
const widened = ({ shape, type, data }: Stored): Tensor => {
  if (type === 1) return { shape, data: Float32Array.from(new Float16Array(data.slice().buffer)) }
  const view = new DataView(data.buffer, data.byteOffset, data.byteLength)
  const out = new Float32Array((data.length / 34) * 32)
  for (let i = 0; i < out.length; i += 1) {
    const block = Math.floor(i / 32) * 34
    out[i] = view.getFloat16(block, true) * view.getInt8(block + 2 + (i % 32))
  }
  return { shape, data: out }
}
/**
 * The tensors as a file of that storage holds them: blocks are along rows, which a converter only puts into another
 * order.
 */
const rounded = (tensors: Tensors, store: Store): Tensors =>
  new Map(
    [...tensors].map(([name, tensor]) => {
      const keeps = tensor.shape.length < 2 || /norm|conv1d|conv\.conv|mlp\.gate\.|shared_expert_gate/.test(name)
      return [name, keeps ? tensor : widened(store(tensor))]
    }),
  )

const farthest = (got: ArrayLike<number>, want: readonly number[]): number =>
  want.reduce((most, value, i) => Math.max(most, Math.abs(got[i]! - value)), 0)
const someTokens = (vocabulary: number): readonly number[] => {
  const next = random(4)
  return Array.from({ length: 30 }, () => Math.floor(next() * vocabulary))
}

describe('GGUF', () => {
  it.each(cases)('of %s is what the equations give', async (_, architecture, config) => {
    for (const store of [plainF32, f16]) {
      const tensors = store === plainF32 ? hybridTensors(8, config) : rounded(hybridTensors(8, config), store)
      const tokens = someTokens(config.vocab_size)
      const told = hybridReference(config, tensors, tokens)
      const model = await open(byName[architecture]!(config, tensors, store))
      const context = model.createContext()
      const nats = await feed(model, context, tokens)
      expect(farthest(await model.logits(context), told.logits)).toBeLessThan(1e-4)
      expect(farthest(nats.slice(1), told.nats)).toBeLessThan(1e-4)
    }
  })

  it.each(evenCases)('of %s in Q8_0 is near that, with the same bits at any cut', async (_, architecture, config) => {
    const tensors = rounded(hybridTensors(8, config), q8Blocks)
    const tokens = someTokens(config.vocab_size)
    const told = hybridReference(config, tensors, tokens)
    const path = byName[architecture]!(config, tensors, q8Blocks)
    const chains = new Set<string>()
    for (const [cut, threads] of [
      [30, 1],
      [7, 2],
      [1, 1],
    ] as const) {
      const model = await open(path, { threads })
      const context = model.createContext()
      for (let at = 0; at < tokens.length; at += cut) await feed(model, context, tokens.slice(at, at + cut))
      const found = await model.logits(context)
      const error = Math.hypot(...told.logits.map((value, i) => found[i]! - value))
      // Activations have 8 bits.
      expect(error).toBeGreaterThan(0)
      expect(error / Math.hypot(...told.logits)).toBeLessThan(0.1)
      chains.add(context.chain)
    }
    expect(chains.size).toBe(1)
  })
})
