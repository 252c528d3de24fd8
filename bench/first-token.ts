/**
 * How long a client waits for tokens: the first one, and each that follows, from the engine itself, from the topic, and
 * from a gateway.
 *
 *   node bench/first-token.ts [--rounds 9] [--tokens 64] [--prompt 64] [--logs embedded,kafka] [--threads 2]
 *
 * A round sends a prompt with a request to generate, and waits for its tokens as a reader of the topic. Time to the
 * first token begins when the request is sent; time between tokens is that between the arrivals of two records. `run`
 * is how many tokens a record may hold. A client of the gateway streams a completion; gateway and worker are in one
 * process here. The bare engine draws the same tokens one at a time. Rounds are interleaved; medians, milliseconds. The
 * chains must be equal.
 */

import { follow } from '../src/client/follow.ts'
import { LIMITS, serveGateway } from '../src/gateway/server.ts'
import { openPackage } from '../src/models/open.ts'
import { startWorker } from '../src/operators/worker/worker.ts'
import { topicNames } from '../topics/index.ts'
import type { Generated } from '../topics/tokens.ts'
import { parseArgs } from './options.ts'
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
  const quiet = { info: () => undefined, warn: console.error, error: console.error }
  const served = {
    ...{ id: 'demo', vocabSize: model.vocabSize, positions: null, tokenizer },
    about: { type: model.modelType, levels: [], outerMemory: false, torus: null },
    form: () => Promise.reject(new Error('no conversation is asked for')),
  }
  const gateway = await serveGateway({
    ...{ log, names, served, logger: quiet, host: '127.0.0.1', port: 0, keys: null, tls: null },
    limits: { ...LIMITS, rate: 0 },
    boards: [],
    verify: null,
  })
  /** The same over HTTP. */
  const askGateway = async (seed: number): Promise<string> => {
    const { first, between } = timesOf(`${place.name}, gateway`)
    asked += 1
    const session = `s${asked}`
    const chain = new Promise<string>((resolve) => chains.set(session, resolve))
    let last = performance.now()
    const response = await fetch(`${gateway.url}/v1/completions`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', 'x-session': session },
      body: JSON.stringify({ model: 'demo', prompt, max_tokens: count, seed, stream: true }),
    })
    if (response.status !== 200) throw new Error(await response.text())
    let isFirst = true
    for await (const piece of response.body!.pipeThrough(new TextDecoderStream())) {
      for (const _ of piece.matchAll(/^data: \{/gm)) {
        const now = performance.now()
        if (isFirst) first.push(now - last)
        else between.push(now - last)
        isFirst = false
        last = now
      }
    }
    // The reader of the topic has these records, too.
    for (;;) {
      const { value, done } = await arrivals.next()
      if (done === true) throw new Error('the topic of tokens ended')
      const { session: whose, finish } = JSON.parse(Buffer.from(value.value!).toString()) as Generated
      if (whose === session && finish !== null) return await chain
    }
  }
  const close = async (): Promise<void> => {
    await gateway.close(0)
    over.abort()
    await arrivals.return(undefined)
    await worker.stop()
    await log.close()
  }
  return { ask, askGateway, close }
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
    const same = (its: string): void => {
      if (its !== chain) throw new Error(`a stream ended with chain ${its}, the bare engine with ${chain}`)
    }
    for (const { ask, askGateway } of streams) {
      for (const run of RUNS) same(await ask(run, round))
      same(await askGateway(round))
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
