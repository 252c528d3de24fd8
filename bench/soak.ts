/**
 * Memory over time: the memory of a worker process (`continuo run`), minute by minute, while its sessions generate
 * without a pause on an embedded log.
 *
 *   node bench/soak.ts [--minutes 60] [--sessions 200] [--tokens 512]
 *
 * Every session always has one request in progress: the bench reads the token topic, and sends the next request of a
 * session when one ends. Once a minute it trims the token and observation topics up to where it has read, as a broker's
 * retention would. Input and state are not trimmed.
 *
 * The figures are the worker's own metrics, read every ten seconds; a row has the median of its minute. The verdict is
 * about the second half of the run, when all buffers have been used: a least-squares line through the samples of the
 * resident memory, with two standard errors of its slope. The memory *levels off* where the line rises by no more than
 * LEVEL of its mean in an hour. It *rises* (and the bench ends with 1) where the line rises by more even after two
 * standard errors are subtracted. In between, the noise of the garbage collector hides the answer: that needs a longer
 * run or a quieter machine.
 */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { statSync } from 'node:fs'
import { createInterface } from 'node:readline'
import { setTimeout as sleep } from 'node:timers/promises'
import type { RecordIn } from '../src/streams/log.ts'
import type { ChunkInput } from '../topics/chunks.ts'
import { topicNames } from '../topics/index.ts'
import { parseArgs } from './options.ts'
import { documentOf, embeddedPlace, median, modelDir, prepared, root } from './support.ts'

const { values } = parseArgs({
  options: {
    minutes: { type: 'string', default: '60' },
    sessions: { type: 'string', default: '200' },
    tokens: { type: 'string', default: '512' },
  },
})
const minutes = Number(values.minutes)
const sessions = Number(values.sessions)
const maxTokens = Number(values.tokens)

const INTERVAL = 10_000 // ms between two samples
/** The fraction of the memory by which the line may rise in an hour. */
const LEVEL = 0.02
const MB = 1_000_000

/** The worker's metrics by name; metrics with labels are summed over their labels. */
const scrape = async (url: string): Promise<ReadonlyMap<string, number>> => {
  const found = new Map<string, number>()
  for (const line of (await (await fetch(url)).text()).split('\n')) {
    const match = /^(\w+)(?:\{.*\})? (\S+)$/.exec(line)
    if (match !== null) found.set(match[1]!, (found.get(match[1]!) ?? 0) + Number(match[2]))
  }
  return found
}

interface Sample {
  readonly hours: number
  readonly metrics: ReadonlyMap<string, number>
  readonly disk: number
}

const metric =
  (name: string, unit: number) =>
  ({ metrics }: Sample): number => {
    const value = metrics.get(name)
    if (value === undefined) throw new Error(`The worker has no metric ${name}.`)
    return value / unit
  }

const columns: readonly (readonly [title: string, value: (sample: Sample) => number])[] = [
  ['RSS MB', metric('process_resident_memory_bytes', MB)],
  ['heap used', metric('nodejs_heap_size_used_bytes', MB)],
  ['heap total', metric('nodejs_heap_size_total_bytes', MB)],
  ['external', metric('nodejs_external_memory_bytes', MB)],
  ['contexts MB', metric('continuo_resident_bytes', MB)],
  ['contexts', metric('continuo_live_contexts', 1)],
  ['log MB', ({ disk }) => disk / MB],
  ['M tokens', metric('continuo_tokens_generated_total', 1e6)],
]
const rss = columns[0]![1]

const row = (cells: readonly string[]): string => cells.map((cell) => cell.padStart(11)).join(' ')

/**
 * Slope and mean of the least-squares line, and the standard error of the slope. Neighbouring samples are correlated,
 * so n samples count as n (1 − r) / (1 + r), where r is the correlation of neighbouring residuals.
 */
const lineThrough = (points: readonly (readonly [x: number, y: number])[]) => {
  const middle = points.reduce((sum, [x]) => sum + x, 0) / points.length
  const mean = points.reduce((sum, [, y]) => sum + y, 0) / points.length
  const across = points.reduce((sum, [x, y]) => sum + (x - middle) * (y - mean), 0)
  const spread = points.reduce((sum, [x]) => sum + (x - middle) ** 2, 0)
  const slope = across / spread
  const residuals = points.map(([x, y]) => y - mean - slope * (x - middle))
  const squares = residuals.reduce((sum, each) => sum + each * each, 0)
  const neighbours = residuals.slice(1).reduce((sum, each, at) => sum + each * residuals[at]!, 0)
  const r = Math.max(0, neighbours / squares)
  const count = Math.max(3, (points.length * (1 - r)) / (1 + r))
  const error = Math.sqrt(((squares / points.length) * count) / (count - 2) / (spread * (count / points.length)))
  return { slope, mean, error }
}

const place = embeddedPlace()
const url = place.fresh()
const path = url.slice('file:'.length)
const log = await prepared(url, 1)
const names = topicNames(log.prefix)
const diskBytes = (): number =>
  ['', '-wal', '-shm'].reduce((sum, end) => sum + (statSync(path + end, { throwIfNoEntry: false })?.size ?? 0), 0)

const event = (session: string, chunk: ChunkInput): RecordIn => ({
  key: Buffer.from(session),
  value: Buffer.from(JSON.stringify(chunk)),
})
let requests = 0
const request = (session: string): RecordIn => {
  const seed = requests++
  return event(session, { type: 'generate', requestId: `r${seed}`, maxTokens, seed })
}

const ids = Array.from({ length: sessions }, (_, n) => `session-${n}`)
const text = documentOf(2000)
const beginnings = ids.map((id, n) => event(id, { type: 'text', text: text.slice((n * 7) % 1000) }))
for (let at = 0; at < sessions; at += 100) {
  const some = beginnings.slice(at, at + 100)
  await log.append(names.chunks, [...some, ...ids.slice(at, at + 100).map(request)])
}

const args = ['src/cli/main.ts', 'run', '--log', url, '--model', modelDir, '--metrics-port', '0', '--json']
const worker = spawn(process.execPath, [...args, '--log-level', 'warn'], {
  cwd: root,
  stdio: ['ignore', 'pipe', 'inherit'],
})
const over = new AbortController()
const gone = once(worker, 'exit')
void gone.then(() => over.abort())
const started = new Promise<string>((resolve) => {
  createInterface(worker.stdout).on('line', (line) => {
    const said = JSON.parse(line)
    if (said.type === 'started') resolve(`${said.metrics}/metrics`)
  })
})

/**
 * Sends the next request of a session whenever one is finished, until the run is over. Returns the number of finished
 * requests.
 */
const keepAsking = async (): Promise<number> => {
  let finished = 0
  let trimAt = performance.now() + 60_000
  for await (const batch of log.read(names.tokens, 0, 0, { follow: true, signal: over.signal })) {
    const next: RecordIn[] = []
    for (const { key, value } of batch.records) {
      if (JSON.parse(Buffer.from(value!).toString()).finish !== null) next.push(request(Buffer.from(key!).toString()))
    }
    if (next.length > 0) await log.append(names.chunks, next)
    finished += next.length
    if (performance.now() < trimAt) continue
    trimAt = performance.now() + 60_000
    await log.trim(names.tokens, 0, batch.next)
    await log.trim(names.observations, 0, (await log.bounds(names.observations, 0)).end)
  }
  return finished
}

try {
  const metricsUrl = await Promise.race([started, gone.then(() => null)])
  if (metricsUrl === null) throw new Error('The worker ended before it began; its log says why.')
  const asking = keepAsking()
  const begin = performance.now()
  const samples: Sample[] = []
  const ofMinute = (minute: number): readonly Sample[] =>
    samples.filter(({ hours }) => Math.ceil(hours * 60 - 1e-9) === minute)
  console.log(`${sessions} sessions, requests of ${maxTokens} tokens, ${minutes} minutes; medians of each minute`)
  console.log(row(['minute', ...columns.map(([title]) => title)]))
  const last = Math.round((minutes * 60_000) / INTERVAL)
  for (let tick = 1; tick <= last && !over.signal.aborted; tick += 1) {
    await sleep(begin + tick * INTERVAL - performance.now(), null, { signal: over.signal }).catch(() => {})
    if (over.signal.aborted) break
    samples.push({ hours: (tick * INTERVAL) / 3_600_000, metrics: await scrape(metricsUrl), disk: diskBytes() })
    const minute = (tick * INTERVAL) / 60_000
    if (!Number.isInteger(minute)) continue
    const cells = columns.map(([, value]) => median(ofMinute(minute).map(value)).toFixed(1))
    console.log(row([`${minute}`, ...cells]))
  }
  if (over.signal.aborted) throw new Error(`The worker ended by itself with ${worker.exitCode ?? worker.signalCode}.`)
  over.abort()
  const finished = await asking
  worker.kill('SIGTERM')
  const [code] = await gone
  if (code !== 0) throw new Error(`The worker ended with ${code}.`)

  const half = samples.filter(({ hours }) => hours > minutes / 120)
  const { slope, mean, error } = lineThrough(half.map((sample) => [sample.hours, rss(sample)]))
  const most = LEVEL * mean
  const verdict = slope <= most ? 'levels off' : slope - 2 * error > most ? 'rises' : 'cannot be told from level'
  const seen = half.map(rss)
  console.log(
    `${finished} requests finished. Second half: RSS ${mean.toFixed(1)} MB on average (${Math.min(...seen).toFixed(1)} to ` +
      `${Math.max(...seen).toFixed(1)}), least-squares slope ${slope.toFixed(2)} ± ${(2 * error).toFixed(2)} ` +
      `MB/hour (two standard errors): it ${verdict} (the rule: at most ${LEVEL * 100} % of the average, ${most.toFixed(2)} MB/hour).`,
  )
  if (verdict === 'rises') process.exitCode = 1
} finally {
  over.abort()
  if (worker.exitCode === null && worker.signalCode === null) worker.kill('SIGTERM')
  await gone
  await log.close()
  await place.stop()
}
