/** emit: what a step has to tell becomes records of the output topics. Event time and headers pass through. */
import { map, type OperatorFunction } from 'rxjs'
import { DEAD_LETTER_HEADERS as H } from '../../topics/deadletters.ts'
import type { TopicNames } from '../../topics/index.ts'
import { PART_BYTES } from '../../topics/snapshots.ts'
import { splitParts } from '../state/snapshot.ts'
import type { Headers, OutRecord, StoredRecord } from '../streams/log.ts'
import type { Output, Step } from './types.ts'

export interface EmittedStep extends Step {
  readonly records: readonly OutRecord[]
}

const utf8 = new TextEncoder()

/** The original bytes under the original key, with the reason beside the original headers. */
const deadLetters = (topic: string, record: StoredRecord, reason: string): readonly OutRecord[] => {
  const parts =
    record.value === null || record.value.length === 0 ? [record.value] : splitParts(record.value, PART_BYTES)
  return parts.map((value, index) => {
    const added: [string, string][] = [
      [H.reason, reason],
      [H.topic, record.topic],
      [H.partition, String(record.partition)],
      [H.offset, String(record.offset)],
      [H.timestamp, String(record.timestamp)],
      ...(parts.length > 1 ? [[H.part, `${index + 1}/${parts.length}`] as [string, string]] : []),
    ]
    const headers: Headers = [...record.headers, ...added.map(([name, text]) => [name, utf8.encode(text)] as const)]
    return { topic, key: record.key, value, headers, timestamp: record.timestamp }
  })
}

export const encodeOutput = (output: Output, record: StoredRecord, names: TopicNames): readonly OutRecord[] => {
  if (output.to === 'deadletters') return deadLetters(names.deadletters, record, output.reason)
  return [
    {
      topic: names[output.to],
      key: utf8.encode(output.value.session),
      value: utf8.encode(JSON.stringify(output.value)),
      headers: record.headers,
      timestamp: record.timestamp,
    },
  ]
}

export const emit = (names: TopicNames): OperatorFunction<Step, EmittedStep> =>
  map((step) => ({ ...step, records: step.outputs.flatMap((output) => encodeOutput(output, step.record, names)) }))
