/** Writes model packages: random small RWKV-7 models, and any safetensors file, good or bad. */
import { mkdtempSync, readFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { random, type Tensor, type Tensors, writePackageTo } from './safetensors.ts'

export { type Dtype, random, rawSafetensors, rounded, safetensors, type Tensor, type Tensors } from './safetensors.ts'

/** A fresh folder that goes away with the test file (test/own-folder.ts). */
export const temporaryFolder = (): string => mkdtempSync(join(tmpdir(), 'continuo-test-'))

export const writePackage = (config: unknown, file: Uint8Array, folder: string = temporaryFolder()): string =>
  writePackageTo(folder, config, file)

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
