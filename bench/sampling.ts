/**
 * What each way of drawing costs a token, with a vocabulary as large as today's models have.
 *
 *   node bench/sampling.ts [--vocabulary 150000] [--tokens 64] [--rounds 9] [--counted 1088] [--threads 1]
 *
 * A model of one small layer, so that a step is mostly the draw and the product that gives its logits. Rounds are
 * interleaved; a ratio is to the plain draw (temperature 1) of the same round. Time is that of the process's CPU, so
 * that neighbours on the machine matter less. CONTINUO_ADDON names another build of the engine: one that lacks a
 * setting is measured without it, by `--only plain,greedy`.
 */
import { rmSync } from 'node:fs'
import type { Generate } from '../src/engine/work.ts'
import { openModel } from '../src/models/open.ts'
import { randomRwkv7, safetensors, writePackage } from '../test/engine/packages.ts'
import { parseArgs } from './options.ts'
import { median } from './support.ts'

const { values } = parseArgs({
  options: {
    vocabulary: { type: 'string', default: '150000' },
    tokens: { type: 'string', default: '64' },
    rounds: { type: 'string', default: '9' },
    counted: { type: 'string', default: '1088' },
    threads: { type: 'string', default: '1' },
    only: { type: 'string' },
  },
})
const [vocabulary, tokens, rounds] = [Number(values.vocabulary), Number(values.tokens), Number(values.rounds)]
const dir = writePackage(
  { model_type: 'rwkv7' },
  safetensors(randomRwkv7(3, { L: 1, H: 2, N: 16, F: 40, V: vocabulary, D: { w: 4, a: 4, v: 4, g: 4 } })),
)
const model = await openModel(dir, { threads: Number(values.threads) })
const counts = new Map(
  Array.from({ length: Number(values.counted) }, (_, at) => [(at * 131) % vocabulary, 1 + (at % 3)]),
)
const logitBias = new Map(Array.from({ length: 1024 }, (_, at) => [(at * 97) % vocabulary, (at % 9) - 4]))
const plain = { temperature: 1, topK: 0, topP: 1, seed: 1n }
const WAYS: Readonly<Record<string, Omit<Generate, 'count'>>> = {
  plain,
  greedy: { ...plain, temperature: 0 },
  'top-p 0.95': { ...plain, topP: 0.95 },
  'top-k 40': { ...plain, topK: 40 },
  'min-p 0.05': { ...plain, minP: 0.05 },
  penalties: { ...plain, penalties: { repetition: 1.1, presence: 0.5, frequency: 0.1, counts } },
  'logit bias, 1,024 ids': { ...plain, logitBias },
  'top-logprobs 20': { ...plain, topLogprobs: 20 },
}
const names = values.only?.split(',') ?? Object.keys(WAYS)

const context = model.createContext()
await model.process([{ context, tokens: Int32Array.of(1, 2, 3), nats: false }])
const head = { pulse: context.pulse, origin: context.origin, chain: context.chain }
const state = context.serialize()

/** Microseconds of CPU a token, asked for in runs of 16 as the stream asks. */
const measure = async (drawing: Omit<Generate, 'count'>): Promise<number> => {
  context.restore(state, head)
  const started = process.cpuUsage()
  for (let done = 0; done < tokens; done += 16) {
    const generate = { ...drawing, count: Math.min(16, tokens - done) }
    await model.process([{ context, tokens: new Int32Array(0), nats: false, generate }])
  }
  const { user, system } = process.cpuUsage(started)
  return (user + system) / tokens
}

const found = new Map(names.map((name) => [name, [] as number[]]))
for (const drawing of Object.values(WAYS)) if (values.only === undefined) await measure(drawing)
for (let round = 0; round < rounds; round += 1)
  for (const name of names) found.get(name)!.push(await measure(WAYS[name]!))
console.log(`${vocabulary} tokens, ${rounds} rounds of ${tokens}; microseconds of CPU a token, and over the plain draw`)
for (const [name, times] of found) {
  const ratios = times.map((time, round) => time / found.get(names[0]!)![round]!)
  const [least, most] = [Math.min(...ratios), Math.max(...ratios)]
  console.log(
    `${name.padEnd(24)} ${median(times).toFixed(0).padStart(8)}   ${median(ratios).toFixed(2)} (${least.toFixed(2)} to ${most.toFixed(2)})`,
  )
}
context.close()
model.close()
rmSync(dir, { recursive: true, force: true })
