/**
 * The crash suite: one worker is killed again and again, at named failpoints and at random moments, while events keep
 * coming; another reads the same events undisturbed. The judge is the undisturbed one: same tokens once each, same
 * observations and dead letters, same chains.
 */
import { type ChildProcess, spawn } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { expect } from 'vitest'
import { FAILPOINTS, type Failpoint } from '../../src/observe/failpoint.ts'
import { readPartitionState } from '../../src/operators/partition-state.ts'
import { sameHead } from '../../src/state/head.ts'
import type { EventLog, RecordIn } from '../../src/streams/log.ts'
import { openLog } from '../../src/streams/open.ts'
import { TOPICS, topicNames } from '../../topics/index.ts'
import type { CrashFamily } from './families.ts'
import { random, scenario } from './scenario.ts'

const root = fileURLToPath(new URL('../..', import.meta.url))
const PARTITIONS = 2

export interface WorkerRun {
  readonly child: ChildProcess
  /** It serves, or is over: from here on a signal finds somebody who listens. */
  readonly started: Promise<void>
  readonly over: Promise<{ code: number | null; signal: NodeJS.Signals | null; stderr: string }>
}

/** A worker of the real command line, with intervals small enough that everything happens often. */
export const runWorker = (
  url: string,
  family: CrashFamily,
  flags: readonly string[] = [],
  failpoint?: string,
  more: NodeJS.ProcessEnv = {},
  { partitions = PARTITIONS, sessionTimeout = 1500 } = {},
): WorkerRun => {
  const child = spawn(
    process.execPath,
    [
      'src/cli/main.ts',
      'run',
      '--log',
      url,
      ...family.flags,
      '--group',
      'crash',
      '--json',
      '--partitions',
      String(partitions),
      '--commit-interval',
      '10',
      '--snapshot-every',
      '300',
      '--max-contexts',
      '3',
      '--forward-floor',
      '100000',
      '--part-bytes',
      '60000',
      '--session-timeout',
      String(sessionTimeout),
      '--threads',
      '2',
      ...flags,
    ],
    {
      cwd: root,
      stdio: ['ignore', 'pipe', 'pipe'],
      env: { ...process.env, ...more, CONTINUO_FAILPOINT: failpoint ?? '' },
    },
  )
  let stderr = ''
  child.stderr!.on('data', (data: Buffer) => {
    stderr = (stderr + data.toString()).slice(-64_000)
  })
  const over = new Promise<{ code: number | null; signal: NodeJS.Signals | null; stderr: string }>((resolve) => {
    child.on('close', (code, signal) => resolve({ code, signal, stderr }))
  })
  const started = new Promise<void>((resolve) => {
    let stdout = ''
    child.stdout!.on('data', (data: Buffer) => {
      stdout = (stdout + data.toString()).slice(-64_000)
      if (stdout.includes('"type":"started"')) resolve()
    })
    child.on('close', () => resolve())
  })
  return { child, started, over }
}

export const createCrashTopics = async (log: EventLog, partitions = PARTITIONS): Promise<void> => {
  const names = topicNames(log.prefix)
  await log.createTopics(TOPICS.map(({ name, settings }) => ({ name: names[name], partitions, config: settings })))
}

export const appendAll = async (url: string, records: readonly RecordIn[]): Promise<void> => {
  const log = await openLog(url)
  try {
    const names = topicNames(log.prefix)
    // One after the other: the order within a partition is part of the scenario.
    await log.append(names.chunks, records)
  } finally {
    await log.close()
  }
}

export interface Result {
  /** Values of each output topic by session, in order. */
  readonly outputs: Readonly<Record<string, Readonly<Record<string, readonly string[]>>>>
  readonly heads: Awaited<ReturnType<typeof readPartitionState>>['heads']
}

/** Everything a run left in the log. */
export const collect = async (url: string, partitions = PARTITIONS): Promise<Result> => {
  const log = await openLog(url)
  try {
    const names = topicNames(log.prefix)
    // The two logs may differ in their prefix alone.
    const unprefixed = (text: string): string => text.replaceAll(`${log.prefix}.`, '<p>.')
    const outputs: Record<string, Record<string, string[]>> = {}
    const heads: Result['heads'] = new Map()
    for (const topic of ['tokens', 'observations', 'deadletters'] as const) {
      const bySession: Record<string, string[]> = {}
      outputs[topic] = bySession
      for (let partition = 0; partition < partitions; partition += 1) {
        const { begin, end } = await log.bounds(names[topic], partition)
        for await (const batch of log.read(names[topic], partition, begin, { until: end })) {
          for (const { key, value, headers, timestamp } of batch.records) {
            const session = Buffer.from(key ?? []).toString()
            const told = headers.map(([name, bytes]) => `${name}=${Buffer.from(bytes).toString()}`).join(';')
            bySession[session] ??= []
            bySession[session].push(unprefixed(`${timestamp} ${told} ${Buffer.from(value ?? []).toString()}`))
          }
        }
      }
    }
    for (let partition = 0; partition < partitions; partition += 1) {
      const state = await readPartitionState(log, names, partition, 1 << 30)
      for (const [id, head] of state.heads) heads.set(id, JSON.parse(unprefixed(JSON.stringify(head))))
    }
    return { outputs, heads }
  } finally {
    await log.close()
  }
}

export const expectSame = (disturbed: Result, undisturbed: Result): void => {
  for (const [topic, sessions] of Object.entries(undisturbed.outputs)) {
    expect(Object.keys(disturbed.outputs[topic]!).sort(), topic).toEqual(Object.keys(sessions).sort())
    for (const [session, values] of Object.entries(sessions)) {
      const found = disturbed.outputs[topic]![session]!
      const at = values.findIndex((value, index) => value !== found[index])
      expect(found[at], `${topic} of ${session}, event ${at}`).toBe(values[at])
      expect(found.length, `${topic} of ${session}`).toBe(values.length)
    }
  }
  expect([...disturbed.heads.keys()].sort()).toEqual([...undisturbed.heads.keys()].sort())
  for (const [id, head] of undisturbed.heads) {
    expect(
      sameHead(disturbed.heads.get(id)!, head),
      `head of ${id}: ${JSON.stringify(disturbed.heads.get(id))} against ${JSON.stringify(head)}`,
    ).toBe(true)
  }
}

export interface CrashReport {
  readonly kills: number
  readonly fired: ReadonlySet<Failpoint>
}

/** Kills workers until `kills` have died, feeding a round of events before each life; then lets one finish in peace. */
export const crashUntil = async (
  url: string,
  family: CrashFamily,
  rounds: readonly (readonly RecordIn[])[],
  kills: number,
  seed = 11,
): Promise<CrashReport> => {
  const next = random(seed)
  const fired = new Set<Failpoint>()
  let died = 0
  let life = 0
  for (; life < rounds.length && (died < kills || fired.size < FAILPOINTS.length); life += 1) {
    await appendAll(url, rounds[life]!)
    const named = life % 4 !== 3
    // Those that have not fired yet come first, with a small count so that they do.
    const missing = FAILPOINTS.filter((name) => !fired.has(name))
    const name = missing[life % Math.max(1, missing.length)] ?? FAILPOINTS[Math.floor(next() * FAILPOINTS.length)]!
    const point = named ? `${name}@${missing.length > 0 ? 1 : 1 + Math.floor(next() * 3)}` : undefined
    const worker = runWorker(url, family, ['--until-idle', '150'], point)
    const timer = named ? undefined : setTimeout(() => worker.child.kill('SIGKILL'), 300 + next() * 700)
    const { code, signal, stderr } = await worker.over
    clearTimeout(timer)
    if (signal === 'SIGKILL') {
      died += 1
      if (named) fired.add(name)
    } else if (code !== 0)
      throw new Error(`life ${life} (${point ?? 'random'}) ended with code ${code}, signal ${signal}:\n${stderr}`)
  }
  for (; life < rounds.length; life += 1) await appendAll(url, rounds[life]!)
  return { kills: died, fired }
}

export const finish = async (url: string, family: CrashFamily): Promise<void> => {
  const { code, signal, stderr } = await runWorker(url, family, ['--until-idle', '300']).over
  expect(code, `${signal} ${stderr}`).toBe(0)
}

/** Two fresh logs, one disturbed by at least `kills` kills, and the comparison. `fresh` gives the URL of a log by its name. */
export const crash = async (family: CrashFamily, fresh: (name: string) => string, kills: number): Promise<void> => {
  const rounds = scenario(120)
  const disturbed = fresh('disturbed')
  const undisturbed = fresh('undisturbed')
  for (const url of [disturbed, undisturbed]) {
    const log = await openLog(url)
    await createCrashTopics(log)
    await log.close()
  }
  const report = await crashUntil(disturbed, family, rounds, kills)
  await finish(disturbed, family)
  await appendAll(undisturbed, rounds.flat())
  await finish(undisturbed, family)

  expectSame(await collect(disturbed), await collect(undisturbed))
  expect(report.kills).toBeGreaterThanOrEqual(kills)
  expect(FAILPOINTS.filter((name) => !report.fired.has(name))).toEqual([])
}

export { scenario }
