/** Plays an order on a fresh log, with real workers, and says what is wrong at its end. */

import { setTimeout as sleep } from 'node:timers/promises'
import { eraseRecords } from '../../src/client/delete.ts'
import { messageOf } from '../../src/errors.ts'
import { collectPartition } from '../../src/operators/blobs/gc.ts'
import { readSnapshot } from '../../src/operators/snapshots/snapshots.ts'
import { type Verification, verifyLog } from '../../src/operators/verify/verify.ts'
import { readPartitionState } from '../../src/operators/worker/partition-state.ts'
import { purgePartition } from '../../src/operators/worker/purge.ts'
import { readSnapshotFile } from '../../src/state/snapshot.ts'
import { runWorker } from '../crash/life.ts'
import { temporaryFolder } from '../engine/packages.ts'
import { type Bench, type BenchOptions, createBench, event, type Running } from '../operators/harness.ts'
import type { Models, Opened } from './models.ts'
import type { Deed, Fed, Order, Run } from './order.ts'

const recordsOf = (fed: readonly Fed[]) => fed.map(([session, given]) => event(session, given))

/** The first offset that a rebuild of some session may read. */
const neededFrom = async ({ log, names }: Bench, partition: number): Promise<number> => {
  const { heads, cursor } = await readPartitionState(log, names, partition, 0)
  let from = cursor?.offset ?? 0
  for (const head of heads.values()) {
    if (head.status !== 'open') continue
    if (head.snapshot === null) from = Math.min(from, head.born)
    else {
      const file = await readSnapshotFile(await readSnapshot(log, names.snapshots, partition, head))
      const { offset, complete } = file.head.cursor
      from = Math.min(from, complete ? offset + 1 : offset)
    }
  }
  return from
}

const doDeed = async (bench: Bench, deed: Deed, partition: number): Promise<void> => {
  const { log, names } = bench
  if (deed === 'gc') await collectPartition({ log, names, dry: false }, partition)
  else if (deed === 'purge') await purgePartition(log, names, partition)
  else if (deed === 'trim') {
    const from = await neededFrom(bench, partition)
    const { begin } = await log.bounds(names.chunks, partition)
    if (from > begin) await log.trim(names.chunks, partition, from)
  } else {
    // As `continuo delete --records` does it: where the session is gone, and none of its events waits.
    const { heads, cursor } = await readPartitionState(log, names, partition, 0)
    const { end } = await log.bounds(names.chunks, partition)
    if (!heads.has(deed.erase) && cursor?.offset === end) await eraseRecords(log, names, partition, deed.erase)
  }
}

/** A worker of the command line, which kills itself. False: it never came to that point, and all is read. */
const runKilled = async (
  bench: Bench,
  { flags: modelFlags }: Opened,
  { partitions }: Order,
  { settings, late }: Run,
  point: string,
): Promise<boolean> => {
  const flags = [
    ['--partitions', partitions],
    ['--group', 'test'],
    ['--until-idle', '40'],
    ['--commit-interval', settings.commitInterval],
    ['--snapshot-every', settings.snapshotEvery],
    ['--max-contexts', settings.maxContexts],
    ['--context-turn', settings.roomTurn ?? 2000],
    ['--adapt-time', settings.adaptTime ?? 600_000],
    ['--compact-floor', settings.compactFloor],
    ['--session-share', settings.sessionShare],
    ['--threads', 1],
  ]
  const worker = runWorker(bench.url, { flags: modelFlags }, flags.flat().map(String), point)
  await worker.started
  if (late.length > 0) await bench.feed(...recordsOf(late))
  const { code, signal, stderr } = await worker.over
  if (code !== 0 && signal !== 'SIGKILL')
    throw new Error(`A worker (${point}) ended with code ${code}, signal ${signal}:\n${stderr.slice(-2000)}`)
  return signal === 'SIGKILL'
}

/** A worker that does not stop within this time hangs, ms. */
const LONGEST_STOP = 60_000

const stopped = async ({ worker }: Running): Promise<void> => {
  const late = new AbortController()
  const hangs = sleep(LONGEST_STOP, true, { signal: late.signal }).catch(() => false)
  const hung = await Promise.race([worker.stop().then(() => false), hangs])
  late.abort()
  if (hung) throw new Error(`A worker did not stop within ${LONGEST_STOP / 1000} s.`)
}

/** A worker in this process. */
const runHere = async (
  bench: Bench,
  { residentBytes }: Opened,
  { settings: { tight, ...settings }, end, late }: Run,
): Promise<void> => {
  let commits = 0
  const begun = Promise.withResolvers<void>()
  const due = Promise.withResolvers<void>()
  const running = await bench.start({
    ...settings,
    ...(tight && { maxResidentBytes: residentBytes, spillDir: temporaryFolder() }),
    onCommit: () => {
      commits += 1
      begun.resolve()
      if (typeof end === 'object' && 'stopAt' in end && commits >= end.stopAt) due.resolve()
    },
  })
  const { worker, idle, states } = running
  try {
    if (late.length > 0) {
      // A worker that finds nothing to do makes no commit.
      await Promise.race([begun.promise, idle()])
      await bench.feed(...recordsOf(late))
    }
    await Promise.race([due.promise, idle()])
  } finally {
    await stopped(running)
  }
  const [trouble] = [
    ...worker.refused.values(),
    ...states.map(({ error }) => error).filter((error) => error !== undefined),
  ]
  if (trouble !== undefined) throw trouble
}

export interface Played {
  /** Sentences; none: `verify` agrees. */
  readonly faults: readonly string[]
  /** null: it did not come to that. */
  readonly verification: Verification | null
  /** Workers that were killed. */
  readonly kills: number
}

/** Plays the order up to where `verify` reads the log. How many workers were killed. */
export const prepare = async (bench: Bench, model: Opened, order: Order): Promise<number> => {
  let kills = 0
  for (const run of order.runs) {
    if (run.events.length > 0) await bench.feed(...recordsOf(run.events))
    if (typeof run.end === 'object' && 'killAt' in run.end)
      kills += (await runKilled(bench, model, order, run, run.end.killAt)) ? 1 : 0
    else await runHere(bench, model, run)
    for (const deed of run.deeds)
      for (let partition = 0; partition < order.partitions; partition += 1) await doDeed(bench, deed, partition)
  }
  return kills
}

export const verification = ({ log, names, model, tokenizer }: Bench): Promise<Verification> =>
  verifyLog({ log, names, model, tokenizer, format: 'json', blobs: true })

/** `verify` must not leave out what is there: where nothing went, every session is recomputed from its first event. */
const leftOut = ({ runs }: Order, { partial, notRecomputed, deleted }: Verification): readonly string[] => {
  const wentBy = (deed: Deed): boolean => deed === 'trim' || typeof deed === 'object'
  if (deleted > 0 || runs.some(({ deeds }) => deeds.some(wentBy))) return []
  return [...partial, ...notRecomputed].map(
    ({ session }) => `Session "${session}" was not recomputed from its first event, and all events are there.`,
  )
}

export const play = async (order: Order, models: Models, options: BenchOptions = {}): Promise<Played> => {
  const model = await models.get(order.model)
  const bench = await createBench(model.opened, order.partitions, options)
  try {
    const kills = await prepare(bench, model, order)
    const found = await verification(bench)
    const faults = found.findings.map(
      ({ kind, session, where, message }) => `${kind} ${session} (${where}): ${message}`,
    )
    return { faults: [...faults, ...leftOut(order, found)], verification: found, kills }
  } catch (error) {
    return { faults: [messageOf(error)], verification: null, kills: 0 }
  } finally {
    await bench.close()
  }
}
