/** GGUF files of the families, as llama.cpp's converter writes them. */
import type { Tensor, Tensors } from '../../engine/safetensors.ts'
import type { DecoderConfig } from '../decoders.ts'
import { type GgufValue, ggufFile, plainF32, type Stored } from './containers.ts'

export const rwkvSizes = { L: 3, H: 2, N: 32, F: 96, V: 64, D: { w: 32, a: 32, v: 32, g: 32 } }
export const gptSizes = { L: 2, H: 2, N: 32, F: 96, V: 64, P: 32 }

export const turned = ({ shape: [rows = 0, columns = 0], data }: Tensor): Tensor => ({
  shape: [columns, rows],
  data: Float32Array.from(data, (_, i) => data[(i % rows) * columns + Math.floor(i / rows)]!),
})

/** RWKV-7 as llama.cpp's converter writes it, from official names. */
export const rwkvGguf = (tensors: Tensors, store: (tensor: Tensor) => Stored): Uint8Array => {
  const out = new Map<string, Stored>()
  const whole: Readonly<Record<string, string>> = {
    'emb.weight': 'token_embd.weight',
    'head.weight': 'output.weight',
    'ln_out.weight': 'output_norm.weight',
    'ln_out.bias': 'output_norm.bias',
    'blocks.0.ln0.weight': 'token_embd_norm.weight',
    'blocks.0.ln0.bias': 'token_embd_norm.bias',
  }
  const parts: Readonly<Record<string, string>> = {
    'ln1.weight': 'attn_norm.weight',
    'ln1.bias': 'attn_norm.bias',
    'ln2.weight': 'attn_norm_2.weight',
    'ln2.bias': 'attn_norm_2.bias',
    'att.ln_x.weight': 'time_mix_ln.weight',
    'att.ln_x.bias': 'time_mix_ln.bias',
    'ffn.x_k': 'channel_mix_lerp_k.weight',
    'ffn.key.weight': 'channel_mix_key.weight',
    'ffn.value.weight': 'channel_mix_value.weight',
  }
  const wide = (name: string): boolean => /(receptance|key|value|output)\.weight$/.test(name)
  for (const [name, tensor] of tensors) {
    const flat = { shape: [tensor.data.length], data: tensor.data }
    const [, l, part = ''] = /^blocks\.(\d+)\.(.*)$/.exec(name) ?? []
    if (whole[name] !== undefined)
      out.set(whole[name], name === 'head.weight' ? store(tensor) : plainF32(tensor.shape.length === 2 ? tensor : flat))
    else if (/^att\.x_[rwkvag]$/.test(part)) continue
    else if (/^att\.[wavg][12]$/.test(part))
      out.set(`blk.${l}.time_mix_${part.slice(4)}.weight`, plainF32(turned(tensor)))
    else
      out.set(
        `blk.${l}.${parts[part] ?? `time_mix_${part.slice(4).replace('.weight', '')}.weight`}`,
        wide(part) ? store(tensor) : plainF32(flat),
      )
  }
  const { L, H, N } = rwkvSizes
  for (let l = 0; l < L; l += 1) {
    const mixes = ['r', 'w', 'k', 'v', 'a', 'g'].map((c) => tensors.get(`blocks.${l}.att.x_${c}`)!.data)
    const data = Float32Array.from(mixes.flatMap((mix) => [...mix]))
    out.set(`blk.${l}.time_mix_lerp_fused.weight`, plainF32({ shape: [6, 1, 1, H * N], data }))
  }
  return ggufFile(
    {
      'general.architecture': 'rwkv7',
      'rwkv7.block_count': { u32: L },
      'rwkv7.embedding_length': { u32: H * N },
      'rwkv7.feed_forward_length': { u32: rwkvSizes.F },
      'rwkv7.wkv.head_size': { u32: N },
      'rwkv7.attention.layer_norm_epsilon': { f32: 1e-5 },
      'tokenizer.ggml.eos_token_id': { u32: 7 },
      'tokenizer.ggml.eot_token_id': { u32: 5 },
    },
    out,
  )
}

/** GPT-2 as llama.cpp's converter writes it. */
export const gptGguf = (tensors: Tensors, more: Readonly<Record<string, GgufValue>> = {}): Uint8Array => {
  const parts: Readonly<Record<string, string>> = {
    ln_1: 'attn_norm',
    ln_2: 'ffn_norm',
    'attn.c_attn': 'attn_qkv',
    'attn.c_proj': 'attn_output',
    'mlp.c_fc': 'ffn_up',
    'mlp.c_proj': 'ffn_down',
  }
  const whole: Readonly<Record<string, string>> = { wte: 'token_embd', wpe: 'position_embd', ln_f: 'output_norm' }
  const out = new Map<string, Stored>()
  for (const [name, tensor] of tensors) {
    const [, l, part = '', kind] = /^(?:h\.(\d+)\.)?(.*)\.(weight|bias)$/.exec(name) ?? []
    if (l === undefined) out.set(`${whole[part]}.${kind}`, plainF32(tensor))
    else out.set(`blk.${l}.${parts[part]}.${kind}`, plainF32(tensor.shape.length === 2 ? turned(tensor) : tensor))
  }
  const { L, H, N, P } = gptSizes
  return ggufFile(
    {
      'general.architecture': 'gpt2',
      'gpt2.block_count': { u32: L },
      'gpt2.context_length': { u32: P },
      'gpt2.embedding_length': { u32: H * N },
      'gpt2.feed_forward_length': { u32: gptSizes.F },
      'gpt2.attention.head_count': { u32: H },
      'gpt2.attention.layer_norm_epsilon': { f32: 1e-5 },
      ...more,
    },
    out,
  )
}

/** Row 2i of a head is the folder's row i, row 2i + 1 its row i + d/2, as the converter permutes q and k of Llama. */
const permuted = ({ shape, data }: Tensor, heads: number): Tensor => {
  const d = shape[0]! / heads
  const width = data.length / shape[0]!
  const out = new Float32Array(data.length)
  for (let h = 0; h < heads; h += 1) {
    for (let i = 0; i < d; i += 1) {
      const from = h * d + (i % 2) * (d / 2) + Math.floor(i / 2)
      out.set(data.subarray(from * width, (from + 1) * width), (h * d + i) * width)
    }
  }
  return { shape, data: out }
}

/**
 * Llama, Qwen2, Qwen3, Qwen3-MoE or Mixtral as llama.cpp's converter writes them, from the tensors of a folder; `store`
 * makes the blocks of its matrices. `ropeFactors`: what the converter writes in place of Llama 3's scaling.
 */
export const decoderGguf = (
  config: DecoderConfig,
  tensors: Tensors,
  store: (tensor: Tensor) => Stored = plainF32,
  ropeFactors?: Float32Array,
): Uint8Array => {
  const A = { qwen3_moe: 'qwen3moe', mixtral: 'llama' }[config.model_type] ?? config.model_type
  const [H, G] = [config.num_attention_heads, config.num_key_value_heads ?? config.num_attention_heads]
  const parts: Readonly<Record<string, string>> = {
    input_layernorm: 'attn_norm',
    'self_attn.q_proj': 'attn_q',
    'self_attn.k_proj': 'attn_k',
    'self_attn.v_proj': 'attn_v',
    'self_attn.o_proj': 'attn_output',
    'self_attn.q_norm': 'attn_q_norm',
    'self_attn.k_norm': 'attn_k_norm',
    post_attention_layernorm: 'ffn_norm',
    'mlp.gate_proj': 'ffn_gate',
    'mlp.up_proj': 'ffn_up',
    'mlp.down_proj': 'ffn_down',
    'mlp.gate': 'ffn_gate_inp',
    'block_sparse_moe.gate': 'ffn_gate_inp',
  }
  const expert: Readonly<Record<string, string>> = {
    gate_proj: 'gate',
    up_proj: 'up',
    down_proj: 'down',
    w1: 'gate',
    w3: 'up',
    w2: 'down',
  }
  const out = new Map<string, Stored>()
  const stacks = new Map<string, Tensor[]>()
  for (const [name, tensor] of tensors) {
    const matrix = (each: Tensor): Stored => (each.shape.length > 1 ? store(each) : plainF32(each))
    const [, l, part = '', kind] = /^model\.layers\.(\d+)\.(.*)\.(weight|bias)$/.exec(name) ?? []
    const [, e, own = ''] = /^(?:mlp|block_sparse_moe)\.experts\.(\d+)\.(.*)$/.exec(part) ?? []
    if (name === 'model.embed_tokens.weight') out.set('token_embd.weight', matrix(tensor))
    else if (name === 'model.norm.weight') out.set('output_norm.weight', plainF32(tensor))
    else if (name === 'lm_head.weight') out.set('output.weight', matrix(tensor))
    else if (e !== undefined) {
      const stack = `blk.${l}.ffn_${expert[own]}_exps.weight`
      stacks.set(stack, [...(stacks.get(stack) ?? []), tensor])
    } else {
      const turns = A === 'llama' && /^self_attn\.[qk]_proj$/.test(part)
      const heads = part === 'self_attn.q_proj' ? H : G
      out.set(`blk.${l}.${parts[part]}.${kind}`, matrix(turns ? permuted(tensor, heads) : tensor))
    }
  }
  for (const [name, members] of stacks) {
    const data = Float32Array.from(members.flatMap((each) => [...each.data]))
    out.set(name, store({ shape: [members.length, ...members[0]!.shape], data }))
  }
  if (ropeFactors !== undefined)
    out.set('rope_freqs.weight', plainF32({ shape: [ropeFactors.length], data: ropeFactors }))
  const experts = (config.num_experts ?? config.num_local_experts) as number | undefined
  return ggufFile(
    {
      'general.architecture': A,
      [`${A}.block_count`]: { u32: config.num_hidden_layers },
      [`${A}.context_length`]: { u32: config.max_position_embeddings },
      [`${A}.embedding_length`]: { u32: config.hidden_size },
      [`${A}.feed_forward_length`]: { u32: config.intermediate_size },
      [`${A}.attention.head_count`]: { u32: H },
      [`${A}.attention.head_count_kv`]: { u32: G },
      [`${A}.attention.layer_norm_rms_epsilon`]: { f32: config.rms_norm_eps },
      [`${A}.rope.freq_base`]: { f32: config.rope_theta ?? 10_000 },
      ...(config.head_dim === undefined ? {} : { [`${A}.attention.key_length`]: { u32: config.head_dim } }),
      ...(experts === undefined
        ? {}
        : {
            [`${A}.expert_count`]: { u32: experts },
            [`${A}.expert_used_count`]: { u32: config.num_experts_per_tok as number },
            [`${A}.expert_feed_forward_length`]: { u32: (config.moe_intermediate_size as number | undefined) ?? 1 },
          }),
    },
    out,
  )
}
