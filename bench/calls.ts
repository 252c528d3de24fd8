/**
 * What a program waits for a call that asks for one token, beside sessions that read 512 tokens at a time. The program
 * makes its next call when the one before is answered; nothing but that tells the engine that there will be one.
 *
 *   node bench/calls.ts [--models 0.1b,demo] [--paths engine,manager,chat,gateway] [--readers 8] [--threads 2] [--target 2] [--rounds 3] [--seconds 5]
 *                       [--strangers]
 *
 *   engine    `Model.submit`, where each item says that another one follows: what the engine can do at best
 *   manager   `SessionManager.generate`
 *   chat      `chatTurn` of a SessionManager: a message of 16 tokens, and an answer of one
 *   gateway   POST /v1/completions of a session, streamed; gateway and worker are in this process, the log is an embedded one
 *
 * A round measures the calls alone, the readers alone, and both together. Ratios are to the median of the calls alone.
 * "In the engine" is the p99 of the time from the submission of an item that generates to its answer, "event loop" the
 * p99 of what the event loop was late, both beside readers. "Tokens fed" is how many tokens the engine fed during a
 * call, so it says what a call waits for also where other processes take the cores.
 *
 * --strangers is the negative control: the program makes each call on a session of its own (in the manager a fork, in
 * the gateway one with a prompt of 16 tokens), of which the engine cannot know that its program makes another call.
 *
 * The 0.1B model (RWKV-7, f16, random weights) is written to a temporary folder.
 */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { monitorEventLoopDelay } from 'node:perf_hooks'
import { setTimeout } from 'node:timers/promises'
import type { Model } from '../src/engine/types.ts'
import { LIMITS, serveGateway } from '../src/gateway/server.ts'
import { openPackage } from '../src/models/open.ts'
import { startWorker } from '../src/operators/worker/worker.ts'
import { chatTurn } from '../src/sessions/chat.ts'
import { SessionManager } from '../src/sessions/manager.ts'
import type { SessionHandle } from '../src/sessions/types.ts'
import { topicNames } from '../topics/index.ts'
import { parseArgs } from './options.ts'
import { RWKV7_0B1, writeRwkv7 } from './rwkv7-package.ts'
import { embeddedPlace, median, modelDir, prepared, quantile } from './support.ts'

const { values } = parseArgs({
  options: {
    models: { type: 'string', default: '0.1b,demo' },
    paths: { type: 'string', default: 'engine,manager,chat,gateway' },
    readers: { type: 'string', default: '8' },
    threads: { type: 'string', default: '2' },
    target: { type: 'string', default: '2' },
    rounds: { type: 'string', default: '3' },
    seconds: { type: 'string', default: '5' },
    strangers: { type: 'boolean', default: false },
  },
})
const READ = 512
const PROMPT = 16
/** Calls of a program that are not measured. */
const FIRST = 3
const readers = Number(values.readers)

const idsOf = (model: Model, seed: number, count: number): number[] =>
  Array.from({ length: count }, (_, i) => (i * 7919 + seed * 104_729 + 1) % model.vocabSize)

/** What is measured: a program that makes a call, and readers that each read on. */
interface Path {
  call(n: number): Promise<void>
  read(reader: number, n: number): Promise<void>
  close(): Promise<void>
}

const engine = async (model: Model): Promise<Path> => {
  const made = async (seed: number) => {
    const context = model.createContext()
    await model.submit({ context, tokens: Int32Array.from(idsOf(model, seed, PROMPT)), nats: false })
    return context
  }
  const program = await made(0)
  const reading = await Promise.all(Array.from({ length: readers }, (_, n) => made(100 + n)))
  const sampling = { temperature: 1, topK: 0, topP: 1, seed: 1n, count: 1, more: true }
  return {
    async call() {
      await model.submit({ context: program, tokens: new Int32Array(0), nats: false, generate: sampling })
    },
    async read(reader, n) {
      const tokens = Int32Array.from(idsOf(model, n, READ))
      await model.submit({ context: reading[reader]!, tokens, nats: true })
    },
    async close() {
      for (const context of [program, ...reading]) context.close()
    },
  }
}

const ONE = { maxTokens: 1, temperature: 1, ignoreEnd: true } as const

const managed =
  (say: (manager: SessionManager, session: SessionHandle, n: number) => Promise<unknown>) =>
  async (model: Model): Promise<Path> => {
    const manager = new SessionManager(model, { verifyWeights: false })
    const made = async (id: string, seed: number): Promise<SessionHandle> => {
      const session = manager.createSession(id)
      await manager.process(session, idsOf(model, seed, PROMPT))
      return session
    }
    const program = await made('program', 0)
    const reading = await Promise.all(Array.from({ length: readers }, (_, n) => made(`reader-${n}`, 100 + n)))
    return {
      async call(n) {
        if (!values.strangers) return void (await say(manager, program, n))
        const stranger = await manager.fork(program, `stranger-${n}`)
        await say(manager, stranger, n)
        await manager.closeSession(stranger)
      },
      async read(reader, n) {
        await manager.process(reading[reader]!, idsOf(model, n, READ))
      },
      close: () => manager.close(),
    }
  }

const manager = managed((of, session) => of.generate(session, ONE))
const chat = (model: Model) =>
  managed((of, session, n) => {
    const form = {
      stops: [],
      ask: () => ({ ids: Int32Array.from(idsOf(model, n, PROMPT)), exact: true }),
      answered: () => {},
    }
    return chatTurn(of, session, form, '', ONE)
  })(model)

const gateway = async (model: Model): Promise<Path> => {
  const place = embeddedPlace()
  const log = await prepared(place.fresh(), 1)
  const names = topicNames(log.prefix)
  const finished = new Map<string, () => void>()
  const worker = await startWorker({
    ...{ log, names, model, tokenizer: null, group: 'bench', format: 'json' },
    ...{ commitInterval: 100, snapshotEvery: 1 << 20, maxContexts: 128, compactFloor: 1 << 30 },
    warn: (message) => console.error(message),
    onState: (_, __, error) => {
      if (error !== undefined) throw error
    },
    onCommit({ steps }) {
      for (const { session, done } of steps) if (done && session !== null) finished.get(session)?.()
    },
  })
  const server = await serveGateway({
    ...{ log, names, host: '127.0.0.1', port: 0, keys: null, tls: null, boards: [], verify: null },
    logger: { info: () => undefined, warn: console.error, error: console.error },
    limits: { ...LIMITS, rate: 0 },
    served: {
      ...{ id: 'bench', vocabSize: model.vocabSize, positions: null, tokenizer: null },
      about: { type: model.modelType, levels: [], outerMemory: false, torus: null },
      form: () => Promise.reject(new Error('no conversation is asked for')),
    },
  })
  const post = async (path: string, body: object, session = ''): Promise<string> => {
    const headers = { 'content-type': 'application/json', ...(session !== '' && { 'x-session': session }) }
    const response = await fetch(server.url + path, { method: 'POST', headers, body: JSON.stringify(body) })
    const text = await response.text()
    if (!response.ok || text.includes('"error"')) throw new Error(text)
    return text
  }
  const complete = (session: string, prompt: readonly number[]) =>
    post('/v1/completions', { model: 'bench', prompt, max_tokens: 1, temperature: 1, stream: true }, session)
  await complete('program', idsOf(model, 0, PROMPT))
  return {
    async call(n) {
      if (values.strangers) await complete(`stranger-${n}`, idsOf(model, n, PROMPT))
      else await post('/v1/completions', { model: 'bench', max_tokens: 1, temperature: 1, stream: true }, 'program')
    },
    async read(reader, n) {
      const id = `reader-${reader}`
      const read = new Promise<void>((resolve) => finished.set(id, resolve))
      await post(`/v1/sessions/${id}/chunks`, { type: 'tokens', tokens: idsOf(model, n, READ) })
      await read
    },
    async close() {
      await server.close(0)
      await worker.stop()
      await log.close()
      await place.stop()
    },
  }
}

const PATHS: Readonly<Record<string, (model: Model) => Promise<Path>>> = { engine, manager, chat, gateway }

interface Figures {
  /** Of each call, ms. */
  readonly times: number[]
  /** Tokens that the engine fed during each call, the call's own among them. */
  readonly fed: number[]
}

let count = 0

/** Calls for so many seconds, after some by which the engine learns of the program. */
const calls = async (path: Path, model: Model, seconds: number): Promise<Figures> => {
  const found: Figures = { times: [], fed: [] }
  for (let n = 0; n < FIRST; n += 1) {
    count += 1
    await path.call(count)
  }
  const until = performance.now() + seconds * 1000
  do {
    count += 1
    const before = model.stats.tokens
    const started = performance.now()
    await path.call(count)
    found.times.push(performance.now() - started)
    found.fed.push(model.stats.tokens - before)
  } while (performance.now() < until)
  return found
}

/** Readers read on until they are stopped. */
const startReaders = (path: Path): { stop(): Promise<void> } => {
  let over = false
  const reading = Array.from({ length: readers }, async (_, reader) => {
    while (!over) {
      count += 1
      await path.read(reader, count)
    }
  })
  return {
    async stop() {
      over = true
      await Promise.all(reading)
    },
  }
}

const ms = (value: number): string => value.toFixed(1).padStart(8)
const ratio = (value: number): string => `${value.toFixed(2)} x`.padStart(9)
const spread = (list: readonly number[]): string =>
  `${median(list).toFixed(2)} (${Math.min(...list).toFixed(2)} to ${Math.max(...list).toFixed(2)})`

const report = async (name: string, dir: string): Promise<void> => {
  const { model } = await openPackage(dir, { threads: Number(values.threads), stepTarget: Number(values.target) })
  const inEngine: number[] = []
  const submit: Model['submit'] = async (item) => {
    const began = performance.now()
    const result = await model.submit(item)
    if (item.generate !== undefined) inEngine.push(performance.now() - began)
    return result
  }
  const watched = new Proxy(model, { get: (of, key) => (key === 'submit' ? submit : Reflect.get(of, key)) })
  console.log(`\n${name}, ${model.vocabSize} tokens, ${values.threads} threads, ${readers} readers`)
  console.log(
    'path        alone p50     p99    beside p50                p99           in the engine  event loop  tokens fed p50, p99   readers, of their speed alone',
  )
  const speed = async (work: () => Promise<number>): Promise<number> => {
    const [began, before] = [performance.now(), model.stats.tokens]
    const own = await work()
    return (model.stats.tokens - before - own) / (performance.now() - began)
  }
  for (const kind of values.paths.split(',')) {
    const path = await PATHS[kind]!(watched)
    const seconds = Number(values.seconds)
    const [alone, beside, fed]: [number[], number[], number[]] = [[], [], []]
    const [kept, late, within]: [number[], number[], number[]] = [[], [], []]
    await calls(path, model, 1)
    for (let round = 0; round < Number(values.rounds); round += 1) {
      alone.push(...(await calls(path, model, seconds)).times)
      const reading = startReaders(path)
      await setTimeout(1000)
      const before = await speed(async () => {
        await setTimeout(seconds * 1000)
        return 0
      })
      const loop = monitorEventLoopDelay({ resolution: 1 })
      loop.enable()
      inEngine.length = 0
      const both = await speed(async () => {
        const found = await calls(path, model, seconds)
        beside.push(...found.times)
        fed.push(...found.fed)
        return (found.times.length + FIRST) * (kind === 'chat' ? PROMPT + 1 : 1)
      })
      loop.disable()
      within.push(...inEngine)
      late.push(loop.percentile(99) / 1e6)
      kept.push(both / before)
      await reading.stop()
    }
    await path.close()
    const base = median(alone)
    const [p50, p99] = [median(beside), quantile(beside, 0.99)]
    console.log(
      `${kind.padEnd(10)} ${ms(base)} ${ms(quantile(alone, 0.99))} ${ms(p50)} ${ratio(p50 / base)} ${ms(p99)} ${ratio(p99 / base)} ${ms(quantile(within, 0.99))} ${ms(median(late))} ${median(fed).toFixed(0).padStart(8)} ${quantile(fed, 0.99).toFixed(0).padStart(4)}       ${spread(kept)}`,
    )
  }
  model.close()
}

const dir = mkdtempSync(join(tmpdir(), 'continuo-calls-'))
try {
  for (const name of values.models.split(',')) {
    if (name === '0.1b') await writeRwkv7(dir, RWKV7_0B1, 'F16')
    await report(name, name === '0.1b' ? dir : name === 'demo' ? modelDir : name)
  }
} finally {
  rmSync(dir, { recursive: true, force: true })
}
