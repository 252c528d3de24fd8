/**
 * The worked examples of docs/scale.md, as the cells of its tables.
 *
 *   node bench/scale/examples.ts [FILE]
 *
 * writes them into the page anew, with the constants of the page, or with those that `bench/scale.ts --constants FILE`
 * measured.
 */
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { root } from '../support.ts'
import {
  amplification,
  brokersFor,
  type Constants,
  coldSeconds,
  type Fleet,
  type Load,
  rates,
  restartSeconds,
  stateRates,
  takeoverSeconds,
  workerMemory,
  workersFor,
  zipf,
} from './formulas.ts'

export interface Example {
  /** First cell of the row. */
  readonly what: string
  readonly values: readonly string[]
}

const LOADS = [
  { sessions: 10_000, partitions: 10, events: 100 },
  { sessions: 100_000, partitions: 100, events: 1000 },
  { sessions: 1_000_000, partitions: 1000, events: 10_000 },
] as const
const STATES = [
  { tokens: 90_000, snapshotEvery: 16_384, leaving: 100, returning: 100, positionBytes: 0, positions: 0 },
  { tokens: 1000, snapshotEvery: 16_384, leaving: 1, returning: 1, positionBytes: 46_080, positions: 2000 },
  { tokens: 2000, snapshotEvery: 16_384, leaving: 0.2, returning: 0.2, positionBytes: 131_072, positions: 8000 },
] as const

const REPLICAS = 3
const BUSY = 0.5
const BROKER_CORES = 8
const CONTEXTS = 64
const FLOOR = 4 * 1024 * 1024
const TIMEOUT = 10
const MB = 1e6
const GB = 1e9

const figure = (n: number): string =>
  n === 0 ? '0' : n >= 100 ? Math.round(n).toLocaleString('en') : String(Number(n.toPrecision(2)))

const loadOf = ({ sessions, partitions, events }: (typeof LOADS)[number]): Load => {
  const shares = zipf(sessions, 1)
  const all = Array.from({ length: partitions }, (): number[] => [])
  // The busiest sessions lie in different partitions.
  for (const [i, share] of shares.entries()) all[i % partitions]!.push(share * events)
  return { partitions: all, generating: 0.1, workers: 1, interval: 0.1, restores: events * 0.2 }
}

export const examples = (c: Constants): readonly Example[] => {
  const each = LOADS.map((given) => {
    const load = loadOf(given)
    const workers = workersFor(rates(c, load).workerCpu, BUSY)
    const rate = rates(c, { ...load, workers })
    const live = (given.sessions / given.partitions) * c.headBytes
    const again = rate.heads * c.headBytes * amplification(live, FLOOR)
    const { sessions, partitions } = given
    const fleet: Fleet = {
      sessions,
      partitions,
      workers,
      contexts: CONTEXTS * partitions,
      together: 1,
      cores: 1,
      timeout: TIMEOUT,
    }
    return { given, rate, again, live, fleet, workers }
  })
  const row = (what: string, value: (one: (typeof each)[number]) => number): Example => ({
    what,
    values: each.map((one) => figure(value(one))),
  })
  const states = STATES.map((given) => ({ given, rate: stateRates(c, given) }))
  const stateRow = (what: string, value: (one: (typeof states)[number]) => number): Example => ({
    what,
    values: states.map((one) => figure(value(one))),
  })
  return [
    row('live sessions', ({ given }) => given.sessions),
    row('partitions', ({ given }) => given.partitions),
    row('events per second', ({ given }) => given.events),
    row('commits per second', ({ rate }) => rate.commits),
    row('heads written per second', ({ rate }) => rate.heads),
    row('requests per second', ({ rate }) => rate.requests),
    row('requests per session and hour', ({ rate, given }) => (rate.requests / given.sessions) * 3600),
    row('MB per second to state', ({ rate }) => rate.stateBytes / MB),
    row('MB per second to state by compaction, at most', ({ again }) => again / MB),
    row('MB per second to tokens and observations', ({ rate }) => (rate.observationBytes + rate.tokenBytes) / MB),
    row("MB per second to Kafka's own topics", ({ rate }) => rate.ownBytes / MB),
    row('bytes per session and second, all topics', ({ rate, again, given }) => {
      const { stateBytes, observationBytes, tokenBytes, ownBytes } = rate
      return (stateBytes + again + observationBytes + tokenBytes + ownBytes) / given.sessions
    }),
    row('MB of living heads in a partition', ({ live }) => live / MB),
    row('CPU of all workers, cores', ({ rate }) => rate.workerCpu),
    row('workers', ({ workers }) => workers),
    row('CPU of all brokers, cores', ({ rate }) => rate.brokerCpu * REPLICAS),
    row('brokers', ({ rate }) => brokersFor(rate.brokerCpu, REPLICAS, BROKER_CORES, BUSY)),
    row('memory of a worker, GB', ({ fleet }) => workerMemory(c, fleet) / GB),
    row('of it idle sessions, GB', ({ fleet }) => (fleet.sessions / fleet.workers) * (c.idleMemory / GB)),
    row('clean restart of all workers, s', ({ fleet }) => restartSeconds(c, fleet)),
    row('all workers killed and started, s', ({ fleet }) => coldSeconds(c, fleet)),
    row('a lost worker: sessions that wait', ({ fleet }) => fleet.sessions / fleet.workers),
    row('a lost worker: they wait, s', ({ fleet }) => takeoverSeconds(c, fleet)),
    row('a lost rack of three: sessions that wait', ({ fleet }) => fleet.sessions / 3),
    row('a lost rack of three: they wait, s', ({ fleet }) => takeoverSeconds(c, fleet, fleet.workers / 3)),
    stateRow('tokens per second', ({ given }) => given.tokens),
    stateRow('bytes of a position', ({ given }) => given.positionBytes),
    stateRow('positions of a session', ({ given }) => given.positions),
    stateRow('sessions that leave and come back, per second', ({ given }) => given.returning),
    stateRow('MB per second to snapshots', ({ rate }) => rate.snapshotBytes / MB),
    stateRow('blobs put per second', ({ rate }) => rate.puts),
    stateRow('MB per second of blobs put', ({ rate }) => rate.putBytes / MB),
    stateRow('blobs got per second', ({ rate }) => rate.gets),
    stateRow('MB per second read by sessions that come back', ({ rate }) => rate.getBytes / MB),
  ]
}

/** Three figures, never with an exponent. */
const written = (n: number): string => {
  if (n >= 100) return Math.round(n).toLocaleString('en')
  const digits = n === 0 ? 0 : Math.max(0, 2 - Math.floor(Math.log10(n)))
  return String(Number(n.toFixed(digits))).includes('e') ? n.toFixed(digits) : String(Number(n.toFixed(digits)))
}

/** The heading behind which the examples stand. */
const EXAMPLES = '## Examples'

const ROW = /^\| `(\w+)` \| ([\d.,]+) \|/

/** The constants in the table of the page. */
export const constantsOf = (page: string): Constants => {
  const found = page.split('\n').flatMap((line) => {
    const [, name, value] = ROW.exec(line) ?? []
    return name === undefined ? [] : [[name, Number(value!.replaceAll(',', ''))]]
  })
  return Object.fromEntries(found) as unknown as Constants
}

/** The page with these constants, and its examples worked out from them as they stand there. */
export const worked = (page: string, constants: Constants): string => {
  const filled = page
    .split('\n')
    .map((line) => line.replace(ROW, (_, name: keyof Constants) => `| \`${name}\` | ${written(constants[name])} |`))
  const rows = new Map(examples(constantsOf(filled.join('\n'))).map(({ what, values }) => [what, values]))
  const begin = filled.indexOf(EXAMPLES)
  return filled
    .map((line, at) => {
      const what = /^\| (.*?) \| /.exec(line)?.[1] ?? ''
      const values = at > begin ? rows.get(what) : undefined
      return values === undefined ? line : `| ${what} | ${values.join(' | ')} |`
    })
    .join('\n')
}

if (import.meta.main) {
  const [file] = process.argv.slice(2)
  const path = join(root, 'docs/scale.md')
  const page = readFileSync(path, 'utf8')
  writeFileSync(path, worked(page, file === undefined ? constantsOf(page) : JSON.parse(readFileSync(file, 'utf8'))))
}
