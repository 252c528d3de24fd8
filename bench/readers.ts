/**
 * Many readers of one session's tokens, half of which never read: what the gateway holds for them, and how long another
 * request waits.
 *
 *   node bench/readers.ts [--readers 1000] [--megabytes 20] [--asks 40] [--stall 20]
 *
 * The session has --megabytes of tokens in the log, and every reader begins with the first. One half takes what comes,
 * the other takes nothing; --stall seconds later each of these is to be closed. A request is one of two tokens in
 * another session, answered whole. Memory is that of the process of `continuo serve --with-worker`, above what it had
 * before the readers came.
 */
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { connect, type Socket } from 'node:net'
import type { RecordIn } from '../src/streams/log.ts'
import { topicNames } from '../topics/index.ts'
import type { Generated } from '../topics/tokens.ts'
import { parseArgs } from './options.ts'
import { embeddedPlace, median, prepared, quantile, servedAt } from './support.ts'

const { values } = parseArgs({
  options: {
    readers: { type: 'string', default: '1000' },
    megabytes: { type: 'string', default: '20' },
    asks: { type: 'string', default: '40' },
    stall: { type: 'string', default: '20' },
  },
})
const [readers, megabytes, asks] = [values.readers, values.megabytes, values.asks].map(Number) as [
  number,
  number,
  number,
]

/** Runs of 16 tokens of one long request, as a worker writes them. */
function* runs(): Generator<RecordIn> {
  for (let at = 0, bytes = 0; bytes < megabytes * 1e6; at += 1) {
    const event: Generated = {
      ...{ type: 'generated', version: 1, session: 'popular', requestId: 'r' },
      ...{ index: 16 * at, ids: Array.from({ length: 16 }, (_, n) => 97 + n), text: 'abcdefghijklmnop' },
      ...{ logprobs: Array.from({ length: 16 }, (_, n) => -(n + 1) / 7), fromPulse: 16 * at, toPulse: 16 * at + 16 },
      ...{ finish: null, cause: { topic: 'continuo.chunks', partition: 0, offset: 0, id: null } },
    }
    const value = Buffer.from(JSON.stringify(event))
    bytes += value.length
    yield { key: Buffer.from('popular'), value }
  }
}

const place = embeddedPlace()
const url = place.fresh()
const log = await prepared(url, 1)
let batch: RecordIn[] = []
let records = 0
for (const run of runs()) {
  records += 1
  batch.push(run)
  if (batch.length === 500) {
    await log.append(topicNames(log.prefix).tokens, batch, 0)
    batch = []
  }
}
await log.append(topicNames(log.prefix).tokens, batch, 0)
await log.close()

const { serving, url: gateway } = await servedAt(
  url,
  ...['--stall-timeout', values.stall, '--max-open', String(readers + 10)],
)
const { port } = new URL(gateway)

/** Of the process, bytes. */
const memory = (): number =>
  Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${serving.pid}/status`, 'utf8'))![1]) * 1024

const times = async (): Promise<number[]> => {
  const taken: number[] = []
  for (let ask = -3; ask < asks; ask += 1) {
    const began = performance.now()
    const response = await fetch(`${gateway}/v1/completions`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ model: 'demo', prompt: 'And then she said', max_tokens: 2, seed: 1 }),
    })
    if (!response.ok) throw new Error(`${response.status} ${await response.text()}`)
    await response.json()
    if (ask >= 0) taken.push(performance.now() - began)
  }
  return taken
}

let bytes = 0
let whole = 0
let closed = 0
const LAST = Buffer.from(`"index":${16 * (records - 1)},`)
const open = (reads: boolean): Promise<Socket> =>
  new Promise((resolve, reject) => {
    const socket = connect({ port: Number(port), host: '127.0.0.1' }, () => {
      if (!reads) socket.pause()
      socket.write(`GET /v1/sessions/popular/tokens?from=beginning HTTP/1.1\r\nhost: 127.0.0.1:${port}\r\n\r\n`)
      resolve(socket)
    })
    socket.on('error', reject).on('close', () => {
      closed += 1
    })
    if (!reads) return
    let before: Uint8Array = Buffer.alloc(0)
    socket.on('data', (data: Buffer) => {
      bytes += data.length
      if (Buffer.concat([before, data]).includes(LAST)) whole += 1
      before = data.subarray(-LAST.length)
    })
  })

try {
  const alone = await times()
  const before = memory()
  let most = 0
  const watch = setInterval(() => {
    most = Math.max(most, memory() - before)
  }, 50)
  const began = performance.now()
  const sockets = await Promise.all(Array.from({ length: readers }, (_, at) => open(at % 2 === 0)))
  const beside = await times()
  while (whole < readers / 2) await new Promise((resolve) => setTimeout(resolve, 20))
  const seconds = (performance.now() - began) / 1000
  console.log(`${readers} readers of ${megabytes} MB, half of which never read; requests of two tokens beside them`)
  for (const [name, all] of [
    ['alone', alone],
    ['beside them', beside],
  ] as const)
    console.log(
      `${name.padEnd(12)} median ${median(all).toFixed(0)} ms, p99 ${quantile(all, 0.99).toFixed(0)} ms, ratio of median ${(median(all) / median(alone)).toFixed(2)}, of p99 ${(quantile(all, 0.99) / quantile(alone, 0.99)).toFixed(2)}`,
    )
  console.log(
    `memory       ${(most / 1e6).toFixed(0)} MB more, ${(most / 1024 / readers).toFixed(0)} KiB for each reader`,
  )
  console.log(
    `read         ${(bytes / 1e6 / seconds).toFixed(0)} MB/s together, whole at all ${whole} that read after ${seconds.toFixed(1)} s`,
  )
  // Those that read stay; the rest is closed once it has taken nothing for so long, and what then stands in its way is
  // only what it has not taken.
  const deadline = performance.now() + 3000 * Number(values.stall)
  const left = async (): Promise<number> => {
    const text = await (await fetch(`${gateway}/metrics`)).text()
    return Number(/continuo_gateway_open\{kind="stream"\} (\d+)/.exec(text)?.[1] ?? Number.NaN)
  }
  while ((await left()) > readers / 2 && performance.now() < deadline)
    await new Promise((resolve) => setTimeout(resolve, 200))
  console.log(`closed       ${readers - (await left())} after ${((performance.now() - began) / 1000).toFixed(0)} s`)
  clearInterval(watch)
  for (const socket of sockets) socket.destroy()
  if (closed > readers) throw new Error('more were closed than opened')
} finally {
  serving.kill()
  await once(serving, 'exit')
  await place.stop()
}
