/**
 * Dead letters as their reader needs them: the refused record put together again, with why and where it was refused.
 */
import { DEAD_LETTER_HEADERS as H } from '../../topics/deadletters.ts'
import type { EventLog, Headers, StoredRecord } from '../streams/log.ts'
import { textIn } from './records.ts'

/** Place of a record: `topic/partition/offset`. */
export interface Place {
  /** Its topic. */
  readonly topic: string
  /** Its partition, from 0. */
  readonly partition: number
  /** Its offset in the partition. */
  readonly offset: number
}

export const placeText = ({ topic, partition, offset }: Place): string => `${topic}/${partition}/${offset}`

/** A refused record, whole, from all parts of its letter. */
export interface DeadLetter {
  /** Offset of the letter's first part in the topic of dead letters; the partition is that of `at`. */
  readonly offset: number
  /** Where the refused record stands. */
  readonly at: Place
  /** Of the refused record, ms since 1970. */
  readonly timestamp: number
  /** The sentence that says why it was refused. */
  readonly reason: string
  /** As the refused record had them. */
  readonly key: Uint8Array | null
  /** Its bytes; null: it had none. */
  readonly value: Uint8Array | null
  /** Its own headers, without those of the letter. */
  readonly headers: Headers
  /** The offsets of a record batch, which could not be decoded and which `value` holds; null: it is one record. */
  readonly batch: string | null
  /** Why the record cannot be put together; null: it is whole. */
  readonly fault: string | null
}

/**
 * The headers that were added begin with the reason; a refused record may have brought headers of the same names along.
 */
const split = ({ headers }: StoredRecord): { readonly own: Headers; readonly added: ReadonlyMap<string, string> } => {
  const from = headers.findLastIndex(([name]) => name === H.reason)
  const added = new Map(headers.slice(Math.max(0, from)).map(([name, value]) => [name, textIn(value)]))
  return { own: headers.slice(0, Math.max(0, from)), added }
}

/** `i/n` as numbers; a letter in one piece is 1/1. */
const partOf = (added: ReadonlyMap<string, string>): readonly [at: number, of: number] => {
  const [at = 1, of = 1] = (added.get(H.part) ?? '1/1').split('/').map(Number)
  return [at, of]
}

const fromBase64 = (text: string | null): Uint8Array | null => (text === null ? null : Buffer.from(text, 'base64'))

interface Envelope {
  readonly key: string | null
  readonly headers: readonly (readonly [string, string])[]
  readonly value: string | null
}

const lettered = (parts: readonly StoredRecord[], fault: string | null): DeadLetter => {
  const [first] = parts
  const { own, added } = split(first!)
  const value = parts.length === 1 ? first!.value : Buffer.concat(parts.map(({ value }) => value ?? Buffer.alloc(0)))
  const letter = {
    offset: first!.offset,
    at: {
      topic: added.get(H.topic) ?? '',
      partition: Number(added.get(H.partition) ?? first!.partition),
      offset: Number(added.get(H.offset)),
    },
    timestamp: Number(added.get(H.timestamp) ?? first!.timestamp),
    reason: added.get(H.reason) ?? '',
    key: first!.key,
    value,
    headers: own,
    batch: added.get(H.batch) ?? null,
    fault,
  }
  if (fault !== null || added.get(H.envelope) === undefined) return letter
  try {
    const envelope = JSON.parse(textIn(value)) as Envelope
    const headers = envelope.headers.map(([name, content]) => [name, Buffer.from(content, 'base64')] as const)
    return { ...letter, key: fromBase64(envelope.key), value: fromBase64(envelope.value), headers }
  } catch {
    return { ...letter, fault: 'its envelope is no JSON of key, headers and value' }
  }
}

/**
 * The dead letters of a partition that are committed now, in order. Records of other programs, which say no reason and
 * place, are passed over.
 */
export async function* deadLettersOf(log: EventLog, topic: string, partition: number): AsyncGenerator<DeadLetter> {
  const { begin, end } = await log.bounds(topic, partition)
  /** Parts of one letter: they follow each other, since they were committed together. */
  let open: { readonly parts: StoredRecord[]; readonly of: number } | null = null
  const broken = ({ parts, of }: NonNullable<typeof open>): DeadLetter =>
    lettered(parts, `${of - parts.length} of its ${of} parts are gone from ${topic}`)
  for await (const { records } of log.read(topic, partition, begin, { until: end })) {
    for (const record of records) {
      const { added } = split(record)
      if (!added.has(H.reason) || !/^\d+$/.test(added.get(H.offset) ?? '')) continue
      const [at, of] = partOf(added)
      if (open !== null && (at === 1 || of !== open.of)) {
        yield broken(open)
        open = null
      }
      open ??= { parts: [], of }
      open.parts.push(record)
      if (at < of) continue
      yield open.parts.length === of ? lettered(open.parts, null) : broken(open)
      open = null
    }
  }
  if (open !== null) yield broken(open)
}
