/** config.json of every family. */
import { join } from 'node:path'
import type { OpenKind } from '../kind.ts'
import { damagedText } from '../mutate.ts'
import { goodPackages, usePackage, writeFiles } from '../packages.ts'

export const open: OpenKind = async (folder) => {
  const packages = goodPackages()
  const dir = join(folder, 'package')
  return {
    bases: [...packages.keys()],
    make: (base, random) => damagedText(Buffer.from(packages.get(base)!['config.json']!).toString(), random),
    run: async (base, input) => {
      writeFiles(dir, { ...packages.get(base)!, 'config.json': input })
      return usePackage(dir)
    },
    close: async () => {},
  }
}
