/**
 * Runs a worker in this process, with metrics and health checks, until its signal fires, it is idle, or all its
 * partitions are refused.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import type { TopicNames } from '../../topics/index.ts'
import { hasUnread } from '../client/records.ts'
import { codeOf, messageOf } from '../errors.ts'
import type { ModelPackage } from '../models/open.ts'
import { type Board, createBoard } from '../observe/board.ts'
import type { Logger } from '../observe/log.ts'
import { createMetrics } from '../observe/metrics.ts'
import { type ObservationServer, serveObservation } from '../observe/server.ts'
import { gaps, idleness } from '../observe/standing.ts'
import { createTally, type Speed, type Tally, type Totals } from '../observe/tally.ts'
import type { Traces } from '../observe/tracing.ts'
import type { WorkerSettings } from '../operators/worker/settings.ts'
import { type Standing, startWorker, type Worker } from '../operators/worker/worker.ts'
import type { EventLog } from '../streams/log.ts'

export interface HostOptions {
  readonly log: EventLog
  readonly names: TopicNames
  readonly loaded: ModelPackage
  readonly settings: WorkerSettings
  /** Ends when there has been nothing to do for so many ms; null: never. */
  readonly untilIdle: number | null
  readonly metrics: { readonly port: number; readonly host: string } | null
  readonly logger: Logger
  /** Spans of the records; undefined: there are none. */
  readonly traces?: Traces | undefined
  /** Fires when the worker shall stop gracefully. */
  readonly stopping: AbortSignal
  readonly onStarted?: (hosted: Hosted) => void
}

export interface Hosted {
  readonly worker: Worker
  readonly tally: Pick<Tally, 'totals' | 'speed'>
  readonly board: Board
  readonly observationUrl: string | null
}

export interface Outcome {
  readonly ended: 'stopped' | 'idle' | 'refused'
  /** Why partitions could not be resumed. */
  readonly refused: ReadonlyMap<number, unknown>
  /** Why the worker as a whole could not go on. */
  readonly halted: unknown
  /** Errors while stopping: not everything may have been saved (nothing is lost; the next run does it again). */
  readonly unclean: readonly unknown[]
  readonly totals: Totals
  readonly speed: Speed
}

/** A group that gives out no partitions for so long is said to be waited for, ms. */
const SILENT = 1500
/** How often the host looks whether it is done. */
const TICK = 25 // ms

/**
 * Nothing left to do in the whole topic: our tasks rest at the end of their partitions, and the partitions of others
 * (or of a dead worker whose lease still runs) hold nothing unread either.
 */
const isIdle = async (
  { log, names, settings: { group }, untilIdle }: HostOptions,
  worker: Worker,
  partitions: number,
) => {
  if (untilIdle === null || !worker.idleFor(untilIdle)) return false
  for (let partition = 0; partition < partitions; partition += 1) {
    if (worker.refused.has(partition)) continue
    const { begin, end } = await log.bounds(names.chunks, partition)
    const own = worker.tasks.get(partition)
    const at = own?.offset ?? (await log.committed(group, names.chunks, partition)) ?? begin
    if (at < end && (own !== undefined || (await hasUnread(log, names.chunks, partition, Math.max(at, begin)))))
      return false
  }
  return true
}

/** The tasks survive a log that does not answer for a while; so must the question whether they are done. */
const unlessUnavailable = (error: unknown): false => {
  if (codeOf(error) === 'UNAVAILABLE') return false
  throw error
}

/** Logs how the input is served, whenever that changes and is more than "by workers like this one". */
const tellStanding = (logger: Logger): ((standing: Standing) => void) => {
  let idle: string | null = null
  let lacking: string | null = null
  return (standing) => {
    const { owned, service } = standing
    if (owned === null || service === null) return
    const wasIdle = idle
    const lacked = lacking
    idle = idleness(standing)
    lacking = gaps(standing)
    if (idle !== null && idle !== wasIdle) logger.info(idle)
    if (idle === null && wasIdle !== null)
      logger.info(`no longer idle: ${owned.length} of ${standing.partitions} partitions`)
    if (lacking !== null && lacking !== lacked) logger.warn(lacking)
    if (lacking === null && lacked !== null) logger.info(`every partition of ${standing.topic} is served again`)
  }
}

export const host = async (options: HostOptions): Promise<Outcome> => {
  const { log, names, loaded, logger, stopping } = options
  const tally = createTally()
  const unclean: unknown[] = []
  let ending = false
  let worker: Worker | null = null
  const metrics = createMetrics({ log, names, model: loaded.model, worker: () => worker })
  const board = createBoard({ model: loaded.model, worker: () => worker, tally })
  const found = (await log.topics([names.chunks])).find(({ name }) => name === names.chunks)
  let server: ObservationServer | null = null
  if (options.metrics !== null) {
    server = await serveObservation(metrics, board, () => worker, options.metrics.port, options.metrics.host)
    logger.info({ url: `${server.url}/metrics` }, 'metrics')
  }
  try {
    worker = await startWorker({
      log,
      names,
      model: loaded.model,
      tokenizer: loaded.tokenizer,
      ...options.settings,
      blocks: { ...options.settings.blocks, onRead: metrics.brought },
      trace: options.traces?.of,
      warn: (message) => logger.warn(message),
      onStanding: tellStanding(logger),
      onState(partition, state, error) {
        metrics.state(partition, state)
        board.state(partition, state, error)
        if (error === undefined) logger.info({ partition, state }, `partition ${partition} ${state}`)
        else logger.error({ partition, state, code: codeOf(error) }, messageOf(error))
        const task = worker?.tasks.get(partition)
        if (state === 'running' && task !== undefined) tally.begin(partition, task.sessions)
        // Another worker took over while this one drained: it does again what was not committed.
        if (ending && error !== undefined && codeOf(error) !== 'FENCED') unclean.push(error)
      },
      onRestored(partition, session, ms) {
        metrics.restored(ms)
        const pulse = worker?.tasks.get(partition)?.sessions.get(session)?.conductor.globalStep
        logger.info({ partition, session, pulse, ms: Math.round(ms) }, 'session restored')
      },
      onHealth(seen, head) {
        metrics.health(seen)
        board.health(seen, head)
      },
      onAdapted: metrics.adapted,
      onCommit(commit) {
        metrics.committed(commit, tally.add(commit))
        board.committed(commit)
        const { partition, offset, records, ms } = commit
        logger.debug({ partition, offset, records, ms: Math.round(ms * 10) / 10 }, 'commit')
        for (const { record, session, outputs } of commit.steps) {
          for (const output of outputs) {
            if (output.to !== 'deadletters') continue
            logger.warn({ partition, session, offset: record.offset }, `dead letter: ${output.reason}`)
          }
        }
      },
    })
    const running = worker
    if (loaded.tokenizer === null)
      logger.warn(
        'This model has no text: its package has no file of a tokenizer. It reads "tokens" events; every "text" event goes to the dead letters.',
      )
    const started = performance.now()
    let isWaiting = false
    options.onStarted?.({ worker, tally, board, observationUrl: server?.url ?? null })
    // Looked at, not raced: every race would leave its reaction on a promise that lives as long as the worker.
    const lost: unknown[] = []
    running.over.catch((error: unknown) => lost.push(error))
    let ended: Outcome['ended'] = 'stopped'
    while (!stopping.aborted) {
      await sleep(TICK, null, { signal: stopping }).catch(() => {})
      const { assigned, refused, halted } = running
      if (!isWaiting && running.standing.owned === null && performance.now() - started > SILENT) {
        isWaiting = true
        logger.info(
          `waiting for group "${options.settings.group}" to give out its partitions: a worker that was killed keeps its own until its session times out (--session-timeout)`,
        )
      }
      if (halted !== null) logger.error({ code: halted.code }, halted.message)
      else if (lost.length > 0) throw lost[0]
      if (halted !== null) ended = 'refused'
      else if (assigned.length > 0 && assigned.every((partition) => refused.has(partition))) ended = 'refused'
      else if (await isIdle(options, running, found?.partitions ?? 0).catch(unlessUnavailable)) ended = 'idle'
      if (ended !== 'stopped') break
    }
    ending = true
    await running.stop()
    await loaded.model.verifyWeights().catch((error: unknown) => unclean.push(error))
    const { refused, halted } = running
    return { ended, refused, halted, unclean, totals: tally.totals, speed: tally.speed }
  } finally {
    ending = true
    await worker?.stop()
    await options.traces?.close()
    await server?.close()
  }
}
