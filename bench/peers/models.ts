/** The models of this bench and where they are written. */
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import type { Format } from './formats.ts'
import type { MetaValue } from './gguf.ts'
import { gpt2Config, gpt2Metadata, gpt2Sizes, gpt2Tensors } from './gpt2.ts'
import { rwkv7Config, rwkv7Metadata, rwkv7Sizes, rwkv7Tensors } from './rwkv7.ts'
import type { TensorSpec } from './tensors.ts'
import type { ModelFiles } from './write.ts'

export interface BenchModel {
  readonly family: 'rwkv7' | 'gpt2'
  readonly format: Format
  /** Of its files, and of the option --only. */
  readonly name: string
  readonly title: string
  readonly vocabulary: number
  readonly specs: readonly TensorSpec[]
  readonly metadata: Readonly<Record<string, MetaValue>>
  readonly config: Readonly<Record<string, unknown>>
  readonly files: ModelFiles
}

const modelsDir = fileURLToPath(new URL('models', import.meta.url))
export const formats: readonly Format[] = ['f16', 'bf16', 'q8']

const filesOf = (name: string): ModelFiles => ({ gguf: join(modelsDir, `${name}.gguf`), dir: join(modelsDir, name) })

const rwkv7Of = (format: Format): BenchModel => ({
  family: 'rwkv7',
  format,
  name: `rwkv7-${format}`,
  title: `RWKV-7 0.1B ${format}`,
  vocabulary: rwkv7Sizes.vocabulary,
  specs: rwkv7Tensors(),
  metadata: rwkv7Metadata,
  config: rwkv7Config,
  files: filesOf(`rwkv7-${format}`),
})

const gpt2Of = (format: Format): BenchModel => ({
  family: 'gpt2',
  format,
  name: `gpt2-${format}`,
  title: `GPT-2 small ${format}`,
  vocabulary: gpt2Sizes.vocabulary,
  specs: gpt2Tensors(format),
  metadata: gpt2Metadata,
  config: gpt2Config(format),
  files: filesOf(`gpt2-${format}`),
})

export const benchModels: readonly BenchModel[] = [...formats.map(rwkv7Of), ...formats.map(gpt2Of)]
