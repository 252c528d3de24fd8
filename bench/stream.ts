/**
 * The cost of the stream: one document through the bare engine, through the embedded log and through Kafka, interleaved
 * in one process. The engine does the same work in all three (surprisal of every token, slices of 256), so the
 * difference is the cost of the stream.
 *
 *   node bench/stream.ts [--bytes 1000000] [--rounds 3] [--threads 2] [--logs embedded,kafka] [--json]
 *
 * The measured time of a stream begins before the worker joins its group and ends when the commit of the last record is
 * acknowledged; the log is fed before. A bare run precedes and follows each run of a stream, and the ratio is to the
 * mean of both, so that a drift of the machine's speed cancels out. The chains of all runs must be equal, or the bench
 * fails.
 *
 * Progress goes to stderr. With --json each run is a line of JSON on stdout, and the last line has the medians.
 */

import { openPackage } from '../src/models/open.ts'
import { FEED_SLICE } from '../src/operators/advance/advance.ts'
import { topicNames } from '../topics/index.ts'
import { parseArgs } from './options.ts'
import {
  documentOf,
  embeddedPlace,
  kafkaPlace,
  median,
  modelDir,
  type Place,
  prepared,
  quantile,
  workedOff,
} from './support.ts'

const { values } = parseArgs({
  options: {
    bytes: { type: 'string', default: '1000000' },
    rounds: { type: 'string', default: '3' },
    threads: { type: 'string', default: '2' },
    logs: { type: 'string', default: 'embedded,kafka' },
    json: { type: 'boolean', default: false },
  },
})
const bytes = Number(values.bytes)
const rounds = Number(values.rounds)
const CHUNK = 64 * 1024

const { model, tokenizer } = await openPackage(modelDir, { threads: Number(values.threads) })
const text = documentOf(bytes)
const ids = Int32Array.from(Buffer.from(text))

/** Prints the figures of a run. */
const tell = (path: string, round: number, seconds: number, ratio?: number): void => {
  const about = { path, round, seconds, tokensPerSecond: ids.length / seconds, ...(ratio !== undefined && { ratio }) }
  if (values.json) console.log(JSON.stringify({ type: 'run', ...about }))
  else
    console.error(
      `round ${round} of ${rounds}: ${path} ${seconds.toFixed(2)} s${ratio === undefined ? '' : `, ratio ${ratio.toFixed(3)}`}`,
    )
}

const bare = async (): Promise<{ seconds: number; chain: string }> => {
  const context = model.createContext()
  const started = performance.now()
  for (let at = 0; at < ids.length; at += FEED_SLICE) {
    await model.process([{ context, tokens: ids.subarray(at, at + FEED_SLICE), nats: true }])
  }
  const seconds = (performance.now() - started) / 1000
  const { chain } = context
  context.close()
  return { seconds, chain }
}

const stream = async (url: string, commits: number[]): Promise<{ seconds: number; chain: string }> => {
  const log = await prepared(url, 1)
  const names = topicNames(log.prefix)
  const key = Buffer.from('document')
  let last = 0
  for (let at = 0; at < text.length; at += CHUNK) {
    const event = { type: 'text', text: text.slice(at, at + CHUNK) }
    const [stored] = await log.append(names.chunks, [{ key, value: Buffer.from(JSON.stringify(event)) }])
    last = stored!.offset
  }
  const { worker, seconds } = await workedOff(
    {
      ...{ log, names, model, tokenizer, snapshotEvery: 16_384, maxContexts: 16, compactFloor: 4 << 20 },
      onCommit: ({ ms }) => commits.push(ms),
    },
    last,
  )
  const chain = worker.tasks.get(0)!.sessions.get('document')!.chain
  await worker.stop()
  await log.close()
  return { seconds, chain }
}

const wanted = values.logs.split(',')
const places: Place[] = []
if (wanted.includes('embedded')) places.push(embeddedPlace())
if (wanted.includes('kafka')) places.push(await kafkaPlace())
try {
  const bareSeconds: number[] = []
  const results = places.map((place) => ({
    place,
    seconds: [] as number[],
    ratios: [] as number[],
    commits: [] as number[],
  }))
  await model.process([{ context: model.createContext(), tokens: ids.subarray(0, 4096), nats: true }])
  let before = await bare()
  bareSeconds.push(before.seconds)
  tell('bare', 1, before.seconds)
  for (let round = 0; round < rounds; round += 1) {
    for (const { place, seconds, ratios, commits } of results) {
      const run = await stream(place.fresh(), commits)
      const after = await bare()
      bareSeconds.push(after.seconds)
      if (run.chain !== after.chain)
        throw new Error(`${place.name} ended with chain ${run.chain}, the bare engine with ${after.chain}`)
      seconds.push(run.seconds)
      ratios.push(run.seconds / ((before.seconds + after.seconds) / 2))
      tell(place.name, round + 1, run.seconds, ratios.at(-1)!)
      tell('bare', round + 1, after.seconds)
      before = after
    }
  }
  if (values.json) {
    const paths = results.map(({ place, seconds, ratios, commits }) => ({
      path: place.name,
      seconds: median(seconds),
      ratio: { median: median(ratios), min: Math.min(...ratios), max: Math.max(...ratios) },
      commitMs: { p50: quantile(commits, 0.5), p99: quantile(commits, 0.99), commits: commits.length },
    }))
    console.log(JSON.stringify({ type: 'medians', tokens: ids.length, rounds, bare: median(bareSeconds), paths }))
  } else {
    console.log(`${ids.length} tokens, ${rounds} rounds, ${values.threads} threads; medians; all chains equal`)
    console.log(
      `bare engine   ${median(bareSeconds).toFixed(2)} s  ${Math.round(ids.length / median(bareSeconds))} tokens/s`,
    )
    for (const { place, seconds, ratios, commits } of results) {
      const [low, high] = [Math.min(...ratios), Math.max(...ratios)]
      console.log(
        `${place.name.padEnd(13)} ${median(seconds).toFixed(2)} s  ratio ${median(ratios).toFixed(3)} (${low.toFixed(3)} to ${high.toFixed(3)})  ` +
          `commit p50 ${quantile(commits, 0.5).toFixed(1)} ms, p99 ${quantile(commits, 0.99).toFixed(1)} ms, ${commits.length} commits`,
      )
    }
  }
} finally {
  for (const place of places) await place.stop()
  model.close()
}
