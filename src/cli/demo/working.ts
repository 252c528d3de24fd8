/** What the demos share: what their log holds, and a worker that reads it. */
import { generate } from '../../../topics/chunks.ts'
import type { TopicNames } from '../../../topics/index.ts'
import type { Generated } from '../../../topics/tokens.ts'
import type { ModelPackage } from '../../models/open.ts'
import { createLogger } from '../../observe/log.ts'
import { startProgress } from '../../observe/progress.ts'
import type { WorkerSettings } from '../../operators/worker/settings.ts'
import type { Head } from '../../state/head.ts'
import type { EventLog } from '../../streams/log.ts'
import { type Hosted, host, type Outcome } from '../../worker/host.ts'
import { progressLine } from '../commands/run.ts'
import { stateOf } from '../common.ts'
import { untilSignal } from '../signals.ts'

const GROUP = 'continuo'

/** How many of a session's requests, named by `nameOf` from 1 on, the input holds: nothing else remembers. */
export const requestsSoFar = async (
  log: EventLog,
  names: TopicNames,
  session: string,
  nameOf: (number: number) => string,
): Promise<number> => {
  const { begin, end } = await log.bounds(names.chunks, 0)
  let runs = 0
  for await (const { records } of log.read(names.chunks, 0, begin, { until: end })) {
    for (const { key, value } of records) {
      if (key === null || value === null || Buffer.from(key).toString() !== session) continue
      try {
        const event = generate.safeParse(JSON.parse(Buffer.from(value).toString()))
        if (event.success && event.data.requestId === nameOf(runs + 1)) runs += 1
      } catch {
        // Another client's event; the worker will say what is wrong with it.
      }
    }
  }
  return runs
}

export const headOf = async (log: EventLog, names: TopicNames, session: string): Promise<Head | undefined> =>
  (await stateOf(log, names, 0)).heads.get(session)

/** Text and number of the tokens that the tokens topic holds for the request, and their pulses: `from` … `to` − 1. */
export const generatedText = async (
  log: EventLog,
  names: TopicNames,
  session: string,
  requestId: string,
): Promise<{ text: string; tokens: number; from: number; to: number }> => {
  const { begin, end } = await log.bounds(names.tokens, 0)
  let written = ''
  let tokens = 0
  let [from, to] = [Number.POSITIVE_INFINITY, 0]
  for await (const { records } of log.read(names.tokens, 0, begin, { until: end })) {
    for (const { value } of records) {
      if (value === null) continue
      const event = JSON.parse(Buffer.from(value).toString()) as Generated
      if (event.session !== session || event.requestId !== requestId) continue
      written += event.text
      tokens += event.ids.length
      from = Math.min(from, event.fromPulse)
      to = Math.max(to, event.toPulse)
    }
  }
  return { text: written, tokens, from, to }
}

export interface Working {
  readonly log: EventLog
  readonly names: TopicNames
  readonly loaded: ModelPackage
  readonly json: boolean
  readonly again: string
  /** Tokens between two snapshots, commits a second and what else differs from a demo of seconds. */
  readonly settings?: Partial<WorkerSettings>
}

/** Runs a worker until everything is read and answered, with a line of progress. */
export const work = async ({ log, names, loaded, json, again, settings = {} }: Working): Promise<Outcome> => {
  let hosted: Hosted | null = null
  const started = performance.now()
  const progress = json
    ? null
    : startProgress(process.stdout, () => {
        if (hosted === null) return null
        const waits = hosted.worker.assigned.length === 0 && performance.now() - started > 300
        return waits
          ? 'Another run holds the partition; if it was killed, it is free in a moment …'
          : progressLine(hosted.tally, loaded)
      })
  const logger = createLogger({
    level: 'warn',
    write: (line) =>
      progress === null ? process.stderr.write(line) : progress.above(() => process.stderr.write(line)),
    short: true,
  })
  try {
    return await host({
      log,
      names,
      loaded,
      settings: {
        ...{ group: GROUP, format: 'json', commitInterval: 100, snapshotEvery: 4096, maxContexts: 512 },
        compactFloor: 4 * 1024 * 1024,
        ...settings,
      },
      untilIdle: 200,
      metrics: null,
      logger,
      stopping: untilSignal(`Stopping: saving where it stands. ${again} goes on from here.`),
      onStarted: (started) => {
        hosted = started
      },
    })
  } finally {
    progress?.stop()
  }
}
