/**
 * What bench/scale.ts runs against: a broker of its own behind a counting proxy, its data on disk, events, and workers.
 */
import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import type { EventLog, RecordIn } from '../../src/streams/log.ts'
import { openLog } from '../../src/streams/open.ts'
import { startBroker } from '../../tools/kafka/embedded-broker.ts'
import { TOPICS, type TopicNames, topicNames } from '../../topics/index.ts'
import { sessionName } from '../planted.ts'
import { startWorkerProcess, type WorkerProcess } from '../worker-process.ts'
import { startCountingProxy } from './proxy.ts'

const WORKERS = 'worker'
/** A session time-out that the broker's smallest allows, seconds. */
export const TIMEOUT = 6
/** For workers to run their partitions, ms: a machine may be busy. */
const READY_PATIENCE = 600_000
export const GROUP = 'continuo'

export interface Rig {
  /** A fresh prefix with its topics, and the log as the bench uses it. */
  prepare(partitions: number): Promise<Deployment>
  /** CPU seconds of the broker so far. */
  brokerCpu(): number
  stop(): Promise<void>
}

/** One log, and what was written and asked so far. */
export interface Deployment {
  readonly log: EventLog
  readonly names: TopicNames
  readonly partitions: number
  worker(...flags: readonly string[]): WorkerProcess
  /** Bytes of each topic's segments on the broker's disk, and of Kafka's own topics under the name `own`. */
  disk(): Readonly<Record<string, number>>
  /** Requests of workers so far, all or those with these api keys. */
  requests(keys?: readonly number[]): number
  /** Bytes between workers and broker so far. */
  traffic(): number
  feed(events: readonly RecordIn[]): Promise<void>
  /** Resolves when all that was fed is committed. */
  settled(workers: readonly WorkerProcess[], patience?: number): Promise<void>
}

const cpuOf = (pid: number): number => {
  const stat = readFileSync(`/proc/${pid}/stat`, 'utf8')
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
  return (Number(fields[11]) + Number(fields[12])) / 100
}

const bytesIn = (folder: string): number =>
  readdirSync(folder)
    .filter((name) => name.endsWith('.log'))
    .reduce((sum, name) => sum + (statSync(join(folder, name), { throwIfNoEntry: false })?.size ?? 0), 0)

export const startRig = async (): Promise<Rig> => {
  const dir = mkdtempSync(join(tmpdir(), 'continuo-scale-'))
  let brokerPort = 0
  const proxy = await startCountingProxy(() => brokerPort)
  const broker = await startBroker({
    dir,
    config: {
      'advertised.listeners': `PLAINTEXT://127.0.0.1:${proxy.port}`,
      // Larger than what is written here, so that the segments hold every byte that was ever written.
      'log.segment.bytes': String(2 ** 30),
      'log.retention.check.interval.ms': '3600000',
      'log.cleaner.enable': 'false',
    },
  })
  brokerPort = Number(broker.brokers.split(':')[1])
  const data = join(dir, 'data')
  const logs: EventLog[] = []
  const workers = new Set<WorkerProcess>()
  const end = async (): Promise<void> => {
    for (const worker of workers) await worker.stop('SIGKILL')
    for (const log of logs) await log.close()
    await broker.stop()
    await proxy.stop()
    rmSync(dir, { recursive: true, force: true })
  }

  const prepare = async (partitions: number): Promise<Deployment> => {
    const at = `kafka://127.0.0.1:${proxy.port}/scale-${logs.length}`
    const log = await openLog(`${at}?clientId=bench`)
    logs.push(log)
    const names = topicNames(log.prefix)
    await log.createTopics(TOPICS.map(({ name, settings }) => ({ name: names[name], partitions, config: settings })))
    const disk = (): Record<string, number> => {
      const sums: Record<string, number> = {}
      for (const folder of readdirSync(data)) {
        const topic = folder.replace(/-\d+$/, '')
        const own = topic === '__transaction_state' || topic === '__consumer_offsets'
        const name = own ? 'own' : TOPICS.find((one) => names[one.name] === topic)?.name
        if (name !== undefined) sums[name] = (sums[name] ?? 0) + bytesIn(join(data, folder))
      }
      return sums
    }
    return {
      log,
      names,
      partitions,
      worker(...flags) {
        const timeout = ['--session-timeout', String(TIMEOUT * 1000)]
        const worker = startWorkerProcess(`${at}?clientId=${WORKERS}`, [
          ...timeout,
          '--threads',
          '1',
          '--metrics-port',
          '0',
          '--log-level',
          'error',
          ...flags,
        ])
        workers.add(worker)
        void worker.gone.then(() => workers.delete(worker))
        return worker
      },
      disk,
      requests: (keys) =>
        [...proxy.counts(WORKERS)].reduce(
          (sum, [key, one]) => sum + (keys === undefined || keys.includes(key) ? one.requests : 0),
          0,
        ),
      traffic: () => [...proxy.counts(WORKERS).values()].reduce((sum, { up, down }) => sum + up + down, 0),
      async feed(events) {
        for (let from = 0; from < events.length; from += 1000)
          await log.append(names.chunks, events.slice(from, from + 1000))
      },
      async settled(running, patience = 1800) {
        const until = performance.now() + patience * 1000
        for (let partition = 0; partition < partitions; partition += 1) {
          const { end: last } = await log.bounds(names.chunks, partition)
          while (((await log.committed(GROUP, names.chunks, partition)) ?? 0) < last) {
            if (performance.now() > until) throw new Error(`Partition ${partition} was not read in ${patience} s.`)
            if (running.some(({ exited }) => exited)) throw new Error('A worker ended.')
            await sleep(25)
          }
        }
      },
    }
  }
  return { prepare, brokerCpu: () => cpuOf(broker.pid!), stop: end }
}

/** A short text for a session, or a request for 4 tokens. */
export const eventOf = (n: number, generates = false): RecordIn => ({
  key: Buffer.from(sessionName(n)),
  value: Buffer.from(
    JSON.stringify(
      generates
        ? { type: 'generate', requestId: 'r', maxTokens: 4, temperature: 0 }
        : { type: 'text', text: 'and so on' },
    ),
  ),
})

/** A metric's sum over its labels. */
export const metricOf = (text: string, name: string): number =>
  text
    .split('\n')
    .filter((line) => line.startsWith(`${name} `) || line.startsWith(`${name}{`))
    .reduce((sum, line) => sum + Number(line.slice(line.lastIndexOf(' ') + 1)), 0)

export const scrape = async (worker: WorkerProcess): Promise<string> =>
  (await fetch(`${await worker.url}/metrics`)).text()

/** The partitions of a worker that runs all of them; null before that. */
export const owned = async (worker: WorkerProcess): Promise<readonly number[] | null> => {
  const answer = await fetch(`${await worker.url}/readyz`)
  if (answer.status !== 200) return null
  const { partitions } = (await answer.json()) as { partitions: { partition: number }[] }
  return partitions.map(({ partition }) => partition)
}

/** Resolves when the workers together run all partitions; with the partitions of each. */
export const ready = async (
  workers: readonly WorkerProcess[],
  partitions: number,
): Promise<readonly (readonly number[])[]> => {
  for (const until = performance.now() + READY_PATIENCE; performance.now() < until; await sleep(50)) {
    const each = await Promise.all(workers.map(owned))
    const running = each.reduce((sum, own) => sum + (own?.length ?? 0), 0)
    if (running === partitions && each.every((own) => own !== null && own.length > 0)) return each as number[][]
  }
  throw new Error('The workers did not run all partitions in time.')
}

/** Numbers from 0 to 1 that are the same in each run. */
export const randomFrom = (seed: number): (() => number) => {
  let state = seed >>> 0
  return () => {
    state = (state + 0x6d2b79f5) >>> 0
    let x = Math.imul(state ^ (state >>> 15), 1 | state)
    x = (x + Math.imul(x ^ (x >>> 7), 61 | x)) ^ x
    return ((x ^ (x >>> 14)) >>> 0) / 2 ** 32
  }
}

/** Draws a session by its share. */
export const drawer = (shares: Float64Array, random: () => number): (() => number) => {
  const sums = new Float64Array(shares.length)
  let sum = 0
  for (const [i, share] of shares.entries()) sums[i] = sum += share
  return () => {
    const wanted = random() * sum
    let low = 0
    let high = sums.length - 1
    while (low < high) {
      const middle = (low + high) >> 1
      if (sums[middle]! < wanted) low = middle + 1
      else high = middle
    }
    return low
  }
}

/** Feeds `rate` events per second at random moments for `seconds`. Returns how many, and how long it took. */
export const feedAtRate = async (
  deployment: Pick<Deployment, 'feed'>,
  rate: number,
  seconds: number,
  next: () => RecordIn,
  random: () => number,
): Promise<{ readonly events: number; readonly seconds: number }> => {
  const started = performance.now()
  let events = 0
  let due = 0
  const sending = new Set<Promise<void>>()
  for (;;) {
    const now = (performance.now() - started) / 1000
    if (now >= seconds) break
    const batch: RecordIn[] = []
    for (; due <= now; due += -Math.log(1 - random()) / rate) batch.push(next())
    events += batch.length
    if (batch.length > 0) {
      const sent = deployment.feed(batch).finally(() => sending.delete(sent))
      sending.add(sent)
    }
    await sleep(10)
  }
  await Promise.all(sending)
  return { events, seconds: (performance.now() - started) / 1000 }
}
