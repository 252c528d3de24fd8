/** Random small `perspective` packages for a configuration, and inputs for them whose decisions are far from ties. */
import { createHash } from 'node:crypto'
import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { random, rawSafetensors, safetensors, type Tensor } from '../../engine/safetensors.ts'
import { kindOf, type PerspectiveConfig, sizesOf, TARGETS } from './config.ts'
import { type Margins, together, within } from './margins.ts'
import type { Session } from './reference.ts'
import { halfOf, type Stored, type StoredTensors } from './tensors.ts'

type Section<K extends 'spp' | 'mpd' | 'hdm' | 'fmea'> = Partial<NonNullable<PerspectiveConfig[K]>> | null
export type Change = Partial<
  Omit<PerspectiveConfig, 'pdr' | 'experts' | 'spp' | 'mpd' | 'hdm' | 'fmea' | 'rope_increments' | 'num_hidden_layers'>
> & {
  readonly pdr?: Partial<PerspectiveConfig['pdr']>
  /** `count` follows from `torus`. */
  readonly experts?: Partial<Omit<PerspectiveConfig['experts'], 'count' | 'digest'>>
  readonly spp?: Section<'spp'>
  readonly mpd?: Section<'mpd'>
  readonly hdm?: Section<'hdm'>
  readonly fmea?: Section<'fmea'>
}

const MPD = {
  layers: 2,
  perspectives: ['base', 'jitter', 'temperature', 'dropout'],
  max_p: 0.6,
  entropy: 3,
  jsd: 0.25,
  jitter_std: 0.1,
  temperature: 2,
  dropout: 0.05,
} as const
const HDM = { bits: 1024, banks: 8, seed: 20240917, hit_max: 440, blend: 0.5, write_nats: 9 } as const
const FMEA = {
  targets: ['pdr.p_proj'],
  rank: 4,
  seed: 7,
  directions: 2,
  learning_rate: 0.004,
  anchor: 0.01,
  population: 2,
  sigma: 0.05,
  router_rate: 0.004,
  router_anchor: 0.1,
} as const

/**
 * Three layers with every part; `change` comes over it, null for a part that the model does not have. The digest is the
 * writer's.
 */
export const perspectiveConfig = (change: Change = {}): PerspectiveConfig => {
  const { pdr, experts, spp, mpd, hdm, fmea, ...plain } = change
  const sizes = {
    model_type: 'perspective',
    architectures: ['PerspectiveForCausalLM'],
    vocab_size: 256,
    hidden_size: 64,
    layer_types: ['pdr', 'gqa', 'pdr'],
    intermediate_size: 96,
    rms_norm_eps: 1e-5,
    tie_word_embeddings: false,
    num_attention_heads: 4,
    num_key_value_heads: 2,
    head_dim: 16,
    sliding_window: 24,
    rope_theta: 10000,
    recent: 12,
    ...plain,
  } as const
  const { head_dim: d, rope_theta: theta } = sizes
  const torus = experts?.torus ?? [4, 4]
  const part = <T>(base: T, own: Partial<T> | null | undefined): T | null => (own === null ? null : { ...base, ...own })
  const decoding = part<NonNullable<PerspectiveConfig['mpd']>>(MPD, mpd)
  return {
    ...sizes,
    num_hidden_layers: sizes.layer_types.length,
    ffn_types: plain.ffn_types ?? sizes.layer_types.map(() => 'experts' as const),
    rope_increments: Array.from({ length: d / 2 }, (_, i) =>
      Math.floor((2 ** 32 / (2 * Math.PI)) * theta ** ((-2 * i) / d) + 0.5),
    ),
    pdr: { width: 64, rank: 16, gamma_min: 0, gamma_max: 0.999, write: 'convex', ...pdr },
    experts: {
      intermediate_size: 96,
      top_k: 1,
      temperature: 0.02,
      format: 'ternary3',
      group_size: 32,
      ...experts,
      torus,
      count: torus[0] * torus[1],
      digest: '',
    },
    spp: part({ half_spaces: 8, iterations: 12, inflation: 0.25 }, spp),
    mpd: decoding,
    hdm: decoding === null ? null : part(HDM, hdm),
    fmea: part<NonNullable<PerspectiveConfig['fmea']>>(FMEA, fmea),
  }
}

const matrixNames = ['gate_proj', 'up_proj', 'down_proj'] as const

/** The digest that binds experts to their package (§13), from what `experts.safetensors` holds. */
export const digestOf = (config: PerspectiveConfig, experts: StoredTensors): string => {
  const whole = createHash('sha256')
  for (const [l, kind] of config.ffn_types.entries()) {
    if (kind === 'dense') continue
    const layer = createHash('sha256')
    for (let e = 0; e < config.experts.count; e += 1) {
      for (const name of matrixNames) {
        const tensor = `model.layers.${l}.experts.${e}.${name}.weight`
        layer.update(experts.get(tensor)!.bytes).update(experts.get(`${tensor}.scales`)!.bytes)
      }
    }
    whole.update(layer.digest())
  }
  return whole.digest('hex')
}

type Next = () => number

interface Coded {
  readonly codes: Uint8Array
  readonly scales: Uint8Array
}

/**
 * A row of a ternary matrix: trits that are −1, 0, 1 alike, and a scale around √(1.5 / inputs) · `gain` for each group.
 */
const codedRow = (next: Next, inputs: number, group: number, gain: number): Coded => {
  const trits = Array.from({ length: Math.ceil(inputs / 5) * 5 }, (_, i) => (i < inputs ? Math.floor(next() * 3) : 1))
  const codes = Uint8Array.from({ length: trits.length / 5 }, (_, b) =>
    [4, 3, 2, 1, 0].reduce((byte, i) => byte * 3 + trits[5 * b + i]!, 0),
  )
  const scales = new Uint8Array(2 * Math.ceil(inputs / group))
  const view = new DataView(scales.buffer)
  for (let g = 0; g < scales.length; g += 2) {
    const wanted = Math.sqrt(1.5 / inputs) * gain * (0.75 + 0.5 * next())
    const exponent = Math.floor(Math.log2(wanted))
    const bits = ((exponent + 15) << 10) + Math.floor((wanted / 2 ** exponent - 1) * 1024)
    if (!(halfOf(bits) > 0 && halfOf(bits) <= wanted)) throw new Error(`${wanted} is no scale`)
    view.setUint16(g, bits, true)
  }
  return { codes, scales }
}

const joined = (parts: readonly Uint8Array[]): Uint8Array => Uint8Array.from(parts.flatMap((part) => [...part]))

/**
 * Experts of one row of the grid take `kinship` of their matrices' rows from the same source, so that deltas between
 * neighbours of that direction are small; those of other rows have nothing in common.
 */
const randomExperts = (next: Next, config: PerspectiveConfig, kinship: number): Map<string, Stored> => {
  const { hidden_size: D } = config
  const { count, torus, intermediate_size: I, group_size: G } = config.experts
  const sizes = { gate_proj: [I, D, 1], up_proj: [I, D, 1], down_proj: [D, I, 1.2] } as const
  const out = new Map<string, Stored>()
  for (const [l, kind] of config.ffn_types.entries()) {
    if (kind === 'dense') continue
    for (const name of matrixNames) {
      const [outputs, inputs, gain] = sizes[name]
      const row = (): Coded => codedRow(next, inputs, G, gain)
      const sources = Array.from({ length: torus[1] }, () => Array.from({ length: outputs }, row))
      for (let e = 0; e < count; e += 1) {
        const rows = sources[e % torus[1]]!.map((source) => (next() < kinship ? source : row()))
        const tensor = `model.layers.${l}.experts.${e}.${name}.weight`
        const shape = (across: number): readonly number[] => [outputs, Math.ceil(inputs / across)]
        out.set(tensor, { dtype: 'U8', shape: shape(5), bytes: joined(rows.map(({ codes }) => codes)) })
        out.set(`${tensor}.scales`, { dtype: 'F16', shape: shape(G), bytes: joined(rows.map(({ scales }) => scales)) })
      }
    }
  }
  return out
}

const randomTensors = (next: Next, config: PerspectiveConfig): Map<string, Tensor> => {
  const { vocab_size: V, hidden_size: D, intermediate_size: I, experts, spp, layer_types, ffn_types } = config
  const [a, b] = experts.torus
  const out = new Map<string, Tensor>()
  const between = (low: number, high: number): number => low + (high - low) * next()
  const put = (name: string, shape: readonly number[], of: (i: number) => number): void => {
    const length = shape.reduce((product, extent) => product * extent, 1)
    out.set(name, { shape, data: Float32Array.from({ length }, (_, i) => of(i)) })
  }
  /** Outputs of deviation `gain` where inputs have 1. */
  const table = (name: string, outputs: number, inputs: number, gain: number): void => {
    const bound = gain * Math.sqrt(3 / inputs)
    put(name, [outputs, inputs], () => between(-bound, bound))
  }
  const matrix = (name: string, outputs: number, inputs: number, gain: number): void =>
    table(`${name}.weight`, outputs, inputs, gain)
  const norm = (name: string, width: number): void => put(`${name}.weight`, [width], () => between(0.7, 1.3))
  const gains: Readonly<Record<string, number>> = { 'pdr.p_proj': 1.5, 'attn.q_proj': 1.5, 'attn.k_proj': 1.5 }
  // Logits of deviation 4: some draws are sure, most have something to ask other perspectives.
  if (config.tie_word_embeddings) matrix('model.embed_tokens', V, D, 4)
  else {
    put('model.embed_tokens.weight', [V, D], () => between(-1, 1))
    matrix('lm_head', V, D, 4)
  }
  for (const [l, kind] of layer_types.entries()) {
    const at = `model.layers.${l}.`
    norm(`${at}input_layernorm`, D)
    norm(`${at}post_attention_layernorm`, D)
    for (const target of TARGETS.filter((each) => kindOf(each) === kind)) {
      matrix(at + target, ...sizesOf(config, target), gains[target] ?? 1)
    }
    if (kind === 'pdr') {
      put(`${at}pdr.p_proj.bias`, [config.pdr.width], () => between(0, 4))
      norm(`${at}pdr.out_norm`, config.pdr.width)
    }
    if (ffn_types[l] === 'experts') {
      // Wide enough for all of the torus to be reached.
      matrix(`${at}router`, 2, D, 0.5)
      put(`${at}router.bias`, [2], () => between(-0.5, 0.5))
    } else {
      matrix(`${at}mlp.gate_proj`, I, D, 1)
      matrix(`${at}mlp.up_proj`, I, D, 1)
      matrix(`${at}mlp.down_proj`, D, I, 1.2)
    }
  }
  put('model.experts.positions', [experts.count, 2], (i) => {
    const cell = Math.floor(i / 2)
    const place = i % 2 === 0 ? Math.floor(cell / b) / a : (cell % b) / b
    const moved = place + between(-0.25, 0.25) / (i % 2 === 0 ? a : b)
    const inside = Math.fround(moved - Math.floor(moved))
    return inside < 1 ? inside : 0
  })
  norm('model.norm', D)
  if (spp !== null) {
    table('model.spp.normals', spp.half_spaces, D, 1)
    put('model.spp.offsets', [spp.half_spaces], () => between(-0.2, 0.4))
  }
  return out
}

/** A safetensors file of tensors of any dtype, as they are. */
export const storedFile = (tensors: StoredTensors): Uint8Array => {
  let at = 0
  const header = Object.fromEntries(
    [...tensors].map(([name, { dtype, shape, bytes }]) => {
      const from = at
      at += bytes.length
      return [name, { dtype, shape, data_offsets: [from, at] }]
    }),
  )
  return rawSafetensors(JSON.stringify(header), Buffer.concat([...tensors.values()].map(({ bytes }) => bytes)))
}

/** A token for each byte, in GPT-2's letters for bytes. */
export const byteTokenizer = (): unknown => {
  const plain = (byte: number): boolean => (byte > 32 && byte < 127) || (byte > 160 && byte < 256 && byte !== 173)
  const bytes = Array.from({ length: 256 }, (_, byte) => byte)
  const others = bytes.filter((byte) => !plain(byte))
  const letter = (byte: number): string => String.fromCharCode(plain(byte) ? byte : 256 + others.indexOf(byte))
  const spaces = { type: 'ByteLevel', trim_offsets: true, use_regex: true }
  return {
    version: '1.0',
    truncation: null,
    padding: null,
    added_tokens: [],
    normalizer: null,
    pre_tokenizer: { ...spaces, add_prefix_space: false },
    post_processor: null,
    decoder: { ...spaces, add_prefix_space: true },
    model: {
      type: 'BPE',
      dropout: null,
      unk_token: null,
      continuing_subword_prefix: null,
      end_of_word_suffix: null,
      fuse_unk: false,
      byte_fallback: false,
      ignore_merges: false,
      vocab: Object.fromEntries(bytes.map((byte) => [letter(byte), byte])),
      merges: [],
    },
  }
}

/** Writes the package of a configuration into `folder`, the same for the same seed; returns the folder. */
export const writePerspective = (folder: string, config: PerspectiveConfig, seed = 1, kinship = 0.9): string => {
  mkdirSync(folder, { recursive: true })
  const next = random(seed)
  const tensors = randomTensors(next, config)
  const experts = randomExperts(next, config, kinship)
  const own = { ...config, experts: { ...config.experts, digest: digestOf(config, experts) } }
  writeFileSync(join(folder, 'model.safetensors'), safetensors(tensors))
  writeFileSync(join(folder, 'experts.safetensors'), storedFile(experts))
  writeFileSync(join(folder, 'config.json'), `${JSON.stringify(own, null, 2)}\n`)
  if (config.vocab_size === 256) writeFileSync(join(folder, 'tokenizer.json'), JSON.stringify(byteTokenizer()))
  return folder
}

/**
 * Margins at which float32 decides as float64 does, reading and drawing; of an adapt rounding may come closer (§18).
 */
export const LIMITS = { rounding: 2e-4, route: 1e-4, trigger: 1e-3, jsd: 5e-4 } as const
export const ADAPT_LIMITS = { rounding: 6e-5, route: 1e-5, write: 1e-3, accept: 1e-4 } as const

/**
 * Feeds `count` ids into the session, each the first of a random order of the vocabulary with wide margins, its draw's
 * with seed `draw` among them where one is given. Throws where no id has them.
 */
export const chooseIds = (
  session: Session,
  count: number,
  vocabulary: number,
  {
    seed = 1,
    draw,
    limits = LIMITS,
  }: { readonly seed?: number; readonly draw?: number; readonly limits?: Partial<Margins> } = {},
): readonly number[] => {
  const next = random(seed)
  return Array.from({ length: count }, (_, i) => {
    const order = Array.from({ length: vocabulary }, (__, id) => ({ id, by: next() })).sort((a, b) => a.by - b.by)
    for (const { id } of order) {
      const trial = session.fork()
      const margins = [trial.feed(id).margins, ...(draw === undefined ? [] : [trial.draw(draw).margins])]
      if (!within(together(margins), limits)) continue
      session.feed(id)
      return id
    }
    throw new Error(`no id of ${vocabulary} keeps token ${i} away from ties`)
  })
}

/** The first of `tries` seeds with which an adapt of the session has wide margins; the session is left as it is. */
export const chooseAdaptSeed = (
  session: Session,
  evaluations: number,
  {
    first = 0,
    tries = 200,
    limits = ADAPT_LIMITS,
  }: { readonly first?: number; readonly tries?: number; readonly limits?: Partial<Margins> } = {},
): number => {
  for (let seed = first; seed < first + tries; seed += 1) {
    if (within(session.fork().adapt(evaluations, seed).margins, limits)) return seed
  }
  throw new Error(`none of ${tries} seeds keeps an adapt of ${evaluations} evaluations away from ties`)
}
