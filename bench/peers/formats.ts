/** The number formats of both kinds of files. GGUF and safetensors are little-endian, as is every CPU that this bench runs on. */
/// <reference lib="esnext.float16" />

/** `q8` is GGUF's Q8_0: groups of 32 along the inputs, each 32 int8 and one f16 scale. Value = q · scale. */
export type Format = 'f32' | 'f16' | 'bf16' | 'q8'
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
