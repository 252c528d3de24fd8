/**
 * How long a client waits for tokens: the first one, and each that follows, from the engine itself and from the topic.
 *
 *   node bench/first-token.ts [--rounds 9] [--tokens 64] [--prompt 64] [--logs embedded,kafka] [--threads 2]
 *
 * A round sends a prompt with a request to generate, and waits for its tokens as a reader of the topic. Time to the first token begins
 * when the request is sent; time between tokens is that between the arrivals of two records. `run` is how many tokens a record may hold.
 * The bare engine draws the same tokens one at a time. Rounds are interleaved; medians, milliseconds. The chains must be equal.
 */
import { parseArgs } from 'node:util'
import { follow } from '../src/client/follow.ts'
import { openPackage } from '../src/models/open.ts'
import { startWorker } from '../src/operators/worker.ts'
import { topicNames } from '../topics/index.ts'
import type { Generated } from '../topics/tokens.ts'
import { documentOf, embeddedPlace, kafkaPlace, median, modelDir, type Place, prepared } from './support.ts'

const { values } = parseArgs({
  options: {
    rounds: { type: 'string', default: '9' },
    tokens: { type: 'string', default: '64' },
    prompt: { type: 'string', default: '64' },
    logs: { type: 'string', default: 'embedded,kafka' },
    threads: { type: 'string', default: '2' },
  },
})
const rounds = Number(values.rounds)
const count = Number(values.tokens)
const prompt = documentOf(Number(values.prompt))
const RUNS = [1, 4, 16] as const

const { model, tokenizer } = await openPackage(modelDir, { threads: Number(values.threads) })

interface Times {
  readonly first: number[]
  readonly between: number[]
}
const found = new Map<string, Times>()
const timesOf = (name: string): Times => {
  if (!found.has(name)) found.set(name, { first: [], between: [] })
  return found.get(name)!
}

const bare = async (seed: number): Promise<string> => {
  const { first, between } = timesOf('bare engine')
  const context = model.createContext()
  let last = performance.now()
  for (let index = 0; index < count; index += 1) {
    const tokens = index === 0 ? Int32Array.from(Buffer.from(prompt)) : new Int32Array(0)
    const generate = { count: 1, temperature: 1, topK: 0, topP: 1, seed: BigInt(seed) }
    await model.process([{ context, tokens, nats: index === 0, generate }])
    const now = performance.now()
    if (index === 0) first.push(now - last)
    else between.push(now - last)
    last = now
  }
  const { chain } = context
  context.close()
  return chain
}

const stream = async (place: Place) => {
  const log = await prepared(place.fresh(), 1)
  const names = topicNames(log.prefix)
  // A reader may see a record before the worker's own answer to its commit.
  const chains = new Map<string, (chain: string) => void>()
  const worker = await startWorker({
    ...{ log, names, model, tokenizer, group: 'bench', format: 'json' },
    ...{ commitInterval: 100, snapshotEvery: 16_384, maxContexts: 16, compactFloor: 4 << 20 },
    warn: (message) => console.error(message),
    onCommit: ({ steps }) => {
      for (const { head, outputs } of steps) {
        const ends = outputs.some((output) => output.to === 'tokens' && output.value.finish !== null)
        if (ends && head !== null) chains.get(head.session)?.(head.chain)
      }
    },
    onState: (_, __, error) => {
      if (error !== undefined) throw error
    },
  })
  const over = new AbortController()
  const arrivals = follow(log, { topic: names.tokens, partitions: 1, from: 'beginning', signal: over.signal })
  let asked = 0
  /** A request of a session of its own; its chain. */
  const ask = async (run: number, seed: number): Promise<string> => {
    const { first, between } = timesOf(`${place.name}, run ${run}`)
    asked += 1
    const session = `s${asked}`
    const key = Buffer.from(session)
    const send = { type: 'generate', requestId: session, maxTokens: count, seed, run }
    const chain = new Promise<string>((resolve) => chains.set(session, resolve))
    let last = performance.now()
    await log.append(names.chunks, [
      { key, value: Buffer.from(JSON.stringify({ type: 'text', text: prompt })) },
      { key, value: Buffer.from(JSON.stringify(send)) },
    ])
    for (;;) {
      const { value, done } = await arrivals.next()
      if (done === true) throw new Error('the topic of tokens ended')
      const { index, finish } = JSON.parse(Buffer.from(value.value!).toString()) as Generated
      const now = performance.now()
      if (index === 0) first.push(now - last)
      else between.push(now - last)
      last = now
      if (finish !== null) return await chain
    }
  }
  const close = async (): Promise<void> => {
    over.abort()
    await arrivals.return(undefined)
    await worker.stop()
    await log.close()
  }
  return { ask, close }
}

const wanted = values.logs.split(',')
const places: Place[] = []
if (wanted.includes('embedded')) places.push(embeddedPlace())
if (wanted.includes('kafka')) places.push(await kafkaPlace())
try {
  const streams = []
  for (const place of places) streams.push(await stream(place))
  await bare(0)
  found.clear()
  for (let round = 0; round < rounds; round += 1) {
    const chain = await bare(round)
    for (const { ask } of streams) {
      for (const run of RUNS) {
        const its = await ask(run, round)
        if (its !== chain) throw new Error(`a stream ended with chain ${its}, the bare engine with ${chain}`)
      }
    }
  }
  for (const { close } of streams) await close()
  console.log('                      first token   between records')
  for (const [name, { first, between }] of found)
    console.log(
      `${name.padEnd(22)}${median(first).toFixed(2).padStart(8)} ms ${median(between).toFixed(2).padStart(14)} ms`,
    )
} finally {
  model.close()
  for (const place of places) await place.stop()
}
