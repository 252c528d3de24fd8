/**
 * One token of a perspective model, stage by stage (docs/experts.md): where its time goes, and what is read for it.
 *
 *   node bench/expert-stages.ts [--model models/perspective] [--tokens 64] [--threads 2] [--share 4]
 *
 * Of the experts 1/--share may be in memory. A trace times nodes one by one; "load" is the time in which the experts' node waited for the
 * store, "experts" the rest of it. Drawing is timed by itself: tokens generated with and without the model's other perspectives (they are
 * asked where the model is unsure, so the share of such draws stands beside the time).
 */
import { parseArgs } from 'node:util'
import { bytes } from '../src/cli/output.ts'
import type { ExpertOptions, ExpertStatistics, TraceEntry } from '../src/engine/types.ts'
import { findExperts } from '../src/models/experts-source.ts'
import { openModel } from '../src/models/open.ts'
import { documentOf, root } from './support.ts'

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

const model = await openModel(dir, { ...quiet, experts: { frequencies: false, bytes: Math.ceil(all) } })
const context = model.createContext()
await model.process([{ context, tokens: text, nats: false }])
const generate = { count: tokens, temperature: 1, topK: 0, topP: 1, seed: 1n }
const began = performance.now()
const [drawn] = await model.process([{ context, tokens: new Int32Array(0), nats: false, perspectives: true, generate }])
const generated = ((performance.now() - began) * 1000) / tokens
const reading = performance.now()
await model.process(
  Array.from({ length: 1 }, () => ({ context, tokens: Int32Array.from(drawn!.generated), nats: false })),
)
const read = ((performance.now() - reading) * 1000) / tokens
const fired = drawn!.draws!.filter((each) => each.fired).length
const recalled = drawn!.draws!.filter((each) => each.hdm !== null).length
console.log(
  `\nA generated token takes ${generated.toFixed(0)} µs (a read one ${read.toFixed(0)} µs in a step of many); ${fired} of ${tokens} draws asked the perspectives (MPD), ${recalled} of them the memory (HDM).`,
)
model.close()
