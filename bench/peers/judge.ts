/**
 * llama.cpp as a judge: both sides read the same GGUF files and must compute the same logits.
 *
 *   node judge.ts [--only llama,mamba2] [--formats f32,f16,q8,q4,q4k,q6k] [--threads 2] [--sessions 4]
 *
 * The models are small and random (architectures.ts), and those of the bench where `npm run models` wrote them. Ends
 * with 1 where the sides differ by more than rounding explains (check.ts).
 */
import { existsSync, mkdirSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { messageOf } from '../../src/errors.ts'
import { parseArgs } from '../options.ts'
import { type SmallModel, smallModels } from './architectures.ts'
import { compare } from './check.ts'
import type { Format } from './formats.ts'
import { openLlama } from './llama.ts'
import { type Llama, loadLlama } from './llama-binding.ts'
import { benchModels } from './models.ts'
import { openContinuo } from './ours.ts'
import { writeGguf } from './write.ts'

interface Case {
  readonly title: string
  readonly path: string
  readonly vocabulary: number
  readonly format: Format
  readonly layers?: number
  /** Writes the file; absent: it is there. */
  readonly write?: () => void
}

const folder = fileURLToPath(new URL('models/judge', import.meta.url))

const caseOf = (model: SmallModel, format: Format): Case => {
  const path = join(folder, `${model.name}-${format}.gguf`)
  const { name, vocabulary, specs, metadata } = model
  return { title: `${name} ${format}`, path, vocabulary, format, write: () => writeGguf(specs, format, metadata, path) }
}

const judge = async (
  llama: Llama,
  { title, path, vocabulary, format, layers, write }: Case,
  threads: number,
  sessions: number,
): Promise<boolean> => {
  write?.()
  const theirs = await openLlama(llama, path, { threads, sessions, flashAttention: false })
  try {
    const ours = await openContinuo(path, threads, sessions)
    try {
      const { same, sentence } = await compare(ours, theirs, vocabulary, format, sessions, layers)
      console.log(`${title}: ${sentence}`)
      return same
    } finally {
      await ours.close()
    }
  } catch (error) {
    console.log(`${title}: ${messageOf(error)}`)
    return false
  } finally {
    await theirs.close()
  }
}

const { values } = parseArgs({
  options: {
    only: { type: 'string' },
    formats: { type: 'string', default: 'f32,f16,q8,q4,q4k,q6k' },
    threads: { type: 'string', default: '2' },
    sessions: { type: 'string', default: '4' },
  },
})
const formats = values.formats.split(',')
const small = smallModels.flatMap((model) =>
  (['f32', 'f16', 'q8', 'q4', 'q4k', 'q6k'] as const)
    .filter((format) => formats.includes(format) && (format === 'f32' || model.routed === undefined))
    .map((format) => ({ of: model.name, ...caseOf(model, format) })),
)
const large = benchModels
  .filter(({ format, files }) => formats.includes(format) && existsSync(files.gguf))
  .map(({ family, title, vocabulary, format, layers, files }) => {
    return { of: family, title, path: files.gguf, vocabulary, format, layers }
  })
const wanted = values.only?.split(',')
const cases: readonly (Case & { readonly of: string })[] = [...small, ...large].filter(
  ({ of }) => wanted === undefined || wanted.includes(of),
)
if (cases.length === 0) {
  console.error(`Nothing to judge: --only knows ${smallModels.map(({ name }) => name).join()}, rwkv7 and gpt2.`)
  process.exit(2)
}
mkdirSync(folder, { recursive: true })
const llama = await loadLlama()
console.log(
  `llama.cpp ${llama.release} (${llama.packageVersion}), CPU backend ${llama.variant}; files in ${dirname(folder)}.`,
)
let good = 0
for (const one of cases) if (await judge(llama, one, Number(values.threads), Number(values.sessions))) good += 1
console.log(`${good} of ${cases.length} files give the same logits on both sides.`)
process.exitCode = good === cases.length ? 0 : 1
