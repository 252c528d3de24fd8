/**
 * A task: claim the partition, read its state, check that stream and model agree, and run the pipeline until told to
 * stop. See streams/lifecycle.ts for the states and docs/architecture.md (Resume) for the protocol.
 */
import type { TopicNames } from '../../../topics/index.ts'
import type { Context } from '../../engine/context.ts'
import type { Model, ModelInfo } from '../../engine/types.ts'
import { ContinuoError } from '../../errors.ts'
import { failpoint } from '../../failpoint.ts'
import type { Tokenizer } from '../../models/tokenizer/types.ts'
import type { Head } from '../../state/head.ts'
import { diverging } from '../../state/health.ts'
import type { MemoryReport } from '../../state/memory-stats.ts'
import { SpillLost } from '../../state/spill.ts'
import { createLifecycle, type TaskState, verdictOf } from '../../streams/lifecycle.ts'
import type { EventLog, PartitionWriter } from '../../streams/log.ts'
import { createSource, type SourceLimits } from '../../streams/source.ts'
import { createWatermark } from '../../streams/watermark.ts'
import { openBlobs } from '../blobs/blobs.ts'
import type { MostWaiting } from '../pipeline/by-session.ts'
import type { Commit } from '../pipeline/commit.ts'
import { homesOf } from '../pipeline/input.ts'
import { createInputLife } from '../pipeline/input-life.ts'
import { pipeline } from '../pipeline/pipeline.ts'
import { createPlaces } from '../pipeline/places.ts'
import { createRequests } from '../pipeline/requests.ts'
import type { ContextStore, Contexts } from '../sessions/context-store.ts'
import { createLiveSessions, type LiveSessions } from '../sessions/live-sessions.ts'
import { createSessionTable } from '../sessions/session-table.ts'
import { restoreSession } from '../snapshots/restore.ts'
import { inTurns, type TurnWriter } from '../snapshots/turns.ts'
import { openState } from './partition-state.ts'
import { type WorkerSettings, withDefaults } from './settings.ts'
import type { Tracing } from './tracing.ts'

/** What a task works on, and whom it tells. */
export interface TaskOptions extends WorkerSettings {
  /** The log that is read and written. */
  readonly log: EventLog
  /** Names of its topics: `topicNames(log.prefix)`. */
  readonly names: TopicNames
  /** The model that all sessions use. */
  readonly model: Model
  /** Reads and writes text; null: events bring token ids alone. */
  readonly tokenizer: Tokenizer | null
  /** Where contexts are made and processed, for all tasks of the process. */
  readonly contexts: ContextStore
  /** Called after each transaction. */
  readonly onCommit?: (commit: Commit) => void
  /** Called when the task of a partition enters a state, with what ended it where something did. */
  readonly onState?: (partition: number, state: TaskState, error?: unknown) => void
  /** Called with the statistics of a memory that was just saved. */
  readonly onHealth?: (seen: MemoryReport, head: Head) => void
  /** Called when a context was rebuilt from snapshot and events, with the time that took, ms. */
  readonly onRestored?: (partition: number, session: string, ms: number) => void
  /** Traces the records of a partition; one for each task. */
  readonly trace?: ((partition: number) => Tracing) | undefined
  /** Where to say what somebody should look at. */
  readonly warn: (message: string) => void
}

/** All the work of one input partition, as its worker shows it. */
export interface Task {
  /** Of the input. */
  readonly partition: number
  /** Where it is in its life. */
  readonly state: TaskState
  /** Resolves when the task is over, with its last state and what ended it. */
  readonly over: Promise<{ readonly state: TaskState; readonly error?: unknown }>
  /**
   * Records that were read and are not finished; of these, those that wait in the log; steps that wait for their
   * commit; when something last happened (performance.now()).
   */
  readonly load: {
    readonly records: number
    readonly places: number
    readonly steps: number
    readonly lastActivity: number
  }
  /**
   * Why the input is not read on, as a sentence, where that is because of one session; null: it is read, or all
   * sessions have alike much to do.
   */
  readonly heldUp: string | null
  /** The newest head of each session. */
  readonly sessions: ReadonlyMap<string, Head>
  /** Contexts in use, in memory or spilled. */
  readonly liveContexts: number
  /** Memory of those contexts. */
  readonly liveBytes: number
  /** Every input record below is finished; −1 before the state was read. */
  readonly offset: number
  /** Finish the step in hand, save, commit, close. */
  stop(): void
}

/**
 * A context whose spill file is lost is still in the log: the task begins again and rebuilds its sessions from there.
 */
const orRebuilt = (error: unknown): unknown =>
  error instanceof SpillLost ? new ContinuoError('UNAVAILABLE', error.message, { cause: error }) : error

/** The least time between two warnings that the input is not read on, ms. */
const TELL_AGAIN = 60_000
const LIMITS: Readonly<Record<keyof SourceLimits, string>> = {
  places: 'no more may wait (--places)',
  readAhead: 'no more is read before the first of them is finished (--read-ahead)',
  ranges: 'too much that came later is finished already',
}
const heldUpSentence = (
  topic: string,
  partition: number,
  limit: keyof SourceLimits,
  { key, events }: MostWaiting<string | null>,
): string =>
  `${topic}[${partition}] is not read on: ${events} events of session "${key}" wait for their turn, and ${LIMITS[limit]}. Cancel those of its requests that nobody wants, or wait.`

/** Steps between infer and the log, from which on sessions wait. */
const BACKLOG_STEPS = 4096
/** States copied for steps that wait for their commit, after which no other session is forked. */
const COPIED_BYTES = 64 * 1024 * 1024

/**
 * A task whose process stood still may have lost its partition without noticing. Then another worker moves the state on
 * while this one reads it: offsets and cursors of different moments, snapshots that are gone. Only an owner may call
 * that broken.
 */
const orOvertaken = async (error: unknown, writer: PartitionWriter | null): Promise<unknown> => {
  try {
    await writer?.confirm()
    return error
  } catch (why) {
    return why
  }
}

export const startTask = (partition: number, given: TaskOptions): Task => {
  const options = withDefaults(given)
  const { log, names, group, tokenizer, contexts } = options
  // A session's context may be spilled to files, so sessions get those of the store and never the engine's own.
  const release = (context: Context): boolean => sessions?.release(context) ?? false
  const model: ModelInfo & Contexts = {
    ...options.model,
    createContext: () => contexts.createContext(undefined, release),
    forkContext: (context) => contexts.forkContext(context, undefined, release),
  }
  const stopping = new AbortController()
  let failure: unknown
  const life = createLifecycle((state) => options.onState?.(partition, state, failure))
  let sessions: LiveSessions | null = null
  const tracing = options.trace?.(partition)
  let committed = (): ReadonlyMap<string, Head> => new Map()
  let load = () => ({ records: 0, places: 0, steps: 0 })
  let waitingAt: keyof SourceLimits | null = null
  let heldUp: () => string | null = () => null
  let offset = () => -1
  let lastActivity = performance.now()

  const run = async (writer: TurnWriter): Promise<void> => {
    life.to('restoring')
    const state = await openState(writer, { ...options, input: options.input ?? {} }, partition, options.compactFloor)
    failpoint('restore.read')
    const { heads, cancelled, stateIndex, snapshotIndex, resealing } = state
    const claimed = { log, names, model, partition, writer, partBytes: options.partBytes }
    const { blobs, cursor } = await openBlobs(claimed, state.cursor, heads)
    const { offset: from, done, topicId, logId, history, input } = cursor
    const watermark = createWatermark({ offset: from, done })
    const requests = createRequests({ adaptTime: options.adaptTime })
    let inLog = 0
    let longest = (): MostWaiting<string | null> | null => null
    let told = Number.NEGATIVE_INFINITY
    const source = createSource(log, {
      topic: names.chunks,
      partition,
      from,
      watermark,
      stopping: stopping.signal,
      places: () => inLog + requests.cancels,
      limits: options.limits,
      topicId,
      onFull(limit) {
        waitingAt = limit
        const sentence = heldUp()
        if (sentence === null || performance.now() - told < TELL_AGAIN) return
        told = performance.now()
        options.warn(sentence)
      },
    })
    heldUp = () => {
      const most = waitingAt === null ? null : longest()
      return most === null || most.events * 2 < inLog ? null : heldUpSentence(names.chunks, partition, waitingAt!, most)
    }
    const table = createSessionTable({
      heads: heads.values(),
      cancelled,
      position: watermark.position().offset,
      blobs,
      maxSteps: BACKLOG_STEPS,
      maxRequired: COPIED_BYTES,
    })
    committed = () => table.heads
    // Partitions are counted by the state topic, whose number never changes; the input topic may have got more a moment
    // ago.
    const homes = homesOf(input, await log.partitions(names.state))
    const inputLife = createInputLife(log, names.chunks, partition)
    await inputLife.ask()
    const validation = { format: options.format, input, vocabSize: model.vocabSize, readsText: tokenizer !== null }
    const engine = { model, tokenizer, submit: contexts.submit, historyFrom: history ?? 0 }
    const { distrust, kept } = blobs ?? {}
    const restoring = {
      log,
      names,
      model,
      engine: { ...engine, adapting: () => ({ signal: stopping.signal }) },
      cancelled: table.cancelled,
      heads: table.heads,
      validate: validation,
      warn: options.warn,
      ...(distrust && { distrust }),
      ...(kept && { kept }),
      newest: (session: string) => table.heads.get(session)?.snapshot ?? null,
    }
    sessions = createLiveSessions({
      table,
      model,
      engine: {
        ...engine,
        endedBy: requests.endedBy,
        adapting(record, id) {
          const { signal, onBegin } = requests.adapting(record, id)
          return { signal: AbortSignal.any([stopping.signal, signal]), onBegin }
        },
      },
      blobs,
      snapshotEvery: options.snapshotEvery,
      snapshotRecords: options.snapshotRecords,
      input: inputLife,
      captureBytes: options.captureBytes,
      maxContexts: options.maxContexts,
      roomTurn: options.roomTurn,
      restore: async (head) => {
        const started = performance.now()
        const session = await restoreSession(restoring, partition, head, stopping.signal)
        options.onRestored?.(partition, head.session, performance.now() - started)
        return session
      },
      stopping: stopping.signal,
      warn: options.warn,
    })
    const { snapshotEvery, warn } = options
    const waiting = createPlaces({
      log,
      topic: names.chunks,
      partition,
      topicId,
      validation,
      share: options.sessionShare,
      stopping: stopping.signal,
    })
    // A read of places that the end of the task meets never resolves, and a session whose event waits for it would
    // never be done.
    const ended = new Promise<readonly null[]>((resolve) =>
      stopping.signal.addEventListener('abort', () => resolve([null]), { once: true }),
    )
    const again = async (at: number, session: string) =>
      (await Promise.race([waiting.read([{ offset: at, keys: [session] }], 0), ended]))[0]!
    const inference = { table, requests, again, sessions, model, homes, snapshotEvery, stopping: stopping.signal, warn }
    load = () => ({ records: watermark.load.records, places: inLog, steps: table.waiting })
    offset = () => watermark.offset
    if (stopping.signal.aborted) return
    life.to('running')
    lastActivity = performance.now()
    const stream = pipeline({
      log,
      names,
      group,
      partition,
      topicId,
      blobs,
      logId,
      history,
      writer,
      watermark,
      table,
      model,
      stateIndex,
      resealing,
      snapshotIndex,
      keep: contexts.keep,
      validation,
      inference,
      format: options.format,
      input,
      records: source.records,
      places: {
        ...waiting,
        onWaiting(count, most) {
          const fewer = count < inLog
          inLog = count
          longest = most
          if (fewer) source.released()
        },
      },
      tracing,
      partBytes: options.partBytes,
      interval: options.commitInterval,
      warn: options.warn,
      onSnapshot: ({ head }, seen) => {
        const { globalStep } = head.conductor
        for (const sentence of diverging(head.session, globalStep, seen.health)) options.warn(sentence)
        options.onHealth?.(seen, head)
      },
    })
    await new Promise<void>((resolve, reject) => {
      stream.subscribe({
        next: (commit) => {
          lastActivity = performance.now()
          source.released()
          options.onCommit?.(commit)
        },
        error: reject,
        complete: resolve,
      })
    })
    if (life.state === 'running') life.to('draining')
  }

  const live = async (): Promise<{ state: TaskState; error?: unknown }> => {
    let writer: TurnWriter | null = null
    try {
      life.to('claiming')
      writer = inTurns(await log.claim(group, names.chunks, partition))
      failpoint('claim.done')
      if (!stopping.signal.aborted) await run(writer)
      await writer.close()
      life.to('closed')
      return { state: life.state }
    } catch (thrown) {
      const error = orRebuilt(thrown)
      stopping.abort()
      failure = verdictOf(error) === 'refused' ? await orOvertaken(error, writer) : error
      await writer?.close()
      life.to(verdictOf(failure))
      return { state: life.state, error: failure }
    } finally {
      tracing?.close()
      await sessions?.close()
    }
  }

  return {
    partition,
    get state() {
      return life.state
    },
    over: live(),
    get load() {
      return { ...load(), lastActivity }
    },
    get heldUp() {
      return heldUp()
    },
    get sessions() {
      return committed()
    },
    get liveContexts() {
      return sessions?.live ?? 0
    },
    get liveBytes() {
      return sessions?.liveBytes ?? 0
    },
    get offset() {
      return offset()
    },
    stop() {
      if (stopping.signal.aborted) return
      if (life.state === 'running') life.to('draining')
      stopping.abort()
    },
  }
}
