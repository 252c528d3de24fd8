/**
 * Writes GGUF version 3, by the specification in the ggml repository (docs/gguf.md, include/gguf.h):
 *
 *   "GGUF", u32 version, u64 tensors, u64 keys
 *   each key:    string, u32 type, value
 *   each tensor: string, u32 dimensions, u64 extents (contiguous first), u32 type, u64 offset from the start of the data
 *   padding to 32, then the data of the tensors, each padded to 32
 *
 * A string is u64 length and bytes; everything is little-endian.
 */
export const ALIGNMENT = 32
const MAGIC = 'GGUF'
const VERSION = 3

export type MetaValue =
  | { readonly u32: number }
  | { readonly f32: number }
  | { readonly string: string }
  | { readonly i32s: readonly number[] }

/** Type numbers of ggml, with the number of values in a block and its bytes. */
export const ggmlTypes = {
  f32: { id: 0, values: 1, bytes: 4 },
  f16: { id: 1, values: 1, bytes: 2 },
  q8: { id: 8, values: 32, bytes: 34 },
  q4k: { id: 12, values: 256, bytes: 144 },
  bf16: { id: 30, values: 1, bytes: 2 },
} as const
export type GgmlType = keyof typeof ggmlTypes

export interface GgufTensor {
  readonly name: string
  readonly extents: readonly number[]
  readonly type: GgmlType
}

export const ggufBytes = ({ extents, type }: GgufTensor): number => {
  const { values, bytes } = ggmlTypes[type]
  return (extents.reduce((product, extent) => product * extent, 1) / values) * bytes
}

export const padded = (bytes: number): number => Math.ceil(bytes / ALIGNMENT) * ALIGNMENT

const u32 = (value: number): Buffer => {
  const out = Buffer.alloc(4)
  out.writeUInt32LE(value)
  return out
}
const u64 = (value: number): Buffer => {
  const out = Buffer.alloc(8)
  out.writeBigUInt64LE(BigInt(value))
  return out
}
const i32 = (value: number): Buffer => {
  const out = Buffer.alloc(4)
  out.writeInt32LE(value)
  return out
}
const f32 = (value: number): Buffer => {
  const out = Buffer.alloc(4)
  out.writeFloatLE(value)
  return out
}
const string = (text: string): Buffer => {
  const bytes = Buffer.from(text)
  return Buffer.concat([u64(bytes.length), bytes])
}
const typed = (value: MetaValue): Buffer => {
  if ('u32' in value) return Buffer.concat([u32(4), u32(value.u32)])
  if ('f32' in value) return Buffer.concat([u32(6), f32(value.f32)])
  if ('i32s' in value) return Buffer.concat([u32(9), u32(5), u64(value.i32s.length), ...value.i32s.map(i32)])
  return Buffer.concat([u32(8), string(value.string)])
}

/** The file up to the data, padded. */
export const ggufHeader = (
  metadata: Readonly<Record<string, MetaValue>>,
  tensors: readonly GgufTensor[],
): Uint8Array => {
  const keys = Object.entries(metadata)
  const parts = [Buffer.from(MAGIC), u32(VERSION), u64(tensors.length), u64(keys.length)]
  for (const [key, value] of keys) parts.push(string(key), typed(value))
  let offset = 0
  for (const tensor of tensors) {
    parts.push(string(tensor.name), u32(tensor.extents.length), ...tensor.extents.map(u64))
    parts.push(u32(ggmlTypes[tensor.type].id), u64(offset))
    offset += padded(ggufBytes(tensor))
  }
  const header = Buffer.concat(parts)
  return Buffer.concat([header, Buffer.alloc(padded(header.length) - header.length)])
}
