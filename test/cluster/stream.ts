/** A stream on the cluster, with what feeds it, the workers that read it, and the undisturbed run that judges them. */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, onTestFinished } from 'vitest'
import type { EventLog, RecordIn } from '../../src/streams/log.ts'
import { partitionOfKey } from '../../src/streams/murmur2.ts'
import { openLog } from '../../src/streams/open.ts'
import { topicNames } from '../../topics/index.ts'
import { continuo, MODEL } from '../cli/helpers.ts'
import { collect } from '../crash/judge.ts'
import { appendAll, createCrashTopics, runWorker, type WorkerRun } from '../crash/life.ts'
import { random, scenario } from '../crash/scenario.ts'
import { expectSame } from '../crash/suite.ts'
import { openFamily } from '../families.ts'
import { eventually } from '../streams/helpers.ts'
import { type Cluster, PATIENCE } from './cluster.ts'

/** The one that crash/life.ts gives its workers. */
const GROUP = 'crash'
/** Input records that wait at most while somebody feeds. */
const BACKLOG = 150

export interface Reader extends WorkerRun {
  /** Tasks that the log took down so far; each was started again. */
  readonly lost: number
  /** What it logged, since `forget`. */
  readonly log: string
  forget(): void
  /** Where it serves its metrics. */
  readonly metrics: string
}

export interface Stream {
  readonly names: ReturnType<typeof topicNames>
  /** By the cluster's owner, over plain text. */
  readonly log: EventLog
  /** A worker as the user `run`, over TLS, once it serves. */
  worker(...flags: readonly string[]): Promise<Reader>
  /** Appends the next rounds of the scenario, each record once. */
  feed(rounds: number): Promise<void>
  /** Feeds as fast as it is read until the signal fires. */
  feedUntil(signal: AbortSignal): Promise<void>
  /** Input records that no cursor covers. */
  unfinished(): Promise<number>
  /** Resolves when there was another commit, or nothing is left to commit. */
  progress(): Promise<void>
  /** Resolves when everything that was fed is finished. */
  finished(): Promise<void>
  /** Compares outputs, heads and chains with an undisturbed run, and has verify look at it. */
  judge(): Promise<{ readonly records: number; readonly outputs: number; readonly sessions: number }>
}

/** One after the other, so that all sessions of the scenario have `copies` namesakes each. */
const copied = (rounds: readonly (readonly RecordIn[])[], copies: number): readonly (readonly RecordIn[])[] =>
  rounds.map((records, at) => {
    const suffix = copies === 1 ? '' : `-${at % copies}`
    return records.map((record) => ({ ...record, key: Buffer.from(`${Buffer.from(record.key!)}${suffix}`) }))
  })

export const openStream = async (
  cluster: Cluster,
  prefix: string,
  { partitions = 3, copies = 1, seed = 41, rounds = 400 } = {},
): Promise<Stream> => {
  const names = topicNames(prefix)
  await cluster.grant('run', 'run', prefix, GROUP)
  const log = await eventually(() => openLog(cluster.plain(prefix)), PATIENCE)
  const rwkv7 = await openFamily('rwkv7', tmpdir())
  const workers: WorkerRun[] = []
  const folder = mkdtempSync(join(tmpdir(), 'continuo-judge-'))
  onTestFinished(async () => {
    for (const { child } of workers) child.kill('SIGKILL')
    await Promise.all(workers.map(({ over }) => over))
    await log.close()
    rmSync(folder, { recursive: true, force: true })
  })
  await eventually(() => createCrashTopics(log, partitions), PATIENCE)
  await cluster.whole()
  const events = copied(scenario(rounds, seed), copies)
  const fed: RecordIn[] = []
  let next = 0
  const all = Array.from({ length: partitions }, (_, partition) => partition)

  /**
   * Of one partition, in order. Where an append fails nobody knows how much of it arrived; the log tells when it is
   * whole.
   */
  const append = async (partition: number, records: readonly RecordIn[], from: number): Promise<void> => {
    for (let done = 0; done < records.length; )
      try {
        await log.append(names.chunks, records.slice(done), partition)
        return
      } catch {
        await cluster.whole()
        done = (await eventually(() => log.bounds(names.chunks, partition), PATIENCE)).end - from
      }
  }
  const lengths = all.map(() => 0)
  const feed = async (count: number): Promise<void> => {
    for (const records of events.slice(next, next + count)) {
      const groups = all.map((partition) => records.filter(({ key }) => partitionOfKey(key!, partitions) === partition))
      await Promise.all(groups.map((group, partition) => append(partition, group, lengths[partition]!)))
      for (const [partition, { length }] of groups.entries()) lengths[partition]! += length
      fed.push(...records)
    }
    next += count
    expect(next, 'rounds of the scenario').toBeLessThanOrEqual(events.length)
  }
  const sum = async (of: (partition: number) => Promise<number>): Promise<number> =>
    (await Promise.all(all.map(of))).reduce((total, one) => total + one, 0)
  const unfinished = (): Promise<number> =>
    sum(async (partition) => {
      const { end } = await log.bounds(names.chunks, partition)
      return end - ((await log.committed(GROUP, names.chunks, partition)) ?? 0)
    })
  const commits = (): Promise<number> => sum(async (partition) => (await log.bounds(names.state, partition)).end)

  return {
    names,
    log,
    worker: (...flags) =>
      // Where the cluster cannot be reached within seconds it ends, as it should; a busy machine is not what is tried
      // here.
      eventually(async () => {
        const settings = ['--partitions', String(partitions), '--session-timeout', '6000', ...flags]
        const run = runWorker(cluster.secure(prefix), rwkv7, settings, undefined, cluster.as('run'))
        workers.push(run)
        const reader = follow(run)
        await run.started
        if (run.child.exitCode !== null) throw new Error(`A worker ended at its start:\n${(await run.over).stderr}`)
        return reader
      }, PATIENCE),
    feed,
    async feedUntil(signal) {
      while (!signal.aborted) {
        await feed(1)
        await eventually(async () => {
          if (!signal.aborted) expect(await unfinished()).toBeLessThan(BACKLOG)
        }, 5 * PATIENCE)
      }
    },
    unfinished,
    async progress() {
      const before = await eventually(commits, PATIENCE)
      await eventually(
        async () => expect((await commits()) > before || (await unfinished()) === 0).toBe(true),
        PATIENCE,
      )
    },
    finished: () => eventually(async () => expect(await unfinished()).toBe(0), 5 * PATIENCE),
    async judge() {
      const url = `file:${join(folder, 'undisturbed.db')}?prefix=${prefix}`
      const judge = await openLog(url)
      await createCrashTopics(judge, partitions)
      await judge.close()
      await appendAll(url, fed)
      const { code, stderr } = await runWorker(url, rwkv7, ['--partitions', String(partitions), '--until-idle', '300'])
        .over
      expect(code, stderr).toBe(0)
      const [found, expected] = [await collect(cluster.plain(prefix), partitions), await collect(url, partitions)]
      expectSame(found, expected)
      const verified = await continuo(['verify', '--log', cluster.plain(prefix), '--model', MODEL])
      expect(verified.code, verified.out).toBe(0)
      const outputs = Object.values(found.outputs).flatMap((sessions) => Object.values(sessions).flat()).length
      return { records: fed.length, outputs, sessions: found.heads.size }
    },
  }
}

/** Ends it with SIGTERM. One that lost a partition while it drained may say so (1); what the log holds is the judge. */
export const stop = async ({ child, over }: Reader): Promise<void> => {
  child.kill('SIGTERM')
  const { code, signal, stderr } = await over
  expect([0, 1], `${signal} ${stderr}`).toContain(code)
  if (code === 1) expect(stderr).toContain('While stopping: ')
}

/** Follows what a worker says. */
const follow = (run: WorkerRun): Reader => {
  const told = { lost: 0, log: '', metrics: '' }
  const lines = (stream: NodeJS.ReadableStream, each: (line: string) => void): void => {
    let rest = ''
    stream.on('data', (data: Buffer) => {
      const whole = (rest + data.toString()).split('\n')
      rest = whole.pop()!
      for (const line of whole) each(line)
    })
  }
  lines(run.child.stderr!, (line) => {
    if (line.includes('"state":"lost"')) told.lost++
    told.log = `${told.log}${line}\n`.slice(-64_000)
  })
  lines(run.child.stdout!, (line) => {
    told.metrics = /"metrics":"([^"]+)"/.exec(line)?.[1] ?? told.metrics
  })
  return {
    ...run,
    get lost() {
      return told.lost
    },
    get metrics() {
      return told.metrics
    },
    get log() {
      return told.log
    },
    forget: () => {
      told.log = ''
    },
  }
}

export { random }
