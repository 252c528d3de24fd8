/**
 * Requests in topics of plain text: a rule of the worker or a header of the record asks to continue. Both follow from
 * the record and from the records of its session before it. A request in another topic would not: nothing says between
 * which two records it stands.
 */
import { generate } from '../../../topics/chunks.ts'
import type { GenerateRule } from '../../../topics/input.ts'
import { schemaFault } from '../../issues.ts'
import type { StoredRecord } from '../../streams/log.ts'
import { textOf } from '../../text.ts'
import type { Generate, Rule, Valid } from '../types.ts'
import { headerOf } from './input.ts'

const ENCODER = new TextEncoder()

/** The name of a request that has none of its own: the place of its record, once in a topic. */
const requestId = ({ partition, offset }: Pick<StoredRecord, 'partition' | 'offset'>): string =>
  `${partition}/${offset}`

/** The request in the header of a record; undefined: it makes none; or the sentence that says what is wrong with it. */
export const requestOf = (record: StoredRecord, rule: GenerateRule | undefined): Generate | undefined | string => {
  const bytes = rule?.header === undefined ? undefined : headerOf(record, rule.header)
  if (bytes === undefined) return undefined
  const what = `Expected the fields of a "generate" event as JSON in the header "${rule!.header}"`
  let json: unknown
  try {
    json = JSON.parse(textOf(bytes))
  } catch {
    return `${what}, got ${bytes.length} bytes that are not JSON. Send {"maxTokens":20}, for example.`
  }
  if (typeof json !== 'object' || json === null || Array.isArray(json)) return `${what}, got no object.`
  const parsed = generate.safeParse({ requestId: requestId(record), ...json, type: 'generate' })
  if (parsed.success) return parsed.data
  const issue = schemaFault(parsed.error)
  return `${what}: ${issue.path.join('.') || 'the request'}: ${issue.message}.`
}

const endsWith = (bytes: Uint8Array, end: string): boolean => {
  const wanted = ENCODER.encode(end)
  return bytes.length >= wanted.length && Buffer.compare(bytes.subarray(bytes.length - wanted.length), wanted) === 0
}

/** What the rules of the worker ask of a record with this text. */
export const ruleOf = (
  record: Pick<StoredRecord, 'partition' | 'offset'>,
  bytes: Uint8Array,
  rule: GenerateRule | undefined,
): Rule | undefined => {
  if (rule?.request === undefined) return undefined
  const { every, after } = rule
  const now = after !== undefined && endsWith(bytes, after)
  if (every === undefined && !now) return undefined
  const request: Generate = { type: 'generate', requestId: requestId(record), ...rule.request }
  return { request, every: now ? 1 : every!, counts: every !== undefined }
}

/** The event of a record of text as its rule has it, now that the records before it are known. */
export const ruled = ({ event, rule }: Valid, unanswered: number): Valid['event'] =>
  rule !== undefined && event.type === 'text' && 'bytes' in event && unanswered + 1 >= rule.every
    ? { ...rule.request, ...event, type: 'generate' }
    : event
