/**
 * Real workers for the crash suites: the command line in a process of its own, the topics it needs, and the events it
 * reads.
 */
import { type ChildProcess, spawn } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import type { EventLog, RecordIn } from '../../src/streams/log.ts'
import { openLog } from '../../src/streams/open.ts'
import { TOPICS, topicNames } from '../../topics/index.ts'
import type { OpenedFamily } from '../families.ts'

const root = fileURLToPath(new URL('../..', import.meta.url))
export const PARTITIONS = 2
const GROUP = 'crash'

export interface WorkerRun {
  readonly child: ChildProcess
  /** It serves, or is over: from here on a signal finds somebody who listens. */
  readonly started: Promise<void>
  readonly over: Promise<{ code: number | null; signal: NodeJS.Signals | null; stderr: string }>
}

/** Intervals small enough that everything happens often. */
const SETTINGS: readonly (readonly [flag: string, value: string])[] = [
  ['--group', GROUP],
  ['--partitions', String(PARTITIONS)],
  ['--commit-interval', '10'],
  ['--snapshot-every', '300'],
  ['--max-contexts', '3'],
  ['--context-turn', '20'],
  ['--session-share', '2'],
  ['--compact-floor', '100000'],
  ['--part-bytes', '60000'],
  ['--session-timeout', '1500'],
  ['--threads', '2'],
]

/** A worker of the real command line; `flags` win over the settings above. */
export const runWorker = (
  url: string,
  family: Pick<OpenedFamily, 'flags'>,
  flags: readonly string[] = [],
  failpoint?: string,
  more: NodeJS.ProcessEnv = {},
): WorkerRun => {
  const child = spawn(
    process.execPath,
    [
      'src/cli/main.ts',
      'run',
      '--log',
      url,
      ...family.flags,
      '--json',
      ...SETTINGS.filter(([name]) => !flags.includes(name)).flat(),
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

/** Input records that no partition cursor covers yet. */
export const unfinished = async (log: EventLog, group: string = GROUP): Promise<number> => {
  const names = topicNames(log.prefix)
  let left = 0
  for (let partition = 0; partition < PARTITIONS; partition += 1) {
    const { end } = await log.bounds(names.chunks, partition)
    left += end - ((await log.committed(group, names.chunks, partition)) ?? 0)
  }
  return left
}

/** One life in peace, to the end of the input. Throws unless it ends well. */
export const finish = async (
  url: string,
  family: Pick<OpenedFamily, 'flags'>,
  flags: readonly string[] = [],
  more: NodeJS.ProcessEnv = {},
): Promise<void> => {
  const { code, signal, stderr } = await runWorker(url, family, [...flags, '--until-idle', '300'], undefined, more).over
  if (code !== 0)
    throw new Error(`A worker that nobody disturbed on ${url} ended with code ${code}, signal ${signal}:\n${stderr}`)
}
