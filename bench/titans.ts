/**
 * Titans at a shape where the memory takes a realistic share of the time (docs/performance.md): the cost of four levels
 * over one, and the speed of each composition in decoding, reading and serving. All variants take turns in one process.
 *
 *   npx node bench/titans.ts [--rounds N] [--threads N]
 */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Context } from '../src/engine/context.ts'
import type { Model } from '../src/engine/types.ts'
import { openModel } from '../src/models/open.ts'
import { parseArgs } from './options.ts'
import { median } from './support.ts'
import { type TitansShape, writeTitans } from './titans-package.ts'

const { values } = parseArgs({
  options: { rounds: { type: 'string', default: '12' }, threads: { type: 'string', default: '2' } },
})
const rounds = Number(values.rounds)
const threads = Number(values.threads)

const FOUR = [1, 8, 64, 512]
const shapes: Readonly<Record<string, TitansShape>> = {
  'mag, 1 level': { composition: 'mag', levels: [1] },
  'mag, 4 levels': { composition: 'mag', levels: FOUR },
  'mal, 4 levels': { composition: 'mal', levels: FOUR },
  'mac, 4 levels': { composition: 'mac', levels: FOUR },
}

const READ = 512
const DECODE = 32
const SESSIONS = 16
const greedy = { temperature: 0, topK: 0, topP: 1, seed: 0n } as const
const text = Int32Array.from({ length: READ }, (_, i) => (i * 7919 + (i >> 3)) % 256)

interface Side {
  readonly name: string
  readonly model: Model
  readonly one: Context
  readonly many: readonly Context[]
}

const seconds = async (work: () => Promise<unknown>): Promise<number> => {
  const started = performance.now()
  await work()
  return (performance.now() - started) / 1000
}

const measures = {
  decode: async ({ model, one }: Side) =>
    DECODE /
    (await seconds(() =>
      model.process([
        { context: one, tokens: text.subarray(0, 1), nats: false, generate: { ...greedy, count: DECODE - 1 } },
      ]),
    )),
  prefill: async ({ model, one }: Side) =>
    READ / (await seconds(() => model.process([{ context: one, tokens: text, nats: false }]))),
  sixteen: async ({ model, many }: Side) =>
    (SESSIONS * DECODE) /
    (await seconds(() =>
      model.process(
        many.map((context) => ({
          context,
          tokens: text.subarray(0, 1),
          nats: false,
          generate: { ...greedy, count: DECODE - 1 },
        })),
      ),
    )),
} as const
type Measured = keyof typeof measures

const dir = mkdtempSync(join(tmpdir(), 'continuo-titans-'))
try {
  const sides: Side[] = []
  for (const [name, shape] of Object.entries(shapes)) {
    const folder = join(dir, name.replaceAll(/[^a-z0-9]+/g, '-'))
    await writeTitans(folder, shape)
    const model = await openModel(folder, { threads, device: 'cpu', keepPacked: false })
    sides.push({
      name,
      model,
      one: model.createContext(),
      many: Array.from({ length: SESSIONS }, () => model.createContext()),
    })
  }
  const rates = new Map<string, number[]>()
  const ratios: Record<Measured, number[]> = { decode: [], prefill: [], sixteen: [] }
  for (let round = 0; round <= rounds; round += 1) {
    for (const measure of Object.keys(measures) as Measured[]) {
      const now = new Map<string, number>()
      for (const side of round % 2 === 0 ? sides : sides.toReversed()) now.set(side.name, await measures[measure](side))
      if (round === 0) continue
      for (const [name, rate] of now) {
        const key = `${measure} ${name}`
        rates.set(key, [...(rates.get(key) ?? []), rate])
      }
      ratios[measure].push(now.get('mag, 1 level')! / now.get('mag, 4 levels')!)
    }
  }
  const { parameters, contextBytes } = sides[1]!.model
  process.stdout.write(
    `Titans, D 512, 8 layers, 8 memory heads of 64, window 256, bf16, ${(parameters / 1e6).toFixed(1)}M parameters, ${(contextBytes / 1e6).toFixed(1)} MB a session with four levels; ${threads} threads, ${rounds} rounds\n\n`,
  )
  process.stdout.write('tokens/s            decode, 1 session   read 512 tokens   decode, 16 sessions\n')
  const cell = (values: readonly number[]): string =>
    `${Math.round(median(values))} (${Math.round(Math.min(...values))} to ${Math.round(Math.max(...values))})`
  for (const { name } of sides) {
    const cells = (Object.keys(measures) as Measured[]).map((measure) => cell(rates.get(`${measure} ${name}`)!))
    process.stdout.write(`${name.padEnd(20)}${cells.map((each) => each.padEnd(20)).join('')}\n`)
  }
  process.stdout.write('\ntime of four levels over one, in the same round\n')
  for (const measure of Object.keys(measures) as Measured[]) {
    const own = ratios[measure]
    process.stdout.write(
      `${measure.padEnd(20)}${median(own).toFixed(3)} (${Math.min(...own).toFixed(3)} to ${Math.max(...own).toFixed(3)})\n`,
    )
  }
  for (const { model } of sides) model.close()
} finally {
  rmSync(dir, { recursive: true, force: true })
}
