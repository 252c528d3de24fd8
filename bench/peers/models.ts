/** The models of this bench and where they are written. */
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { type Format, GGUF_ONLY } from './formats.ts'
import type { MetaValue } from './gguf.ts'
import { gpt2Config, gpt2Metadata, gpt2Sizes, gpt2Tensors } from './gpt2.ts'
import { rwkv7Config, rwkv7Metadata, rwkv7Sizes, rwkv7Tensors } from './rwkv7.ts'
import { ATTENTION_INTERVAL, type DecoderSizes, decoder, type HybridSizes, qwen35, type Shape } from './shapes.ts'
import type { TensorSpec } from './tensors.ts'
import type { ModelFiles } from './write.ts'

export interface BenchModel {
  readonly family: 'rwkv7' | 'gpt2' | 'llama' | 'qwen35'
  readonly format: Format
  /** Of its files, and of the option --only. */
  readonly name: string
  readonly title: string
  readonly vocabulary: number
  readonly layers: number
  readonly specs: readonly TensorSpec[]
  readonly metadata: Readonly<Record<string, MetaValue>>
  /** Of the package that Continuo opens; null: it opens the GGUF, too. */
  readonly config: Readonly<Record<string, unknown>> | null
  readonly files: ModelFiles
}

export const modelsDir = fileURLToPath(new URL('models', import.meta.url))
const formats: readonly Format[] = ['f16', 'bf16', 'q8', 'q4', 'q4k']
const ggufFormats: readonly Format[] = ['f16', 'q8', 'q4', 'q4k']

/** Where both open the GGUF, that stands for the package. */
const filesOf = (name: string, format: Format): ModelFiles => {
  const gguf = join(modelsDir, `${name}.gguf`)
  return { gguf, dir: GGUF_ONLY.has(format) ? gguf : join(modelsDir, name) }
}

const rwkv7Of = (format: Format): BenchModel => ({
  family: 'rwkv7',
  format,
  name: `rwkv7-${format}`,
  title: `RWKV-7 0.1B ${format}`,
  vocabulary: rwkv7Sizes.vocabulary,
  layers: rwkv7Sizes.layers,
  specs: rwkv7Tensors(),
  metadata: rwkv7Metadata,
  config: GGUF_ONLY.has(format) ? null : rwkv7Config,
  files: filesOf(`rwkv7-${format}`, format),
})

const gpt2Of = (format: Format): BenchModel => ({
  family: 'gpt2',
  format,
  name: `gpt2-${format}`,
  title: `GPT-2 small ${format}`,
  vocabulary: gpt2Sizes.vocabulary,
  layers: gpt2Sizes.layers,
  specs: gpt2Tensors(format),
  metadata: gpt2Metadata(),
  config: GGUF_ONLY.has(format) ? null : gpt2Config(format),
  files: filesOf(`gpt2-${format}`, format),
})

/** Of one file, which both sides open. */
const ggufOf =
  (family: BenchModel['family'], size: string, title: string, shape: Shape) =>
  (format: Format): BenchModel => {
    const name = `${family}-${size}-${format}`
    const gguf = join(modelsDir, `${name}.gguf`)
    return {
      family,
      format,
      name,
      title: `${title} ${size} ${format}`,
      ...shape,
      config: null,
      files: { gguf, dir: gguf },
    }
  }

const llamaSmall: DecoderSizes = {
  vocabulary: 32_000,
  channels: 768,
  layers: 12,
  inner: 2048,
  positions: 2048,
  heads: 12,
  keyHeads: 4,
  width: 64,
}
const llamaLarge: DecoderSizes = {
  vocabulary: 32_000,
  channels: 1024,
  layers: 26,
  inner: 4096,
  positions: 2048,
  heads: 16,
  keyHeads: 8,
  width: 64,
}
const qwenSmall: HybridSizes = {
  vocabulary: 32_000,
  channels: 768,
  layers: 12,
  inner: 2048,
  positions: 2048,
  heads: 4,
  keyHeads: 2,
  width: 256,
  deltaKeyHeads: 8,
  deltaHeads: 8,
  deltaWidth: 128,
}
const qwenLarge: HybridSizes = {
  vocabulary: 32_000,
  channels: 1024,
  layers: 24,
  inner: 3584,
  positions: 2048,
  heads: 8,
  keyHeads: 2,
  width: 256,
  deltaKeyHeads: 16,
  deltaHeads: 16,
  deltaWidth: 128,
}

export const benchModels: readonly BenchModel[] = [
  ...formats.map(rwkv7Of),
  ...formats.map(gpt2Of),
  ...ggufFormats.map(ggufOf('llama', '0.1b', 'Llama', decoder('llama', llamaSmall))),
  ...ggufFormats.map(ggufOf('llama', '0.5b', 'Llama', decoder('llama', llamaLarge))),
  ...ggufFormats.map(ggufOf('qwen35', '0.1b', 'Qwen3.5', qwen35(qwenSmall))),
  ...ggufFormats.map(ggufOf('qwen35', '0.5b', 'Qwen3.5', qwen35(qwenLarge))),
]

/**
 * A model of the bench of long prompts, and the numbers that its keys and values of a position have in all layers
 * together.
 */
export interface LongModel extends BenchModel {
  readonly cached: number
}

/** Of long models: what stands behind 32,768 positions is read and generated there. */
export const LONG_POSITIONS = 36_864

const cachedOf = (attentionLayers: number, { keyHeads, width }: Pick<DecoderSizes, 'keyHeads' | 'width'>): number =>
  2 * attentionLayers * keyHeads * width

const longOf = (
  family: BenchModel['family'],
  size: string,
  title: string,
  shape: Shape,
  cached: number,
): LongModel => ({
  ...ggufOf(family, `${size}-long`, title, shape)('f16'),
  cached,
})
const longLlama = (size: string, sizes: DecoderSizes): LongModel =>
  longOf(
    'llama',
    size,
    'Llama',
    decoder('llama', { ...sizes, positions: LONG_POSITIONS }),
    cachedOf(sizes.layers, sizes),
  )
const longQwen = (size: string, sizes: HybridSizes): LongModel =>
  longOf(
    'qwen35',
    size,
    'Qwen3.5',
    qwen35({ ...sizes, positions: LONG_POSITIONS }),
    cachedOf(sizes.layers / ATTENTION_INTERVAL, sizes),
  )

/** The same shapes with room for long prompts, from GGUF files in f16. */
export const longModels: readonly LongModel[] = [
  longOf(
    'gpt2',
    '0.1b',
    'GPT-2',
    {
      vocabulary: gpt2Sizes.vocabulary,
      layers: gpt2Sizes.layers,
      specs: gpt2Tensors('f16', LONG_POSITIONS),
      metadata: gpt2Metadata(LONG_POSITIONS),
    },
    cachedOf(gpt2Sizes.layers, { keyHeads: gpt2Sizes.heads, width: gpt2Sizes.channels / gpt2Sizes.heads }),
  ),
  longLlama('0.1b', llamaSmall),
  longLlama('0.5b', llamaLarge),
  longQwen('0.1b', qwenSmall),
  longQwen('0.5b', qwenLarge),
]
