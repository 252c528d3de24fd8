/** GGUF files as far as their headers: their bytes damaged, or what their metadata say. No weights are loaded. */
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { readPackage } from '../../../src/models/files/package.ts'
import { readText } from '../../../src/models/files/package-text.ts'
import { randomRwkv7 } from '../../engine/packages.ts'
import { BASE, randomDecoder } from '../../models/decoders.ts'
import { plainF32 } from '../../models/files/containers.ts'
import { decoderGguf, gptGguf, gptSizes, rwkvGguf, rwkvSizes } from '../../models/files/gguf-files.ts'
import { randomGpt2 } from '../../models/gpt2/gpt2.ts'
import type { OpenKind } from '../kind.ts'
import { damagedBytes } from '../mutate.ts'
import { writeFiles } from '../packages.ts'

export const open: OpenKind = async (folder) => {
  const decoders = ['llama', 'qwen3_moe'].map((model_type): [string, Uint8Array] => {
    const experts = { head_dim: 6, num_experts: 4, num_experts_per_tok: 2, moe_intermediate_size: 9 }
    const config = { ...BASE, model_type, vocab_size: 256, ...(model_type === 'qwen3_moe' ? experts : {}) }
    return [model_type, decoderGguf(config, randomDecoder(3, config))]
  })
  const files = new Map<string, Uint8Array>([
    ['gpt2', gptGguf(randomGpt2(1, gptSizes))],
    ['rwkv7', rwkvGguf(randomRwkv7(2, rwkvSizes), plainF32)],
    ...decoders,
  ])
  // Offsets of tensors follow from what stands before, so a header alone is not a file: it ends where the numbers
  // begin.
  const headers = new Map([...files].map(([name, file]) => [name, Math.min(file.length, 9000)]))
  const path = join(folder, 'package', 'model.gguf')
  writeFiles(join(folder, 'package'), {})
  return {
    bases: [...files.keys()],
    make: (base, random) => damagedBytes(files.get(base)!, random, headers.get(base)!),
    run: async (_, input) => {
      writeFileSync(path, input)
      const found = await readPackage(path)
      const { vocabSize } = found.family.build(found.config, found.tensors)
      await readText(found, vocabSize, () => {})
      return 'read'
    },
    close: async () => {},
  }
}
