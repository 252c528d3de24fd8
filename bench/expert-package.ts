/**
 * Random `perspective` packages of any size for bench/experts.ts: what routes to an expert, and what is in it, is
 * chance.
 */
import { createHash } from 'node:crypto'
import { closeSync, openSync, writeFileSync, writeSync } from 'node:fs'
import { join } from 'node:path'
import { random, rawSafetensors } from '../test/engine/safetensors.ts'
import { perspectiveConfig } from '../test/models/perspective/package.ts'

export interface Sizes {
  /** Layers, channels, inner channels of an expert, experts of a layer. */
  readonly layers: number
  readonly channels: number
  readonly inner: number
  readonly torus: readonly [number, number]
  /** Every layer but the last has a dense part of the same size, as ternary weights in memory. */
  readonly dense?: boolean
}

const GROUP = 64
/** Trits in a byte. */
const PER_BYTE = 5

/**
 * Codes [rows, ⌈inputs / 5⌉] and scales F16 [rows, ⌈inputs / 64⌉] of a random ternary matrix whose outputs are as large
 * as its inputs.
 */
const randomMatrix = (
  rows: number,
  inputs: number,
  next: () => number,
): { readonly codes: Buffer; readonly scales: Buffer } => {
  const units = Math.ceil(inputs / PER_BYTE)
  const codes = Buffer.allocUnsafe(rows * units)
  for (let at = 0; at + 4 <= codes.length; at += 4) codes.writeUInt32LE(Math.floor(next() * 2 ** 32), at)
  for (let at = 0; at < codes.length; at += 1) codes[at] = codes[at]! % 243
  // What lies behind the last input are zeros.
  const left = inputs % PER_BYTE
  const rest = [0, 120, 117, 108, 81][left]!
  for (let row = 0; left > 0 && row < rows; row += 1) {
    const at = row * units + units - 1
    codes[at] = rest + (codes[at]! % 3 ** left)
  }
  const groups = Math.ceil(inputs / GROUP)
  const scales = Buffer.allocUnsafe(rows * groups * 2)
  const half = halfOf(1 / Math.sqrt((2 / 3) * inputs))
  for (let at = 0; at < scales.length; at += 2) scales.writeUInt16LE(half, at)
  return { codes, scales }
}

/** Of a number between 2⁻¹⁴ and 1. */
const halfOf = (x: number): number => {
  const exponent = Math.floor(Math.log2(x))
  return ((exponent + 15) << 10) | Math.floor((x / 2 ** exponent - 1) * 1024)
}

/** Writes the package, source of the experts included, and returns the bytes of that source. */
export const writeExpertPackage = (
  dir: string,
  { layers, channels: D, inner: I, torus, dense = false }: Sizes,
): number => {
  const next = random(7)
  const layerTypes = Array.from({ length: layers }, (_, l) => (l % 4 === 3 ? 'gqa' : 'pdr') as 'gqa' | 'pdr')
  const ffnTypes = layerTypes.map((_, l) => (dense && l < layers - 1 ? 'dense' : 'experts') as 'dense' | 'experts')
  const heads = D / 64
  const config = perspectiveConfig({
    hidden_size: D,
    layer_types: layerTypes,
    ffn_types: ffnTypes,
    intermediate_size: I,
    num_attention_heads: heads,
    num_key_value_heads: Math.max(1, heads / 4),
    head_dim: 64,
    sliding_window: 256,
    recent: 0,
    pdr: { width: 256, rank: 16 },
    experts: { torus: [...torus], intermediate_size: I, group_size: GROUP },
    spp: null,
    mpd: null,
    hdm: null,
    fmea: null,
  })
  const stored: { name: string; dtype: string; shape: readonly number[]; bytes: Buffer }[] = []
  const normal = (): number => (next() + next() + next() - 1.5) * 2
  const plain = (name: string, shape: readonly number[], scale: number, mean = 0): void => {
    const data = Float32Array.from({ length: shape.reduce((a, b) => a * b, 1) }, () => mean + scale * normal())
    stored.push({ name, dtype: 'F32', shape, bytes: Buffer.from(data.buffer) })
  }
  const ternary = (name: string, rows: number, inputs: number): void => {
    const { codes, scales } = randomMatrix(rows, inputs, next)
    stored.push({ name, dtype: 'U8', shape: [rows, Math.ceil(inputs / PER_BYTE)], bytes: codes })
    stored.push({ name: `${name}.scales`, dtype: 'F16', shape: [rows, Math.ceil(inputs / GROUP)], bytes: scales })
  }
  const count = torus[0] * torus[1]
  plain('model.embed_tokens.weight', [256, D], 1)
  plain('lm_head.weight', [256, D], 2 / Math.sqrt(D))
  plain('model.norm.weight', [D], 0.01, 1)
  stored.push({
    name: 'model.experts.positions',
    dtype: 'F32',
    shape: [count, 2],
    bytes: Buffer.from(Float32Array.from({ length: 2 * count }, () => next()).buffer),
  })
  const keys = Math.max(1, heads / 4) * 64
  for (const [l, kind] of layerTypes.entries()) {
    const at = `model.layers.${l}.`
    const map = (name: string, rows: number, inputs: number, gain = 1): void =>
      plain(`${at}${name}.weight`, [rows, inputs], gain / Math.sqrt(inputs))
    plain(`${at}input_layernorm.weight`, [D], 0.01, 1)
    plain(`${at}post_attention_layernorm.weight`, [D], 0.01, 1)
    if (kind === 'pdr') {
      map('pdr.p_proj', 256, D)
      plain(`${at}pdr.p_proj.bias`, [256], 0.5, 2)
      map('pdr.k_proj', 16, D)
      map('pdr.q_proj', 16, D)
      map('pdr.v_proj', 256, D)
      map('pdr.o_proj', D, 256, 0.5)
      plain(`${at}pdr.out_norm.weight`, [256], 0.01, 1)
    } else {
      map('attn.q_proj', D, D)
      map('attn.k_proj', keys, D)
      map('attn.v_proj', keys, D)
      map('attn.o_proj', D, D, 0.5)
    }
    if (ffnTypes[l] === 'dense') {
      ternary(`${at}mlp.gate_proj.weight`, I, D)
      ternary(`${at}mlp.up_proj.weight`, I, D)
      ternary(`${at}mlp.down_proj.weight`, D, I)
    } else {
      // Routes all over the torus.
      map('router', 2, D, 2)
      plain(`${at}router.bias`, [2], 0.3)
    }
  }
  let end = 0
  const entries = stored.map(({ name, dtype, shape, bytes }) => {
    const from = end
    end += bytes.length
    return [name, { dtype, shape, data_offsets: [from, end] }] as const
  })
  writeFileSync(
    join(dir, 'model.safetensors'),
    rawSafetensors(JSON.stringify(Object.fromEntries(entries)), Buffer.concat(stored.map(({ bytes }) => bytes))),
  )
  const digests: Buffer[] = []
  const header: Record<string, unknown> = {}
  let offset = 0
  const parts = ['gate', 'up', 'down'] as const
  const routed = ffnTypes.flatMap((type, l) => (type === 'experts' ? [l] : []))
  for (const l of routed)
    for (let e = 0; e < count; e += 1)
      for (const part of parts) {
        const [rows, inputs] = part === 'down' ? [D, I] : [I, D]
        const name = `model.layers.${l}.experts.${e}.${part}_proj.weight`
        for (const [suffix, dtype, width, bytes] of [
          ['', 'U8', Math.ceil(inputs / PER_BYTE), 1],
          ['.scales', 'F16', Math.ceil(inputs / GROUP), 2],
        ] as const) {
          header[name + suffix] = { dtype, shape: [rows, width], data_offsets: [offset, offset + rows * width * bytes] }
          offset += rows * width * bytes
        }
      }
  const text = Buffer.from(JSON.stringify(header))
  const size = Buffer.alloc(8)
  size.writeBigUInt64LE(BigInt(text.length))
  const file = openSync(join(dir, 'experts.safetensors'), 'w')
  try {
    writeSync(file, size)
    writeSync(file, text)
    for (const _ of routed) {
      const hash = createHash('sha256')
      for (let e = 0; e < count; e += 1)
        for (const part of parts) {
          const { codes, scales } = part === 'down' ? randomMatrix(D, I, next) : randomMatrix(I, D, next)
          writeSync(file, codes)
          writeSync(file, scales)
          hash.update(codes).update(scales)
        }
      digests.push(hash.digest())
    }
  } finally {
    closeSync(file)
  }
  const digest = createHash('sha256').update(Buffer.concat(digests)).digest('hex')
  const quantized = dense && {
    quantization_config: { quant_method: 'continuo', format: 'ternary3', group_size: GROUP },
  }
  writeFileSync(
    join(dir, 'config.json'),
    JSON.stringify({ ...config, experts: { ...config.experts, digest }, ...quantized }, null, 1),
  )
  return offset
}
