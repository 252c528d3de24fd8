/**
 * model.safetensors.index.json again, as far as the headers of its files: no weights are loaded, so that a million
 * cases take minutes.
 */
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { inspectFiles } from '../../../src/engine/inspect.ts'
import { checkShards, readShards } from '../../../src/models/files/shards.ts'
import { safetensors } from '../../engine/packages.ts'
import { randomGpt2 } from '../../models/gpt2/gpt2.ts'
import type { OpenKind } from '../kind.ts'
import { damagedText } from '../mutate.ts'
import { writeFiles } from '../packages.ts'

const sizes = { L: 1, H: 1, N: 4, F: null, V: 8, P: 4 }

export const open: OpenKind = async (folder) => {
  const dir = join(folder, 'package')
  const names = ['model-00001-of-00002.safetensors', 'model-00002-of-00002.safetensors']
  const tensors = [...randomGpt2(1, sizes)]
  const files: Record<string, Uint8Array> = {}
  const weight_map: Record<string, string> = {}
  for (const [turn, name] of names.entries()) {
    const own = tensors.filter((_, at) => at % names.length === turn)
    files[name] = safetensors(new Map(own))
    for (const [tensor] of own) weight_map[tensor] = name
  }
  const text = JSON.stringify({ metadata: { total_size: 1 }, weight_map })
  writeFiles(dir, files)
  return {
    bases: ['gpt2'],
    make: (_, random) => Buffer.from(damagedText(text, random)),
    run: async (_, input) => {
      writeFileSync(join(dir, 'model.safetensors.index.json'), input)
      const shards = await readShards(dir, 'model.safetensors.index.json')
      checkShards(shards, inspectFiles(shards.names.map((file) => join(dir, file))).tensors)
      return 'read'
    },
    close: async () => {},
  }
}
