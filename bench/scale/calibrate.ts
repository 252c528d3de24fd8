/**
 * Measures the constants of bench/scale/formulas.ts with one worker and few sessions: differences of CPU time, bytes,
 * requests and memory.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { openPackage } from '../../src/models/open.ts'
import type { StoredRecord } from '../../src/streams/log.ts'
import { plant } from '../planted.ts'
import { modelDir } from '../support.ts'
import type { WorkerProcess } from '../worker-process.ts'
import type { Constants } from './formulas.ts'
import { type Deployment, eventOf, feedAtRate, GROUP, metricOf, type Rig, randomFrom, ready, scrape } from './rig.ts'

/** Partitions of the two small logs, sessions that are fed, and sessions that only have a head. */
const FEW = 2
const MANY = 16
const SESSIONS = 300
const HEADS = 5000
/** Seconds that a log without events is watched, and that events come at RATE per second. */
const IDLE = 6
const PACED = 15
const RATE = 16
/** Between two commits, ms: short, so that there are many. */
const INTERVAL = 100
/** Header of a batch and marker of a transaction in Kafka's format of records (version 2): 61 and 78 bytes. */
const BATCH = 61 + 78
/** Api keys of Produce, AddPartitionsToTxn, AddOffsetsToTxn, EndTxn and TxnOffsetCommit. */
const TRANSACTION = [0, 24, 25, 26, 28]

interface Seen {
  readonly at: number
  readonly cpu: number
  readonly broker: number
  readonly requests: number
  /** Those of transactions. */
  readonly transactions: number
  readonly commits: number
  readonly commitSeconds: number
  readonly disk: Readonly<Record<string, number>>
}

const look = async (rig: Rig, deployment: Deployment, worker: WorkerProcess): Promise<Seen> => {
  const text = await scrape(worker)
  return {
    at: performance.now() / 1000,
    cpu: worker.cpu()! / 1000,
    broker: rig.brokerCpu(),
    requests: deployment.requests(),
    transactions: deployment.requests(TRANSACTION),
    commits: metricOf(text, 'continuo_commits_total'),
    commitSeconds: metricOf(text, 'continuo_commit_seconds_sum'),
    disk: deployment.disk(),
  }
}

const less = (later: Seen, earlier: Seen) => ({
  seconds: later.at - earlier.at,
  cpu: later.cpu - earlier.cpu,
  broker: later.broker - earlier.broker,
  requests: later.requests - earlier.requests,
  transactions: later.transactions - earlier.transactions,
  commits: later.commits - earlier.commits,
  commitSeconds: later.commitSeconds - earlier.commitSeconds,
  own: (later.disk.own ?? 0) - (earlier.disk.own ?? 0),
})
type Spent = ReturnType<typeof less>

/** A worker on a log without events: what its start took, what it asks for while idle, and the memory it has. */
const idle = async (rig: Rig, deployment: Deployment) => {
  const worker = deployment.worker()
  await ready([worker], deployment.partitions)
  const started = worker.cpu()! / 1000
  await sleep(1000)
  const before = await look(rig, deployment, worker)
  await sleep(IDLE * 1000)
  const spent = less(await look(rig, deployment, worker), before)
  return { worker, started, spent, memory: (await worker.memory()).rss }
}

/** x and y of a·x + b·y = c for two triples; none below 0, since both are costs. */
const solve = (
  one: readonly [number, number, number],
  two: readonly [number, number, number],
): readonly [number, number] => {
  const [a, b, c] = one
  const [d, e, f] = two
  const det = a * e - b * d
  const x = (c * e - b * f) / det
  const y = (a * f - c * d) / det
  if (y < 0) return [c / a, 0]
  return x < 0 ? [0, f / e] : [x, y]
}

/**
 * What a record takes on the disk: its bytes, and the lengths and differences before them (docs of Kafka's format,
 * version 2).
 */
export const diskBytes = ({ key, value, headers }: StoredRecord): number => {
  const varint = (n: number): number => (n < 64 ? 1 : n < 8192 ? 2 : 3)
  const sized = (n: number): number => varint(n) + n
  const inside =
    3 +
    2 +
    sized(key?.length ?? 0) +
    sized(value?.length ?? 0) +
    1 +
    headers.reduce((sum, [name, content]) => sum + sized(name.length) + sized(content.length), 0)
  return sized(inside)
}

const mean = (records: readonly StoredRecord[]): number =>
  records.reduce((sum, record) => sum + diskBytes(record), 0) / Math.max(1, records.length)

const everything = async ({ log, partitions }: Deployment, topic: string): Promise<StoredRecord[]> => {
  const all: StoredRecord[] = []
  for (let partition = 0; partition < partitions; partition += 1) {
    const { begin, end } = await log.bounds(topic, partition)
    for await (const { records } of log.read(topic, partition, begin, { until: end })) all.push(...records)
  }
  return all
}

/** Bytes of the records, by what they are. */
const sizes = async (deployment: Deployment) => {
  const { names } = deployment
  const state = await everything(deployment, names.state)
  const observations = await everything(deployment, names.observations)
  const opens = ({ value }: StoredRecord): boolean => JSON.parse(Buffer.from(value ?? []).toString()).type === 'opened'
  return {
    inputBytes: mean(await everything(deployment, names.chunks)),
    headBytes: mean(state.filter(({ key }) => key !== null && key.length > 0)),
    cursorBytes: mean(state.filter(({ key }) => key === null || key.length === 0)),
    openedBytes: mean(observations.filter(opens)),
    observationBytes: mean(observations.filter((record) => !opens(record))),
    generatedBytes: mean(await everything(deployment, names.tokens)),
  }
}

export const calibrate = async (rig: Rig, say: (line: string) => void): Promise<Constants> => {
  const flags = ['--commit-interval', String(INTERVAL)]
  say('an idle worker')
  const large = await rig.prepare(MANY)
  const wide = await idle(rig, large)
  await wide.worker.stop('SIGTERM')
  const deployment = await rig.prepare(FEW)
  const narrow = await idle(rig, deployment)
  const perPartition = (value: (each: typeof wide) => number): number =>
    Math.max(0, (value(wide) - value(narrow)) / (MANY - FEW))
  const partitionRequests = perPartition(({ spent }) => spent.requests / spent.seconds)
  const claimCpu = perPartition(({ started }) => started)
  const partitionMemory = perPartition(({ memory }) => memory)
  const workerRequests = Math.max(0, narrow.spent.requests / narrow.spent.seconds - FEW * partitionRequests)
  /** What is spent on events, beside what the worker and the broker do all the time. */
  const beside = (spent: Spent): Spent => {
    const part = spent.seconds / narrow.spent.seconds
    return {
      ...spent,
      cpu: spent.cpu - part * narrow.spent.cpu,
      broker: spent.broker - part * narrow.spent.broker,
      requests: spent.requests - part * narrow.spent.requests,
      own: spent.own - part * narrow.spent.own,
    }
  }

  say(`${SESSIONS} new sessions, then ${RATE} events a second`)
  await narrow.worker.stop('SIGTERM')
  const worker = deployment.worker(...flags)
  await ready([worker], FEW)
  const zero = await look(rig, deployment, worker)
  await deployment.feed(Array.from({ length: SESSIONS }, (_, n) => eventOf(n)))
  await deployment.settled([worker])
  const one = await look(rig, deployment, worker)
  const random = randomFrom(1)
  const next = () => eventOf(Math.floor(random() * SESSIONS), random() < 0.1)
  const { events } = await feedAtRate(deployment, RATE, PACED, next, random)
  await deployment.settled([worker])
  const two = await look(rig, deployment, worker)
  const many = beside(less(one, zero))
  const paced = beside(less(two, one))
  const cost = (value: (spent: Spent) => number) =>
    solve([SESSIONS, many.commits, value(many)], [events, paced.commits, value(paced)])
  const [eventCpu, commitCpu] = cost(({ cpu }) => cpu)
  const [brokerEventCpu, brokerCommitCpu] = cost(({ broker }) => broker)
  const contexts = metricOf(await scrape(worker), 'continuo_live_contexts')
  const contextBytes = metricOf(await scrape(worker), 'continuo_context_bytes')
  const withContexts = (await worker.memory()).rss

  say(`${SESSIONS} sessions that come back`)
  await worker.stop('SIGKILL')
  const again = deployment.worker(...flags)
  await ready([again], FEW)
  const three = await look(rig, deployment, again)
  const restores = 200
  await deployment.feed(Array.from({ length: restores }, (_, n) => eventOf(n)))
  await deployment.settled([again])
  const back = beside(less(await look(rig, deployment, again), three))
  await again.stop('SIGKILL')

  say(`${HEADS} idle sessions`)
  const heads = await rig.prepare(FEW)
  const { model } = await openPackage(modelDir)
  await plant({ log: heads.log, model, group: GROUP, partitions: FEW, sessions: HEADS, snapshots: false })
  const layout = model.layout.first.reduce((sum, { bytes }) => sum + bytes, 0)
  model.close()
  const full = await idle(rig, heads)
  await full.worker.stop('SIGKILL')
  const commitRequests = paced.transactions / paced.commits
  return {
    ...(await sizes(deployment)),
    batchBytes: BATCH,
    ownBytes: paced.own / paced.commits,
    commitRequests,
    workerRequests,
    partitionRequests,
    eventCpu,
    commitCpu,
    startCpu: Math.max(0, narrow.started - FEW * claimCpu),
    claimCpu,
    headCpu: Math.max(0, (full.started - narrow.started) / HEADS),
    restoreCpu: Math.max(0, (back.cpu - restores * eventCpu - back.commits * commitCpu) / restores),
    restoreRequests: Math.max(0, (back.requests - back.transactions) / restores),
    brokerEventCpu,
    brokerCommitCpu,
    commitSeconds: paced.commitSeconds / paced.commits,
    workerMemory: narrow.memory - FEW * partitionMemory,
    partitionMemory,
    idleMemory: Math.max(0, (full.memory - narrow.memory) / HEADS),
    contextMemory: Math.max(contextBytes / contexts, (withContexts - narrow.memory) / contexts),
    snapshotBytes: layout,
  }
}
