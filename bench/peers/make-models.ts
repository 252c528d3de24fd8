/**
 * Writes the models of the bench, random weights from fixed seeds, each as GGUF and as a Continuo package.
 *
 *   node make-models.ts
 */
import { statSync } from 'node:fs'
import { join } from 'node:path'
import { benchModels } from './models.ts'
import { writeModel } from './write.ts'

const megabytes = (path: string): string => `${Math.round(statSync(path).size / 1e6)} MB`

for (const { title, specs, format, metadata, config, files } of benchModels) {
  const started = performance.now()
  writeModel(specs, format, metadata, config, files)
  const seconds = ((performance.now() - started) / 1000).toFixed(1)
  const tensors = join(files.dir, 'model.safetensors')
  console.log(`${title}: ${files.gguf} (${megabytes(files.gguf)}), ${tensors} (${megabytes(tensors)}), ${seconds} s`)
}
