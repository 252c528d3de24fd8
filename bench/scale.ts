/**
 * Checks docs/scale.md at a part of its largest load: one real Kafka broker, several worker processes, many sessions of
 * which few are busy. Measures the constants in a small run, predicts with bench/scale/formulas.ts, runs the load, and
 * prints predicted beside measured.
 *
 *   node bench/scale.ts [--sessions 100000] [--partitions 64] [--workers 4] [--rate 100] [--seconds 60] [--zipf 1]
 *                       [--generating 0.1] [--commit-interval 1000] [--max-contexts 64] [--constants FILE]
 *
 * First every session reads one short text, as fast as the workers can; then events come at `--rate` per second,
 * session i having a share of them that is proportional to 1 / (i + 1)^zipf. Then one worker is killed, then all.
 * `--constants` keeps the constants in a file, and takes them from there where it exists. Workers and broker share the
 * machine's cores with the bench.
 */
import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { availableParallelism } from 'node:os'
import { setTimeout as sleep } from 'node:timers/promises'
import { parseArgs } from './options.ts'
import { sessionName } from './planted.ts'
import { calibrate } from './scale/calibrate.ts'
import {
  amplification,
  type Constants,
  coldSeconds,
  type Fleet,
  rates,
  takeoverSeconds,
  touched,
  workerMemory,
  zipf,
} from './scale/formulas.ts'
import {
  type Deployment,
  drawer,
  eventOf,
  feedAtRate,
  GROUP,
  metricOf,
  randomFrom,
  ready,
  scrape,
  startRig,
  TIMEOUT,
} from './scale/rig.ts'
import type { WorkerProcess } from './worker-process.ts'

const { values } = parseArgs({
  options: {
    sessions: { type: 'string', default: '100000' },
    partitions: { type: 'string', default: '64' },
    workers: { type: 'string', default: '4' },
    rate: { type: 'string', default: '100' },
    seconds: { type: 'string', default: '60' },
    zipf: { type: 'string', default: '1' },
    generating: { type: 'string', default: '0.1' },
    'commit-interval': { type: 'string', default: '1000' },
    'max-contexts': { type: 'string', default: '64' },
    constants: { type: 'string' },
  },
})
const sessions = Number(values.sessions)
const partitions = Number(values.partitions)
const count = Number(values.workers)
const interval = Number(values['commit-interval']) / 1000
const generating = Number(values.generating)
const maxContexts = Number(values['max-contexts'])
const cores = availableParallelism()
const FLOOR = 4 * 1024 * 1024
const MB = 1_000_000

const started = performance.now()
const since = (): string => `${((performance.now() - started) / 1000).toFixed(0)} s`
const say = (line: string): void => console.error(`${since().padStart(6)}  ${line}`)

const figure = (n: number): string =>
  n === 0 ? '0' : Math.abs(n) >= 100 ? Math.round(n).toLocaleString('en') : n.toPrecision(3)

const row = (what: string, predicted: number, measured: number): void =>
  console.log(
    `${what.padEnd(58)} ${figure(predicted).padStart(14)} ${figure(measured).padStart(14)} ${(predicted / measured).toFixed(2).padStart(8)}`,
  )
const heading = (what: string): void =>
  console.log(`\n${what.padEnd(58)} ${'predicted'.padStart(14)} ${'measured'.padStart(14)} ${'ratio'.padStart(8)}`)

/** Sums over the workers, and the disk. */
const look = async (deployment: Deployment, workers: readonly WorkerProcess[], brokerCpu: () => number) => {
  const requests = deployment.requests()
  const texts = await Promise.all(workers.map(scrape))
  const sum = (name: string): number => texts.reduce((all, text) => all + metricOf(text, name), 0)
  return {
    at: performance.now() / 1000,
    requests,
    /** After the scrape, whose own requests do not count. */
    from: deployment.requests(),
    commits: sum('continuo_commits_total'),
    restores: sum('continuo_restore_seconds_count'),
    commitSeconds: sum('continuo_commit_seconds_sum'),
    sessions: sum('continuo_sessions'),
    contexts: sum('continuo_resident_contexts'),
    cpu: workers.reduce((all, worker) => all + (worker.cpu() ?? Number.NaN), 0) / 1000,
    broker: brokerCpu(),
    disk: deployment.disk(),
    traffic: deployment.traffic(),
  }
}
type Seen = Awaited<ReturnType<typeof look>>
const grown = (topic: string, later: Seen, earlier: Seen): number =>
  (later.disk[topic] ?? 0) - (earlier.disk[topic] ?? 0)

const recordsOf = async ({ log, names }: Deployment): Promise<number> => {
  let records = 0
  for (const name of [names.state, names.observations, names.tokens]) {
    for (let partition = 0; partition < partitions; partition += 1) {
      const { begin, end } = await log.bounds(name, partition)
      for await (const batch of log.read(name, partition, begin, { until: end })) records += batch.records.length
    }
  }
  return records
}

/** Asks a session of each of these partitions for tokens, and waits until the answers are committed. */
const answered = async (deployment: Deployment, ids: readonly number[]): Promise<void> => {
  const asked = await Promise.all(
    ids.map(async (id) => {
      const { key, value } = eventOf(id, true)
      const [at] = await deployment.log.append(deployment.names.chunks, [{ key, value }])
      return at!
    }),
  )
  for (const { partition, offset } of asked)
    while (((await deployment.log.committed(GROUP, deployment.names.chunks, partition)) ?? 0) <= offset) await sleep(10)
}
const secondsSince = (from: number): number => (performance.now() - from) / 1000

const rig = await startRig()
try {
  const { constants: kept } = values
  const c: Constants =
    kept !== undefined && existsSync(kept)
      ? JSON.parse(readFileSync(kept, 'utf8'))
      : await calibrate(rig, (line) => say(`constants: ${line}`))
  if (kept !== undefined && !existsSync(kept)) writeFileSync(kept, `${JSON.stringify(c, null, 2)}\n`)
  console.log('constant                      value')
  for (const [name, value] of Object.entries(c)) console.log(`${name.padEnd(20)} ${figure(value).padStart(14)}`)

  say(`${sessions} sessions are fed`)
  const deployment = await rig.prepare(partitions)
  const homes = new Int32Array(sessions)
  for (let n = 0; n < sessions; n += 1)
    homes[n] = await deployment.log.partitionOf(deployment.names.chunks, Buffer.from(sessionName(n)))
  const byPartition = (rateOf: (n: number) => number): number[][] => {
    const all = Array.from({ length: partitions }, (): number[] => [])
    for (let n = 0; n < sessions; n += 1) all[homes[n]!]!.push(rateOf(n))
    return all
  }
  for (let from = 0; from < sessions; from += 20_000)
    await deployment.feed(Array.from({ length: Math.min(20_000, sessions - from) }, (_, at) => eventOf(from + at)))

  const flags = ['--commit-interval', String(interval * 1000), '--max-contexts', String(maxContexts)]
  const launch = (): WorkerProcess[] => Array.from({ length: count }, () => deployment.worker(...flags))
  let workers = launch()
  await ready(workers, partitions)
  const zero = await look(deployment, workers, rig.brokerCpu)
  // What they did before all of them were ready is not counted.
  const done = zero.sessions
  await deployment.settled(workers)
  const one = await look(deployment, workers, rig.brokerCpu)
  say(`${sessions} sessions have begun; the ${done} that began before all workers were ready are not counted`)
  const span = one.at - zero.at
  const begun = one.sessions - zero.sessions
  const commits = one.commits - zero.commits
  heading('every session reads one text')
  const perCommit = c.commitCpu + c.brokerCommitCpu
  const most = partitions / Math.max(interval, c.commitSeconds)
  row(
    'events per second (the cores, all busy)',
    (cores - most * perCommit) / (c.eventCpu + c.brokerEventCpu),
    begun / span,
  )
  row('commits per second, at most', most, commits / span)
  row('CPU seconds of the workers', begun * c.eventCpu + commits * c.commitCpu, one.cpu - zero.cpu)
  row('CPU seconds of the broker', begun * c.brokerEventCpu + commits * c.brokerCommitCpu, one.broker - zero.broker)
  row('bytes of state', begun * c.headBytes + commits * (c.cursorBytes + c.batchBytes), grown('state', one, zero))
  row(
    'bytes of observations',
    begun * (c.openedBytes + c.observationBytes) + commits * c.batchBytes,
    grown('observations', one, zero),
  )
  row("bytes of Kafka's own topics", commits * c.ownBytes, grown('own', one, zero))

  say(`events at ${values.rate} a second for ${values.seconds} s`)
  const shares = zipf(sessions, Number(values.zipf))
  const random = randomFrom(7)
  const draw = drawer(shares, random)
  const next = () => eventOf(draw(), random() < generating)
  const recordsBefore = await recordsOf(deployment)
  const two = await look(deployment, workers, rig.brokerCpu)
  const fed = await feedAtRate(deployment, Number(values.rate), Number(values.seconds), next, random)
  const three = await look(deployment, workers, rig.brokerCpu)
  await deployment.settled(workers)
  const records = (await recordsOf(deployment)) - recordsBefore
  const seconds = three.at - two.at
  const perSecond = fed.events / seconds
  // Those that read last in the beginning are still in memory, and they are the least busy.
  const cold = shares.subarray(0, Math.max(0, sessions - partitions * maxContexts))
  const restores =
    touched(
      cold.map((share) => share * perSecond),
      seconds,
    ) / seconds
  const expected = rates(c, {
    partitions: byPartition((n) => shares[n]! * perSecond),
    generating,
    workers: count,
    interval,
    restores,
  })
  const measured = (value: number): number => value / seconds
  heading(`events at ${perSecond.toFixed(1)} a second, per second`)
  row('commits', expected.commits, measured(three.commits - two.commits))
  row('records of state and outputs', expected.records, measured(records))
  row('contexts rebuilt', restores, measured(three.restores - two.restores))
  row('requests of the workers', expected.requests, measured(three.requests - two.from))
  row('bytes of state', expected.stateBytes, measured(grown('state', three, two)))
  row('bytes of observations', expected.observationBytes, measured(grown('observations', three, two)))
  row('bytes of tokens', expected.tokenBytes, measured(grown('tokens', three, two)))
  row("bytes of Kafka's own topics", expected.ownBytes, measured(grown('own', three, two)))
  row('CPU of the workers', expected.workerCpu, measured(three.cpu - two.cpu))
  row('CPU of the broker', expected.brokerCpu, measured(three.broker - two.broker))
  const snapshotBytes = grown('snapshots', three, two)
  console.log(
    `written to snapshots besides: ${figure(measured(snapshotBytes))} bytes per second; to and from workers ${figure(measured(three.traffic - two.traffic))}`,
  )
  console.log(
    `a commit takes ${(((three.commitSeconds - two.commitSeconds) / (three.commits - two.commits)) * 1000).toFixed(1)} ms`,
  )
  const live = (sessions / partitions) * c.headBytes
  console.log(
    `compaction would add ${amplification(live, FLOOR).toFixed(2)} bytes for each byte of heads, once ${(Math.max(live, FLOOR) / MB).toFixed(1)} MB of a partition are dead`,
  )

  heading('failures, s')
  const fleet: Fleet = { sessions, partitions, workers: count, contexts: 0, together: count, cores, timeout: TIMEOUT }
  const sessionIn = (partition: number): number => homes.indexOf(partition)
  if (count > 1) {
    const owners = await ready(workers, partitions)
    const dead = performance.now()
    await workers[0]!.stop('SIGKILL')
    await answered(deployment, owners[0]!.map(sessionIn))
    row(
      'a killed worker: until all its partitions answer',
      takeoverSeconds(c, { ...fleet, together: count - 1 }),
      secondsSince(dead),
    )
  }
  await Promise.all(workers.map((worker) => worker.stop('SIGKILL')))
  const from = performance.now()
  workers = launch()
  await answered(deployment, [sessionIn(0)])
  const first = secondsSince(from)
  await ready(workers, partitions)
  row('all killed and started: first new token', coldSeconds(c, fleet), first)
  row('all killed and started: every partition', coldSeconds(c, fleet), secondsSince(from))

  heading('memory')
  const rss = (await Promise.all(workers.map((worker) => worker.memory()))).map((memory) => memory.rss)
  const all = rss.reduce((sum, each) => sum + each, 0)
  row('resident memory of a worker, all sessions idle, MB', workerMemory(c, fleet) / MB, all / count / MB)
  const bare = workerMemory(c, { ...fleet, sessions: 0 })
  row('of it for an idle session, bytes', c.idleMemory, (all - count * bare) / sessions)
  say('done')
} finally {
  await rig.stop()
}
