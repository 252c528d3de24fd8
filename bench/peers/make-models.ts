/**
 * Writes the models of the bench, random weights from fixed seeds: as GGUF, and those with a configuration as a
 * Continuo package, too.
 *
 *   node make-models.ts [llama-0.1b-f16,qwen35-0.1b-q8]
 *   node make-models.ts long     those of long.ts
 */
import { mkdirSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { benchModels, longModels, modelsDir } from './models.ts'
import { writeGguf, writeModel } from './write.ts'

const megabytes = (path: string): string => `${Math.round(statSync(path).size / 1e6)} MB`

const long = process.argv[2] === 'long'
const wanted = long ? undefined : process.argv[2]?.split(',')
mkdirSync(modelsDir, { recursive: true })
for (const { name, title, specs, format, metadata, config, files } of long ? longModels : benchModels) {
  if (wanted && !wanted.includes(name)) continue
  const started = performance.now()
  if (config === null) writeGguf(specs, format, metadata, files.gguf)
  else writeModel(specs, format, metadata, config, files)
  const seconds = ((performance.now() - started) / 1000).toFixed(1)
  const written = config === null ? [files.gguf] : [files.gguf, join(files.dir, 'model.safetensors')]
  console.log(`${title}: ${written.map((path) => `${path} (${megabytes(path)})`).join(', ')}, ${seconds} s`)
}
