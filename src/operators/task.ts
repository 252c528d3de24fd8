/**
 * A task: claim the partition, read its state, check that stream and model agree, and run the pipeline until told to stop.
 * See streams/lifecycle.ts for the states and DESIGN §5 for the protocol.
 */
import type { TopicNames } from '../../topics/index.ts'
import { PART_BYTES } from '../../topics/snapshots.ts'
import type { Model } from '../engine/types.ts'
import { ContinuoError } from '../errors.ts'
import { failpoint } from '../observe/failpoint.ts'
import { checkFits, type Head, type PartitionCursor, unseal } from '../state/head.ts'
import { createLedger, type Ledger } from '../state/ledger.ts'
import { createLifecycle, type TaskState, verdictOf } from '../streams/lifecycle.ts'
import type { EventLog, PartitionWriter, StoredRecord } from '../streams/log.ts'
import { createSource } from '../streams/source.ts'
import { createWatermark } from '../streams/watermark.ts'
import type { Batcher } from './batcher.ts'
import { type Commit, createBacklog } from './commit.ts'
import { pipeline } from './pipeline.ts'
import { restoreSession } from './restore.ts'
import { createSessions, type Sessions } from './sessions.ts'
import type { Tokenizer } from './tokenize.ts'
import type { InputFormat } from './validate.ts'

export interface TaskOptions {
  readonly log: EventLog
  readonly names: TopicNames
  readonly group: string
  readonly model: Model
  readonly tokenizer: Tokenizer | null
  readonly batcher: Batcher
  readonly format: InputFormat
  readonly commitInterval: number
  readonly snapshotEvery: number
  readonly maxContexts: number
  /** Bytes of a snapshot in one record at most; default 900,000. */
  readonly partBytes?: number
  /** Dead bytes of state that are not worth forwarding. */
  readonly forwardFloor: number
  readonly onCommit?: (commit: Commit) => void
  readonly onState?: (partition: number, state: TaskState, error?: unknown) => void
  readonly onRestored?: (partition: number, session: string, ms: number) => void
  readonly warn: (message: string) => void
}

export interface Task {
  readonly partition: number
  readonly state: TaskState
  /** Resolves when the task is over, with its last state and what ended it. */
  readonly over: Promise<{ readonly state: TaskState; readonly error?: unknown }>
  /** Records delivered and not finished, and when something last happened (performance.now()). */
  readonly load: { readonly records: number; readonly lastActivity: number }
  readonly sessions: ReadonlyMap<string, Head>
  readonly liveContexts: number
  /** Every input record below is finished; −1 before the state was read. */
  readonly offset: number
  /** Finish the step in hand, save, commit, close. */
  stop(): void
}

/** Sessions between finished steps and the log, in steps. */
const BACKLOG_STEPS = 4096

const sizeOf = (record: StoredRecord): number => {
  let bytes = (record.key?.length ?? 0) + (record.value?.length ?? 0) + 64
  for (const [name, value] of record.headers) bytes += name.length + value.length
  return bytes
}

export interface PartitionState {
  readonly cursor: PartitionCursor | null
  readonly heads: Map<string, Head>
  readonly stateLedger: Ledger
  readonly snapshotLedger: Ledger
}

/** Reads the state partition to its last stable offset. Throws REFUSED for a record that fails verification. */
export const readPartitionState = async (
  log: EventLog,
  names: TopicNames,
  partition: number,
  forwardFloor: number,
): Promise<PartitionState> => {
  const bounds = await log.bounds(names.state, partition)
  const stateLedger = createLedger(forwardFloor)
  const snapshotLedger = createLedger(forwardFloor)
  // Only the newest record of a key speaks; the older ones are not even opened.
  const newest = new Map<string, StoredRecord>()
  for await (const batch of log.read(names.state, partition, bounds.begin, { until: bounds.end })) {
    for (const record of batch.records) {
      const key = record.key === null ? '' : Buffer.from(record.key).toString('utf8')
      newest.delete(key)
      newest.set(key, record)
      stateLedger.put(key, { offset: record.offset, bytes: sizeOf(record) })
    }
  }
  let cursor: PartitionCursor | null = null
  const heads = new Map<string, Head>()
  for (const { key, value, headers, offset } of newest.values()) {
    const state = unseal(`${names.state}, partition ${partition}, offset ${offset}`, key, value, headers)
    if (state.type === 'cursor') cursor = state
    else heads.set(state.session, state)
  }
  let parts = 0
  let bytes = 0
  const refs = [...heads.values()].flatMap(({ session, snapshot }) =>
    snapshot === null ? [] : [{ session, snapshot }],
  )
  for (const { session, snapshot } of refs.sort((a, b) => a.snapshot.first - b.snapshot.first)) {
    snapshotLedger.put(session, { offset: snapshot.first, bytes: snapshot.bytes })
    parts += snapshot.parts
    bytes += snapshot.bytes
  }
  // What nobody names has no size without reading it; offsets times the usual size of a part is close enough.
  const stored = await log.bounds(names.snapshots, partition)
  const unnamed = stored.end - stored.begin - parts
  if (parts > 0 && unnamed > 0) snapshotLedger.waste(stored.begin, unnamed * (bytes / parts))
  return { cursor, heads, stateLedger, snapshotLedger }
}

/** Cursor, committed offset, heads and model must tell one story. Throws REFUSED naming what differs. */
export const checkAgreement = (
  { cursor, heads }: PartitionState,
  committed: number | null,
  { names, group, model, warn }: Pick<TaskOptions, 'names' | 'group' | 'model' | 'warn'>,
  partition: number,
): void => {
  const place = `${names.chunks}, partition ${partition}`
  if (cursor === null) {
    if (heads.size > 0) {
      throw new ContinuoError(
        'REFUSED',
        `${names.state}, partition ${partition}, holds ${heads.size} heads and no partition cursor. The state was damaged; restore the log from a copy.`,
      )
    }
    if (committed !== null) {
      throw new ContinuoError(
        'REFUSED',
        `Group "${group}" has committed offset ${committed} of ${place}, but ${names.state} holds no cursor. The state topic was deleted or replaced. Restore it, or begin anew with another --group and prefix.`,
      )
    }
    return
  }
  if (cursor.group !== group || cursor.topic !== names.chunks || cursor.partition !== partition) {
    throw new ContinuoError(
      'REFUSED',
      `The state of this partition belongs to group "${cursor.group}" reading ${cursor.topic}, partition ${cursor.partition}; this worker is group "${group}" reading ${place}. Use that group, or another prefix.`,
    )
  }
  checkFits(cursor, model)
  for (const head of heads.values()) checkFits(head, model)
  if (committed === null) {
    warn(
      `Group "${group}" has no committed offset for ${place} (deleted or expired); resuming from the cursor in the log, offset ${cursor.offset}.`,
    )
  } else if (committed !== cursor.offset) {
    throw new ContinuoError(
      'REFUSED',
      `Group "${group}" has committed offset ${committed} of ${place}, the cursor in the log says ${cursor.offset}. Somebody reset the group's offsets. Set them back to ${cursor.offset}, or begin anew with another --group and prefix.`,
    )
  }
}

export const startTask = (partition: number, options: TaskOptions): Task => {
  const { log, names, group, model, tokenizer, batcher } = options
  const stopping = new AbortController()
  let failure: unknown
  const life = createLifecycle((state) => options.onState?.(partition, state, failure))
  let sessions: Sessions | null = null
  let load = () => 0
  let offset = () => -1
  let lastActivity = performance.now()

  const run = async (writer: PartitionWriter): Promise<void> => {
    life.to('restoring')
    const state = await readPartitionState(log, names, partition, options.forwardFloor)
    const { cursor, heads, stateLedger, snapshotLedger } = state
    checkAgreement(state, await log.committed(group, names.chunks, partition), options, partition)
    failpoint('restore.read')
    const { begin } = await log.bounds(names.chunks, partition)
    const from = cursor?.offset ?? begin
    const watermark = createWatermark({ offset: from, done: cursor?.done ?? [] })
    const source = createSource(log, names.chunks, partition, from, watermark, stopping.signal)
    const backlog = createBacklog(BACKLOG_STEPS)
    const validation = { format: options.format, vocabSize: model.vocabSize, readsText: tokenizer !== null }
    const engine = { model, tokenizer, process: batcher.process }
    const restoring = { log, names, model, engine, validate: validation }
    sessions = createSessions({
      model,
      engine,
      snapshotEvery: options.snapshotEvery,
      maxContexts: options.maxContexts,
      restore: async (head) => {
        const started = performance.now()
        const session = await restoreSession(restoring, partition, head)
        options.onRestored?.(partition, head.session, performance.now() - started)
        return session
      },
      room: backlog.room,
      stopping: stopping.signal,
    })
    for (const [id, head] of heads) sessions.heads.set(id, head)
    load = () => watermark.load.records
    offset = () => watermark.position().offset
    if (stopping.signal.aborted) return
    life.to('running')
    lastActivity = performance.now()
    const stream = pipeline({
      log,
      names,
      group,
      partition,
      writer,
      watermark,
      sessions,
      model,
      stateLedger,
      snapshotLedger,
      backlog,
      validation,
      tokenizer,
      records: source.records,
      partBytes: options.partBytes ?? PART_BYTES,
      interval: options.commitInterval,
      warn: options.warn,
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
    let writer: PartitionWriter | null = null
    try {
      life.to('claiming')
      writer = await log.claim(group, names.chunks, partition)
      failpoint('claim.done')
      if (!stopping.signal.aborted) await run(writer)
      await writer.close()
      life.to('closed')
      return { state: life.state }
    } catch (error) {
      failure = error
      stopping.abort()
      await writer?.close()
      life.to(verdictOf(error))
      return { state: life.state, error }
    } finally {
      sessions?.close()
    }
  }

  return {
    partition,
    get state() {
      return life.state
    },
    over: live(),
    get load() {
      return { records: load(), lastActivity }
    },
    get sessions() {
      return sessions?.heads ?? new Map()
    },
    get liveContexts() {
      return sessions?.live ?? 0
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
