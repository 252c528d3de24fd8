/** Records of the output topics as values. */

import type { z } from 'zod'
import type { TopicContract } from '../../topics/common.ts'
import { DEAD_LETTER_HEADERS } from '../../topics/deadletters.ts'
import type { EventLog, StoredRecord } from '../streams/log.ts'

const utf8 = new TextDecoder()

/** Text of a key, a value or a header; empty where there is none. */
export const textIn = (bytes: Uint8Array | null): string => (bytes === null ? '' : utf8.decode(bytes))

export const headersOf = ({ headers }: StoredRecord): Record<string, string> =>
  Object.fromEntries(headers.map(([name, value]) => [name, textIn(value)]))

/** The event of a record; null where it holds none: its value was altered, or somebody else wrote it. */
export const eventIn = <T>(schema: z.ZodType<T>, { value }: Pick<StoredRecord, 'value'>): T | null => {
  try {
    return schema.parse(JSON.parse(textIn(value)))
  } catch {
    return null
  }
}

const base64 = (bytes: Uint8Array | null): string | null =>
  bytes === null ? null : Buffer.from(bytes).toString('base64')

/**
 * A record as JSON can say it: the event, or the bytes where it holds none; of a dead letter the reason and the
 * original bytes.
 */
export const recordAsJson = (topic: TopicContract['name'], record: StoredRecord): Readonly<Record<string, unknown>> => {
  const { partition, offset, timestamp, key } = record
  const place = { partition, offset, timestamp, session: key === null ? null : textIn(key) }
  if (topic === 'deadletters') {
    const headers = headersOf(record)
    return { ...place, reason: headers[DEAD_LETTER_HEADERS.reason] ?? null, headers, valueBase64: base64(record.value) }
  }
  try {
    return { ...place, value: JSON.parse(textIn(record.value)) as unknown }
  } catch {
    return { ...place, valueBase64: base64(record.value) }
  }
}

/** Whether a record stands at `from` or behind it. Offsets have gaps, so only reading tells. */
export const hasUnread = async (log: EventLog, topic: string, partition: number, from: number): Promise<boolean> => {
  for await (const { records } of log.read(topic, partition, from, { maxBytes: 1, undecodable: true }))
    if (records.length > 0) return true
  return false
}
