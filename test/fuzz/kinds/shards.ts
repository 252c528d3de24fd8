/** model.safetensors.index.json: its members, its names, what it says that its files do not hold. */
import { join } from 'node:path'
import { safetensors } from '../../engine/packages.ts'
import { gpt2ConfigOf, randomGpt2 } from '../../models/gpt2/gpt2.ts'
import type { OpenKind } from '../kind.ts'
import { damagedJson } from '../mutate.ts'
import { usePackage, writeFiles } from '../packages.ts'

const sizes = { L: 2, H: 2, N: 4, F: null, V: 256, P: 512 }

export const open: OpenKind = async (folder) => {
  const dir = join(folder, 'package')
  const tensors = [...randomGpt2(1, sizes)]
  const names = ['model-1.safetensors', 'model-2.safetensors']
  const files: Record<string, Uint8Array> = { 'config.json': Buffer.from(JSON.stringify(gpt2ConfigOf(sizes))) }
  const weight_map: Record<string, string> = {}
  for (const [turn, name] of names.entries()) {
    const own = tensors.filter((_, at) => at % names.length === turn)
    files[name] = safetensors(new Map(own))
    for (const [tensor] of own) weight_map[tensor] = name
  }
  const index = { metadata: { total_size: 1 }, weight_map }
  return {
    bases: ['gpt2'],
    make: (_, random) => Buffer.from(damagedJson(index, random)),
    run: async (_, input) => {
      writeFiles(dir, { ...files, 'model.safetensors.index.json': input })
      return usePackage(dir)
    },
    close: async () => {},
  }
}
