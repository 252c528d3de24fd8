/**
 * One token of a perspective model, stage by stage (docs/experts.md): where its time goes, and what is read for it.
 *
 *   node bench/expert-stages.ts [--model models/perspective] [--tokens 64] [--threads 2] [--share 4]
 *
 * Of the experts 1/--share may be in memory. A trace times nodes one by one; "load" is the time in which the experts'
 * node waited for the store, "experts" the rest of it. Draws are timed as differences of whole generations, without a
 * trace: the same package with neither perspectives nor hyperdimensional memory, with perspectives alone, with both.
 * Draws ask the perspectives where the model is unsure, so the share of such draws stands beside the times.
 */
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { bytes } from '../src/cli/output.ts'
import type { TraceEntry } from '../src/engine/executor-types.ts'
import type { ExpertOptions } from '../src/engine/options.ts'
import type { ExpertStatistics } from '../src/engine/types.ts'
import { findExperts } from '../src/models/files/experts-source.ts'
import { openModel } from '../src/models/open.ts'
import { parseArgs } from './options.ts'
import { documentOf, median, root } from './support.ts'

const { values } = parseArgs({
  options: {
    model: { type: 'string', default: `${root}models/perspective` },
    tokens: { type: 'string', default: '64' },
    threads: { type: 'string', default: '2' },
    share: { type: 'string', default: '4' },
  },
})
const dir = values.model
const tokens = Number(values.tokens)
const quiet = { threads: Number(values.threads), keepPacked: false, warn: () => {} }
const text = Int32Array.from(Buffer.from(documentOf(8 * tokens)).subarray(0, 2 * tokens))

/** The stage of a node, by its name in the graph. */
const STAGES: readonly (readonly [stage: string, of: RegExp])[] = [
  ['embed', /^embed /],
  ['look-ahead', /ahead\./],
  ['experts', /^experts "|^combine "/],
  ['route', /route\.|^nearest |^experts\.ahead/],
  ['mix', /(pdr|attn)\.|"\d+\.n"|x\.mixed/],
  ['project (SPP)', /^project /],
  ['head', /^matmul "logits"/],
]
const stageOf = ({ node }: TraceEntry): string => STAGES.find(([, of]) => of.test(node))?.[0] ?? 'norms and state'

const readOf = (seen: ExpertStatistics): number => seen.demandBytes + seen.aheadBytes + seen.warmBytes + seen.deltaBytes

interface Stages {
  readonly times: ReadonlyMap<string, number>
  readonly read: number
  readonly hits: number
}

/** Microseconds of a token, by stage. */
const trace = async (options: ExpertOptions): Promise<Stages> => {
  const model = await openModel(dir, { ...quiet, experts: { frequencies: false, ...options } })
  // What is in memory at the beginning is what a reading of the same text leaves there.
  await model.process([{ context: model.createContext(), tokens: text, nats: false }])
  const executor = model.createExecutor({ trace: true })
  const times = new Map<string, number>()
  const add = (stage: string, microseconds: number): void => {
    times.set(stage, (times.get(stage) ?? 0) + microseconds / tokens)
  }
  let before = model.experts!.statistics
  for (const [at, token] of text.entries()) {
    if (at === tokens) before = model.experts!.statistics
    executor.insert('token', [token])
    await executor.step('step')
    if (at >= tokens) for (const entry of executor.trace()) add(stageOf(entry), entry.microseconds)
    executor.insert('predict.hidden', executor.fetch('hidden').data)
    await executor.step('predict')
    if (at >= tokens) for (const entry of executor.trace()) add(stageOf(entry), entry.microseconds)
  }
  const after = model.experts!.statistics
  const waited = ((after.waitSeconds - before.waitSeconds) * 1e6) / tokens
  times.set('load', waited)
  times.set('experts', (times.get('experts') ?? 0) - waited)
  model.close()
  return {
    times,
    read: (readOf(after) - readOf(before)) / tokens,
    hits: (after.hits - before.hits) / (after.uses - before.uses),
  }
}

const source = await findExperts(dir)
const probe = await openModel(dir, { ...quiet, experts: { frequencies: false } })
const { residentBytes, resident } = probe.experts!.statistics
probe.close()
const all = source.layers.length * source.sizes.experts * (residentBytes / resident)
const bound = Math.ceil(all / Number(values.share))
const ways: readonly (readonly [string, ExpertOptions])[] = [
  ['all in memory', { bytes: Math.ceil(all) }],
  ['on demand', { bytes: bound, lookAhead: false, deltas: false }],
  ['with deltas', { bytes: bound, lookAhead: false }],
  ['look-ahead', { bytes: bound }],
]
const found: Stages[] = []
for (const [, options] of ways) found.push(await trace(options))

console.log(`${dir}: microseconds of a token; of ${bytes(all)} of experts ${bytes(bound)} in memory\n`)
console.log(['stage'.padEnd(16), ...ways.map(([name]) => name.padStart(14))].join(''))
const order = ['embed', 'mix', 'route', 'look-ahead', 'load', 'experts', 'norms and state', 'project (SPP)', 'head']
for (const stage of order)
  console.log([stage.padEnd(16), ...found.map(({ times }) => (times.get(stage) ?? 0).toFixed(1).padStart(14))].join(''))
console.log(['bytes read'.padEnd(16), ...found.map(({ read }) => bytes(read).padStart(14))].join(''))
console.log(['in memory'.padEnd(16), ...found.map(({ hits }) => `${(100 * hits).toFixed(0)} %`.padStart(14))].join(''))

/** The package without the parts that are named, beside the same weights. */
const without = (folder: string, parts: readonly string[]): string => {
  const to = join(folder, parts.join('-') || 'whole')
  mkdirSync(to)
  for (const name of readdirSync(dir)) {
    if (name !== 'config.json') symlinkSync(resolve(dir, name), join(to, name))
  }
  const config = JSON.parse(readFileSync(join(dir, 'config.json'), 'utf8'))
  for (const part of parts) config[part] = null
  writeFileSync(join(to, 'config.json'), JSON.stringify(config))
  return to
}

const ROUNDS = 15

interface Generated {
  /** Microseconds of a generated token. */
  readonly time: number
  /** Shares of the draws that asked the perspectives, and the memory. */
  readonly asked: number
  readonly recalled: number
}

/** The packages in turns, ROUNDS times. */
const generated = async (packages: readonly string[], options: ExpertOptions): Promise<readonly Generated[]> => {
  const sides = []
  for (const path of packages) {
    const model = await openModel(path, { ...quiet, experts: { frequencies: false, ...options } })
    const context = model.createContext()
    await model.process([{ context, tokens: text, nats: false }])
    sides.push({ model, context, times: [] as number[], asked: 0, recalled: 0 })
  }
  for (let round = 0; round < ROUNDS; round += 1) {
    for (const side of sides) {
      const generate = { count: tokens, temperature: 1, topK: 0, topP: 1, seed: BigInt(round) }
      const item = { context: side.context, tokens: new Int32Array(0), nats: false, perspectives: true, generate }
      const began = performance.now()
      const [result] = await side.model.process([item])
      side.times.push(((performance.now() - began) * 1000) / tokens)
      side.asked += (result!.draws ?? []).filter(({ fired }) => fired).length / (ROUNDS * tokens)
      side.recalled += (result!.draws ?? []).filter(({ hdm }) => hdm !== null).length / (ROUNDS * tokens)
    }
  }
  for (const { model } of sides) model.close()
  return sides.map(({ times, asked, recalled }) => ({ time: median(times), asked, recalled }))
}

const folder = mkdtempSync(join(tmpdir(), 'continuo-stages-'))
try {
  const packages = [without(folder, ['mpd', 'hdm']), without(folder, ['hdm']), without(folder, [])] as const
  const rows: (readonly number[])[] = []
  let shares = { asked: 0, recalled: 0 }
  for (const [, options] of ways) {
    const [plain, views, whole] = (await generated(packages, options)) as [Generated, Generated, Generated]
    rows.push([plain.time, views.time - plain.time, whole.time - views.time])
    shares = whole
  }
  console.log('\nA generated token, microseconds, without a trace')
  for (const [at, name] of ['layers and draw', 'MPD', 'HDM'].entries())
    console.log([name.padEnd(16), ...rows.map((row) => row[at]!.toFixed(1).padStart(14))].join(''))
  const percent = (share: number): string => `${(100 * share).toFixed(0)} %`
  console.log(
    `${percent(shares.asked)} of the draws asked the perspectives, ${percent(shares.recalled)} the memory; times are of all draws.`,
  )
} finally {
  rmSync(folder, { recursive: true, force: true })
}
