/** Shared by the benches: statistics, a document of any size, and a log to run against. */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { startWorker, type Worker, type WorkerOptions } from '../src/operators/worker/worker.ts'
import type { EventLog } from '../src/streams/log.ts'
import { openLog } from '../src/streams/open.ts'
import { TOPICS, topicNames } from '../topics/index.ts'

export const root = fileURLToPath(new URL('..', import.meta.url))
export const modelDir = join(root, 'models/demo')

export { median, quantile } from '../src/cli/bench/statistics.ts'

/** The shipped document, repeated to `bytes` bytes of whole characters. */
export const documentOf = (bytes: number): string => {
  const text = readFileSync(join(root, 'docs/demo/harbour-log.txt'), 'utf8')
  let all = ''
  while (Buffer.byteLength(all) + Buffer.byteLength(text) <= bytes) all += text
  return all + text.slice(0, Math.max(0, bytes - Buffer.byteLength(all)))
}

/** Draws prompts of so many ids, all printable bytes; the same ones in every run. */
export const drawnIds = (): ((count: number) => number[]) => {
  let drawn = 1
  return (count) =>
    Array.from({ length: count }, () => {
      drawn = (Math.imul(drawn, 1_103_515_245) + 12_345) & 0x7fffffff
      return 32 + ((drawn >> 8) % 90)
    })
}

export interface Place {
  readonly name: 'embedded' | 'kafka'
  /** URL of a fresh, empty log. */
  fresh(): string
  stop(): Promise<void>
}

export const embeddedPlace = (): Place => {
  const dir = mkdtempSync(join(tmpdir(), 'continuo-bench-'))
  let n = 0
  return {
    name: 'embedded',
    fresh: () => `file:${join(dir, `${n++}.db`)}`,
    async stop() {
      rmSync(dir, { recursive: true, force: true })
    },
  }
}

/** The brokers of `KAFKA_BROKERS`, or a broker of its own that runs as long as the bench. */
export const kafkaPlace = async (): Promise<Place> => {
  const given = process.env.KAFKA_BROKERS
  const { startBroker } = await import('../tools/kafka/embedded-broker.ts')
  const broker = given === undefined ? await startBroker() : null
  const brokers = given ?? broker!.brokers
  const run = Date.now().toString(36)
  let n = 0
  return {
    name: 'kafka',
    fresh: () => `kafka://${brokers}/bench-${run}-${n++}`,
    async stop() {
      await broker?.stop()
    },
  }
}

/**
 * `continuo serve --with-worker` of the demo on this log, in a process of its own, with these flags besides; it
 * listens.
 */
export const servedAt = async (log: string, ...flags: readonly string[]) => {
  const model = flags.includes('--model') ? [] : ['--model', modelDir]
  const quiet = ['--port', '0', '--json', '--log-level', 'silent', '--rate-limit', '0']
  const serving = spawn(
    process.execPath,
    [join(root, 'src/cli/main.ts'), 'serve', '--log', log, ...model, '--with-worker', ...quiet, ...flags],
    { stdio: ['ignore', 'pipe', 'inherit'] },
  )
  const [first] = (await once(serving.stdout, 'data')) as [Buffer]
  const { url } = JSON.parse(String(first)) as { url: string }
  return { serving, url }
}

export const prepared = async (url: string, partitions: number): Promise<EventLog> => {
  const log = await openLog(url)
  const names = topicNames(log.prefix)
  await log.createTopics(TOPICS.map(({ name, settings }) => ({ name: names[name], partitions, config: settings })))
  return log
}

/**
 * Starts a worker, and resolves when it has committed the input record at offset `last`: with the worker, and the
 * seconds since before it joined its group.
 */
export const workedOff = async (
  options: Omit<WorkerOptions, 'group' | 'format' | 'commitInterval' | 'warn' | 'onState'>,
  last: number,
): Promise<{ readonly worker: Worker; readonly seconds: number }> => {
  const done = Promise.withResolvers<void>()
  const started = performance.now()
  const worker = await startWorker({
    ...options,
    group: 'bench',
    format: 'json',
    commitInterval: 100,
    warn: (message) => console.error(message),
    onState: (_, __, error) => {
      if (error !== undefined) done.reject(error)
    },
    onCommit: (commit) => {
      options.onCommit?.(commit)
      if (commit.offset > last) done.resolve()
    },
  })
  await done.promise
  return { worker, seconds: (performance.now() - started) / 1000 }
}
