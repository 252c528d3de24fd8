/** GGUF files: their header, their metadata, their tensors, their numbers. */
import { join } from 'node:path'
import { randomRwkv7 } from '../../engine/packages.ts'
import { plainF32, q8Blocks } from '../../models/files/containers.ts'
import { gptGguf, gptSizes, rwkvGguf, rwkvSizes } from '../../models/files/gguf-files.ts'
import { randomGpt2 } from '../../models/gpt2/gpt2.ts'
import type { OpenKind } from '../kind.ts'
import { damagedBytes } from '../mutate.ts'
import { usePackage, writeFiles } from '../packages.ts'

export const open: OpenKind = async (folder) => {
  const files = new Map([
    ['gpt2', gptGguf(randomGpt2(1, gptSizes))],
    ['rwkv7', rwkvGguf(randomRwkv7(2, rwkvSizes), plainF32)],
    ['rwkv7-q8', rwkvGguf(randomRwkv7(2, rwkvSizes), q8Blocks)],
  ])
  const dir = join(folder, 'package')
  return {
    bases: [...files.keys()],
    make: (base, random) => {
      const file = files.get(base)!
      // Mostly the header, which is short beside the numbers.
      return damagedBytes(file, random, random.next() < 0.8 ? Math.min(file.length, 9000) : file.length)
    },
    run: async (_, input) => {
      writeFiles(dir, { 'model.gguf': input })
      return usePackage(join(dir, 'model.gguf'))
    },
    close: async () => {},
  }
}
