/**
 * What a partition's state topic says before its task may run: read it, and make sure that the cursor, the committed
 * offset, the heads and the loaded model agree.
 */
import { setTimeout as delay } from 'node:timers/promises'
import type { TopicNames } from '../../../topics/index.ts'
import type { InputRules, KeptRules, Partitioner } from '../../../topics/input.ts'
import type { ModelInfo } from '../../engine/types.ts'
import { ContinuoError, codeOf } from '../../errors.ts'
import {
  type Cancelled,
  cancelledOffset,
  checkFits,
  deletedOffset,
  faultOfHead,
  type Head,
  isOldSeal,
  type PartitionCursor,
  seal,
  unseal,
} from '../../state/head.ts'
import { createLiveIndex, type LiveIndex, recordBytes } from '../../state/live-index.ts'
import type { EventLog, PartitionWriter, StoredRecord } from '../../streams/log.ts'
import { textOf } from '../../text.ts'
import { asStopped } from '../advance/set-aside.ts'
import { differing } from '../pipeline/input.ts'
import type { InputFormat } from '../pipeline/validate.ts'
import { SNAPSHOT_GROUP_PARTS } from '../snapshots/snapshots.ts'

/** A reader of a partition: log, topics, group and model. */
export interface Reading {
  readonly log: EventLog
  readonly names: TopicNames
  readonly group: string
  readonly model: ModelInfo
  /** How it reads the records of the input; undefined where it reads none. */
  readonly format?: InputFormat
  /** And what else it was told of them. */
  readonly input?: InputRules | undefined
  readonly warn: (message: string) => void
}

const EMPTY = new Uint8Array(0)

/** Header of a genesis cursor: the first of a partition, written before anything was done. */
const GENESIS = 'introduction'

export const isGenesisCursor = ({ headers }: Pick<StoredRecord, 'headers'>): boolean =>
  headers.some(([name]) => name === GENESIS)

/**
 * How often and at what distance (ms) to look whether a commit can be read; longer than Kafka leaves a transaction
 * open.
 */
const VISIBLE_TRIES = 4000
const VISIBLE_PAUSE = 10

/** Times that a reader begins again because what it was about to read was trimmed. */
const TRIES = 5

/**
 * Every record of a partition. A former owner may still be trimming it (trims are not fenced), and what is trimmed
 * is dead: then the reading begins anew at the first record that is left, and meets some a second time.
 */
async function* wholePartition(log: EventLog, topic: string, partition: number): AsyncGenerator<StoredRecord> {
  for (let tries = 1; ; tries += 1) {
    const { begin, end } = await log.bounds(topic, partition)
    try {
      for await (const batch of log.read(topic, partition, begin, { until: end })) yield* batch.records
      return
    } catch (error) {
      if (codeOf(error) !== 'POSITION' || tries === TRIES) throw error
    }
  }
}

/**
 * What a state record is about: a session, the cursor (''), or a request that was cancelled (its offset in the input).
 */
export type StateKey = string | number

/** What the state topic says of one partition. */
export interface PartitionState {
  /** Where the partition resumes; null: nothing was committed yet. */
  readonly cursor: PartitionCursor | null
  /** Nothing but a genesis cursor was written: no record was finished. */
  readonly untouched: boolean
  /** The newest head of each session. */
  readonly heads: Map<string, Head>
  /** Cancels that took effect, by the offset of the request, of all requests that are in the input still. */
  readonly cancelled: Map<number, Cancelled>
  /** What of the state topic is alive. */
  readonly stateIndex: LiveIndex<StateKey>
  /** What of the snapshots is alive. */
  readonly snapshotIndex: LiveIndex
  /** Records with a former seal: they are to be written anew. */
  readonly resealing: readonly StateKey[]
}

/**
 * Reads the state partition to its last stable offset. Throws REFUSED for a record that fails verification. A head that
 * was sealed as it is and breaks a rule concerns its session alone: that one is set aside.
 */
export const readPartitionState = async (
  log: EventLog,
  names: TopicNames,
  partition: number,
  compactFloor: number,
): Promise<PartitionState> => {
  const stateIndex = createLiveIndex<StateKey>(compactFloor)
  const snapshotIndex = createLiveIndex(compactFloor)
  // Only the newest record of a key speaks; the older ones are not even opened.
  const newest = new Map<StateKey, StoredRecord>()
  /** Cancelled requests of each session. */
  const requests = new Map<string, Set<number>>()
  const { begin } = await log.bounds(names.chunks, partition)
  for await (const record of wholePartition(log, names.state, partition)) {
    const request = cancelledOffset(record.headers)
    const key = request ?? (record.key === null ? '' : textOf(record.key))
    // Nobody computes a request again that has left the input.
    if (request !== null && request < begin) {
      stateIndex.waste(record.offset, recordBytes(record))
      continue
    }
    // The cancels of a deleted session go with it. They are before its tombstone, so no trim leaves them without it.
    const deletion = deletedOffset(record.headers)
    if (deletion !== null && typeof key === 'string') {
      for (const offset of requests.get(key) ?? []) {
        newest.delete(offset)
        stateIndex.drop(offset)
      }
      requests.delete(key)
    }
    if (request !== null) {
      const session = textOf(record.key ?? new Uint8Array(0))
      requests.set(session, (requests.get(session) ?? new Set()).add(request))
    }
    // A genesis cursor counts only where there is nothing yet: see writeFirstCursor().
    if (newest.has(key) && isGenesisCursor(record)) {
      stateIndex.waste(record.offset, recordBytes(record))
      continue
    }
    newest.delete(key)
    newest.set(key, record)
    stateIndex.put(key, { offset: record.offset, bytes: recordBytes(record) })
  }
  let cursor: PartitionCursor | null = null
  let untouched = false
  const heads = new Map<string, Head>()
  const cancelled = new Map<number, Cancelled>()
  const place = { topic: names.state, partition, keys: log.sealKeys }
  const resealing: StateKey[] = []
  for (const [id, { key, value, headers, offset }] of newest) {
    const state = unseal(`${names.state}, partition ${partition}, offset ${offset}`, key, value, headers, place)
    if (state.type !== 'cursor' && isOldSeal({ key: key!, value: value!, headers }, place)) resealing.push(id)
    if (state.type === 'cursor') {
      cursor = state
      untouched = isGenesisCursor({ headers })
    } else if (state.type === 'cancelled') cancelled.set(state.offset, state)
    else if (state.type === 'deleted') stateIndex.drop(state.session)
    else {
      const fault = faultOfHead(state)
      heads.set(state.session, fault === null ? state : asStopped(state, fault))
    }
  }
  // What no head names has no size without reading it; offsets times the usual size of a part is close enough.
  const refs = [...heads.values()].flatMap(({ session, snapshot }) =>
    snapshot === null ? [] : [{ session, snapshot }],
  )
  const parts = refs.reduce((sum, { snapshot }) => sum + snapshot.parts, 0)
  const bytes = refs.reduce((sum, { snapshot }) => sum + snapshot.bytes, 0)
  const stored = await log.bounds(names.snapshots, partition)
  // On Kafka each transaction takes an offset for its marker.
  const markers = log.kind === 'kafka' ? (stored.end - stored.begin) / (SNAPSHOT_GROUP_PARTS + 1) : 0
  const unnamed = Math.floor(stored.end - stored.begin - markers) - parts
  if (parts > 0 && unnamed > 0) snapshotIndex.waste(stored.begin, unnamed * (bytes / parts))
  for (const { session, snapshot } of refs.sort((x, y) => x.snapshot.first - y.snapshot.first))
    snapshotIndex.put(session, { offset: snapshot.first, bytes: snapshot.bytes })
  return { cursor, untouched: untouched && heads.size === 0, heads, cancelled, stateIndex, snapshotIndex, resealing }
}

/** The first offset of the input behind every finished record. */
const behindFinished = ({ offset, done }: PartitionCursor): number =>
  done.reduce((most, [, to]) => Math.max(most, to), offset)

/**
 * The rules that a cursor keeps. One that keeps none is of an older version, which took every session in every
 * partition: its worker judges new sessions from the first record on that nobody has read, by the partitioner that it
 * is told.
 */
const keptOf = (cursor: PartitionCursor, partitioner?: Partitioner): KeptRules =>
  cursor.input ?? { ...(partitioner && { partitioner }), since: behindFinished(cursor) }

/** Cursor, committed offset, heads and model must agree. Throws REFUSED naming what differs. */
const checkAgreement = (
  { cursor, heads }: PartitionState,
  committed: number | null,
  topicId: string | null,
  { names, group, model, format, input, warn }: Reading,
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
  if (format !== undefined && cursor.format !== undefined && format !== cursor.format) {
    throw new ContinuoError(
      'REFUSED',
      `${place} was read with --input-format ${cursor.format}, and now with ${format}: its records would be other events. Use ${cursor.format}, or begin anew with another --group and prefix.`,
    )
  }
  const other = input === undefined ? null : differing(keptOf(cursor, input.partitioner), input)
  if (other !== null) {
    throw new ContinuoError(
      'REFUSED',
      `${place} was read with ${other.kept}, and now with ${other.given}: its records would be other events. Use the former, or begin anew with another --group and prefix.`,
    )
  }
  // Cursors of older versions do not say.
  if (cursor.topicId !== undefined && topicId !== null && cursor.topicId !== topicId) {
    throw new ContinuoError(
      'REFUSED',
      `The input topic ${names.chunks} was deleted and made anew: this state was made from the topic with the id ${cursor.topicId}, there is now ${topicId}. Offsets of the one mean nothing in the other. Begin anew with another --group and prefix (--input-topic reads the new topic), or restore the brokers' data from a copy.`,
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

/**
 * The first cursor of a partition, so that no other group takes the partition for free. The claim is a lock within one
 * group; two groups that begin at the same time on the same empty state would both find nothing. So each writes a
 * genesis cursor and then reads again: the first genesis cursor in the log counts, and any cursor that came with work
 * counts more; the group that finds another group's cursor is refused.
 */
const writeFirstCursor = async (
  writer: PartitionWriter,
  { log, names, group, model, format, input }: Reading,
  partition: number,
  topicId: string | null,
  genesis = true,
): Promise<void> => {
  const { begin } = await log.bounds(names.chunks, partition)
  const { key, value, headers } = seal(
    {
      type: 'cursor',
      version: 1,
      group,
      topic: names.chunks,
      ...(topicId !== null && { topicId }),
      partition,
      offset: begin,
      done: [],
      model: model.fingerprint,
      layout: model.layoutFingerprint,
      ...(format !== undefined && { format }),
      history: 0,
      ...(input !== undefined && { input: { ...input, since: begin } }),
    },
    { topic: names.state, partition, keys: log.sealKeys },
  )
  const record = {
    topic: names.state,
    key,
    value,
    headers: genesis ? [...headers, [GENESIS, EMPTY] as const] : headers,
  }
  const [offset] = await writer.commit([record], begin)
  // Kafka answers a commit before its readers see it. Once they see this one, they see all that came before it.
  for (let tries = 0; (await log.bounds(names.state, partition)).end <= offset!; tries += 1) {
    if (tries === VISIBLE_TRIES) {
      throw new ContinuoError(
        'UNAVAILABLE',
        `The first cursor of ${names.state}, partition ${partition}, was committed at offset ${offset} and cannot be read: a transaction before it stays open.`,
      )
    }
    await delay(VISIBLE_PAUSE)
  }
}

const sameReading = (cursor: PartitionCursor, { format, input }: Reading): boolean =>
  (cursor.format === undefined || cursor.format === format) &&
  (input === undefined || differing(keptOf(cursor, input.partitioner), input) === null)

/**
 * A worker that was started with the wrong input, group or rules and read nothing has left a genesis cursor. Its owner
 * is whoever comes next. Where that is another group or input, nobody may work for the former one, which is looked at
 * before and after the new cursor is written: a member joins before it reads state, so it either finds the new cursor,
 * or is found here. Of one group and input the claim is the lock.
 */
const takeOverUntouched = async (
  writer: PartitionWriter,
  { cursor, untouched }: PartitionState,
  reading: Reading,
  partition: number,
  topicId: string | null,
): Promise<boolean> => {
  const { log, names, group, warn } = reading
  if (cursor === null || !untouched || cursor.partition !== partition) return false
  const same = cursor.group === group && cursor.topic === names.chunks
  if (same && (reading.format === undefined || sameReading(cursor, reading))) return false
  // Who may not see the group, or sees it on the move, cannot tell.
  const members = (): ReturnType<EventLog['members']> =>
    log.members(cursor.group).catch((error: unknown) => {
      if (codeOf(error) === 'DENIED') return null
      throw error
    })
  const isLeft = async (): Promise<boolean> =>
    same || (await members())?.every(({ topic }) => topic !== cursor.topic) === true
  if (!(await isLeft())) return false
  const whose = `group "${cursor.group}" reading ${cursor.topic}`
  // Said before it is done: a write whose answer is lost, and a second look that cannot tell because a group is on the
  // move, are tried again, and that try finds a state of its own and nothing to say.
  if (!same) warn(`${names.state}, partition ${partition}, belonged to ${whose}, which had done nothing: taken over.`)
  await writeFirstCursor(writer, reading, partition, topicId, false)
  if (!(await isLeft()))
    throw new ContinuoError(
      'REFUSED',
      `The state of this partition belonged to ${whose}, partition ${partition}, of which a worker has come back. Stop that one and start again, or use another prefix.`,
    )
  return true
}

/**
 * From which record on nothing was read. What an older version had sessions read left no trace in their snapshots; so
 * that each replay counts the same ids, none of such records count, and the cursor says so from the next commit on.
 */
const firstUnread = (finished: PartitionCursor, heads: Iterable<Head>): number => {
  let next = behindFinished(finished)
  for (const { cursor } of heads) next = Math.max(next, cursor.offset + 1)
  return next
}

/**
 * The state of the partition that this writer has claimed, checked against the group's committed offset and the model.
 * Where there is none yet, it begins with a genesis cursor. Throws REFUSED naming what differs.
 */
export const openState = async (
  writer: PartitionWriter,
  reading: Reading,
  partition: number,
  compactFloor: number,
): Promise<PartitionState & { readonly cursor: PartitionCursor }> => {
  const { log, names, group, input } = reading
  const topicId = await log.topicId(names.chunks)
  for (;;) {
    const state = await readPartitionState(log, names, partition, compactFloor)
    if (await takeOverUntouched(writer, state, reading, partition, topicId)) continue
    checkAgreement(state, await log.committed(group, names.chunks, partition), topicId, reading, partition)
    const { cursor, heads } = state
    if (cursor !== null) {
      const kept = input === undefined ? {} : { input: keptOf(cursor, input.partitioner) }
      const history = cursor.history ?? firstUnread(cursor, heads.values())
      return { ...state, cursor: { ...cursor, ...kept, ...(topicId !== null && { topicId }), history } }
    }
    await writeFirstCursor(writer, reading, partition, topicId)
  }
}
