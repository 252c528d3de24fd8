/**
 * The event loop of a worker whose sessions have large states: its delay while sessions are spilled, read back, saved
 * and rebuilt as fast as events come, beside the delay of the same process at rest.
 *
 *   node bench/loop.ts [--megabytes 64] [--sessions 4] [--seconds 20] [--logs embedded,kafka] [--only spill,snapshot,restore]
 *
 * One partition, Titans with random weights. Each event feeds a session two tokens; events go round the sessions. Three
 * loads, each with a log of its own: *spill*: memory for two contexts; *snapshot*: a snapshot after each event;
 * *restore*: two contexts at a time, and so a snapshot and a rebuild for each event. The delay is that of
 * `monitorEventLoopDelay` at a resolution of 1 ms, less that millisecond.
 */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { monitorEventLoopDelay } from 'node:perf_hooks'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Model } from '../src/engine/types.ts'
import { openPackage } from '../src/models/open.ts'
import { startWorker, type WorkerOptions } from '../src/operators/worker/worker.ts'
import { topicNames } from '../topics/index.ts'
import { parseArgs } from './options.ts'
import { embeddedPlace, kafkaPlace, type Place, prepared } from './support.ts'
import { writeTitans } from './titans-package.ts'

const { values } = parseArgs({
  options: {
    megabytes: { type: 'string', default: '64' },
    sessions: { type: 'string', default: '4' },
    seconds: { type: 'string', default: '20' },
    logs: { type: 'string', default: 'embedded' },
    only: { type: 'string', default: 'spill,snapshot,restore' },
  },
})
const sessions = Number(values.sessions)
const seconds = Number(values.seconds)
const MB = 1_000_000

type Load = Pick<WorkerOptions, 'snapshotEvery' | 'maxContexts' | 'maxResidentBytes'>
const loadsOf = (contextBytes: number): Readonly<Record<string, Load>> => ({
  spill: { snapshotEvery: 1e9, maxContexts: sessions, maxResidentBytes: 2.5 * contextBytes },
  snapshot: { snapshotEvery: 1, maxContexts: sessions },
  restore: { snapshotEvery: 1, maxContexts: 2 },
})

/** The delay while `work` goes on, ms. */
const watched = async (work: () => Promise<unknown>) => {
  const monitor = monitorEventLoopDelay({ resolution: 1 })
  monitor.enable()
  const before = performance.eventLoopUtilization()
  await work()
  monitor.disable()
  const { utilization } = performance.eventLoopUtilization(before)
  const ms = (nanoseconds: number): string => Math.max(0, nanoseconds / 1e6 - 1).toFixed(1)
  const { max } = monitor
  return `p50 ${ms(monitor.percentile(50))} ms, p99 ${ms(monitor.percentile(99))} ms, longest ${ms(max)} ms, ${Math.round(100 * utilization)} % busy`
}

const measure = async (place: Place, model: Model, name: string, load: Load): Promise<void> => {
  const log = await prepared(place.fresh(), 1)
  const names = topicNames(log.prefix)
  let saved = 0
  let rebuilt = 0
  let events = 0
  let committed = 0
  const worker = await startWorker({
    log,
    names,
    model,
    tokenizer: null,
    group: 'bench',
    format: 'json',
    commitInterval: 50,
    compactFloor: 2 ** 30,
    ...load,
    onCommit: ({ offset }) => {
      committed = offset
    },
    onHealth: () => {
      saved += 1
    },
    onRestored: () => {
      rebuilt += 1
    },
    warn: console.error,
  })
  const value = Buffer.from(JSON.stringify({ type: 'tokens', tokens: [1, 2] }))
  const feed = async (until: number): Promise<void> => {
    while (performance.now() < until) {
      // Two events ahead for each session, so that the worker never waits for them.
      if (events - committed < 2 * sessions) {
        await log.append(
          names.chunks,
          Array.from({ length: sessions }, (_, at) => ({ key: Buffer.from(`s${at}`), value })),
        )
        events += sessions
      } else await sleep(5)
    }
  }
  await feed(performance.now() + 2000)
  const counts = () => {
    const { blocks: _, retrievals: __, ...contexts } = worker.contexts
    return { ...contexts, saved, rebuilt, committed }
  }
  const before = counts()
  const started = performance.now()
  const delay = await watched(() => feed(started + 1000 * seconds))
  const after = counts()
  const elapsed = (performance.now() - started) / 1000
  const rate = (key: keyof typeof after): string => ((after[key] - before[key]) / elapsed).toFixed(2)
  console.log(
    `${name.padEnd(9)}${delay}; events ${rate('committed')}/s, spilled ${rate('spillWrites')}/s, read back ${rate('spillReads')}/s, snapshots ${rate('saved')}/s, rebuilt ${rate('rebuilt')}/s`,
  )
  await worker.stop()
  await log.close()
}

const dir = mkdtempSync(join(tmpdir(), 'continuo-loop-'))
const places: Place[] = []
try {
  const layers = Math.max(1, Math.round(Number(values.megabytes) / 5.4))
  const shape = {
    hidden: 128,
    layers,
    heads: 16,
    keyHeads: 4,
    headDim: 128,
    intermediate: 128,
    window: 16,
    segment: 16,
  }
  await writeTitans(dir, { composition: 'mal', levels: [1, 4], ...shape })
  const { model } = await openPackage(dir)
  for (const log of values.logs.split(',')) {
    const place = log === 'kafka' ? await kafkaPlace() : embeddedPlace()
    places.push(place)
    console.log(`${place.name}: ${sessions} sessions, ${(model.contextBytes / MB).toFixed(1)} MB each`)
    console.log(`${'at rest'.padEnd(9)}${await watched(() => sleep(5000))}`)
    for (const [name, load] of Object.entries(loadsOf(model.contextBytes)))
      if (values.only.split(',').includes(name)) await measure(place, model, name, load)
  }
  model.close()
} finally {
  for (const place of places) await place.stop()
  rmSync(dir, { recursive: true, force: true })
}
