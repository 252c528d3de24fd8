/** validate: bytes in, events out. Knows the schema and the vocabulary, nothing of sessions. */
import { z } from 'zod'
import { CHUNK_SCHEMAS, CHUNK_TYPES, type Chunk, MOST_ID, TOLERANT_SCHEMAS } from '../../../topics/chunks.ts'
import type { InputRules } from '../../../topics/input.ts'
import { sha256 } from '../../hash.ts'
import { schemaFault } from '../../issues.ts'
import type { StoredRecord } from '../../streams/log.ts'
import type { InputEvent, Rejected, Valid } from '../types.ts'
import { withoutAsked } from './asked.ts'
import { type CloudData, cloudDataOf } from './cloud-events.ts'
import { sessionOf } from './input.ts'
import { requestOf, ruleOf } from './text-requests.ts'

/**
 * `json`: events of `topics/chunks.ts`. `text`: any topic of plain text; every value is text to read, whatever its
 * bytes.
 */
export type InputFormat = 'json' | 'text'

export interface ValidateOptions {
  readonly format: InputFormat
  readonly vocabSize: number
  /** Whether the model has a tokenizer; without one it reads `tokens` only. */
  readonly readsText: boolean
  /** Default: the session is the key, fields are known, and no record asks by a rule. */
  readonly input?: InputRules | undefined
}

const strict = new TextDecoder('utf-8', { fatal: true })
/** Headers pass through to every output, which must stay below a topic's limit. */
const MAX_HEADER_BYTES = 65_536
const EMPTY = new Uint8Array(0)

const show = (value: unknown): string => {
  let json: string
  try {
    json = JSON.stringify(value) ?? String(value)
  } catch {
    return 'a value nested too deeply to show'
  }
  return json.length > 80 ? `${json.slice(0, 77)}…` : json
}

const fieldsOf = (schema: z.ZodType): string =>
  schema instanceof z.ZodObject ? Object.keys(schema.shape).join(', ') : 'type, id, text or bytes'

/** Bytes of Confluent's wire format before the content: a zero, and the id of a schema as u32 big-endian. */
const FRAME = 5

/** What producers write that were set up for other consumers, by name; null: nothing that is known. */
const foreignBytes = (value: Uint8Array): string | null => {
  if (value.length === 0) return 'a record without a value (a tombstone). A session is deleted by {"type":"delete"}.'
  if (value[0] === 0 && value.length > FRAME) {
    const id = Buffer.from(value).readUInt32BE(1)
    return `${value.length} bytes as a serializer with a schema registry writes them (a zero byte, schema id ${id}). Let the producer write the JSON alone.`
  }
  return null
}
const foreignJson = (json: object): string | null => {
  const has = (...names: readonly string[]): boolean => names.every((name) => Object.hasOwn(json, name))
  if (has('schema', 'payload') && Object.keys(json).length === 2)
    return 'the envelope of a Kafka Connect converter (schema and payload). Set value.converter.schemas.enable=false.'
  if (has('op', 'source') && (has('before') || has('after')))
    return 'a change event of Debezium (op, before, after). Unwrap it (ExtractNewRecordState), and make an event of what is in it.'
  return null
}

const parseEvent = (value: Uint8Array, tolerant: boolean): Chunk | string => {
  const framed = foreignBytes(value)
  if (framed !== null) return `Expected a JSON event, got ${framed}`
  let json: unknown
  try {
    json = JSON.parse(strict.decode(value))
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error)
    return `Expected a JSON event, got ${value.length} bytes that are not JSON (${why}). Send events as JSON, or read plain text with --input-format text.`
  }
  return eventOf(json, tolerant)
}

/**
 * Returns the event with its defaults, or the sentence that says what is wrong with it. `tolerant`: without the fields
 * that nobody knows.
 */
export const eventOf = (json: unknown, tolerant = false): Chunk | string => {
  if (typeof json !== 'object' || json === null || Array.isArray(json)) {
    return `Expected a JSON object with a "type", got ${show(json)}.`
  }
  const type = (json as { type?: unknown }).type
  const known = CHUNK_TYPES.find((each) => each === type)
  if (known === undefined) {
    const enveloped = foreignJson(json)
    if (enveloped !== null) return `Expected a JSON event, got ${enveloped}`
    return `Expected an event type of ${CHUNK_TYPES.join(', ')}; got ${show(type)}.`
  }
  const schema = (tolerant ? TOLERANT_SCHEMAS : CHUNK_SCHEMAS)[known]
  const parsed = schema.safeParse(json)
  if (parsed.success) return parsed.data
  const issue = schemaFault(parsed.error)
  const field = issue.path.join('.')
  const got =
    field === ''
      ? ''
      : `, got ${show(issue.path.reduce<unknown>((at, key) => (at as Record<PropertyKey, unknown> | undefined)?.[key], json))}`
  return `A "${known}" event has the fields ${fieldsOf(CHUNK_SCHEMAS[known])}. ${field === '' ? 'The event' : `Field "${field}"`}: ${issue.message}${got}.`
}

const base64 = (bytes: Uint8Array): string =>
  Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length).toString('base64')

/** The text of a record of plain text, as an event; with the request that its header makes. */
const readText = (record: StoredRecord, { input }: ValidateOptions): InputEvent | string => {
  const cloud = input?.cloudEvents ? cloudDataOf(record, 'text') : null
  if (typeof cloud === 'string') return cloud
  let bytes = record.value ?? EMPTY
  if (cloud !== null) {
    if ('bytes' in cloud) bytes = cloud.bytes
    else if (typeof cloud.json === 'string') bytes = Buffer.from(cloud.json)
    else return `Expected text in the CloudEvent (a string, or data_base64), got ${show(cloud.json)}.`
  }
  const id = cloudId(cloud)
  const asked = requestOf(record, input?.generate)
  if (typeof asked === 'string') return asked
  return { ...(asked ?? { type: 'text' }), ...(id !== undefined && { id }), bytes: base64(bytes) }
}

/**
 * The CloudEvent's id, which becomes the `id` of the input event inside; undefined without a CloudEvent, or where the
 * id is too long for that.
 */
const cloudId = (cloud: CloudData | null): string | undefined =>
  cloud !== null && cloud.id.length <= MOST_ID ? cloud.id : undefined

const readJson = (record: StoredRecord, { input }: ValidateOptions): InputEvent | string => {
  const tolerant = input?.unknownFields === 'ignore'
  const cloud = input?.cloudEvents ? cloudDataOf(record, 'json') : null
  if (typeof cloud === 'string') return cloud
  const parsed =
    cloud !== null && 'json' in cloud
      ? eventOf(cloud.json, tolerant)
      : parseEvent(cloud?.bytes ?? record.value ?? EMPTY, tolerant)
  const id = cloudId(cloud)
  return typeof parsed === 'string' || id === undefined ? parsed : { id, ...parsed }
}

const read = (record: StoredRecord, options: ValidateOptions): InputEvent | string =>
  options.format === 'text' ? readText(record, options) : readJson(record, options)

const readsTextOf = (event: InputEvent): boolean => event.type === 'text' || 'bytes' in event

export const validateRecord = (record: StoredRecord, options: ValidateOptions): Valid | Rejected => {
  const reject = (session: string | null, reason: string): Rejected => ({ kind: 'rejected', record, session, reason })

  if (record.undecodable !== undefined) {
    const { next, reason } = record.undecodable
    return reject(
      null,
      `The record batch at offsets ${record.offset} to ${next - 1} cannot be decoded: ${reason}. Its bytes are here as the log has them; let its producer send the events again.`,
    )
  }
  const named = sessionOf(record, options.input)
  if ('fault' in named) return reject(null, named.fault)
  const { session } = named
  const headerBytes = withoutAsked(record.headers).reduce(
    (sum, [name, content]) => sum + Buffer.byteLength(name) + content.length,
    0,
  )
  if (headerBytes > MAX_HEADER_BYTES) {
    return reject(
      session,
      `The headers of an event pass through to all it causes and may take ${MAX_HEADER_BYTES} bytes; these take ${headerBytes}. Send large data as events.`,
    )
  }
  const event = read(record, options)
  if (typeof event === 'string') return reject(session, event)
  if (readsTextOf(event) && !options.readsText) {
    return reject(session, 'This model has no tokenizer and reads token ids only. Send a "tokens" event.')
  }
  if (event.type === 'tokens') {
    const at = event.tokens.findIndex((id) => id >= options.vocabSize)
    if (at >= 0) {
      return reject(
        session,
        `Token ids go from 0 to ${options.vocabSize - 1} for this model; tokens[${at}] is ${event.tokens[at]}. None of the event's ${event.tokens.length} tokens was read.`,
      )
    }
  }
  const rule =
    options.format === 'text' && options.input?.generate?.request !== undefined && 'bytes' in event
      ? ruleOf(record, Buffer.from(event.bytes, 'base64'), options.input?.generate)
      : undefined
  const { novelty, alerts } = options.input ?? {}
  const tells = {
    ...(options.format === 'text' && novelty && { novelty }),
    ...(alerts !== undefined && { alerts }),
  }
  const request = event.type === 'generate' ? event : rule?.request
  if (request !== undefined) {
    const [biased, stops] = [Object.keys(request.logitBias).map(Number), request.stopTokens]
    const wrong = [...biased, ...stops].find((id) => id >= options.vocabSize)
    if (wrong !== undefined) {
      const field = biased.includes(wrong) ? 'logitBias' : 'stopTokens'
      return reject(
        session,
        `Token ids go from 0 to ${options.vocabSize - 1} for this model; ${field} names ${wrong}. Nothing was generated.`,
      )
    }
  }
  return { kind: 'valid', record, session, event, hash: sha256(record.value ?? EMPTY), ...(rule && { rule }), ...tells }
}
