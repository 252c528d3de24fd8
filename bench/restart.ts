/**
 * Restart to first new token: for a log with many idle sessions, the time from the start of a worker process (`continuo run`) until the
 * first token of a waiting request is in the token topic.
 *
 *   node bench/restart.ts [--sessions 1000] [--rounds 5] [--logs embedded,kafka]
 */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { parseArgs } from 'node:util'
import type { RecordIn } from '../src/streams/log.ts'
import { topicNames } from '../topics/index.ts'
import { embeddedPlace, kafkaPlace, median, modelDir, type Place, prepared, root } from './support.ts'

const { values } = parseArgs({
  options: {
    sessions: { type: 'string', default: '1000' },
    rounds: { type: 'string', default: '5' },
    logs: { type: 'string', default: 'embedded,kafka' },
  },
})
const sessions = Number(values.sessions)
const rounds = Number(values.rounds)

const worker = (url: string, ...flags: string[]) => {
  const args = ['src/cli/main.ts', 'run', '--log', url, '--model', modelDir, '--log-level', 'error', ...flags]
  const child = spawn(process.execPath, args, { cwd: root, stdio: ['ignore', 'ignore', 'pipe'] })
  let said = ''
  child.stderr.on('data', (text) => {
    said += text
  })
  child.once('exit', (code) => {
    if (code !== 0) console.error(said)
  })
  return child
}

const event = (session: string, value: unknown): RecordIn => ({
  key: Buffer.from(session),
  value: Buffer.from(JSON.stringify(value)),
})

const measure = async (place: Place): Promise<readonly number[]> => {
  const url = place.fresh()
  const log = await prepared(url, 1)
  const names = topicNames(log.prefix)
  const records = Array.from({ length: sessions }, (_, n) =>
    event(`session-${n}`, { type: 'text', text: `Session ${n} read a few words and then fell silent.` }),
  )
  for (let at = 0; at < records.length; at += 100) await log.append(names.chunks, records.slice(at, at + 100))
  const first = worker(url, '--until-idle', '500')
  await once(first, 'exit')

  const times: number[] = []
  for (let round = 0; round < rounds; round += 1) {
    const { end } = await log.bounds(names.tokens, 0)
    const session = `session-${(round * 7919) % sessions}`
    await log.append(names.chunks, [
      event(session, { type: 'generate', requestId: `r${round}`, maxTokens: 16, temperature: 0 }),
    ])
    const started = performance.now()
    const child = worker(url)
    const seen = new AbortController()
    for await (const batch of log.read(names.tokens, 0, end, { follow: true, signal: seen.signal })) {
      if (batch.records.length === 0) continue
      times.push((performance.now() - started) / 1000)
      seen.abort()
      break
    }
    const gone = once(child, 'exit')
    child.kill('SIGTERM')
    await gone
  }
  await log.close()
  return times
}

const wanted = values.logs.split(',')
const places: Place[] = []
if (wanted.includes('embedded')) places.push(embeddedPlace())
if (wanted.includes('kafka')) places.push(await kafkaPlace())
try {
  for (const place of places) {
    const times = await measure(place)
    console.log(
      `${place.name.padEnd(9)} ${sessions} idle sessions, start to first new token: median ${median(times).toFixed(2)} s ` +
        `(${Math.min(...times).toFixed(2)} to ${Math.max(...times).toFixed(2)}, ${rounds} starts)`,
    )
  }
} finally {
  for (const place of places) await place.stop()
}
