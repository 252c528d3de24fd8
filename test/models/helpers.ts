/** Small random packages, and the call that quantises them. */
import { join } from 'node:path'
import { type QuantizeRequest, quantizePackage } from '../../src/models/quantize/quantize.ts'
import {
  type Dtype,
  randomRwkv7,
  safetensors,
  type Tensors,
  temporaryFolder,
  writePackage,
} from '../engine/packages.ts'

// Widths that neither 5 nor a group divides, and matrices of one and of several groups a row.
export const SIZES = { L: 2, H: 7, N: 11, F: 131, V: 50, D: { w: 8, a: 8, v: 6, g: 10 } }
export const CONFIG = { model_type: 'rwkv7', note: 'kept', norm_eps: 0.00001 }
export const write = (dtype: Dtype = 'F32', tensors: Tensors = randomRwkv7(1, SIZES)): string =>
  writePackage(CONFIG, safetensors(tensors, dtype))

let outs = 0
export const newOut = (): string => join(temporaryFolder(), `out-${++outs}`)

export const q8 = (dir: string, out: string, more: Partial<QuantizeRequest> = {}) =>
  quantizePackage({ dir, out, to: 'q8', group: 32, ...more })
