/** Tensors of `perspective` packages as the files hold them: numbers, and matrices of trits with their scales. */
import { readFileSync } from 'node:fs'

export interface Stored {
  readonly dtype: string
  readonly shape: readonly number[]
  readonly bytes: Uint8Array
}
export type StoredTensors = ReadonlyMap<string, Stored>

interface Entry {
  readonly dtype: string
  readonly shape: readonly number[]
  readonly data_offsets: readonly [number, number]
}

export const readStored = (path: string): StoredTensors => {
  const file = readFileSync(path)
  const start = 8 + Number(file.readBigUInt64LE(0))
  const header = JSON.parse(file.toString('utf8', 8, start)) as Record<string, Entry>
  const entries = Object.entries(header).filter(([name]) => name !== '__metadata__')
  return new Map(
    entries.map(
      ([
        name,
        {
          dtype,
          shape,
          data_offsets: [from, to],
        },
      ]) => [name, { dtype, shape, bytes: file.subarray(start + from, start + to) }],
    ),
  )
}

export const halfOf = (bits: number): number => {
  const [exponent, fraction] = [(bits >> 10) & 31, bits & 1023]
  const size = exponent === 0 ? fraction * 2 ** -24 : (1 + fraction / 1024) * 2 ** (exponent - 15)
  return bits & 0x8000 ? -size : size
}

const NUMBERS: Readonly<Record<string, readonly [width: number, read: (view: DataView, at: number) => number]>> = {
  F32: [4, (view, at) => view.getFloat32(at, true)],
  F16: [2, (view, at) => halfOf(view.getUint16(at, true))],
  BF16: [
    2,
    (view, at) => {
      const wide = new DataView(new ArrayBuffer(4))
      wide.setUint16(0, view.getUint16(at, true))
      return wide.getFloat32(0)
    },
  ],
  I32: [4, (view, at) => view.getInt32(at, true)],
  I64: [8, (view, at) => Number(view.getBigInt64(at, true))],
  I8: [1, (view, at) => view.getInt8(at)],
  U8: [1, (view, at) => view.getUint8(at)],
}

/** The numbers of a tensor, exactly. */
export const numbersOf = ({ dtype, bytes }: Stored): Float64Array => {
  const [width, read] = NUMBERS[dtype] ?? []
  if (width === undefined || read === undefined) throw new Error(`the reference does not read ${dtype}`)
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength)
  return Float64Array.from({ length: bytes.length / width }, (_, i) => read(view, i * width))
}

export interface Ternary {
  readonly outputs: number
  readonly inputs: number
  readonly group: number
  /** [outputs, inputs], −1, 0 or 1. */
  readonly trits: Int8Array
  /** [outputs, ⌈inputs/group⌉] */
  readonly scales: Float64Array
}

/** A matrix of ternary3: a byte holds Σ (t + 1)·3ⁱ of five inputs of its row. */
export const ternaryOf = (codes: Stored, scales: Stored, inputs: number, group: number): Ternary => {
  const [outputs = 0, across = 0] = codes.shape
  if (across !== Math.ceil(inputs / 5) || scales.shape[1] !== Math.ceil(inputs / group))
    throw new Error(`the reference expected ternary3 [${outputs}, ${inputs}]`)
  const trits = new Int8Array(outputs * inputs)
  for (let o = 0; o < outputs; o += 1) {
    for (let i = 0; i < inputs; i += 1) {
      const byte = codes.bytes[o * across + Math.floor(i / 5)]!
      trits[o * inputs + i] = (Math.floor(byte / 3 ** (i % 5)) % 3) - 1
    }
  }
  return { outputs, inputs, group, trits, scales: numbersOf(scales) }
}
