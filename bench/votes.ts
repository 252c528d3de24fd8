/**
 * Whether the votes of an ngram memory would guess better than the past does (docs/speculation.md): tokens a step where
 * every step has as many guesses as there are.
 *
 *   node bench/votes.ts [--model models/stream] [--memory models/watch] [--texts FILE,FILE] [--prompt 40000] [--count 1500] [--guesses 8]
 *
 * The model writes on behind the first bytes of each text, at temperature 0 and 0.8. `past`: what followed the longest
 * place that reads like the end, as the engine guesses. `votes`: at each place a fork of the memory's package, which
 * has read all of it, draws with the session's seed and pulses; what is alike from the first on would be kept. Nothing
 * is timed: what guesses cost is left out on both sides.
 */
import { readFileSync } from 'node:fs'
import { basename, join } from 'node:path'
import { table } from '../src/cli/output.ts'
import type { Speculation } from '../src/engine/options.ts'
import type { Model } from '../src/engine/types.ts'
import type { Generate } from '../src/engine/work.ts'
import { openModel } from '../src/models/open.ts'
import { parseArgs } from './options.ts'
import { root } from './support.ts'

const { values } = parseArgs({
  options: {
    model: { type: 'string', default: join(root, 'models/stream') },
    memory: { type: 'string', default: join(root, 'models/watch') },
    texts: {
      type: 'string',
      default: ['docs/demo/harbour-log.txt', 'src/operators/advance/advance.ts'].map((file) => join(root, file)).join(),
    },
    prompt: { type: 'string', default: '40000' },
    count: { type: 'string', default: '1500' },
    guesses: { type: 'string', default: '8' },
  },
})
const [count, guesses] = [Number(values.count), Number(values.guesses)]
const none = new Int32Array(0)
const draw = (temperature: number, tokens: number): Generate => ({
  ...{ temperature, topK: 0, topP: 1, seed: 7n, count: tokens, more: true },
})

const opened = (dir: string, speculate: Speculation): Promise<Model> =>
  openModel(dir, { threads: 1, device: 'cpu', keepPacked: false, speculate })

/** What the model writes behind the prompt, and in how many steps. */
const written = async (model: Model, prompt: Int32Array, temperature: number) => {
  const context = model.createContext()
  await model.submit({ context, tokens: prompt, nats: false })
  const before = model.stats.steps
  const ids: number[] = []
  while (ids.length < count) {
    const item = { context, tokens: none, nats: false, generate: draw(temperature, Math.min(64, count - ids.length)) }
    ids.push(...(await model.submit(item)).generated)
  }
  context.close()
  return { ids, steps: model.stats.steps - before }
}

/** Steps that the same text takes where the memory's draws are the guesses. */
const votedSteps = async (memory: Model, prompt: Int32Array, ids: readonly number[], temperature: number) => {
  const context = memory.createContext()
  await memory.submit({ context, tokens: prompt, nats: false })
  let steps = 0
  for (let at = 0; at < ids.length; steps += 1) {
    const fork = memory.forkContext(context)
    const item = { context: fork, tokens: none, nats: false, generate: draw(temperature, guesses) }
    const { generated } = await memory.submit(item)
    fork.close()
    let kept = 0
    while (kept < guesses && generated[kept] === ids[at + kept]) kept += 1
    // Behind the kept ones the step draws one itself.
    const tokens = Int32Array.from(ids.slice(at, at + kept + 1))
    await memory.submit({ context, tokens, nats: false })
    at += tokens.length
  }
  context.close()
  return steps
}

const model = await opened(values.model, { tokens: guesses, adapt: false })
const memory = await opened(values.memory, { tokens: 0 })
const rows: string[][] = []
for (const file of values.texts.split(','))
  for (const temperature of [0, 0.8]) {
    const prompt = Int32Array.from(readFileSync(file).subarray(0, Number(values.prompt)))
    const { ids, steps } = await written(model, prompt, temperature)
    const voted = await votedSteps(memory, prompt, ids, temperature)
    rows.push([
      `${basename(file)} at ${temperature}`,
      (ids.length / steps).toFixed(2),
      (ids.length / voted).toFixed(2),
      (steps / voted).toFixed(2),
    ])
  }
console.log(table(['text', '>past', '>votes', '>ratio'], rows))
model.close()
memory.close()
