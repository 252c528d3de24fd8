/**
 * A worker in this process, by default on an embedded log, with the shipped model: everything real, everything small.
 */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterAll, beforeAll, describe, expect, inject, type TestOptions, test } from 'vitest'
import type { Model } from '../../src/engine/types.ts'
import { openPackage } from '../../src/models/open.ts'
import type { Tokenizer } from '../../src/models/tokenizer/types.ts'
import type { Commit } from '../../src/operators/pipeline/commit.ts'
import { verifyLog } from '../../src/operators/verify/verify.ts'
import { readPartitionState } from '../../src/operators/worker/partition-state.ts'
import { startWorker, type Worker, type WorkerOptions } from '../../src/operators/worker/worker.ts'
import type { Head } from '../../src/state/head.ts'
import type { TaskState } from '../../src/streams/lifecycle.ts'
import type { EventLog, RecordIn, StoredRecord } from '../../src/streams/log.ts'
import { openLog } from '../../src/streams/open.ts'
import type { ChunkInput } from '../../topics/chunks.ts'
import { TOPICS, type TopicNames, topicNames } from '../../topics/index.ts'
import type { Observation } from '../../topics/observations.ts'
import type { Generated } from '../../topics/tokens.ts'
import { freshPrefix } from '../kafka/broker.ts'
import { eventually } from '../streams/helpers.ts'

export const demoModel = fileURLToPath(new URL('../../models/demo', import.meta.url))

export const event = (session: string, chunk: ChunkInput | string | Uint8Array): RecordIn => ({
  key: Buffer.from(session),
  value:
    typeof chunk === 'string' || chunk instanceof Uint8Array ? Buffer.from(chunk) : Buffer.from(JSON.stringify(chunk)),
})

/**
 * Workers one after the other, each stopped by the first commit that ends inside a request after some others (`first`,
 * and `more` for each worker before it), until all is read; every step has a snapshot, and contexts leave. How often
 * one was stopped, and how many sessions stood inside a request then.
 */
export const interrupted = async (
  bench: Bench,
  first: number,
  more: number,
  patience: number,
): Promise<{ readonly stops: number; readonly inside: number }> => {
  let stops = 0
  let stood = 0
  for (let done = false; !done; stops += 1) {
    let seen = 0
    let reached = false
    const inside = Promise.withResolvers<void>()
    // Whoever looks now and then may find a fast worker between two requests, each time.
    const onCommit = ({ steps }: Commit): void => {
      seen += 1
      const heads = new Map(steps.map(({ session, head }) => [session, head]))
      reached ||=
        seen >= first + more * stops && [...heads.values()].some((head) => head !== null && head.generation !== null)
      if (reached) inside.resolve()
    }
    const running = await bench.start({ snapshotEvery: 1, maxContexts: 2, commitInterval: 0, onCommit })
    const { end } = await bench.log.bounds(bench.names.chunks, 0)
    const finished = eventually(() => {
      done = (running.worker.tasks.get(0)?.offset ?? 0) >= end
      if (!done && !reached) throw new Error('too early')
    }, patience)
    await Promise.race([inside.promise, finished])
    await running.worker.stop()
    await finished
    for (const { generation } of (await bench.heads()).values()) if (generation !== null) stood += 1
  }
  return { stops, inside: stood }
}

export interface Bench {
  readonly log: EventLog
  readonly names: TopicNames
  readonly model: Model
  readonly tokenizer: Tokenizer | null
  readonly url: string
  feed(...records: readonly RecordIn[]): Promise<readonly number[]>
  start(options?: Partial<WorkerOptions>): Promise<Running>
  /** Starts a worker, waits until it has nothing to do, drains it. */
  settle(options?: Partial<WorkerOptions>): Promise<Running>
  generated(session?: string): Promise<readonly Generated[]>
  observations(session?: string): Promise<readonly Observation[]>
  records(topic: keyof TopicNames): Promise<readonly StoredRecord[]>
  heads(): Promise<ReadonlyMap<string, Head>>
  close(): Promise<void>
}

export interface Running {
  readonly worker: Worker
  readonly commits: Commit[]
  readonly states: { readonly partition: number; readonly state: TaskState; readonly error: unknown }[]
  readonly restored: string[]
  /** Resolves when every record in the log is finished. */
  idle(): Promise<void>
}

const text = new TextDecoder()

export interface BenchOptions {
  /** Default: an embedded log in a folder of its own, which goes with the bench. */
  readonly url?: string
  /** `max.message.bytes` of the input topic. */
  readonly largest?: number
  /** Where blocks of large states are kept; default: in the log. */
  readonly blobStore?: string
  /** A topic that the log lacks, as those of older versions do. */
  readonly without?: keyof TopicNames
}

export const createBench = async (
  shared: { model: Model; tokenizer: Tokenizer | null } | string,
  partitions = 1,
  { url: given, largest, blobStore, without }: BenchOptions = {},
): Promise<Bench> => {
  const dir = given === undefined ? mkdtempSync(join(tmpdir(), 'continuo-')) : null
  const url = given ?? `file:${join(dir!, 'log.db')}`
  const own = typeof shared === 'string'
  const { model, tokenizer } = own ? await openPackage(shared, { threads: 2 }) : shared
  const log = await openLog(url, blobStore === undefined ? {} : { blobStore })
  const names = topicNames(log.prefix)
  await log.createTopics(
    TOPICS.filter(({ name }) => name !== without).map(({ name, settings }) => ({
      name: names[name],
      partitions,
      config:
        name === 'chunks' && largest !== undefined ? { ...settings, 'max.message.bytes': String(largest) } : settings,
    })),
  )

  const records = async (topic: keyof TopicNames): Promise<StoredRecord[]> => {
    const all: StoredRecord[] = []
    for (let partition = 0; partition < partitions; partition += 1) {
      const { begin, end } = await log.bounds(names[topic], partition)
      for await (const batch of log.read(names[topic], partition, begin, { until: end })) all.push(...batch.records)
    }
    return all
  }
  const values = async <T>(topic: keyof TopicNames, session?: string): Promise<T[]> =>
    (await records(topic))
      .filter(({ key }) => session === undefined || text.decode(key ?? undefined) === session)
      .map(({ value }) => JSON.parse(text.decode(value ?? undefined)) as T)

  const start = async (options: Partial<WorkerOptions> = {}): Promise<Running> => {
    const commits: Commit[] = []
    const states: { partition: number; state: TaskState; error: unknown }[] = []
    const restored: string[] = []
    const worker = await startWorker({
      log,
      names,
      model,
      tokenizer,
      group: 'test',
      format: 'json',
      commitInterval: 5,
      snapshotEvery: 1000,
      maxContexts: 16,
      compactFloor: 1 << 20,
      onCommit: (commit) => commits.push(commit),
      onState: (partition, state, error) => states.push({ partition, state, error }),
      onRestored: (_, session) => restored.push(session),
      warn: () => undefined,
      ...options,
    })
    const idle = (): Promise<void> =>
      eventually(async () => {
        for (let partition = 0; partition < partitions; partition += 1) {
          if (worker.refused.has(partition)) continue
          const { end } = await log.bounds(names.chunks, partition)
          const task = worker.tasks.get(partition)
          if (task === undefined || task.state !== 'running' || task.offset < end) throw new Error('still at work')
        }
      }, 60_000)
    return { worker, commits, states, restored, idle }
  }

  return {
    log,
    names,
    model,
    tokenizer,
    url,
    feed: async (...fed) => (await log.append(names.chunks, fed)).map(({ offset }) => offset),
    start,
    async settle(options) {
      const running = await start(options)
      await running.idle()
      await running.worker.stop()
      return running
    },
    generated: (session) => values<Generated>('tokens', session),
    observations: (session) => values<Observation>('observations', session),
    records,
    async heads() {
      const all = new Map<string, Head>()
      for (let partition = 0; partition < partitions; partition += 1) {
        for (const [id, head] of (await readPartitionState(log, names, partition, 1 << 30)).heads) all.set(id, head)
      }
      return all
    },
    async close() {
      await log.close()
      if (own) model.close()
      if (dir !== null) rmSync(dir, { recursive: true, force: true })
    },
  }
}

export interface Benches {
  /** Opened once for the test file. */
  readonly model: () => Model
  open(partitions?: number, options?: BenchOptions): Promise<Bench>
  /** Opens a bench for the length of a claim. */
  use(claim: (bench: Bench) => Promise<void>, partitions?: number, options?: BenchOptions): Promise<void>
}

/** For the top of a test file: a model, by default the shipped one, opened once, and benches with it. */
export const benches = (dir: string = demoModel): Benches => {
  let shared: { model: Model; tokenizer: Tokenizer | null }
  beforeAll(async () => {
    shared = await openPackage(dir, { threads: 2 })
  })
  afterAll(() => shared.model.close())
  const open = (partitions = 1, options: BenchOptions = {}): Promise<Bench> => createBench(shared, partitions, options)
  return {
    model: () => shared.model,
    open,
    async use(claim, partitions, options) {
      const bench = await open(partitions, options)
      try {
        await claim(bench)
      } finally {
        await bench.close()
      }
    },
  }
}

type SuiteOfLogs = (fresh: () => BenchOptions, kind: 'embedded' | 'kafka') => void

/**
 * Runs a suite on both logs, on Kafka with these options; `fresh` gives the options of a bench on a log that nobody
 * used before.
 */
export const onBothLogsWith =
  (kafka: TestOptions) =>
  (suite: SuiteOfLogs): void => {
    describe('on the embedded log', () => suite(() => ({}), 'embedded'))
    const { brokers, missing } = inject('kafka')
    if (brokers === null) test.skip(`on Kafka (no Kafka here: ${missing})`, () => undefined)
    else describe('on Kafka', kafka, () => suite(() => ({ url: `kafka://${brokers}/${freshPrefix()}` }), 'kafka'))
  }
export const onBothLogs = onBothLogsWith({})

/** What the log holds is what its events give. */
export const verified = async ({ log, names, model, tokenizer }: Bench): Promise<void> => {
  const { findings } = await verifyLog({ log, names, model, tokenizer, format: 'json', blobs: true })
  expect(findings).toEqual([])
}
