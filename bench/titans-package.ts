/** Writes Titans packages of any shape for benches: random bf16 weights with stable initial values (docs/titans.md). */
import { mkdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { ropeIncrement } from '../src/models/families/titans-config.ts'
import { type TensorSpec, writeTensors } from '../src/models/files/package-writer.ts'

export interface TitansShape {
  readonly composition: 'mac' | 'mag' | 'mal'
  readonly levels: readonly number[]
  readonly vocabulary?: number
  readonly hidden?: number
  readonly layers?: number
  /** Heads of attention and of the memory. */
  readonly heads?: number
  readonly keyHeads?: number
  readonly headDim?: number
  readonly intermediate?: number
  readonly window?: number
  readonly segment?: number
  readonly persistent?: number
  readonly taps?: number
  readonly rule?: 'titans' | 'delta' | 'hebbian'
  readonly retention?: 'l2' | 'kl' | 'sphere' | 'elastic' | 'none'
  readonly normMax?: number | null
}

const configOf = (shape: TitansShape) => {
  const { hidden = 512, layers = 8, heads = 8, keyHeads = 4, headDim = 64, intermediate = 1408 } = shape
  const { rule = 'titans', retention = 'l2' } = shape
  const bounded = retention === 'kl' || retention === 'sphere'
  return {
    model_type: 'titans',
    architectures: ['TitansForCausalLM'],
    vocab_size: shape.vocabulary ?? 256,
    hidden_size: hidden,
    num_hidden_layers: layers,
    num_attention_heads: heads,
    num_key_value_heads: keyHeads,
    head_dim: headDim,
    sliding_window: shape.window ?? 256,
    num_persistent_tokens: shape.persistent ?? 4,
    rope_theta: 10000,
    rope_increments: Array.from({ length: headDim / 2 }, (_, i) => ropeIncrement(10000, i, headDim)),
    intermediate_size: intermediate,
    rms_norm_eps: 1e-5,
    tie_word_embeddings: false,
    composition: shape.composition,
    segment_size: shape.segment ?? 128,
    memory: {
      rule,
      heads,
      head_dim: headDim,
      conv_width: shape.taps ?? 4,
      levels: shape.levels,
      retention,
      init: 'learned',
      alpha_min: 0.01,
      alpha_max: 0.5,
      eta_max: 0.9,
      theta_max: 1,
      ...(retention === 'elastic' ? { elastic_l1: 0.02 } : {}),
      norm_max: bounded ? null : shape.normMax === undefined ? 2 * Math.sqrt(headDim) : shape.normMax,
    },
    torch_dtype: 'bfloat16',
  }
}

/** Normal numbers from a seed: Marsaglia's polar method over a 32-bit generator (mulberry32). */
const normals = (seed: number): (() => number) => {
  let state = seed >>> 0
  const uniform = (): number => {
    state = (state + 0x6d2b79f5) >>> 0
    let t = state
    t = Math.imul(t ^ (t >>> 15), t | 1)
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61)
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32
  }
  return () => Math.sqrt(-2 * Math.log(1 - uniform())) * Math.cos(2 * Math.PI * uniform())
}

const toBf16 = (values: Float32Array): Uint8Array => {
  const bits = new Uint32Array(values.buffer)
  const out = Uint16Array.from(bits, (word) => (word + 0x7fff + ((word >>> 16) & 1)) >>> 16)
  return new Uint8Array(out.buffer)
}

/** Name, shape, standard deviation and mean of every tensor. */
const tensorsOf = (
  config: ReturnType<typeof configOf>,
): readonly (readonly [string, readonly number[], number, number])[] => {
  const { hidden_size: D, num_attention_heads: H, num_key_value_heads: Hkv, head_dim: d, intermediate_size: I } = config
  const { vocab_size: V, num_hidden_layers: L, num_persistent_tokens: P, memory, composition } = config
  const { heads: Hm, head_dim: N, conv_width: W, levels, rule, retention } = memory
  const E = Hm * N
  const K = levels.length
  const matrix = (name: string, outputs: number, inputs: number) =>
    [`${name}.weight`, [outputs, inputs], 1 / Math.sqrt(inputs), 0] as const
  const gate = (name: string, bias: number) =>
    [matrix(name, K * Hm, D), [`${name}.bias`, [K * Hm], 0, bias] as const] as const
  const layer = (l: number) => {
    const at = `model.layers.${l}`
    const mem = `${at}.memory`
    const conv = (name: string) => [`${mem}.${name}_conv.weight`, [E, W], 0.5, 0.2] as const
    const retains = retention === 'l2' || retention === 'elastic' || retention === 'kl'
    return [
      [`${at}.input_layernorm.weight`, [D], 0, 1] as const,
      matrix(`${at}.attn.q_proj`, H * d, D),
      matrix(`${at}.attn.k_proj`, Hkv * d, D),
      matrix(`${at}.attn.v_proj`, Hkv * d, D),
      matrix(`${at}.attn.o_proj`, D, H * d),
      ...(P > 0
        ? ([
            [`${at}.attn.persistent_k`, [Hkv, P, d], 1, 0],
            [`${at}.attn.persistent_v`, [Hkv, P, d], 1, 0],
          ] as const)
        : []),
      ...(['q', 'k', 'v'] as const).flatMap((c) => [matrix(`${mem}.${c}_proj`, E, D), conv(c)]),
      ...gate(`${mem}.theta_proj`, 0),
      ...(rule === 'titans' ? gate(`${mem}.eta_proj`, 0) : []),
      ...(retains ? gate(`${mem}.alpha_proj`, -3) : []),
      [`${mem}.init_state`, [K, Hm, N, N], 0.02, 0] as const,
      [`${mem}.level_logits`, [K, Hm], 0, 0] as const,
      [`${mem}.out_norm.weight`, [E], 0, 1] as const,
      matrix(`${mem}.o_proj`, D, E),
      ...(composition === 'mal'
        ? [[`${at}.attn_layernorm.weight`, [D], 0, 1] as const]
        : [matrix(`${mem}.gate_proj`, D, E), [`${mem}.gate_proj.bias`, [D], 0, 1] as const]),
      ...(composition === 'mac'
        ? [
            matrix(`${mem}.context_q_proj`, E, D),
            conv('context_q'),
            [`${mem}.context_norm.weight`, [D], 0, 0.25] as const,
            [`${mem}.write_norm.weight`, [D], 0, 1] as const,
          ]
        : []),
      [`${at}.post_attention_layernorm.weight`, [D], 0, 1] as const,
      matrix(`${at}.mlp.gate_proj`, I, D),
      matrix(`${at}.mlp.up_proj`, I, D),
      matrix(`${at}.mlp.down_proj`, D, I),
    ]
  }
  return [
    ['model.embed_tokens.weight', [V, D], 1, 0],
    ...Array.from({ length: L }, (_, l) => layer(l)).flat(),
    ['model.norm.weight', [D], 0, 1],
    matrix('lm_head', V, D),
  ]
}

/** Writes config.json and model.safetensors into `dir`. */
export const writeTitans = async (dir: string, shape: TitansShape): Promise<void> => {
  const config = configOf(shape)
  const tensors = tensorsOf(config)
  await mkdir(dir, { recursive: true })
  await writeFile(join(dir, 'config.json'), JSON.stringify(config, null, 2))
  const sizeOf = (extents: readonly number[]): number => extents.reduce((product, extent) => product * extent, 1)
  const specs: TensorSpec[] = tensors.map(([name, extents]) => ({
    name,
    dtype: 'BF16',
    shape: extents,
    bytes: sizeOf(extents) * 2,
  }))
  await writeTensors(join(dir, 'model.safetensors'), specs, {}, async (file) => {
    const next = normals(7)
    for (const [name, extents, spread, mean] of tensors) {
      await file.write(name, toBf16(Float32Array.from({ length: sizeOf(extents) }, () => mean + spread * next())), 0)
    }
  })
}
