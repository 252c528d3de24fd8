/**
 * The engine alone, with the shipped model: reading (with surprisal and without), and generating for one session and for many.
 *
 *   node bench/engine.ts [--threads 1,2] [--rounds 9] [--sessions 16]
 *
 * Rounds of all measures are interleaved; a line gives the median and the slowest and fastest round.
 */
import { parseArgs } from 'node:util'
import type { Context, Model, Sampling } from '../src/engine/types.ts'
import { openModel } from '../src/models/open.ts'
import { documentOf, median, modelDir } from './support.ts'

const { values } = parseArgs({
  options: {
    threads: { type: 'string', default: '1,2' },
    rounds: { type: 'string', default: '9' },
    sessions: { type: 'string', default: '16' },
  },
})
const rounds = Number(values.rounds)
const many = Number(values.sessions)
const READ = 4096
const GENERATE = 128
const sampling: Sampling = { temperature: 1, topK: 0, topP: 0.9, seed: 1n }
const ids = Int32Array.from(Buffer.from(documentOf(READ)))
const none = new Int32Array(0)

const readOf = (model: Model, nats: boolean) => async (): Promise<number> => {
  const context = model.createContext()
  const started = performance.now()
  for (let at = 0; at < READ; at += 512) await model.process([{ context, tokens: ids.subarray(at, at + 512), nats }])
  const seconds = (performance.now() - started) / 1000
  context.close()
  return READ / seconds
}

const generateOf = async (model: Model, sessions: number): Promise<() => Promise<number>> => {
  const contexts: Context[] = Array.from({ length: sessions }, () => model.createContext())
  await model.process(contexts.map((context) => ({ context, tokens: ids.subarray(0, 256), nats: false })))
  return async () => {
    const generate = { ...sampling, count: GENERATE }
    const started = performance.now()
    await model.process(contexts.map((context) => ({ context, tokens: none, nats: false, generate })))
    return (sessions * GENERATE) / ((performance.now() - started) / 1000)
  }
}

const measures: { readonly name: string; readonly run: () => Promise<number>; readonly speeds: number[] }[] = []
const models: Model[] = []
for (const threads of values.threads.split(',').map(Number)) {
  const model = await openModel(modelDir, { threads })
  models.push(model)
  const add = (what: string, run: () => Promise<number>): void => {
    measures.push({ name: `${threads} thread${threads === 1 ? ' ' : 's'}  ${what}`, run, speeds: [] })
  }
  add('read, with surprisal', readOf(model, true))
  add('read, state only', readOf(model, false))
  add('generate, 1 session', await generateOf(model, 1))
  add(`generate, ${many} sessions`, await generateOf(model, many))
}
for (const { run } of measures) await run()
for (let round = 0; round < rounds; round += 1) for (const { run, speeds } of measures) speeds.push(await run())
for (const { name, speeds } of measures) {
  const [middle, low, high] = [median(speeds), Math.min(...speeds), Math.max(...speeds)].map(Math.round)
  console.log(`${name.padEnd(36)} ${String(middle).padStart(7)} tokens/s  (${low} to ${high})`)
}
for (const model of models) model.close()
