/**
 * The number formats of both kinds of files. GGUF and safetensors are little-endian, as is every CPU that this bench
 * runs on.
 */
/// <reference lib="esnext.float16" />
import { ggmlTypes } from './gguf.ts'

/**
 * `q8` is GGUF's Q8_0: groups of 32 along the inputs, each 32 int8 and one f16 scale. Value = q · scale. `q4k` is its
 * Q4_K: blocks of 256 along the inputs, eight groups of 32 nibbles, each with a scale and a minimum of six bits. Value
 * = (d · scale) · q − (dmin · minimum). `q4` is its Q4_0: groups of 32 nibbles and one f16 scale. Value = d · (q − 8);
 * the same numbers are `i4` in a package. `q6k` is its Q6_K: blocks of 256, sixteen groups of 16 codes of six bits,
 * each with a scale of eight. Value = (d · scale) · (q − 32).
 */
export type Format = 'f32' | 'f16' | 'bf16' | 'q8' | 'q4' | 'q4k' | 'q6k'
/** Formats that only a GGUF file has. */
export const GGUF_ONLY: ReadonlySet<string> = new Set<Format>(['q4k', 'q6k'])
/** What `quantization_config` calls the formats that a package holds as whole numbers with scales. */
export const PACKAGE_FORMATS = { q8: 'q8', q4: 'i4' } as const
export const isPackageFormat = (format: string): format is keyof typeof PACKAGE_FORMATS =>
  Object.hasOwn(PACKAGE_FORMATS, format)
export const GROUP = 32

export const bytesOf = (array: ArrayBufferView): Uint8Array =>
  new Uint8Array(array.buffer, array.byteOffset, array.byteLength)

export const toF16 = (values: Float32Array): Uint8Array => bytesOf(Float16Array.from(values))

/** Round to nearest, ties to even. */
export const toBf16 = (values: Float32Array): Uint8Array => {
  const words = new Uint32Array(values.buffer, values.byteOffset, values.length)
  const out = new Uint16Array(values.length)
  for (let i = 0; i < out.length; i += 1) out[i] = (words[i]! + 0x7fff + ((words[i]! >>> 16) & 1)) >>> 16
  return bytesOf(out)
}

export interface Quantised {
  /** [rows, inputs], −127…127. */
  readonly codes: Int8Array
  /** [rows, inputs / 32] */
  readonly scales: Float16Array
}

/** `values` is [rows, inputs] with inputs a multiple of 32, so groups never cross a row. */
export const quantise = (values: Float32Array): Quantised => {
  const codes = new Int8Array(values.length)
  const scales = new Float16Array(values.length / GROUP)
  for (let group = 0; group < scales.length; group += 1) {
    const first = group * GROUP
    let largest = 0
    for (let i = first; i < first + GROUP; i += 1) largest = Math.max(largest, Math.abs(values[i]!))
    scales[group] = largest / 127
    const scale = scales[group]!
    if (scale === 0) continue
    for (let i = first; i < first + GROUP; i += 1) {
      codes[i] = Math.max(-127, Math.min(127, Math.round(values[i]! / scale)))
    }
  }
  return { codes, scales }
}

/** The same integers and scales as Q8_0 blocks of GGUF: the scale, then 32 codes, 34 bytes. */
export const toQ8Blocks = ({ codes, scales }: Quantised): Uint8Array => {
  const block = 2 + GROUP
  const out = new Uint8Array(scales.length * block)
  const scaleBytes = bytesOf(scales)
  const codeBytes = bytesOf(codes)
  for (let group = 0; group < scales.length; group += 1) {
    out.set(scaleBytes.subarray(2 * group, 2 * group + 2), group * block)
    out.set(codeBytes.subarray(group * GROUP, (group + 1) * GROUP), group * block + 2)
  }
  return out
}

/** The number farthest from 0, with its sign. */
const farthestOf = (values: Float32Array): number =>
  values.reduce((far, value) => (Math.abs(value) > Math.abs(far) ? value : far), 0)

/**
 * Blocks of GGUF's Q4_0, 18 bytes: d (f16), then a byte for the codes i and i + 16. The number farthest from 0 gets the
 * code 0.
 */
export const toQ4Blocks = (values: Float32Array): Uint8Array => {
  const { bytes } = ggmlTypes.q4
  const out = new Uint8Array((values.length / GROUP) * bytes)
  const view = new DataView(out.buffer)
  for (let first = 0, at = 0; first < values.length; first += GROUP, at += bytes) {
    const group = values.subarray(first, first + GROUP)
    view.setFloat16(at, farthestOf(group) / -8, true)
    const d = view.getFloat16(at, true)
    for (const [i, value] of group.entries()) {
      const code = d === 0 ? 8 : Math.max(0, Math.min(15, Math.round(value / d) + 8))
      out[at + 2 + (i % 16)]! |= code << (i < 16 ? 0 : 4)
    }
  }
  return out
}

/** The same codes and scales as a package has them: i4, two codes a byte side by side, and f16. */
export const fromQ4Blocks = (blocks: Uint8Array): { readonly codes: Uint8Array; readonly scales: Uint8Array } => {
  const { bytes } = ggmlTypes.q4
  const count = blocks.length / bytes
  const codes = new Uint8Array((count * GROUP) / 2)
  const scales = new Uint8Array(2 * count)
  for (let group = 0; group < count; group += 1) {
    const at = group * bytes
    scales.set(blocks.subarray(at, at + 2), 2 * group)
    const code = (i: number): number => (blocks[at + 2 + (i % 16)]! >> (i < 16 ? 0 : 4)) & 15
    for (let i = 0; i < GROUP; i += 2) codes[(group * GROUP + i) / 2] = code(i) | (code(i + 1) << 4)
  }
  return { codes, scales }
}

const K_BLOCK = 256
const SIX_BITS = 63

/**
 * Blocks of GGUF's Q4_K, 144 bytes: d, dmin (f16), 12 bytes of scales and minima, 128 bytes of nibbles. `values` is
 * [rows, inputs], inputs a multiple of 256.
 */
export const toQ4kBlocks = (values: Float32Array): Uint8Array => {
  const out = new Uint8Array((values.length / K_BLOCK) * ggmlTypes.q4k.bytes)
  const view = new DataView(out.buffer)
  const scales = new Float32Array(K_BLOCK / GROUP)
  const minima = new Float32Array(K_BLOCK / GROUP)
  for (let first = 0, at = 0; first < values.length; first += K_BLOCK, at += ggmlTypes.q4k.bytes) {
    for (let group = 0; group < scales.length; group += 1) {
      let [least, greatest] = [0, 0]
      for (const value of values.subarray(first + group * GROUP, first + (group + 1) * GROUP)) {
        least = Math.min(least, value)
        greatest = Math.max(greatest, value)
      }
      scales[group] = (greatest - least) / 15
      minima[group] = -least
    }
    view.setFloat16(at, Math.max(...scales) / SIX_BITS, true)
    view.setFloat16(at + 2, Math.max(...minima) / SIX_BITS, true)
    const d = view.getFloat16(at, true)
    const dmin = view.getFloat16(at + 2, true)
    const sixBits = (value: number, unit: number): number =>
      unit === 0 ? 0 : Math.min(SIX_BITS, Math.round(value / unit))
    for (let group = 0; group < scales.length; group += 1) {
      const scale = sixBits(scales[group]!, d)
      const minimum = sixBits(minima[group]!, dmin)
      // Groups 0 to 3: the low six bits of a byte of their own. Groups 4 to 7: four bits in a byte, the upper two above
      // those of group − 4.
      if (group < 4) {
        out[at + 4 + group]! |= scale
        out[at + 8 + group]! |= minimum
      } else {
        out[at + 8 + group] = (scale & 15) | ((minimum & 15) << 4)
        out[at + group]! |= (scale >> 4) << 6
        out[at + 4 + group]! |= (minimum >> 4) << 6
      }
      const step = d * scale
      const shift = (group % 2) * 4
      for (let i = 0; i < GROUP; i += 1) {
        const value = values[first + group * GROUP + i]! + dmin * minimum
        const code = step === 0 ? 0 : Math.max(0, Math.min(15, Math.round(value / step)))
        out[at + 16 + (group >> 1) * GROUP + i]! |= code << shift
      }
    }
  }
  return out
}

const Q6_GROUP = 16

/**
 * Blocks of GGUF's Q6_K, 210 bytes: 128 bytes of lower nibbles, 64 of upper pairs of bits, 16 scales (i8), d (f16).
 * `values` is [rows, inputs], inputs a multiple of 256.
 */
export const toQ6kBlocks = (values: Float32Array): Uint8Array => {
  const { bytes } = ggmlTypes.q6k
  const out = new Uint8Array((values.length / K_BLOCK) * bytes)
  const view = new DataView(out.buffer)
  for (let first = 0, at = 0; first < values.length; first += K_BLOCK, at += bytes) {
    const block = values.subarray(first, first + K_BLOCK)
    const steps = Array.from(
      { length: K_BLOCK / Q6_GROUP },
      (_, group) => farthestOf(block.subarray(group * Q6_GROUP, (group + 1) * Q6_GROUP)) / -32,
    )
    view.setFloat16(at + 208, Math.max(...steps.map(Math.abs)) / 127, true)
    const d = view.getFloat16(at + 208, true)
    for (const [group, step] of steps.entries()) {
      const scale = d === 0 ? 0 : Math.max(-127, Math.min(127, Math.round(step / d)))
      view.setInt8(at + 192 + group, scale)
      for (let i = group * Q6_GROUP; i < (group + 1) * Q6_GROUP; i += 1) {
        const code = d * scale === 0 ? 32 : Math.max(0, Math.min(63, Math.round(block[i]! / (d * scale)) + 32))
        const [half, quarter, c] = [i >> 7, (i >> 5) & 3, i & 31]
        out[at + 64 * half + 32 * (quarter & 1) + c]! |= (code & 15) << (quarter < 2 ? 0 : 4)
        out[at + 128 + 32 * half + c]! |= (code >> 4) << (2 * quarter)
      }
    }
  }
  return out
}
