/**
 * A backlog of new sessions: the same events in one partition, once as 200 sessions and once with a session for each
 * event; and the restart after the latter.
 *
 *   node bench/backlog.ts [--events 20000] [--sessions 200,20000] [--bytes 16] [--rounds 3] [--logs embedded] [--partitions 1]
 *
 * A worker process (`continuo run`, defaults) reads the log to its end. The measured time begins with the first commit
 * in the log and ends with the commit after which all events are committed. So it includes neither the start of the
 * process nor its stop, which saves the sessions in memory and is printed separately. Then a worker is started again:
 * the restart is the time from its start to the first token of a request to one of the sessions. The variants take
 * turns in each round; the best round of each is compared. Where /proc has it, the CPU time of the worker per event is
 * printed too: on a shared machine it says more than the elapsed time.
 */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { readFileSync, statSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
import type { EventLog, RecordIn } from '../src/streams/log.ts'
import { topicNames } from '../topics/index.ts'
import { parseArgs } from './options.ts'
import { embeddedPlace, kafkaPlace, modelDir, type Place, prepared, root } from './support.ts'

const { values } = parseArgs({
  options: {
    events: { type: 'string', default: '20000' },
    sessions: { type: 'string', default: '200,20000' },
    bytes: { type: 'string', default: '16' },
    rounds: { type: 'string', default: '3' },
    logs: { type: 'string', default: 'embedded' },
    partitions: { type: 'string', default: '1' },
  },
})
const events = Number(values.events)
const counts = values.sessions.split(',').map(Number)
const partitions = Number(values.partitions)
/** Bytes of the text of an event. */
const bytes = Number(values.bytes)
const MB = 1_000_000
const PEAK = 'process.on("exit",()=>console.error("peak",process.resourceUsage().maxRSS))'

const worker = (url: string) => {
  const args = ['src/cli/main.ts', 'run', '--log', url, '--model', modelDir, '--log-level', 'error']
  const preload = `--import=data:text/javascript,${encodeURIComponent(PEAK)}`
  const child = spawn(process.execPath, [preload, ...args], { cwd: root, stdio: ['ignore', 'ignore', 'pipe'] })
  let said = ''
  child.stderr.on('data', (text) => {
    said += text
  })
  const gone = once(child, 'exit')
  return {
    /** Peak resident memory, MB. */
    async stop(): Promise<number> {
      child.kill('SIGTERM')
      const [code] = await gone
      if (code !== 0) throw new Error(`The worker ended with ${code}: ${said}`)
      return (Number(/peak (\d+)/.exec(said)![1]) * 1024) / MB
    },
    /** CPU time so far, ms; null where the system has no /proc. */
    cpu(): number | null {
      try {
        const stat = readFileSync(`/proc/${child.pid}/stat`, 'utf8')
        // User and system time, after the name in brackets, in hundredths of a second.
        const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
        return 10 * (Number(fields[11]) + Number(fields[12]))
      } catch {
        return null
      }
    },
    kill: () => child.kill('SIGKILL'),
    gone,
  }
}

const event = (session: string, value: unknown): RecordIn => ({
  key: Buffer.from(session),
  value: Buffer.from(JSON.stringify(value)),
})

const committedOf = async (log: EventLog, topic: string): Promise<readonly number[]> =>
  Promise.all(Array.from({ length: partitions }, async (_, at) => (await log.committed('continuo', topic, at)) ?? 0))

const sum = (numbers: readonly number[]): number => numbers.reduce((all, each) => all + each, 0)
const seconds = (since: number): number => (performance.now() - since) / 1000

interface Result {
  readonly perSecond: number
  /** CPU time of the worker, ms per event. */
  readonly cpu: number | null
  readonly stop: number
  readonly restart: number
  readonly log: number | null
  readonly peak: number
}

const sizeOf = (url: string): number | null => {
  if (!url.startsWith('file:')) return null
  const path = url.slice('file:'.length)
  return sum(['', '-wal'].map((end) => statSync(path + end, { throwIfNoEntry: false })?.size ?? 0)) / MB
}

const measure = async (place: Place, sessions: number): Promise<Result> => {
  const url = place.fresh()
  const log = await prepared(url, partitions)
  const names = topicNames(log.prefix)
  const records = Array.from({ length: events }, (_, n) => {
    const text = `I am ${String(n).padStart(7, '0')}, and so on`.padEnd(bytes, ', and on').slice(0, bytes)
    return event(`user-${String(n % sessions).padStart(5, '0')}`, { type: 'text', text })
  })
  for (let at = 0; at < events; at += 500) await log.append(names.chunks, records.slice(at, at + 500))
  const bounds = await Promise.all(Array.from({ length: partitions }, (_, at) => log.bounds(names.chunks, at)))
  const end = sum(bounds.map((each) => each.end))

  const reading = worker(url)
  try {
    let begun: { readonly at: number; readonly events: number; readonly cpu: number | null } | null = null
    let done = 0
    while (done < end) {
      await Promise.race([
        sleep(10),
        reading.gone.then(([code]) => Promise.reject(new Error(`The worker ended with ${code}.`))),
      ])
      done = sum(await committedOf(log, names.chunks))
      if (begun === null && done > 0) begun = { at: performance.now(), events: done, cpu: reading.cpu() }
    }
    const counted = events * (1 - begun!.events / end)
    const perSecond = counted / seconds(begun!.at)
    const used = reading.cpu()
    const cpu = used === null || begun!.cpu === null ? null : (used - begun!.cpu) / counted
    const stopping = performance.now()
    const peak = await reading.stop()
    const stop = seconds(stopping)

    const session = `user-${String(Math.floor(sessions / 3)).padStart(5, '0')}`
    const partition = await log.partitionOf(names.chunks, Buffer.from(session))
    const { end: from } = await log.bounds(names.tokens, partition)
    await log.append(names.chunks, [
      event(session, { type: 'generate', requestId: 'r', maxTokens: 16, temperature: 0 }),
    ])
    const started = performance.now()
    const again = worker(url)
    const seen = new AbortController()
    let restart = 0
    for await (const batch of log.read(names.tokens, partition, from, { follow: true, signal: seen.signal })) {
      if (batch.records.length === 0) continue
      restart = seconds(started)
      seen.abort()
    }
    await again.stop()
    return { perSecond, cpu, stop, restart, log: sizeOf(url), peak }
  } finally {
    reading.kill()
    await log.close()
  }
}

const wanted = values.logs.split(',')
const places: Place[] = []
if (wanted.includes('embedded')) places.push(embeddedPlace())
if (wanted.includes('kafka')) places.push(await kafkaPlace())
try {
  for (const place of places) {
    const best = new Map<number, Result>()
    for (let round = 0; round < Number(values.rounds); round += 1) {
      for (const sessions of counts) {
        const result = await measure(place, sessions)
        if (result.perSecond > (best.get(sessions)?.perSecond ?? 0)) best.set(sessions, result)
      }
    }
    for (const [sessions, { perSecond, cpu, stop, restart, log, peak }] of best) {
      console.log(
        `${place.name}, ${partitions} partition(s): ${events} events of ${sessions} sessions: ${perSecond.toFixed(0)} events/s, ` +
          `${cpu === null ? '' : `${cpu.toFixed(2)} ms of CPU each, `}` +
          `stop ${stop.toFixed(2)} s, restart to first new token ${restart.toFixed(2)} s, ` +
          `${log === null ? '' : `log ${log.toFixed(0)} MB, `}peak RSS ${peak.toFixed(0)} MB`,
      )
    }
    const [few, many] = counts.map((sessions) => best.get(sessions)!.perSecond)
    if (many !== undefined) console.log(`${counts[1]} over ${counts[0]} sessions: ${(many / few!).toFixed(2)}`)
  }
} finally {
  for (const place of places) await place.stop()
}
