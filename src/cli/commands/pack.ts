import { command } from '../command.ts'
import { cacheDtypeFlag, expertFlags, openOptions, overflowFlag, threadsFlag } from '../common.ts'
import { on } from '../flags.ts'
import { bytes, print, printJson, say } from '../output.ts'
import { interruptible } from '../work.ts'

export const pack = command({
  name: 'pack',
  about:
    'Writes the weights of a model beside it as the kernels read them: the next starts map that file, and neither pack nor hash the weights.',
  args: [{ name: 'DIR', help: 'folder of a model, a .gguf or .pth file, or owner/name', required: true }],
  flags: {
    remove: on('delete the packed weights of the model instead, also those in the cache'),
    overflow: overflowFlag,
    'cache-dtype': cacheDtypeFlag,
    'experts-from': expertFlags['experts-from'],
    threads: threadsFlag,
  },
  notes:
    "The file is as large as the weights, and belongs where they belong: whoever can write it can give the model other weights. It serves every CPU and device, and moves with the model. Every start checks its bytes before it computes anything. The other flags are those that the model will be opened with. Without this command the packed weights of a model of 8 MiB and more are kept in Continuo's cache ($CONTINUO_CACHE/packed), $CONTINUO_PACKED_BYTES at most (16 GiB), those that were not used for longest go first.",
  examples: ['pack models/demo', 'pack models/demo --remove'],
  async run(flags, [dir]) {
    const { openPackage, packedFilesOf } = await import('../../models/open.ts')
    const options = { ...openOptions(flags), device: 'cpu' as const, keepPacked: false }
    const places = await packedFilesOf(dir!, options)
    if (flags.remove) {
      const { rm, stat } = await import('node:fs/promises')
      const removed: { path: string; bytes: number }[] = []
      for (const path of [places.beside, places.cached]) {
        const found = await stat(path).catch(() => null)
        if (found === null) continue
        await rm(path)
        removed.push({ path, bytes: found.size })
      }
      if (flags.json) printJson({ dir, removed })
      else for (const { path, bytes: size } of removed) print(`Deleted ${path}: ${bytes(size)}.`)
      if (!flags.json && removed.length === 0) say(`${dir} has no packed weights.`)
      return 0
    }
    return interruptible(flags.json, 'Stopping after this file. Once more ends at once.', async ({ show, finish }) => {
      show(`packing ${dir}`)
      const { model } = await openPackage(dir!, options)
      try {
        const kept = await model.keepPacked(places.beside)
        const seconds = finish()
        if (flags.json) printJson({ dir, path: places.beside, bytes: kept?.bytes ?? null, seconds })
        else if (kept === null) say(`Another process is writing ${places.beside}.`)
        else print(`Wrote ${kept.path}: ${bytes(kept.bytes)} in ${seconds.toFixed(1)} s.`)
        return 0
      } finally {
        model.close()
      }
    })
  },
})
