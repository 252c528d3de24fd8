/** Archives of torch.save: the pickle, the headers and the directory around it, the numbers. */
import { join } from 'node:path'
import { randomRwkv7 } from '../../engine/packages.ts'
import { torchFile } from '../../models/files/containers.ts'
import type { OpenKind } from '../kind.ts'
import { damagedBytes } from '../mutate.ts'
import { usePackage, writeFiles } from '../packages.ts'

const sizes = { L: 2, H: 2, N: 8, F: 24, V: 256, D: { w: 4, a: 4, v: 4, g: 4 } }

export const open: OpenKind = async (folder) => {
  const tensors = randomRwkv7(2, sizes)
  const files = new Map([
    ['float', torchFile(tensors)],
    ['bfloat16', torchFile(tensors, 'BFloat16')],
  ])
  const dir = join(folder, 'package')
  return {
    bases: [...files.keys()],
    make: (base, random) => {
      const file = Buffer.from(files.get(base)!)
      const part = random.next()
      // The pickle stands first; the directory stands last.
      if (part < 0.6) return damagedBytes(file, random, 12_000)
      if (part > 0.9) return damagedBytes(file, random)
      const from = file.length - 6000
      return Buffer.concat([file.subarray(0, from), damagedBytes(file.subarray(from), random)])
    },
    run: async (_, input) => {
      writeFiles(dir, { 'model.pth': input })
      return usePackage(join(dir, 'model.pth'))
    },
    close: async () => {},
  }
}
