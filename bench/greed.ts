/**
 * How long a session waits for two tokens beside one that sends far more than can be worked off, in the same partition.
 *
 *   node bench/greed.ts [--kinds generates,file,forks,sessions] [--asks 40] [--logs embedded,kafka] [--threads 2] [--events 9000] [--megabytes 20]
 *     [--read-ahead MB] [--places N]
 *
 *   generates   one session is sent --events requests of a million tokens each
 *   file        one session is sent --megabytes of text, in records of 4 kB
 *   forks       a session is forked --events times, and each fork is asked for a million tokens
 *   sessions    --events sessions are asked for a million tokens each, and all of them count for one share, as those of one API key do
 *   shares      the same, and half of them count for another share
 *   equals      the same, each of them for itself: the session that asks is one of so many with the same claim
 *
 * An ask sends a text of 16 bytes with a request for two tokens, and ends when the last of these is read from the
 * topic. The ratio is to the same on a log where nobody else sends anything. Others is what the greedy sessions
 * generate meanwhile, in tokens a second. Memory is the most that the process has while it is asked, above what it had
 * before the greedy events. Past is what a worker that starts reads of the log before its first answer, and how fast:
 * --read-ahead and --places let it read past more than a gigabyte, or a million events.
 */

import { follow } from '../src/client/follow.ts'
import { openPackage } from '../src/models/open.ts'
import { SHARE_HEADER } from '../src/operators/pipeline/shares.ts'
import { startWorker } from '../src/operators/worker/worker.ts'
import type { Headers, RecordIn } from '../src/streams/log.ts'
import { SOURCE_LIMITS, sizeOf } from '../src/streams/source.ts'
import type { ChunkInput } from '../topics/chunks.ts'
import { topicNames } from '../topics/index.ts'
import type { Generated } from '../topics/tokens.ts'
import { parseArgs } from './options.ts'
import { documentOf, embeddedPlace, kafkaPlace, median, modelDir, type Place, prepared, quantile } from './support.ts'

const { values } = parseArgs({
  options: {
    kinds: { type: 'string', default: 'generates,file,forks,sessions' },
    asks: { type: 'string', default: '40' },
    logs: { type: 'string', default: 'embedded,kafka' },
    threads: { type: 'string', default: '2' },
    events: { type: 'string', default: '9000' },
    megabytes: { type: 'string', default: '20' },
    places: { type: 'string', default: String(SOURCE_LIMITS.places) },
    'read-ahead': { type: 'string', default: String(SOURCE_LIMITS.readAhead / 1e6) },
  },
})
const asks = Number(values.asks)
const events = Number(values.events)
const bytes = Number(values.megabytes) * 1e6

const record = (session: string, chunk: ChunkInput): RecordIn => ({
  key: Buffer.from(session),
  value: Buffer.from(JSON.stringify(chunk)),
})
const endless = (session: string, at: number): RecordIn =>
  record(session, { type: 'generate', requestId: `endless-${at}`, maxTokens: 1_000_000, ignoreEnd: true, seed: at })

/** The greedy events of each kind. */
const KINDS: Readonly<Record<string, () => Iterable<RecordIn>>> = {
  *generates() {
    yield record('greedy', { type: 'text', text: 'Once ' })
    for (let at = 0; at < events; at += 1) yield endless('greedy', at)
  },
  *file() {
    const text = documentOf(4096)
    for (let at = 0; at < bytes; at += text.length) yield record('greedy', { type: 'text', text })
  },
  *forks() {
    yield record('greedy', { type: 'text', text: 'Once ' })
    for (let at = 0; at < events; at += 1) {
      yield record(`fork-${at}`, { type: 'open', from: { session: 'greedy' } })
      yield endless(`fork-${at}`, at)
    }
  },
  *sessions() {
    const headers: Headers = [[SHARE_HEADER, Buffer.from('greedy')]]
    for (const one of KINDS.equals!()) yield { ...one, headers }
  },
  *shares() {
    let at = 0
    for (const one of KINDS.equals!()) {
      yield { ...one, headers: [[SHARE_HEADER, Buffer.from(`greedy-${Math.floor(at / 2) % 2}`)]] }
      at += 1
    }
  },
  *equals() {
    for (let at = 0; at < events; at += 1) {
      yield record(`session-${at}`, { type: 'text', text: 'Once ' })
      yield endless(`session-${at}`, at)
    }
  },
}

const { model, tokenizer } = await openPackage(modelDir, { threads: Number(values.threads) })

/** The times of the asks, ms, and the memory beside them. `greedy`: what is sent before. */
const measure = async (place: Place, greedy: Iterable<RecordIn>) => {
  const log = await prepared(place.fresh(), 1)
  let sent = 0
  const names = topicNames(log.prefix)
  const before = process.memoryUsage().rss
  let most = before
  const watch = setInterval(() => {
    most = Math.max(most, process.memoryUsage().rss)
  }, 50)
  let batch: RecordIn[] = []
  const flush = async (): Promise<void> => {
    if (batch.length > 0) await log.append(names.chunks, batch, 0)
    batch = []
  }
  for (const one of greedy) {
    batch.push(one)
    sent += sizeOf(one)
    if (batch.length === 200) await flush()
  }
  await flush()
  const started = performance.now()
  const worker = await startWorker({
    limits: { ...SOURCE_LIMITS, places: Number(values.places), readAhead: Number(values['read-ahead']) * 1e6 },
    ...{ log, names, model, tokenizer, group: 'bench', format: 'json' },
    ...{ commitInterval: 100, snapshotEvery: 16_384, maxContexts: 512, compactFloor: 4 << 20 },
    warn: (message) => console.error(message),
  })
  const over = new AbortController()
  const arrivals = follow(log, {
    topic: names.tokens,
    partitions: 1,
    from: 'beginning',
    signal: over.signal,
  })
  const times: number[] = []
  let others = 0
  let past: { readonly megabytes: number; readonly seconds: number } | null = null
  // The first asks find a worker that is still reading what was sent before them.
  for (let ask = -3; ask < asks; ask += 1) {
    const requestId = `ask-${ask}`
    const began = performance.now()
    await log.append(
      names.chunks,
      [
        record('innocent', { type: 'text', text: 'And then she said' }),
        record('innocent', { type: 'generate', requestId, maxTokens: 2, ignoreEnd: true, seed: 1, run: 1 }),
      ],
      0,
    )
    for (;;) {
      const { value, done } = await arrivals.next()
      if (done === true) throw new Error('the topic of tokens ended')
      const event = JSON.parse(Buffer.from(value.value!).toString()) as Generated
      if (event.session !== 'innocent' && ask >= 0) others += event.ids.length
      if (event.session === 'innocent' && event.requestId === requestId && event.finish !== null) break
    }
    if (past === null) past = { megabytes: sent / 1e6, seconds: (performance.now() - started) / 1000 }
    if (ask >= 0) times.push(performance.now() - began)
  }
  clearInterval(watch)
  over.abort()
  await arrivals.return(undefined)
  await worker.stop()
  await log.close()
  const asked = times.reduce((sum, time) => sum + time, 0)
  return { times, others: (1000 * others) / asked, memory: (most - before) / 1e6, past: past! }
}

const wanted = values.logs.split(',')
const places: Place[] = []
if (wanted.includes('embedded')) places.push(embeddedPlace())
if (wanted.includes('kafka')) places.push(await kafkaPlace())
try {
  console.log('                           median     p99   ratio of median, of p99    others    memory   past')
  for (const place of places) {
    const alone = await measure(place, [])
    for (const kind of ['idle', ...values.kinds.split(',')]) {
      const { times, others, memory, past } = kind === 'idle' ? alone : await measure(place, KINDS[kind]!())
      const figures = [median(times), quantile(times, 0.99)] as const
      const ratios = [figures[0] / median(alone.times), figures[1] / quantile(alone.times, 0.99)] as const
      console.log(
        `${`${place.name}, ${kind}`.padEnd(22)}${figures.map((ms) => `${ms.toFixed(0)} ms`.padStart(9)).join('')}${ratios.map((ratio) => ratio.toFixed(2).padStart(11)).join('')}${`${others.toFixed(0)}/s`.padStart(16)}${`${memory.toFixed(0)} MB`.padStart(10)}  ${past.megabytes.toFixed(0)} MB, ${(past.megabytes / past.seconds).toFixed(0)} MB/s`,
      )
    }
  }
} finally {
  model.close()
  for (const place of places) await place.stop()
}
