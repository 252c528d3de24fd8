/** emit: the outputs of a step become records of the output topics. Event time and headers pass through. */
import { map, type OperatorFunction } from 'rxjs'
import { DEAD_LETTER_HEADERS as H } from '../../../topics/deadletters.ts'
import { schemaId, type TopicNames } from '../../../topics/index.ts'
import { PART_BYTES } from '../../../topics/snapshots.ts'
import { splitParts } from '../../state/snapshot.ts'
import type { Headers, OutRecord, StoredRecord } from '../../streams/log.ts'
import type { Output, Step } from '../types.ts'
import { withoutAsked } from './asked.ts'
import { attributesOf, passedOn } from './cloud-events.ts'

export interface EmittedStep extends Step {
  readonly records: readonly OutRecord[]
}

const utf8 = new TextEncoder()

/** Event time passes through, but brokers refuse times from the future. */
export const timeOf = ({ timestamp }: Pick<StoredRecord, 'timestamp'>): number => Math.min(timestamp, Date.now())

/** Bytes of key and headers that a dead letter carries beside a part of the value. */
const MAX_BESIDE = 65_536
/** Empty ones have no bytes by that count, and still take two each in a record. */
const MAX_HEADERS_BESIDE = 8192
const MAX_REASON = 1000

const besideBytes = ({ key, headers }: Pick<StoredRecord, 'key' | 'headers'>): number =>
  headers.reduce((sum, [name, content]) => sum + Buffer.byteLength(name) + content.length, key?.length ?? 0)

/**
 * What the dead letters of a record hold, put together: its value, or, where key and headers are too large to stand
 * beside it, an envelope with all three.
 */
export const deadLetterContent = (
  record: StoredRecord,
): { readonly value: Uint8Array | null; readonly enveloped: boolean } => {
  const kept = withoutAsked(record.headers)
  if (besideBytes({ key: record.key, headers: kept }) <= MAX_BESIDE && kept.length <= MAX_HEADERS_BESIDE)
    return { value: record.value, enveloped: false }
  const base64 = (bytes: Uint8Array | null): string | null =>
    bytes === null ? null : Buffer.from(bytes).toString('base64')
  const headers = kept.map(([name, content]) => [name, base64(content)])
  const envelope = { key: base64(record.key), headers, value: base64(record.value) }
  return { value: utf8.encode(JSON.stringify(envelope)), enveloped: true }
}

/** The original bytes under the original key, with the reason beside the original headers. */
const deadLetters = (
  topic: string,
  record: StoredRecord,
  { reason, stopped, first }: Extract<Output, { to: 'deadletters' }>,
): readonly OutRecord[] => {
  const { value: content, enveloped } = deadLetterContent(record)
  const { undecodable: batch } = record
  const parts = content === null || content.length === 0 ? [content] : splitParts(content, PART_BYTES)
  return parts.map((value, index) => {
    const added: [string, string][] = [
      [H.reason, reason.length > MAX_REASON ? `${reason.slice(0, MAX_REASON - 1)}…` : reason],
      [H.topic, record.topic],
      [H.partition, String(record.partition)],
      [H.offset, String(record.offset)],
      [H.timestamp, String(record.timestamp)],
      ...(batch === undefined ? [] : [[H.batch, `${record.offset}-${batch.next - 1}`] as [string, string]]),
      ...(enveloped ? [[H.envelope, 'json'] as [string, string]] : []),
      ...(stopped === undefined ? [] : [[H.stopped, `${stopped.cause}/${stopped.token}`] as [string, string]]),
      ...(first === undefined ? [] : [[H.first, String(first)] as [string, string]]),
      ...(parts.length > 1 ? [[H.part, `${index + 1}/${parts.length}`] as [string, string]] : []),
    ]
    const original = enveloped ? [] : withoutAsked(record.headers)
    const headers: Headers = [...original, ...added.map(([name, text]) => [name, utf8.encode(text)] as const)]
    return { topic, key: enveloped ? null : record.key, value, headers, timestamp: timeOf(record) }
  })
}

/**
 * The records of an output. Alerts, and with `cloudEvents` all outputs, are CloudEvents in binary mode: attributes in
 * headers, the same value.
 */
export const encodeOutput = (
  output: Output,
  record: StoredRecord,
  names: TopicNames,
  cloudEvents = false,
): readonly OutRecord[] => {
  if (output.to === 'deadletters') return deadLetters(names.deadletters, record, output)
  const value = utf8.encode(JSON.stringify(output.value))
  // An alert goes to programs that know nothing else of Continuo.
  const isCloud = cloudEvents || output.to === 'alerts'
  const headers = passedOn(record, isCloud)
  const place = { input: record.topic, schema: schemaId(output.to) }
  return [
    {
      topic: names[output.to],
      key: utf8.encode(output.value.session),
      value,
      headers: isCloud ? [...headers, ...attributesOf(value, output.value, place)] : headers,
      timestamp: timeOf(record),
    },
  ]
}

export const emit = (names: TopicNames, cloudEvents = false): OperatorFunction<Step, EmittedStep> =>
  map((step) => ({
    ...step,
    records: step.outputs.flatMap((output) => encodeOutput(output, step.record, names, cloudEvents)),
  }))
