/**
 * One transaction of a partition, driven by the loop in commit.ts. Three verbs in order: *prepare* puts its records
 * together, *commit* hands them to the log as one atom, *note* tells table and indexes that it happened.
 */
import type { TopicNames } from '../../../topics/index.ts'
import type { KeptRules } from '../../../topics/input.ts'
import type { Tombstone } from '../../../topics/state.ts'
import { failpoint } from '../../failpoint.ts'
import { type Cancelled, type Fingerprints, type Head, type PartitionCursor, seal } from '../../state/head.ts'
import { type LiveEntry, type LiveIndex, recordBytes } from '../../state/live-index.ts'
import type { EventLog, OutRecord, PartitionWriter } from '../../streams/log.ts'
import type { Watermark } from '../../streams/watermark.ts'
import { needsNoSnapshot, type SessionTable } from '../sessions/session-table.ts'
import { finishedBy } from '../types.ts'
import type { StateKey } from '../worker/partition-state.ts'
import type { EmittedStep } from './emit.ts'
import type { InputFormat } from './validate.ts'

export interface CommitterDeps {
  readonly log: EventLog
  readonly names: TopicNames
  readonly group: string
  readonly partition: number
  /** Id of the input topic, where the log has one. */
  readonly topicId?: string | undefined
  readonly writer: PartitionWriter
  readonly watermark: Watermark
  readonly table: SessionTable
  readonly model: Fingerprints
  /** The log's id in its blob store. */
  readonly logId: string | undefined
  /** From which input record on histories know what sessions were fed. */
  readonly history: number | undefined
  readonly stateIndex: LiveIndex<StateKey>
  readonly snapshotIndex: LiveIndex
  /** State records with a former seal. */
  readonly resealing: readonly StateKey[]
  /** How the input is read; goes into the cursor, because read another way its records are other events. */
  readonly format: InputFormat
  /** The rest of that, as it is kept. */
  readonly input?: KeptRules | undefined
}

/** A commit as the rest of the worker sees it. */
export interface Commit {
  /** Of the input. */
  readonly partition: number
  /** Every input record below is finished. */
  readonly offset: number
  /** Records of the transaction, state among them. */
  readonly records: number
  /** Sessions whose heads it carries. */
  readonly sessions: number
  /** Steps whose outputs it carries, in their order. */
  readonly steps: readonly EmittedStep[]
  /** Time the transaction took, ms. */
  readonly ms: number
}

/** State records that one commit writes anew because of their seal. */
const RESEAL_RECORDS = 256

/** Records of one transaction: outputs, then deletions, heads, cancels that took effect, and the partition cursor. */
interface Prepared {
  readonly outputs: readonly OutRecord[]
  readonly deleted: readonly string[]
  readonly heads: readonly Head[]
  readonly cancelled: readonly Cancelled[]
  /** Cancels that go with their sessions. */
  readonly forgotten: readonly number[]
  /** Deletions, heads, cancels and the cursor, sealed. */
  readonly state: readonly OutRecord[]
  readonly inputOffset: number
}

export const createCommitter = (deps: CommitterDeps) => {
  const { log, names, partition, writer, watermark, table, model, stateIndex, snapshotIndex } = deps
  const statePlace = { topic: names.state, partition, keys: log.sealKeys }
  const resealing = [...deps.resealing]
  /** Some heads a commit, so that a rotated key delays no commit for long. */
  const reseal = (): void => {
    for (const id of resealing.splice(0, RESEAL_RECORDS)) table.touch(id)
  }
  reseal()

  const cursorRecord = (): PartitionCursor => {
    const { offset, done } = watermark.position()
    return {
      type: 'cursor',
      version: 1,
      group: deps.group,
      topic: names.chunks,
      ...(deps.topicId !== undefined && { topicId: deps.topicId }),
      ...(deps.logId !== undefined && { logId: deps.logId }),
      partition,
      offset,
      done: done.map(([from, to]) => [from, to]),
      model: model.fingerprint,
      layout: model.layoutFingerprint,
      format: deps.format,
      ...(deps.history !== undefined && { history: deps.history }),
      ...(deps.input && { input: deps.input }),
    }
  }

  const prepare = (steps: readonly EmittedStep[]): Prepared => {
    const { heads, cancelled, forgotten } = table.prepare(steps)
    reseal()
    for (const step of steps) for (const offset of finishedBy(step)) watermark.finish(offset)
    const tombs = steps.flatMap(({ session, record, deleted }): Tombstone[] =>
      deleted === true ? [{ type: 'deleted', version: 1, session: session!, offset: record.offset }] : [],
    )
    const cursor = cursorRecord()
    return {
      outputs: steps.flatMap(({ records }) => records),
      deleted: tombs.map(({ session }) => session),
      heads,
      cancelled,
      forgotten,
      state: [...tombs, ...heads, ...cancelled, cursor].map((record) => ({
        topic: names.state,
        ...seal(record, statePlace),
      })),
      inputOffset: cursor.offset,
    }
  }

  /** `offsets`: those of the state records. */
  const note = (
    { deleted, heads, cancelled, forgotten, state, inputOffset }: Prepared,
    steps: number,
    offsets: readonly number[],
  ): void => {
    const place = (at: number): LiveEntry => ({ offset: offsets[at]!, bytes: recordBytes(state[at]!) })
    for (const [at, session] of deleted.entries()) {
      stateIndex.put(session, place(at))
      stateIndex.drop(session)
      snapshotIndex.drop(session)
    }
    for (const [at, head] of heads.entries()) {
      stateIndex.put(head.session, place(deleted.length + at))
      if (needsNoSnapshot(head)) snapshotIndex.drop(head.session)
    }
    for (const offset of forgotten) stateIndex.drop(offset)
    const rest = deleted.length + heads.length
    for (const [at, { offset }] of cancelled.entries()) stateIndex.put(offset, place(rest + at))
    stateIndex.put('', place(rest + cancelled.length))
    table.committed(heads, steps, inputOffset, deleted)
  }

  return async (steps: readonly EmittedStep[]): Promise<Commit> => {
    const prepared = prepare(steps)
    failpoint('commit.prepared')
    const { outputs, heads, state, inputOffset } = prepared
    const started = performance.now()
    const offsets = await writer.commit([...outputs, ...state], inputOffset)
    const ms = performance.now() - started
    failpoint('commit.ended')
    note(prepared, steps.length, offsets.slice(outputs.length))
    failpoint('commit.noted')
    const records = outputs.length + state.length
    return { partition, offset: inputOffset, records, sessions: heads.length, steps, ms }
  }
}
