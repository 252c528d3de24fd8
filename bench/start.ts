/**
 * From the start of a process to its first token: `continuo generate` beside llama.cpp, which maps the same GGUF file.
 *
 *   node bench/start.ts [--models 0.1b,1b] [--rounds 9] [--threads 2] [--cold] [--dir FOLDER]
 *
 * The models are of random weights in f16 with a vocabulary as large as people's (bench/peers/vocabulary.ts); they are
 * written into the folder first. Continuo runs as it is installed, compiled to JavaScript (into the folder, too),
 * llama.cpp as a small program in JavaScript (bench/peers/start-llama.mjs; its package has no program of its own). Both
 * read the same prompt and end at the first token; the clock stops when its text arrives in a pipe. The texts must be
 * equal.
 *
 *   first    nothing is kept: Continuo packs and hashes the weights. Its modules were compiled before
 *   packed   the weights are mapped from Continuo's cache
 *
 * The sides take turns; medians with the least and the greatest round, and the ratio to llama.cpp in the same round.
 * `--cold` asks the system to drop the pages of all files of weights before each start. CPU is user and system time of
 * the process.
 */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, mkdirSync, readdirSync, renameSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { callNative } from '../src/engine/native.ts'
import { writePublished } from '../test/published.ts'
import { parseArgs } from './options.ts'
import { decoder } from './peers/shapes.ts'
import { bpeVocabulary } from './peers/vocabulary.ts'
import { writeGguf } from './peers/write.ts'
import { median, root } from './support.ts'

const { values } = parseArgs({
  options: {
    models: { type: 'string', default: '0.1b,1b' },
    rounds: { type: 'string', default: '9' },
    threads: { type: 'string', default: '2' },
    cold: { type: 'boolean', default: false },
    dir: { type: 'string', default: join(tmpdir(), 'continuo-start') },
  },
})
const rounds = Number(values.rounds)
const PROMPT = 'the harbour master'

const SIZES = {
  '0.1b': { vocabulary: 32_000, channels: 768, layers: 12, inner: 2048, heads: 12, keyHeads: 4 },
  '1b': { vocabulary: 128_256, channels: 2048, layers: 16, inner: 8192, heads: 32, keyHeads: 8 },
} as const

const modelOf = (name: keyof typeof SIZES): string => {
  const path = join(values.dir, `llama-${name}-f16.gguf`)
  if (existsSync(path)) return path
  const sizes = { ...SIZES[name], positions: 2048, width: 64 }
  const { specs, metadata } = decoder('llama', sizes)
  // As Llama 3.2 1B: the head is the table of embeddings.
  const own = name === '1b' ? specs.filter(({ gguf }) => gguf !== 'output.weight') : specs
  writeGguf(own, 'f16', { ...metadata, ...bpeVocabulary(sizes.vocabulary) }, path)
  return path
}

/** The package's modules, as an installed package has them. */
const compiled = (): string => {
  const packed = join(values.dir, 'package')
  rmSync(packed, { recursive: true, force: true })
  mkdirSync(packed, { recursive: true })
  writePublished(packed)
  return join(packed, 'dist/src/cli/main.js')
}

interface Start {
  /** ms until the first text, and of CPU until the end. */
  readonly wall: number
  readonly cpu: number
  readonly text: string
}

/** `time` of the shell tells of the child's CPU. */
const start = async (args: readonly string[], env: NodeJS.ProcessEnv): Promise<Start> => {
  const began = performance.now()
  const timed = ['-c', 'TIMEFORMAT="%U %S"; time "$0" "$@"', process.execPath, ...args]
  const child = spawn('bash', timed, { env: { ...process.env, ...env }, stdio: ['ignore', 'pipe', 'pipe'] })
  let [text, said, wall] = ['', '', 0]
  child.stdout.on('data', (bytes: Buffer) => {
    if (text === '') wall = performance.now() - began
    text += bytes
  })
  child.stderr.on('data', (bytes: Buffer) => {
    said += bytes
  })
  const [code] = (await once(child, 'close')) as [number]
  const [user, system] = said.trim().split('\n').at(-1)!.split(' ').map(Number)
  if (code !== 0 || text.trim() === '' || user === undefined || system === undefined)
    throw new Error(`${args[0]}: ${said}`)
  return { wall, cpu: (user + system) * 1000, text: text.trim() }
}

const cache = join(values.dir, 'cache')
const packedFolder = join(cache, 'packed')
const main = compiled()
const generate = (model: string, env: NodeJS.ProcessEnv = {}): Promise<Start> =>
  start(
    [
      main,
      'generate',
      '--model',
      model,
      '--prompt',
      PROMPT,
      '--max-tokens',
      '1',
      '--temperature',
      '0',
      '--threads',
      values.threads,
    ],
    { CONTINUO_CACHE: cache, ...env },
  )
const sides = {
  'llama.cpp': (model: string) =>
    start([join(root, 'bench/peers/start-llama.mjs'), model, values.threads, PROMPT], { UV_THREADPOOL_SIZE: '1' }),
  // Nothing is found, and nothing is kept.
  first: (model: string) => generate(model, { CONTINUO_PACKED_BYTES: '0' }),
  packed: (model: string) => generate(model),
} as const
type Side = keyof typeof sides
const names = Object.keys(sides) as Side[]

mkdirSync(values.dir, { recursive: true })
const shown = (numbers: readonly number[], digits: number): string =>
  `${median(numbers).toFixed(digits)} (${Math.min(...numbers).toFixed(digits)} to ${Math.max(...numbers).toFixed(digits)})`
for (const name of values.models.split(',') as (keyof typeof SIZES)[]) {
  const model = modelOf(name)
  rmSync(packedFolder, { recursive: true, force: true })
  // Keeps the packed weights, and the compiled modules.
  await generate(model)
  const files = [model, ...readdirSync(packedFolder).map((file) => join(packedFolder, file))]
  // What is measured as the first start must not find them.
  const held = `${packedFolder}.held`
  const found: Record<Side, Start[]> = { 'llama.cpp': [], first: [], packed: [] }
  for (let round = 0; round <= rounds; round += 1) {
    for (let turn = 0; turn < names.length; turn += 1) {
      const side = names[(turn + round) % names.length]!
      if (values.cold) for (const file of files) callNative((addon) => addon.dropPages(file))
      if (side === 'first') renameSync(packedFolder, held)
      const one = await sides[side](model)
      if (side === 'first') {
        rmSync(packedFolder, { recursive: true, force: true })
        renameSync(held, packedFolder)
      }
      // The first round warms up.
      if (round > 0) found[side].push(one)
    }
  }
  const texts = new Set(names.flatMap((side) => found[side].map(({ text }) => text)))
  if (texts.size !== 1) throw new Error(`The sides printed ${[...texts].join(', ')}.`)
  for (const side of names) {
    const ratios = found[side].map(({ wall }, round) => wall / found['llama.cpp'][round]!.wall)
    console.log(
      `${name.padEnd(5)} ${side.padEnd(10)} ${shown(
        found[side].map(({ wall }) => wall),
        0,
      )} ms  CPU ${shown(
        found[side].map(({ cpu }) => cpu),
        0,
      )} ms  ratio ${shown(ratios, 2)}`,
    )
  }
}
