/**
 * One transaction of a partition, driven by the loop in commit.ts. Three verbs in order: *prepare* puts its records together, *commit*
 * hands them to the log as one atom, *note* tells table and indexes that it happened.
 */
import type { TopicNames } from '../../topics/index.ts'
import type { Tombstone } from '../../topics/state.ts'
import { failpoint } from '../failpoint.ts'
import { type Fingerprints, type Head, type PartitionCursor, seal } from '../state/head.ts'
import { type LiveEntry, type LiveIndex, recordBytes } from '../state/live-index.ts'
import type { EventLog, OutRecord, PartitionWriter } from '../streams/log.ts'
import type { Watermark } from '../streams/watermark.ts'
import type { EmittedStep } from './emit.ts'
import { needsNoSnapshot, type SessionTable } from './session-table.ts'
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
  readonly stateIndex: LiveIndex
  readonly snapshotIndex: LiveIndex
  /** Sessions whose head carries a former seal. */
  readonly resealing: readonly string[]
  /** How the input is read; goes into the cursor, because read another way its records are other events. */
  readonly format: InputFormat
}

/** A commit as the rest of the worker sees it. */
export interface Commit {
  readonly partition: number
  readonly offset: number
  readonly records: number
  readonly sessions: number
  readonly steps: readonly EmittedStep[]
  /** Time the transaction took, ms. */
  readonly ms: number
}

/** Heads that one commit writes anew because of their seal. */
const RESEAL_HEADS = 256

/** Records of one transaction: outputs, then heads, then the partition cursor. */
interface Prepared {
  readonly outputs: readonly OutRecord[]
  readonly deleted: readonly string[]
  readonly heads: readonly Head[]
  /** The sealed deletions, heads, and the cursor. */
  readonly state: readonly OutRecord[]
  readonly inputOffset: number
}

export const createCommitter = (deps: CommitterDeps) => {
  const { log, names, partition, writer, watermark, table, model, stateIndex, snapshotIndex } = deps
  const statePlace = { topic: names.state, partition, keys: log.sealKeys }
  const resealing = [...deps.resealing]
  /** Some heads a commit, so that a rotated key delays no commit for long. */
  const reseal = (): void => {
    for (const id of resealing.splice(0, RESEAL_HEADS)) table.touch(id)
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
    }
  }

  const prepare = (steps: readonly EmittedStep[]): Prepared => {
    const heads = table.prepare(steps)
    reseal()
    const tombs = steps.flatMap(({ session, record, deleted }): Tombstone[] =>
      deleted === true ? [{ type: 'deleted', version: 1, session: session!, offset: record.offset }] : [],
    )
    for (const { record, done } of steps) if (done) watermark.finish(record.offset)
    const cursor = cursorRecord()
    return {
      outputs: steps.flatMap(({ records }) => records),
      deleted: tombs.map(({ session }) => session),
      heads,
      state: [...tombs, ...heads, cursor].map((record) => ({ topic: names.state, ...seal(record, statePlace) })),
      inputOffset: cursor.offset,
    }
  }

  /** `offsets`: those of the state records. */
  const note = ({ deleted, heads, state, inputOffset }: Prepared, steps: number, offsets: readonly number[]): void => {
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
    stateIndex.put('', place(deleted.length + heads.length))
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
