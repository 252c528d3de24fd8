/** A commit on the embedded log in a temporary folder: a real worker, whose transactions say how long they took. */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { TOPICS, topicNames } from '../../../topics/index.ts'
import { chunkRecord } from '../../client/chunks.ts'
import type { Model } from '../../engine/types.ts'
import { startWorker } from '../../operators/worker/worker.ts'
import { openLog } from '../../streams/open.ts'
import { sequence } from './exactness-cases.ts'
import { figure, type Measure, row } from './measure.ts'
import { quantile, spread } from './statistics.ts'

/** Commits of a sample: one for each event, sent when the one before it was committed. */
const EVENTS = 10
const TOKENS = 16

export const commit = async (model: Model): Promise<Measure> => {
  const folder = mkdtempSync(join(tmpdir(), 'continuo-bench-'))
  const log = await openLog(`file:${join(folder, 'log.db')}`)
  const names = topicNames(log.prefix)
  await log.createTopics(TOPICS.map(({ name, settings }) => ({ name: names[name], partitions: 1, config: settings })))
  const event = chunkRecord('bench', { type: 'tokens', tokens: [...sequence(0, TOKENS, model.vocabSize)] })

  /** Sends the events one by one; ms of each commit that covers one. */
  const run = async (): Promise<readonly number[]> => {
    const times: number[] = []
    let waiting: { readonly offset: number; readonly resolve: (ms: number) => void } | null = null
    let fail: (error: unknown) => void = () => {}
    const failed = new Promise<never>((_, reject) => {
      fail = reject
    })
    failed.catch(() => {})
    // The commit may come before its event's offset is known here.
    const early: { readonly offset: number; readonly ms: number }[] = []
    const worker = await startWorker({
      log,
      names,
      model,
      tokenizer: null,
      group: 'bench',
      format: 'json',
      commitInterval: 1,
      snapshotEvery: 16_384,
      maxContexts: 1,
      compactFloor: 4 << 20,
      warn: (message) => process.stderr.write(`${message}\n`),
      onState: (_, __, error) => {
        if (error !== undefined) fail(error)
      },
      onCommit: ({ offset, records, ms }) => {
        if (records === 0) return
        if (waiting !== null && offset > waiting.offset) waiting.resolve(ms)
        else early.push({ offset, ms })
      },
    })
    worker.over.catch(fail)
    try {
      for (let sent = 0; sent < EVENTS; sent += 1) {
        const [stored] = await log.append(names.chunks, [event], 0)
        const { offset } = stored!
        const known = early.splice(0).find((one) => one.offset > offset)
        const ms =
          known?.ms ??
          (await Promise.race([
            failed,
            new Promise<number>((resolve) => {
              waiting = { offset, resolve }
            }),
          ]))
        waiting = null
        times.push(ms)
      }
    } finally {
      await worker.stop()
    }
    return times
  }

  return {
    name: 'commit',
    async sample() {
      return { ms: await run() }
    },
    report(samples) {
      const all = samples.ms ?? []
      const [p50, p99] = [quantile(all, 0.5), quantile(all, 0.99)]
      const { min, max } = figure(samples, 'ms')
      return {
        values: { commits: all.length, p50Ms: p50, p99Ms: p99, minMs: min, maxMs: max },
        rows: [
          row('ms a commit, embedded log', spread(all), (ms) => ms.toFixed(2)),
          { what: `p99 of ${all.length} commits`, figure: p99.toFixed(2), spread: '' },
        ],
      }
    },
    async close() {
      await log.close()
      rmSync(folder, { recursive: true, force: true })
    },
  }
}
