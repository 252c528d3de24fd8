/** The deletion of a session, as a client asks for it: an event of its own, and the answer of the worker. */
import { DEAD_LETTER_HEADERS } from '../../topics/deadletters.ts'
import type { TopicNames } from '../../topics/index.ts'
import { type EventLog, hasTopic, type StoredRecord } from '../streams/log.ts'
import { chunkRecord } from './chunks.ts'
import { headersOf, textIn } from './records.ts'

/** Where in the output topics the answer to an event can come. */
export interface Answers {
  readonly observations: number
  readonly deadletters: number
}

export const answersFrom = async (log: EventLog, names: TopicNames, partition: number): Promise<Answers> => {
  const [observations, deadletters] = await Promise.all([
    log.bounds(names.observations, partition),
    log.bounds(names.deadletters, partition),
  ])
  return { observations: observations.end, deadletters: deadletters.end }
}

const isDelete = ({ value }: StoredRecord): boolean => {
  try {
    return (JSON.parse(textIn(value)) as { readonly type?: unknown } | null)?.type === 'delete'
  } catch {
    return false
  }
}

/**
 * The offset of a `delete` event of the session from `from` on: one that is there and waits for its turn, else a new
 * one.
 */
export const sendDelete = async (
  log: EventLog,
  topic: string,
  partition: number,
  session: string,
  from: number,
): Promise<number> => {
  const { begin, end } = await log.bounds(topic, partition)
  const start = Math.max(begin, from)
  if (start < end) {
    const key = Buffer.from(session)
    let last: StoredRecord | undefined
    for await (const { records } of log.read(topic, partition, start, { until: end, undecodable: true }))
      last = records.findLast((record) => record.key !== null && key.equals(record.key)) ?? last
    if (last !== undefined && isDelete(last)) return last.offset
  }
  const [placed] = await log.append(topic, [chunkRecord(session, { type: 'delete' })], partition)
  return placed!.offset
}

/**
 * Waits until a worker has handled the event: null, or the reason why it refused it. undefined: the signal fired
 * before.
 */
export const deletionOf = async (
  log: EventLog,
  names: TopicNames,
  partition: number,
  offset: number,
  from: Answers,
  signal: AbortSignal,
): Promise<string | null | undefined> => {
  const over = new AbortController()
  const end = (): void => over.abort()
  signal.addEventListener('abort', end)
  if (signal.aborted) end()
  const look = async <T>(
    topic: 'observations' | 'deadletters',
    answer: (record: StoredRecord) => T | undefined,
  ): Promise<T | undefined> => {
    try {
      const options = { follow: true, signal: over.signal }
      for await (const { records } of log.read(names[topic], partition, from[topic], options)) {
        for (const record of records) {
          const found = answer(record)
          if (found !== undefined) return found
        }
      }
      return undefined
    } finally {
      end()
    }
  }
  try {
    const [deleted, refused] = await Promise.all([
      look('observations', ({ value }) => {
        const text = textIn(value)
        if (!text.startsWith('{"type":"deleted"')) return undefined
        return (
          (JSON.parse(text) as { readonly cause: { readonly offset: number } }).cause.offset === offset || undefined
        )
      }),
      look('deadletters', (record) => {
        const headers = headersOf(record)
        return headers[DEAD_LETTER_HEADERS.offset] === String(offset) ? headers[DEAD_LETTER_HEADERS.reason] : undefined
      }),
    ])
    return deleted === true ? null : refused
  } finally {
    signal.removeEventListener('abort', end)
  }
}

/**
 * Erases the records of a session from the input and the outputs of a partition, its dead letters included. Only where
 * the log has an eraser. How many they were.
 */
export const eraseRecords = async (
  log: EventLog,
  names: TopicNames,
  partition: number,
  session: string,
): Promise<number> => {
  const eraser = log.eraser!
  const key = Buffer.from(session)
  const isOwn = (record: StoredRecord): boolean => record.key !== null && key.equals(record.key)
  // The letter of an event with many headers has no key.
  const offsets = new Set<string>()
  const { begin, end } = await log.bounds(names.chunks, partition)
  for await (const { records } of log.read(names.chunks, partition, begin, { until: end, undecodable: true }))
    for (const record of records) if (isOwn(record)) offsets.add(String(record.offset))
  const isLetter = (record: StoredRecord): boolean =>
    isOwn(record) || offsets.has(headersOf(record)[DEAD_LETTER_HEADERS.offset] ?? '')
  let erased = await eraser.erase(names.deadletters, partition, isLetter)
  const outputs = [
    'tokens',
    'observations',
    ...((await hasTopic(log, names.alerts)) ? (['alerts'] as const) : []),
  ] as const
  for (const topic of [...outputs, 'chunks'] as const) erased += await eraser.erase(names[topic], partition, isOwn)
  return erased
}
