/**
 * Restart to first new token: for a log with many idle sessions in one partition, each with a snapshot, the time from
 * the start of a worker process (`continuo run`) until the first token of a waiting request is in the token topic; and
 * the memory of the worker then.
 *
 *   node bench/restart.ts [--sessions 10000] [--rounds 5] [--log embedded,kafka] [--model demo|small]
 *
 * The sessions are written as an import writes them. Each round asks another session for a token. A log without
 * sessions is measured in turn with the other, so that the difference is what the sessions cost. `small` is a model
 * with random weights and 4 kB of state, for logs with more sessions than there is room for snapshots of the shipped
 * model (305 kB each).
 */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { openPackage } from '../src/models/open.ts'
import type { EventLog, RecordIn } from '../src/streams/log.ts'
import { randomRwkv7, safetensors, writePackage } from '../test/engine/packages.ts'
import { topicNames } from '../topics/index.ts'
import { parseArgs } from './options.ts'
import { plant, sessionName } from './planted.ts'
import { embeddedPlace, kafkaPlace, median, modelDir, type Place, prepared } from './support.ts'
import { type Memory, startWorkerProcess } from './worker-process.ts'

const { values } = parseArgs({
  options: {
    sessions: { type: 'string', default: '10000' },
    rounds: { type: 'string', default: '5' },
    log: { type: 'string', default: 'embedded,kafka' },
    model: { type: 'string', default: 'demo' },
  },
})
const sessions = Number(values.sessions)
const rounds = Number(values.rounds)
const GROUP = 'continuo'
const MB = 1_000_000

const event = (session: string, value: unknown): RecordIn => ({
  key: Buffer.from(session),
  value: Buffer.from(JSON.stringify(value)),
})

interface Start {
  /** From the start of the process to the first token, s; and the worker's CPU time by then. */
  readonly seconds: number
  readonly cpu: number
  readonly memory: Memory
}

/** Asks a session for tokens, starts a worker, and waits for the first of them. */
const restart = async (url: string, log: EventLog, model: string, session: string, round: number): Promise<Start> => {
  const names = topicNames(log.prefix)
  const { end } = await log.bounds(names.tokens, 0)
  const asked = [{ type: 'generate', requestId: `r${round}`, maxTokens: 4, temperature: 0 }]
  // A new session has to read before it can generate.
  if (session === 'new') asked.unshift({ type: 'tokens', tokens: [1, 2, 3] } as never)
  await log.append(
    names.chunks,
    asked.map((value) => event(session === 'new' ? `new-${round}` : session, value)),
  )
  const started = performance.now()
  const worker = startWorkerProcess(url, ['--log-level', 'error'], model)
  const seen = new AbortController()
  void worker.gone.then(() => seen.abort())
  let found: Start | null = null
  for await (const { records } of log.read(names.tokens, 0, end, { follow: true, signal: seen.signal })) {
    if (records.length === 0) continue
    const seconds = (performance.now() - started) / 1000
    const cpu = (worker.cpu() ?? Number.NaN) / 1000
    found = { seconds, cpu, memory: await worker.memory() }
    break
  }
  await worker.stop('SIGTERM')
  if (found === null) throw new Error('The worker ended before its first token.')
  return found
}

const measure = async (place: Place, model: string) => {
  const url = place.fresh()
  const log = await prepared(url, 1)
  const emptyUrl = place.fresh()
  const empty = await prepared(emptyUrl, 1)
  const loaded = await openPackage(model)
  const planted = performance.now()
  await plant({ log, model: loaded.model, group: GROUP, partitions: 1, sessions, snapshots: true })
  loaded.model.close()
  console.error(
    `${place.name}: ${sessions} sessions with snapshots written in ${((performance.now() - planted) / 1000).toFixed(0)} s`,
  )
  const full: Start[] = []
  const bare: Start[] = []
  for (let round = 0; round < rounds; round += 1) {
    bare.push(await restart(emptyUrl, empty, model, 'new', round))
    full.push(await restart(url, log, model, sessionName((round * 7919) % sessions), round))
  }
  await log.close()
  await empty.close()
  return { full, bare }
}

const of = (all: readonly Start[], value: (start: Start) => number): number => median(all.map(value))

const report = (name: string, { full, bare }: { full: readonly Start[]; bare: readonly Start[] }): void => {
  const seconds = full.map((start) => start.seconds)
  const rss = of(full, ({ memory }) => memory.rss)
  const perSession = (value: (start: Start) => number): number => (of(full, value) - of(bare, value)) / sessions
  console.log(
    `${name.padEnd(9)} ${sessions} idle sessions, start to first new token: median ${median(seconds).toFixed(2)} s ` +
      `(${Math.min(...seconds).toFixed(2)} to ${Math.max(...seconds).toFixed(2)}, ${rounds} starts), CPU ${of(full, ({ cpu }) => cpu).toFixed(2)} s`,
  )
  console.log(
    `${''.padEnd(9)} without sessions: ${of(bare, (start) => start.seconds).toFixed(2)} s, CPU ${of(bare, ({ cpu }) => cpu).toFixed(2)} s; ` +
      `10,000 heads: ${(perSession((start) => start.seconds) * 10_000).toFixed(3)} s, CPU ${(perSession(({ cpu }) => cpu) * 10_000).toFixed(3)} s`,
  )
  console.log(
    `${''.padEnd(9)} resident ${(rss / MB).toFixed(0)} MB, without sessions ${(of(bare, ({ memory }) => memory.rss) / MB).toFixed(0)} MB; ` +
      `a session: ${perSession(({ memory }) => memory.heapUsed).toFixed(0)} bytes of heap, ${perSession(({ memory }) => memory.rss).toFixed(0)} resident`,
  )
}

const folder = mkdtempSync(join(tmpdir(), 'continuo-restart-'))
const model =
  values.model === 'demo'
    ? modelDir
    : writePackage(
        { model_type: 'rwkv7' },
        safetensors(randomRwkv7(1, { L: 1, H: 1, N: 32, F: 64, V: 64, D: { w: 4, a: 4, v: 4, g: 4 } }), 'BF16'),
        folder,
      )
const wanted = values.log.split(',')
const places: Place[] = []
try {
  if (wanted.includes('embedded')) places.push(embeddedPlace())
  if (wanted.includes('kafka')) places.push(await kafkaPlace())
  for (const place of places) report(place.name, await measure(place, model))
} finally {
  for (const place of places) await place.stop()
  rmSync(folder, { recursive: true, force: true })
}
