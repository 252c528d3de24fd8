/**
 * A GGUF file as a package of one of the families: its metadata become the configuration that the family reads, its
 * tensors get the names that the family gives them (docs/formats.md, GGUF).
 */
import { open } from 'node:fs/promises'
import type { GgufMetadata, TensorEntry } from '../../engine/native.ts'
import { ContinuoError } from '../../errors.ts'
import type { Architecture } from './architecture.ts'
import { gemma3, llama, qwen2, qwen3, qwen3moe } from './decoders.ts'
import { gpt2 } from './gpt2.ts'
import { lfm2 } from './lfm2.ts'
import { mamba2 } from './mamba2.ts'
import { keysOf } from './metadata.ts'
import { qwenHybrid } from './qwen-hybrid.ts'
import { rwkv7 } from './rwkv7.ts'

/** By `general.architecture`. */
const architectures: ReadonlyMap<string, Architecture> = new Map([
  ['gemma3', gemma3],
  ['gpt2', gpt2],
  ['lfm2', lfm2],
  ['llama', llama],
  ['mamba2', mamba2],
  ['qwen2', qwen2],
  ['qwen3', qwen3],
  ['qwen3moe', qwen3moe],
  ['qwen35', qwenHybrid('qwen35', 'qwen3_5_text')],
  ['qwen35moe', qwenHybrid('qwen35moe', 'qwen3_5_moe_text')],
  ['qwen3next', qwenHybrid('qwen3next', 'qwen3_next')],
  ['rwkv7', rwkv7],
])

export interface GgufModel {
  readonly config: { readonly model_type: string; readonly [key: string]: unknown }
  /** Under the names of the family. */
  readonly tensors: readonly TensorEntry[]
  /** Tokens that end a text; null: the file names none. */
  readonly endTokens: readonly number[] | null
  /** The key that names each of them. */
  readonly endKeys: ReadonlyMap<number, string>
  readonly notes: readonly string[]
}

/**
 * Block formats that the engine widens to f32 when the model is loaded; the others it multiplies as they are
 * (native/weights/block_packing.h).
 */
const WIDENED: ReadonlySet<string> = new Set(['Q4_1', 'Q5_1', 'Q5_K', 'MXFP4'])

const notesOf = (file: string, tensors: readonly TensorEntry[]): readonly string[] => {
  const widened = [...new Set(tensors.map(({ dtype }) => dtype))].filter((dtype) => WIDENED.has(dtype)).sort()
  if (widened.length === 0) return []
  return [
    `${file} holds weights as ${widened.join(', ')}, which are widened to f32 when they are loaded: exactly, but with 32 bits a weight in memory.`,
  ]
}

const ROPE_FACTORS = 'rope_freqs.weight'
/** Pairs of channels of a head. */
const MOST_FACTORS = 1 << 16

/** The numbers of a small tensor of F32. Throws INVALID for another one. */
const numbersOf = async (path: string, { name, dtype, shape, offset, bytes }: TensorEntry): Promise<number[]> => {
  if (dtype !== 'F32' || shape.length !== 1 || bytes > 4 * MOST_FACTORS)
    throw new ContinuoError(
      'INVALID',
      `Tensor "${name}" of ${path} is ${dtype} [${shape.join(', ')}], expected at most ${MOST_FACTORS} numbers of F32.`,
    )
  const file = await open(path)
  try {
    const { buffer, bytesRead } = await file.read(new Uint8Array(bytes), 0, bytes, offset)
    if (bytesRead !== bytes) throw new ContinuoError('INVALID', `${path} became shorter while it was read.`)
    return [...new Float32Array(buffer.buffer)]
  } finally {
    await file.close()
  }
}

/** Throws INVALID for an architecture that no family has, and for metadata that do not describe the tensors. */
export const readGguf = async (
  files: readonly string[],
  metadata: GgufMetadata,
  tensors: readonly TensorEntry[],
): Promise<GgufModel> => {
  const file = files[0]!
  const keys = keysOf(file, metadata)
  const name = keys.text('general.architecture')
  const architecture = architectures.get(name)
  if (!architecture) {
    throw new ContinuoError(
      'INVALID',
      `${file} holds a "${name}" model, expected one of the architectures ${[...architectures.keys()].join(', ')}.`,
    )
  }
  const factors = tensors.find((tensor) => tensor.name === ROPE_FACTORS)
  const endKeys = new Map<number, string>()
  for (const end of ['eos', 'eot', 'eom']) {
    const key = `tokenizer.ggml.${end}_token_id`
    const id = keys.wholeOr(key, null)
    if (id !== null && !endKeys.has(id)) endKeys.set(id, key)
  }
  return {
    ...architecture(
      keys,
      tensors.filter((tensor) => tensor !== factors),
      { ropeFactors: factors === undefined ? null : await numbersOf(files[factors.file]!, factors) },
    ),
    endTokens: endKeys.size === 0 ? null : [...endKeys.keys()].sort((a, b) => a - b),
    endKeys,
    notes: notesOf(file, tensors),
  }
}
