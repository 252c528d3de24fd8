/** Reads safetensors files and what quantised packages hold, by the words of docs/formats.md alone. */
import { readFileSync } from 'node:fs'
import type { Tensor } from '../../engine/packages.ts'

export interface Stored {
  readonly dtype: string
  readonly shape: readonly number[]
  /** Bytes from the beginning of the data. */
  readonly begin: number
  readonly bytes: Buffer
}

export interface StoredFile {
  readonly metadata: Readonly<Record<string, string>> | undefined
  /** In the order of the header. */
  readonly tensors: ReadonlyMap<string, Stored>
  /** Where the data begin in the file. */
  readonly data: number
}

export const readStored = (path: string): StoredFile => {
  const file = readFileSync(path)
  const data = 8 + Number(file.readBigUInt64LE(0))
  const { __metadata__, ...entries } = JSON.parse(file.toString('utf8', 8, data)) as Record<
    string,
    { dtype: string; shape: number[]; data_offsets: [number, number] }
  > & { __metadata__?: Record<string, string> }
  const tensors = new Map<string, Stored>()
  for (const [name, { dtype, shape, data_offsets }] of Object.entries(entries)) {
    const [begin, end] = data_offsets
    tensors.set(name, { dtype, shape, begin, bytes: file.subarray(data + begin, data + end) })
  }
  return { metadata: __metadata__, tensors, data }
}

/** An F16 by its bits. */
export const half = (bits: number): number => {
  const exponent = (bits >> 10) & 31
  const fraction = (bits & 1023) / 1024
  const size = exponent === 0 ? fraction * 2 ** -14 : (1 + fraction) * 2 ** (exponent - 15)
  return bits & 0x8000 ? -size : size
}

/** The numbers of a tensor of F32, F16 or BF16. */
export const numbersOf = ({ dtype, bytes }: Stored): number[] => {
  const size = dtype === 'F32' ? 4 : 2
  return Array.from({ length: bytes.length / size }, (_, i) => {
    if (dtype === 'F32') return bytes.readFloatLE(4 * i)
    const bits = bytes.readUInt16LE(2 * i)
    if (dtype === 'F16') return half(bits)
    const wide = Buffer.alloc(4)
    wide.writeUInt16LE(bits, 2)
    return wide.readFloatLE(0)
  })
}

export interface Dequantised {
  /** [N, K]; of several matrices in one tensor the rows of all. */
  readonly values: number[]
  /** The scale of each weight, [N, K]. */
  readonly scales: number[]
}

/** What the rows [N, K] of a tensor of a quantised package stand for. */
export const dequantise = ({ tensors, metadata }: StoredFile, name: string, K: number, group: number): Dequantised => {
  const codes = tensors.get(name)!
  const stored = numbersOf(tensors.get(`${name}.scales`)!)
  const width = codes.shape.at(-1) ?? 0
  const N = codes.shape.slice(0, -1).reduce((rows, extent) => rows * extent, 1)
  const groups = Math.ceil(K / group)
  const values: number[] = []
  const scales: number[] = []
  for (let n = 0; n < N; n++) {
    for (let k = 0; k < K; k++) {
      const code = metadata?.['continuo.quantized']?.startsWith('i4')
        ? ((codes.bytes[n * width + Math.floor(k / 2)]! >> (4 * (k % 2))) & 15) - 8
        : codes.dtype === 'I8'
          ? codes.bytes.readInt8(n * width + k)
          : (Math.floor(codes.bytes[n * width + Math.floor(k / 5)]! / 3 ** (k % 5)) % 3) - 1
      const scale = stored[n * groups + Math.floor(k / group)]!
      values.push(code * scale)
      scales.push(scale)
    }
  }
  return { values, scales }
}

/** All tensors in F32: what was copied widened, what was quantised multiplied out. */
export const dequantisedTensors = (original: StoredFile, quantised: StoredFile, group: number): Map<string, Tensor> => {
  const out = new Map<string, Tensor>()
  for (const [name, { shape }] of original.tensors) {
    const kept = quantised.tensors.get(name)!
    const values = quantised.tensors.has(`${name}.scales`)
      ? dequantise(quantised, name, shape.at(-1)!, group).values
      : numbersOf(kept)
    out.set(name, { shape, data: Float32Array.from(values) })
  }
  return out
}
