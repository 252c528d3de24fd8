/**
 * What a worker has declared of its input, for clients that write into it. A client that has no key only sends, and the
 * worker judges what it sends.
 */
import { CHUNK_TYPES } from '../../topics/chunks.ts'
import { type TopicNames, topicNames } from '../../topics/index.ts'
import type { Partitioner } from '../../topics/input.ts'
import type { PartitionCursor } from '../../topics/state.ts'
import { ContinuoError, codeOf } from '../errors.ts'
import { PARTITION_NAME } from '../operators/pipeline/input.ts'
import { newestCursor } from '../operators/worker/newest-cursor.ts'
import type { EventLog, StoredRecord } from '../streams/log.ts'
import { placing } from '../streams/partitioner.ts'
import { textIn } from './records.ts'

/** The JSON in a record; undefined where it holds none. */
const jsonIn = ({ value }: StoredRecord): unknown => {
  try {
    return JSON.parse(textIn(value))
  } catch {
    return undefined
  }
}

/**
 * Of all partitions, the first cursor that a worker of this input wrote; null where there is none, or where this user
 * may not read it.
 */
const declaredIn = async (log: EventLog, names: TopicNames): Promise<PartitionCursor | null> => {
  try {
    const state = (await log.topics([names.state])).find(({ name }) => name === names.state)
    for (let partition = 0; partition < (state?.partitions ?? 0); partition += 1) {
      const cursor = await newestCursor(log, names, partition)
      if (cursor?.format !== undefined && cursor.topic === names.chunks) return cursor
    }
  } catch (error) {
    if (codeOf(error) !== 'DENIED') throw error
  }
  return null
}

/** Records of each partition that are looked at where no worker has said how the input is read. */
const LOOKED_AT = 8

const isEvent = (record: StoredRecord): boolean => {
  const json = jsonIn(record) as { type?: unknown } | null | undefined
  return CHUNK_TYPES.some((type) => type === json?.type)
}

/** Whether the topic has records, and none of the first ones is an event. */
const holdsOther = async (log: EventLog, topic: string): Promise<boolean> => {
  let seen = 0
  try {
    for (let partition = 0; partition < (await log.partitions(topic)); partition += 1) {
      const { begin, end } = await log.bounds(topic, partition)
      const until = Math.min(end, begin + LOOKED_AT)
      for await (const { records } of log.read(topic, partition, begin, { until, undecodable: true })) {
        if (records.some(isEvent)) return false
        seen += records.length
      }
    }
  } catch (error) {
    if (codeOf(error) !== 'DENIED') throw error
  }
  return seen > 0
}

/** Why events of a client cannot go into an input that is read like this, as a sentence; null: they can. */
export const faultOfFeeding = ({
  topic,
  format,
  input,
}: Pick<PartitionCursor, 'topic' | 'format' | 'input'>): string | null => {
  if (format === 'text')
    return `${topic} is read with --input-format text: an event as JSON would be read as text, and the memory of its session spoilt. Send the text itself, as a record, with the client of the topic; docs/streams.md says how records of text ask for tokens.`
  if (input?.session !== undefined)
    return `The sessions of ${topic} do not come from the record keys (--session-from), and an event that is sent here has its session there. Send it with the client of the topic.`
  return null
}

/** The partition that a session belongs to, as the input's worker was told; murmur2's where none has begun. */
export const partitionFor = async (log: EventLog, names: TopicNames, session: string): Promise<number> => {
  const { input } = (await declaredIn(log, names)) ?? {}
  if (input?.session?.is === 'partition') {
    const partition = Number(PARTITION_NAME.exec(session)?.[1])
    if (partition < (await log.partitions(names.chunks))) return partition
    throw new ContinuoError(
      'INVALID',
      `The sessions of ${names.chunks} are named by its partitions (--session-from partition): expected partition-0, partition-1 and so on, got "${session}".`,
    )
  }
  return placing(log, names.chunks, () => input?.partitioner ?? 'murmur2').partitionOf(
    names.chunks,
    Buffer.from(session),
  )
}

/** What `toFeed` is told of the topic. */
export interface ToFeedOptions {
  /** Where sessions belong. Only for an input that no worker has read yet; default: murmur2. */
  readonly partitioner?: Partitioner | undefined
}

/**
 * The log for a client that sends events into its input, placed as the worker says. Throws INVALID where the input is
 * no place for events, and for another partitioner than the one that was declared. A user that may not read the state,
 * or a log without any, says what the client was told.
 */
export const toFeed = async (
  log: EventLog,
  names: TopicNames,
  { partitioner }: ToFeedOptions = {},
): Promise<EventLog> => {
  const cursor = await declaredIn(log, names)
  const fault = cursor === null ? null : faultOfFeeding(cursor)
  if (fault !== null) throw new ContinuoError('INVALID', fault)
  // The topic of a prefix is made for events; one that was named may have been there before.
  if (cursor === null && names.chunks !== topicNames(log.prefix).chunks && (await holdsOther(log, names.chunks)))
    throw new ContinuoError(
      'INVALID',
      `${names.chunks} holds records that are no events, so it looks like a topic of plain text; an event as JSON among them would be read as text, and the memory of its session spoilt. Send the text itself, as a record, with the client of the topic. If it is a topic of events, start its worker first: continuo run --input-topic ${names.chunks} --input-format json.`,
    )
  const kept = cursor?.input?.partitioner ?? 'murmur2'
  if (cursor !== null && partitioner !== undefined && partitioner !== kept)
    throw new ContinuoError(
      'INVALID',
      `${names.chunks} is read with --key-partitioner ${kept}, and not with ${partitioner}. Leave the flag out: what its worker says is used.`,
    )
  const used = cursor === null ? (partitioner ?? kept) : kept
  return placing(log, names.chunks, () => used)
}
