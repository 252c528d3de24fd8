/** model.safetensors of every family: its length, its header, its bytes, its numbers. */
import { join } from 'node:path'
import type { OpenKind } from '../kind.ts'
import { damagedSafetensors } from '../mutate.ts'
import { goodPackages, usePackage, writeFiles } from '../packages.ts'

export const open: OpenKind = async (folder) => {
  const packages = goodPackages()
  const dir = join(folder, 'package')
  return {
    bases: [...packages.keys()],
    make: (base, random) => damagedSafetensors(packages.get(base)!['model.safetensors']!, random),
    run: async (base, input) => {
      writeFiles(dir, { ...packages.get(base)!, 'model.safetensors': input })
      return usePackage(dir)
    },
    close: async () => {},
  }
}
