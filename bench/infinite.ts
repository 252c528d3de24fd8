/**
 * A decoder with an external memory, beside the plain one: what a session of any length costs
 * (docs/infinite-context.md).
 *
 *   node bench/infinite.ts [--tokens 10000,100000,1000000] [--plain 1000,8000,32000] [--memory FILE] [--cache BYTES] [--dir DIR] [--threads 2]
 *
 * The model is a random Llama of bytes: 4 layers, 256 channels, 4 query and 2 key heads of 64, 3.1M parameters. FILE is
 * a memory.json; without it the defaults hold. One session reads on and on; a worker commits it on an embedded log, its
 * blobs lie in a folder, and of archived blocks 64 MiB (`--cache`) are in memory. At each length:
 *
 *   read/s        tokens read a second, of 4,000 tokens in calls of 500: the median call
 *   generate/s    tokens generated a second, the median of eight requests for 32
 *                 of both: the ratio to the session as it was at the first length, restored like this one, by turns with it
 *   retrieve      the wall time of an event that retrieves and the next token, p50 and p99 of 100, without that of a token alone: chosen by
 *                 the index; named blocks that are in memory; named ones that are read from the folder
 *   resident      memory of a process of its own that restored the session and read 20,000 tokens on: all, that of archived blocks, that of
 *                 the session's state
 *   a snapshot    bytes that 1,000 new tokens add to blob store and snapshots, the mean of eight times
 *   restored      in that process, from the session's head to the first token after it, the median of three
 *   again         a process that was killed goes on from the snapshot: whether the next 1,000 tokens give the same chain
 *
 * Lengths are of the first session's tokens when the measurement begins. The plain decoder keeps keys and values of all
 * positions in f32.
 */
import { spawn } from 'node:child_process'
import { cpSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { bytes, count } from '../src/cli/output.ts'
import type { Context } from '../src/engine/context.ts'
import type { Model } from '../src/engine/types.ts'
import { openModel } from '../src/models/open.ts'
import { createContextStore } from '../src/operators/sessions/context-store.ts'
import type { Keep } from '../src/operators/snapshots/manifests.ts'
import { restoreSession } from '../src/operators/snapshots/restore.ts'
import { readPartitionState } from '../src/operators/worker/partition-state.ts'
import { startWorker } from '../src/operators/worker/worker.ts'
import type { Head } from '../src/state/head.ts'
import type { EventLog } from '../src/streams/log.ts'
import { openLog } from '../src/streams/open.ts'
import { safetensors, writePackageTo } from '../test/engine/safetensors.ts'
import { BASE, type DecoderConfig, randomDecoder } from '../test/models/decoders.ts'
import type { ChunkInput } from '../topics/chunks.ts'
import { TOPICS, topicNames } from '../topics/index.ts'
import { parseArgs } from './options.ts'
import { median, quantile } from './support.ts'

const { values } = parseArgs({
  options: {
    tokens: { type: 'string', default: '10000,100000,1000000' },
    plain: { type: 'string', default: '1000,8000,32000' },
    memory: { type: 'string' },
    cache: { type: 'string', default: String(2 ** 26) },
    dir: { type: 'string', default: tmpdir() },
    threads: { type: 'string', default: '2' },
    /** What the process that is killed runs: the folder of the bench. */
    victim: { type: 'string' },
    /** What a process of its own measures: the folder of the bench. */
    reader: { type: 'string' },
  },
})
const numbers = (text: string): readonly number[] =>
  text
    .split(',')
    .filter((each) => each !== '')
    .map(Number)
const lengths = numbers(values.tokens)
const plain = numbers(values.plain)
const threads = Number(values.threads)
const blocks = { maxBytes: Number(values.cache) }

const CALL = 500
const CALLS = 8
const REQUESTS = 8
const GENERATED = 32
const RETRIEVALS = 100
/** Of the defaults of memory.json. */
const [BLOCK, WINDOW] = [128, 2048]
const SNAPSHOT = 1000
const SNAPSHOTS = 8
const RESTORES = 3
/** Tokens that the process of its own reads on. */
const READ_ON = 20_000
/** Tokens of an event while the session grows. */
const EVENT = 4000
const GROUP = 'bench'
const SESSION = 'long'

const config = (positions: number): DecoderConfig => ({
  ...BASE,
  vocab_size: 256,
  hidden_size: 256,
  num_hidden_layers: 4,
  num_attention_heads: 4,
  num_key_value_heads: 2,
  intermediate_size: 704,
  max_position_embeddings: positions,
})
const writeModel = (dir: string, positions: number, memory: object | null): string => {
  mkdirSync(dir, { recursive: true })
  const sizes = config(positions)
  writePackageTo(dir, sizes, safetensors(randomDecoder(17, sizes), 'BF16'))
  if (memory !== null) writeFileSync(join(dir, 'memory.json'), JSON.stringify(memory))
  return dir
}

/** Pseudo-random ids; the same from any place on. */
const idsFrom = (at: number, length: number): number[] =>
  Array.from({ length }, (_, i) => {
    const x = Math.imul(at + i + 1, 2_654_435_761) >>> 0
    return ((x ^ (x >>> 15)) >>> 0) % 256
  })

const none = new Int32Array(0)
const seconds = async (call: () => Promise<unknown>): Promise<number> => {
  const started = performance.now()
  await call()
  return (performance.now() - started) / 1000
}

interface Side extends Pick<Model, 'submit'> {
  readonly context: Context
}

/** Sessions read and generate where they stand, by turns. */
const speeds = async (sides: readonly Side[]) => {
  const reading = sides.map((): number[] => [])
  for (let call = 0; call < CALLS; call += 1)
    for (const [side, { context, submit }] of sides.entries()) {
      const tokens = Int32Array.from(idsFrom(Number(context.pulse), CALL))
      reading[side]!.push(CALL / (await seconds(() => submit({ context, tokens, nats: false }))))
    }
  const generating = sides.map((): number[] => [])
  const generate = { temperature: 1, topK: 0, topP: 1, seed: 3n, count: GENERATED }
  for (let call = 0; call < REQUESTS; call += 1)
    for (const [side, { context, submit }] of sides.entries())
      generating[side]!.push(
        GENERATED / (await seconds(() => submit({ context, tokens: none, nats: false, generate }))),
      )
  return sides.map((_, side) => ({ read: median(reading[side]!), generate: median(generating[side]!) }))
}

const sizeBelow = (folder: string): number =>
  readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .reduce((sum, { parentPath, name }) => sum + statSync(join(parentPath, name)).size, 0)

interface Place {
  readonly url: string
  readonly store: string
}
const openAt = ({ url, store }: Place): Promise<EventLog> => openLog(url, { blobStore: store })

const send = async (log: EventLog, event: ChunkInput): Promise<void> => {
  const value = Buffer.from(JSON.stringify(event))
  await log.append(topicNames(log.prefix).chunks, [{ key: Buffer.from(SESSION), value }])
}

/** `compactFloor`: where it is infinite, no record is removed, so that those that are written can be counted. */
const working = (log: EventLog, model: Model, compactFloor = 2 ** 22) => {
  const names = topicNames(log.prefix)
  const started = startWorker({
    ...{ log, names, model, tokenizer: null, group: GROUP, format: 'json' as const },
    ...{ commitInterval: 5, snapshotEvery: SNAPSHOT, maxContexts: 2, compactFloor, warn: console.error },
    blocks,
    onState: (_, state, error) => {
      if (error !== null && error !== undefined) console.error(state, error)
    },
  })
  return {
    /** Resolves when the session, or its snapshot, stands at the pulse. */
    async reached(pulse: number, snapshot: boolean): Promise<void> {
      const worker = await started
      for (;;) {
        const head = worker.tasks.get(0)?.sessions.get(SESSION)
        const at = snapshot ? head?.snapshot?.pulse : head?.conductor.globalStep
        if (at !== undefined && at >= pulse) return
        await sleep(2)
      }
    },
    stop: async () => (await started).stop(),
  }
}

/** Reads on to `to` tokens; then how much eight times 1,000 tokens write. */
const onLog = async (place: Place, model: Model, from: number, to: number): Promise<number> => {
  const log = await openAt(place)
  const { snapshots } = topicNames(log.prefix)
  const feed = async (
    worker: ReturnType<typeof working>,
    at: number,
    tokens: number,
    named: boolean,
  ): Promise<void> => {
    await send(log, { type: 'tokens', tokens: idsFrom(at, tokens) })
    await worker.reached(at + tokens, named)
  }
  const reader = working(log, model)
  for (let at = from; at < to; at += EVENT) await feed(reader, at, Math.min(EVENT, to - at), false)
  // A clean stop writes a snapshot; the next ones follow it by 1,000 tokens each.
  await reader.stop()
  const written = async (): Promise<number> => {
    const { begin, end } = await log.bounds(snapshots, 0)
    let sum = sizeBelow(place.store)
    for await (const { records } of log.read(snapshots, 0, begin, { until: end }))
      for (const { value } of records) sum += value?.length ?? 0
    return sum
  }
  const worker = working(log, model, Number.POSITIVE_INFINITY)
  await feed(worker, to, SNAPSHOT, true)
  const before = await written()
  for (let n = 1; n <= SNAPSHOTS; n += 1) await feed(worker, to + n * SNAPSHOT, SNAPSHOT, true)
  const more = (await written()) - before
  await worker.stop()
  await log.close()
  return more / SNAPSHOTS
}

const newestHead = async (log: EventLog): Promise<Head> => {
  const { heads } = await readPartitionState(log, topicNames(log.prefix), 0, Number.POSITIVE_INFINITY)
  return heads.get(SESSION)!
}

/** A session of the log as a worker has it: its archived blocks stay in the folder until they are wanted. */
const restored = async (place: Place, model: Model) => {
  const log = await openAt(place)
  const names = topicNames(log.prefix)
  const head = await newestHead(log)
  const contexts = createContextStore(model, { blocks })
  const kept: Keep = (where, _, { hash, place: copy }) => ({
    key: `${hash}.${copy}`,
    isNear: true,
    read: () => readFile(join(place.store, where, `${hash}.${copy}`)),
  })
  const stored = { ...model, createContext: () => contexts.createContext() }
  const validate = { format: 'json', vocabSize: model.vocabSize, readsText: false } as const
  const engine = { model, tokenizer: null, submit: contexts.submit }
  const started = performance.now()
  const { context } = await restoreSession(
    { log, names, model: stored, engine, validate, kept, cancelled: new Map() },
    0,
    head,
  )
  const took = (performance.now() - started) / 1000
  await log.close()
  const close = async (): Promise<void> => {
    context.close()
    await contexts.close()
  }
  return { context, submit: contexts.submit, stats: contexts.stats, seconds: took, close }
}

/**
 * The wall time of retrievals with the token that follows each, less that of a token. `choose`: the blocks of number n;
 * null: the index chooses.
 */
const retrievals = async (
  { context, submit }: Pick<Awaited<ReturnType<typeof restored>>, 'context' | 'submit'>,
  choose: (n: number) => readonly number[] | null,
): Promise<readonly number[]> => {
  const token = (): Promise<unknown> => submit({ context, tokens: Int32Array.of(1), nats: false })
  const alone: number[] = []
  for (let n = 0; n < RETRIEVALS; n += 1) alone.push(await seconds(token))
  const usual = median(alone)
  const took: number[] = []
  for (let n = 0; n < RETRIEVALS; n += 1) {
    const named = choose(n)
    const request = { type: 'retrieve' as const, ...(named !== null && { blocks: named }) }
    took.push(
      await seconds(async () => {
        await submit({ context, tokens: none, nats: false, request })
        await token()
      }),
    )
  }
  return took.map((each) => Math.max(0, each - usual))
}

/** A process that works on the log is killed when it has begun to read 1,000 tokens; another reads them. */
const killed = async (
  place: Place,
  dir: string,
  at: number,
): Promise<{ readonly chain: string; readonly seconds: number }> => {
  const log = await openAt(place)
  await send(log, { type: 'tokens', tokens: idsFrom(at, SNAPSHOT) })
  await log.close()
  const args = [import.meta.filename, '--victim', dir, '--threads', values.threads]
  const child = spawn(process.execPath, args, { stdio: ['ignore', 'pipe', 'inherit'] })
  await new Promise((resolve) => child.stdout.once('data', resolve))
  child.kill('SIGKILL')
  await new Promise((resolve) => child.once('close', resolve))
  const model = await openModel(join(dir, 'model'), { threads })
  const again = await openAt(place)
  const started = performance.now()
  const worker = working(again, model)
  await worker.reached(at + SNAPSHOT, false)
  const took = (performance.now() - started) / 1000
  await worker.stop()
  await again.close()
  const there = await restored(place, model)
  const { chain } = there.context
  await there.close()
  model.close()
  return { chain, seconds: took }
}

const placeIn = (dir: string): Place => ({ url: `file:${join(dir, 'log.db')}`, store: join(dir, 'blobs') })

/** What is killed: a worker that says when its session's first new tokens are committed. */
const victim = async (dir: string): Promise<never> => {
  const model = await openModel(join(dir, 'model'), { threads })
  const log = await openAt(placeIn(dir))
  const { conductor } = await newestHead(log)
  const worker = working(log, model)
  await worker.reached(conductor.globalStep + 1, false)
  console.log('in the middle')
  return new Promise(() => setInterval(() => undefined, 1000))
}

interface Alone {
  readonly restored: number
  readonly resident: number
  readonly blocks: number
  readonly state: number
}

/** What nothing but the session is in: restores it, reads on, and prints what that took. */
const reader = async (dir: string): Promise<void> => {
  const model = await openModel(join(dir, 'model'), { threads })
  const times: number[] = []
  for (let n = 0; n < RESTORES; n += 1) {
    const there = await restored(placeIn(dir), model)
    const token = { context: there.context, tokens: Int32Array.of(1), nats: false }
    times.push(there.seconds + (await seconds(() => there.submit(token))))
    await there.close()
  }
  const { context, submit, stats, close } = await restored(placeIn(dir), model)
  for (let read = 0; read < READ_ON; read += CALL)
    await submit({ context, tokens: Int32Array.from(idsFrom(Number(context.pulse), CALL)), nats: false })
  globalThis.gc?.()
  const answer: Alone = {
    restored: median(times),
    resident: process.memoryUsage().rss,
    blocks: stats.blocks!.bytes,
    state: context.bytes,
  }
  console.log(JSON.stringify(answer))
  await close()
  model.close()
}

const aloneIn = async (dir: string): Promise<Alone> => {
  const args = ['--expose-gc', import.meta.filename, '--reader', dir, '--threads', values.threads]
  const child = spawn(process.execPath, [...args, '--cache', values.cache], { stdio: ['ignore', 'pipe', 'inherit'] })
  let told = ''
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    told += text
  })
  const code = await new Promise((resolve) => child.once('close', resolve))
  if (code !== 0) throw new Error(`The process that reads by itself ended with ${code}.`)
  return JSON.parse(told) as Alone
}

const measure = async (): Promise<void> => {
  const dir = mkdtempSync(join(values.dir, 'continuo-infinite-'))
  try {
    const memory =
      values.memory === undefined
        ? { format: 'continuo-memory/1' }
        : (JSON.parse(readFileSync(values.memory, 'utf8')) as object)
    const model = await openModel(writeModel(join(dir, 'model'), 4096, memory), { threads })
    const place = placeIn(dir)
    mkdirSync(place.store)
    const log = await openAt(place)
    const names = topicNames(log.prefix)
    await log.createTopics(TOPICS.map(({ name, settings }) => ({ name: names[name], partitions: 1, config: settings })))
    await log.close()
    // The session as it was at the first length, in a model of its own.
    const first = join(dir, 'first')
    const other = await openModel(join(dir, 'model'), { threads })
    let from = 0
    for (const to of lengths) {
      if (to < from)
        throw new Error(
          `${to} tokens: the lengths ascend, each at least 11,000 behind the one before; the session has ${from}.`,
        )
      const snapshot = await onLog(place, model, from, to)
      from = to + (SNAPSHOTS + 1) * SNAPSHOT
      if (to === lengths[0]) {
        mkdirSync(first)
        for (const name of readdirSync(dir))
          if (name === 'blobs' || name.startsWith('log.db'))
            cpSync(join(dir, name), join(first, name), { recursive: true })
      }
      const alone = await aloneIn(dir)
      const long = await restored(place, model)
      const short = await restored(placeIn(first), other)
      const sides = await speeds([long, short])
      const [{ read, generate }, shorter] = [sides[0]!, sides[1]!]
      await short.close()
      const archived = Math.floor((to - WINDOW) / BLOCK)
      const sets = [
        [0, 1, 2],
        [3, 4, 5],
      ]
      const chosen = await retrievals(long, () => null)
      const near = await retrievals(long, (n) => sets[n % 2]!)
      // Each is far from those before it, and none comes twice where there are enough.
      const far = await retrievals(long, (n) => [0, 1, 2].map((i) => ((3 * n + i) * 37) % archived))
      const { storeReads } = long.stats.blocks!
      await long.close()
      const straight = await restored(place, model)
      const tokens = Int32Array.from(idsFrom(from, SNAPSHOT))
      await straight.submit({ context: straight.context, tokens, nats: false })
      const { chain } = straight.context
      await straight.close()
      const again = await killed(place, dir, from)
      from += SNAPSHOT
      const ms = (value: number): string => (value * 1000).toFixed(1)
      const both = (took: readonly number[]): string =>
        `${ms(quantile(took, 0.5))} ms (p99 ${ms(quantile(took, 0.99))})`
      console.log(
        [
          `${count(to)} tokens: read ${count(read)}/s, generate ${count(generate)}/s; ${(read / shorter.read).toFixed(3)} and ${(generate / shorter.generate).toFixed(3)} of what it did at ${count(lengths[0]!)}`,
          `retrieve ${both(chosen)} by the index, ${both(near)} from memory, ${both(far)} from the folder (${count(storeReads)} reads)`,
          `resident ${bytes(alone.resident)}, of it archived blocks ${bytes(alone.blocks)}, state ${bytes(alone.state)}; a snapshot after 1,000 tokens ${bytes(snapshot)}`,
          `restored to the first token in ${alone.restored.toFixed(3)} s; killed and there again in ${again.seconds.toFixed(2)} s: ${again.chain === chain ? 'the same chain' : `ANOTHER CHAIN, ${again.chain} for ${chain}`}`,
        ].join('\n  '),
      )
    }
    model.close()
    other.close()
    const decoder = await openModel(writeModel(join(dir, 'plain'), 65_536, null), { threads })
    const context = decoder.createContext()
    for (const to of plain) {
      while (Number(context.pulse) < to) {
        const tokens = Int32Array.from(idsFrom(Number(context.pulse), Math.min(2000, to - Number(context.pulse))))
        await decoder.submit({ context, tokens, nats: false })
      }
      const { read, generate } = (await speeds([{ submit: decoder.submit, context }]))[0]!
      console.log(
        `plain, ${count(to)} tokens: read ${count(read)}/s, generate ${count(generate)}/s, state ${bytes(context.bytes)}`,
      )
    }
    decoder.close()
  } finally {
    rmSync(dir, { recursive: true, force: true })
  }
}

if (values.victim !== undefined) await victim(values.victim)
else if (values.reader !== undefined) await reader(values.reader)
else await measure()
