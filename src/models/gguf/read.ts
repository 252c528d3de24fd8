/**
 * A GGUF file as a package of one of the families: its metadata become the configuration that the family reads, its tensors get the
 * names that the family gives them (docs/formats.md, GGUF).
 */
import type { GgufMetadata, TensorEntry } from '../../engine/native.ts'
import { ContinuoError } from '../../errors.ts'
import type { Architecture } from './architecture.ts'
import { llama, qwen2, qwen3, qwen3moe } from './decoders.ts'
import { gpt2 } from './gpt2.ts'
import { lfm2 } from './lfm2.ts'
import { mamba2 } from './mamba2.ts'
import { keysOf } from './metadata.ts'
import { qwenHybrid } from './qwen-hybrid.ts'
import { rwkv7 } from './rwkv7.ts'

/** By `general.architecture`. */
export const architectures: ReadonlyMap<string, Architecture> = new Map([
  ['gpt2', gpt2],
  ['lfm2', lfm2],
  ['mamba2', mamba2],
  ['qwen35', qwenHybrid('qwen35', 'qwen3_5_text')],
  ['qwen35moe', qwenHybrid('qwen35moe', 'qwen3_5_moe_text')],
  ['qwen3next', qwenHybrid('qwen3next', 'qwen3_next')],
  ['llama', llama],
  ['qwen2', qwen2],
  ['qwen3', qwen3],
  ['qwen3moe', qwen3moe],
  ['rwkv7', rwkv7],
])

export interface GgufModel {
  readonly config: { readonly model_type: string; readonly [key: string]: unknown }
  /** Under the names of the family. */
  readonly tensors: readonly TensorEntry[]
  /** Tokens that end a text; null: the file names none. */
  readonly endTokens: readonly number[] | null
  readonly notes: readonly string[]
}

/** Block formats that the engine widens to f32 when the model is loaded; the others it multiplies as they are (native/weights/block_packing.h). */
const WIDENED: ReadonlySet<string> = new Set(['Q4_1', 'Q5_1', 'Q5_K', 'MXFP4'])

const notesOf = (file: string, tensors: readonly TensorEntry[]): readonly string[] => {
  const widened = [...new Set(tensors.map(({ dtype }) => dtype))].filter((dtype) => WIDENED.has(dtype)).sort()
  if (widened.length === 0) return []
  return [
    `${file} holds weights as ${widened.join(', ')}, which are widened to f32 when they are loaded: exactly, but with 32 bits a weight in memory.`,
  ]
}

/** Throws INVALID for an architecture that no family has, and for metadata that do not describe the tensors. */
export const readGguf = (file: string, metadata: GgufMetadata, tensors: readonly TensorEntry[]): GgufModel => {
  const keys = keysOf(file, metadata)
  const name = keys.text('general.architecture')
  const architecture = architectures.get(name)
  if (!architecture) {
    throw new ContinuoError(
      'INVALID',
      `${file} holds a "${name}" model, expected one of the architectures ${[...architectures.keys()].join(', ')}.`,
    )
  }
  const ends = ['eos', 'eot', 'eom'].flatMap((end) => keys.wholeOr(`tokenizer.ggml.${end}_token_id`, null) ?? [])
  return {
    ...architecture(keys, tensors),
    endTokens: ends.length === 0 ? null : [...new Set(ends)].sort((a, b) => a - b),
    notes: notesOf(file, tensors),
  }
}
