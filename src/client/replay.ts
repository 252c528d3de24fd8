/** replay: the record of a dead letter goes to the input once more, with its bytes, its key and its own headers, into the partition that it came from. */
import { DEAD_LETTER_HEADERS as H } from '../../topics/deadletters.ts'
import type { TopicNames } from '../../topics/index.ts'
import { ContinuoError } from '../errors.ts'
import type { EventLog, Headers, RecordIn, StoredRecord } from '../streams/log.ts'
import { headersOf, textIn } from './records.ts'

/** Parts of one letter: a record of a log is at most some MiB. */
const MOST_PARTS = 1024

const invalid = (message: string): ContinuoError => new ContinuoError('INVALID', message)

/** Which letter a part belongs to: the place of the record that it holds. */
const causeOf = (headers: Readonly<Record<string, string>>): string =>
  `${headers[H.topic]} ${headers[H.partition]} ${headers[H.offset]}`

const OWN: ReadonlySet<string> = new Set(Object.values(H))

interface Place {
  readonly partition: number
  readonly offset: number
}

/** All parts of the letter of which one stands at the place, in their order. */
const partsOf = async (
  log: EventLog,
  topic: string,
  { partition, offset }: Place,
): Promise<readonly StoredRecord[]> => {
  const { begin, end } = await log.bounds(topic, partition)
  const gone = (what: string): ContinuoError =>
    invalid(
      `${what} at ${topic}, partition ${partition}, offset ${offset}: the topic has ${begin} to ${end - 1} by now.`,
    )
  if (offset < begin || offset >= end) throw gone('There is no dead letter')
  const found: StoredRecord[] = []
  const read = async (from: number, until: number): Promise<void> => {
    for await (const { records } of log.read(topic, partition, from, { until, maxBytes: 1 })) found.push(...records)
  }
  await read(offset, offset + 1)
  const one = found.pop()
  if (one === undefined) throw gone('There is no dead letter')
  const headers = headersOf(one)
  const [, at, of] = /^(\d{1,6})\/(\d{1,6})$/.exec(headers[H.part] ?? '1/1') ?? []
  const total = Number(of)
  if (!(total >= 1 && total <= MOST_PARTS)) throw invalid(`The letter says that it is part ${headers[H.part]}.`)
  if (total === 1) return [one]
  // Parts stand one behind the other; on Kafka a transaction's marker may stand between two.
  await read(Math.max(begin, offset - 2 * Number(at)), Math.min(end, offset + 2 * (total - Number(at)) + 1))
  const parts = new Map<string, StoredRecord>()
  for (const record of found) {
    const own = headersOf(record)
    if (causeOf(own) === causeOf(headers)) parts.set(own[H.part] ?? '', record)
  }
  const whole = Array.from({ length: total }, (_, index) => parts.get(`${index + 1}/${total}`))
  if (whole.some((part) => part === undefined)) throw gone(`Not all ${total} parts of the letter are left`)
  return whole as StoredRecord[]
}

const base64 = (text: unknown): Uint8Array | null => (typeof text === 'string' ? Buffer.from(text, 'base64') : null)

/** Key, headers and value as the record had them. Throws INVALID for a whole batch. */
const recordIn = (parts: readonly StoredRecord[]): RecordIn => {
  const first = parts[0]!
  const about = headersOf(first)
  if (about[H.batch] !== undefined)
    throw invalid(
      `The letter holds a whole batch of records (offsets ${about[H.batch]}) that could not be told apart; it cannot be sent again as one event. Send the events anew.`,
    )
  const value = first.value === null ? null : Buffer.concat(parts.map((part) => part.value ?? new Uint8Array(0)))
  if (about[H.envelope] !== 'json')
    return { key: first.key, value, headers: first.headers.filter(([name]) => !OWN.has(name)) }
  const envelope = JSON.parse(textIn(value)) as { key: unknown; value: unknown; headers: [string, unknown][] }
  const headers: Headers = envelope.headers.map(([name, content]) => [name, base64(content) ?? new Uint8Array(0)])
  return { key: base64(envelope.key), value: base64(envelope.value), headers }
}

/**
 * Appends what the dead letter at this place of the dead-letter topic holds, and returns where it is now. The worker judges it like any other
 * event: a letter whose cause still stands becomes a letter again. Throws INVALID where the letter is gone, or holds no single record.
 */
export const replayDeadLetter = async (log: EventLog, names: TopicNames, letter: Place): Promise<Place> => {
  const parts = await partsOf(log, names.deadletters, letter)
  const about = headersOf(parts[0]!)
  const partition = Number(about[H.partition])
  if (about[H.topic] !== names.chunks || !Number.isSafeInteger(partition))
    throw invalid(
      `The letter comes from ${about[H.topic] ?? 'no topic'}, expected ${names.chunks}: read it with that --input-topic.`,
    )
  const timestamp = Number(about[H.timestamp])
  const record = recordIn(parts)
  const timed = Number.isSafeInteger(timestamp) && timestamp > 0 ? { ...record, timestamp } : record
  const [placed] = await log.append(names.chunks, [timed], partition)
  return placed!
}
