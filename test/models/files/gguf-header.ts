/**
 * Writes the head of a GGUF file, version 3, by the specification in the ggml repository (docs/gguf.md,
 * include/gguf.h):
 *
 *   "GGUF", u32 version, u64 tensors, u64 keys
 *   each key:    string, u32 type, value
 *   each tensor: string, u32 dimensions, u64 extents (contiguous first), u32 type, u64 offset from the start of the data
 *   padding to 32, then the data of the tensors, each padded to 32
 *
 * A string is u64 length and bytes; everything is little-endian.
 */
export const ALIGNMENT = 32

export const u16 = (value: number): Buffer => {
  const out = Buffer.alloc(2)
  out.writeUInt16LE(value)
  return out
}
export const u32 = (value: number): Buffer => {
  const out = Buffer.alloc(4)
  out.writeUInt32LE(value)
  return out
}
const u64 = (value: number): Buffer => {
  const out = Buffer.alloc(8)
  out.writeBigUInt64LE(BigInt(value))
  return out
}
const f32 = (value: number): Buffer => {
  const out = Buffer.alloc(4)
  out.writeFloatLE(value)
  return out
}

export type GgufValue =
  | string
  | boolean
  | readonly string[]
  | { readonly u32: number }
  | { readonly f32: number }
  | { readonly i32s: readonly number[] }
  | { readonly f32s: readonly number[] }

const text = (value: string): Buffer => Buffer.concat([u64(Buffer.byteLength(value)), Buffer.from(value)])

const valueBytes = (value: GgufValue): Buffer => {
  if (typeof value === 'string') return Buffer.concat([u32(8), text(value)])
  if (typeof value === 'boolean') return Buffer.concat([u32(7), Buffer.from([value ? 1 : 0])])
  if ('u32' in value) return Buffer.concat([u32(4), u32(value.u32)])
  if ('f32' in value) return Buffer.concat([u32(6), f32(value.f32)])
  if ('i32s' in value)
    return Buffer.concat([u32(9), u32(5), u64(value.i32s.length), Buffer.from(Int32Array.from(value.i32s).buffer)])
  if ('f32s' in value)
    return Buffer.concat([u32(9), u32(6), u64(value.f32s.length), Buffer.from(Float32Array.from(value.f32s).buffer)])
  return Buffer.concat([u32(9), u32(8), u64(value.length), ...value.map(text)])
}

export interface GgufEntry {
  readonly name: string
  /** The contiguous one first. */
  readonly extents: readonly number[]
  /** The number of its type in ggml. */
  readonly type: number
  readonly bytes: number
}

export const padded = (bytes: number): number => Math.ceil(bytes / ALIGNMENT) * ALIGNMENT

/** The file up to the data, padded. */
export const ggufHeader = (
  metadata: Readonly<Record<string, GgufValue>>,
  tensors: readonly GgufEntry[],
  version = 3,
): Uint8Array => {
  const keys = Object.entries(metadata)
  const parts = [Buffer.from('GGUF'), u32(version), u64(tensors.length), u64(keys.length)]
  for (const [key, value] of keys) parts.push(text(key), valueBytes(value))
  let offset = 0
  for (const { name, extents, type, bytes } of tensors) {
    parts.push(text(name), u32(extents.length), ...extents.map(u64), u32(type), u64(offset))
    offset += padded(bytes)
  }
  const header = Buffer.concat(parts)
  return Buffer.concat([header, Buffer.alloc(padded(header.length) - header.length)])
}
