/** Tensors of tests and files that hold them; usable outside vitest too. */
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'

export interface Tensor {
  readonly shape: readonly number[]
  readonly data: Float32Array
}
export type Tensors = ReadonlyMap<string, Tensor>
export type Dtype = 'F32' | 'F16' | 'BF16'

/** splitmix32: numbers in [0, 1), the same everywhere. */
export const random = (seed: number): (() => number) => {
  let state = seed >>> 0
  return () => {
    state = (state + 0x9e3779b9) >>> 0
    let z = state
    z = Math.imul(z ^ (z >>> 16), 0x21f0aaad)
    z = Math.imul(z ^ (z >>> 15), 0x735a2d97)
    return ((z ^ (z >>> 15)) >>> 0) / 2 ** 32
  }
}

const float32Bits = (value: number): number => {
  const view = new DataView(new ArrayBuffer(4))
  view.setFloat32(0, value)
  return view.getUint32(0)
}

/** A number as its stored form: bf16 truncated, f16 truncated with subnormals flushed, both exact to read back. */
const store = (view: DataView, offset: number, value: number, dtype: Dtype): void => {
  if (dtype === 'F32') {
    view.setFloat32(offset, value, true)
    return
  }
  const bits = float32Bits(value)
  if (dtype === 'BF16') view.setUint16(offset, bits >>> 16, true)
  else {
    const exponent = ((bits >>> 23) & 255) - 112
    const half = exponent <= 0 ? 0 : (exponent << 10) | ((bits >>> 13) & 0x3ff)
    view.setUint16(offset, ((bits >>> 16) & 0x8000) | half, true)
  }
}

/** What a stored number reads back as. */
export const rounded = (value: number, dtype: Dtype): number => {
  const view = new DataView(new ArrayBuffer(4))
  store(view, 0, value, dtype)
  if (dtype === 'F32') return view.getFloat32(0, true)
  const half = view.getUint16(0, true)
  if (dtype === 'BF16') {
    view.setUint32(0, half * 65536)
    return view.getFloat32(0)
  }
  const exponent = (half >>> 10) & 31
  const magnitude = exponent === 0 ? 0 : (1 + (half & 0x3ff) / 1024) * 2 ** (exponent - 15)
  return half & 0x8000 ? -magnitude : magnitude
}

/** A safetensors file with this header text and these bytes behind it. */
export const rawSafetensors = (header: string, data: Uint8Array = new Uint8Array(0)): Uint8Array => {
  const text = new TextEncoder().encode(header)
  const out = new Uint8Array(8 + text.length + data.length)
  new DataView(out.buffer).setBigUint64(0, BigInt(text.length), true)
  out.set(text, 8)
  out.set(data, 8 + text.length)
  return out
}

export const safetensors = (tensors: Tensors, dtype: Dtype = 'F32'): Uint8Array => {
  const size = dtype === 'F32' ? 4 : 2
  const header: Record<string, { dtype: string; shape: readonly number[]; data_offsets: readonly [number, number] }> =
    {}
  let offset = 0
  for (const [name, { shape, data }] of tensors) {
    header[name] = { dtype, shape, data_offsets: [offset, offset + data.length * size] }
    offset += data.length * size
  }
  const bytes = new Uint8Array(offset)
  const view = new DataView(bytes.buffer)
  let at = 0
  for (const { data } of tensors.values()) {
    for (const value of data) {
      store(view, at, value, dtype)
      at += size
    }
  }
  return rawSafetensors(JSON.stringify(header), bytes)
}

/** `folder` is there already. */
export const writePackageTo = (folder: string, config: unknown, file: Uint8Array): string => {
  writeFileSync(join(folder, 'config.json'), typeof config === 'string' ? config : JSON.stringify(config))
  writeFileSync(join(folder, 'model.safetensors'), file)
  return folder
}
