/** Writes model packages: random small RWKV-7 models, and any safetensors file, good or bad. */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll } from 'vitest'

export interface Tensor {
  readonly shape: readonly number[]
  readonly data: Float32Array
}
export type Tensors = ReadonlyMap<string, Tensor>
export type Dtype = 'F32' | 'F16' | 'BF16'

const folders: string[] = []
// The fuzzers make packages too, in processes without vitest and in folders of their own.
if (process.env.VITEST !== undefined) {
  afterAll(() => {
    for (const path of folders) rmSync(path, { recursive: true, force: true })
  })
}

/** A fresh folder that goes away with the test file. */
export const temporaryFolder = (): string => {
  const folder = mkdtempSync(join(tmpdir(), 'continuo-test-'))
  folders.push(folder)
  return folder
}

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

export const writePackage = (config: unknown, file: Uint8Array, folder: string = temporaryFolder()): string => {
  writeFileSync(join(folder, 'config.json'), typeof config === 'string' ? config : JSON.stringify(config))
  writeFileSync(join(folder, 'model.safetensors'), file)
  return folder
}

/** The tensors of an F32 safetensors file. */
export const readTensors = (path: string): Map<string, Tensor> => {
  const file = readFileSync(path)
  const length = Number(file.readBigUInt64LE(0))
  const header = JSON.parse(file.toString('utf8', 8, 8 + length)) as Record<
    string,
    { dtype: string; shape: number[]; data_offsets: [number, number] }
  >
  const out = new Map<string, Tensor>()
  for (const [name, entry] of Object.entries(header)) {
    if (name === '__metadata__') continue
    if (entry.dtype !== 'F32') throw new Error(`${name} is ${entry.dtype}`)
    const bytes = file.subarray(8 + length + entry.data_offsets[0], 8 + length + entry.data_offsets[1])
    out.set(name, { shape: entry.shape, data: new Float32Array(Uint8Array.from(bytes).buffer) })
  }
  return out
}

export interface Sizes {
  readonly L: number
  readonly H: number
  readonly N: number
  readonly F: number
  readonly V: number
  /** Widths of the low-rank maps. */
  readonly D: { readonly w: number; readonly a: number; readonly v: number; readonly g: number }
}

/** A random RWKV-7 under official names, with weights large enough for every term to matter. */
export const randomRwkv7 = (seed: number, { L, H, N, F, V, D }: Sizes): Map<string, Tensor> => {
  const next = random(seed)
  const C = H * N
  const out = new Map<string, Tensor>()
  const put = (name: string, shape: readonly number[], low: number, high: number): void => {
    const length = shape.reduce((product, extent) => product * extent, 1)
    out.set(name, { shape, data: Float32Array.from({ length }, () => low + (high - low) * next()) })
  }
  const matrix = (name: string, rows: number, columns: number, inputs: number): void => {
    const bound = 1.5 / Math.sqrt(inputs)
    put(name, [rows, columns], -bound, bound)
  }
  const norm = (name: string): void => {
    put(`${name}.weight`, [C], 0.5, 1.5)
    put(`${name}.bias`, [C], -0.3, 0.3)
  }
  put('emb.weight', [V, C], -1, 1)
  for (let l = 0; l < L; l++) {
    const at = `blocks.${l}`
    if (l === 0) norm(`${at}.ln0`)
    norm(`${at}.ln1`)
    norm(`${at}.ln2`)
    for (const c of 'rwkvag') put(`${at}.att.x_${c}`, [1, 1, C], 0, 1)
    for (const which of ['w', 'a', 'v', 'g'] as const) {
      if (which === 'v' && l === 0) continue
      matrix(`${at}.att.${which}1`, C, D[which], C)
      matrix(`${at}.att.${which}2`, D[which], C, D[which])
      if (which !== 'g') put(`${at}.att.${which}0`, [1, 1, C], -1, 1)
    }
    put(`${at}.att.k_k`, [1, 1, C], 0.5, 1)
    put(`${at}.att.k_a`, [1, 1, C], 0.5, 1.2)
    put(`${at}.att.r_k`, [H, N], -0.5, 0.5)
    for (const name of ['receptance', 'key', 'value', 'output']) matrix(`${at}.att.${name}.weight`, C, C, C)
    norm(`${at}.att.ln_x`)
    put(`${at}.ffn.x_k`, [1, 1, C], 0, 1)
    matrix(`${at}.ffn.key.weight`, F, C, C)
    matrix(`${at}.ffn.value.weight`, C, F, F)
  }
  norm('ln_out')
  matrix('head.weight', V, C, C)
  return out
}

/** The same weights under the names and orientations of flash-linear-attention's Hugging Face models. */
export const toFla = (tensors: Tensors): Map<string, Tensor> => {
  const whole: Record<string, string> = {
    'emb.weight': 'model.embeddings.weight',
    'head.weight': 'lm_head.weight',
    'ln_out.weight': 'model.norm.weight',
    'ln_out.bias': 'model.norm.bias',
  }
  const parts: readonly (readonly [RegExp, string])[] = [
    [/^blocks\.(\d+)\.ln0\./, 'model.layers.$1.pre_norm.'],
    [/^blocks\.(\d+)\.ln1\./, 'model.layers.$1.attn_norm.'],
    [/^blocks\.(\d+)\.ln2\./, 'model.layers.$1.ffn_norm.'],
    [/^blocks\.(\d+)\.ffn\./, 'model.layers.$1.ffn.'],
    [/^blocks\.(\d+)\.att\.receptance\./, 'model.layers.$1.attn.r_proj.'],
    [/^blocks\.(\d+)\.att\.key\./, 'model.layers.$1.attn.k_proj.'],
    [/^blocks\.(\d+)\.att\.value\./, 'model.layers.$1.attn.v_proj.'],
    [/^blocks\.(\d+)\.att\.output\./, 'model.layers.$1.attn.o_proj.'],
    [/^blocks\.(\d+)\.att\.ln_x\./, 'model.layers.$1.attn.g_norm.'],
    [/^blocks\.(\d+)\.att\.([wavg])0$/, 'model.layers.$1.attn.$2_lora.lora.2.bias'],
    [/^blocks\.(\d+)\.att\.([wavg])1$/, 'model.layers.$1.attn.$2_lora.lora.0.weight'],
    [/^blocks\.(\d+)\.att\.([wavg])2$/, 'model.layers.$1.attn.$2_lora.lora.2.weight'],
    [/^blocks\.(\d+)\.att\./, 'model.layers.$1.attn.'],
  ]
  const out = new Map<string, Tensor>()
  for (const [name, tensor] of tensors) {
    const rule = parts.find(([pattern]) => pattern.test(name))
    const renamed = whole[name] ?? (rule ? name.replace(rule[0], rule[1]) : name)
    const [rows = 1, columns = 1] = tensor.shape
    if (/lora\.[02]\.weight$/.test(renamed)) {
      const data = Float32Array.from(tensor.data, (_, i) => tensor.data[(i % rows) * columns + Math.floor(i / rows)]!)
      out.set(renamed, { shape: [columns, rows], data })
    } else if (/lora\.2\.bias$|attn\.k_[ka]$|ffn\.x_k$/.test(renamed)) {
      out.set(renamed, { shape: [tensor.data.length], data: tensor.data })
    } else out.set(renamed, tensor)
  }
  return out
}
