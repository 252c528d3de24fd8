/** validate: bytes in, events out. Knows the schema and the vocabulary, nothing of sessions. */
import { map, type OperatorFunction } from 'rxjs'
import { z } from 'zod'
import { CHUNK_SCHEMAS, CHUNK_TYPES, type Chunk } from '../../topics/chunks.ts'
import { sessionId } from '../../topics/common.ts'
import { sha256 } from '../hash.ts'
import type { StoredRecord } from '../streams/log.ts'
import type { Rejected, Valid } from './types.ts'

/** `json`: events of `topics/chunks.ts`. `text`: any topic of plain text; every value is text to read, whatever its bytes. */
export type InputFormat = 'json' | 'text'

export interface ValidateOptions {
  readonly format: InputFormat
  readonly vocabSize: number
  /** Whether the model has a tokenizer; without one it reads `tokens` only. */
  readonly readsText: boolean
}

const strict = new TextDecoder('utf-8', { fatal: true })
/** A byte order mark belongs to the id. */
const strictKey = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true })
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

const parseEvent = (value: Uint8Array): Chunk | string => {
  let json: unknown
  try {
    json = JSON.parse(strict.decode(value))
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error)
    return `Expected a JSON event, got ${value.length} bytes that are not JSON (${why}). Send events as JSON, or read plain text with --input-format text.`
  }
  return eventOf(json)
}

/** Returns the event with its defaults, or the sentence that says what is wrong with it. */
export const eventOf = (json: unknown): Chunk | string => {
  if (typeof json !== 'object' || json === null || Array.isArray(json)) {
    return `Expected a JSON object with a "type", got ${show(json)}.`
  }
  const type = (json as { type?: unknown }).type
  const known = CHUNK_TYPES.find((each) => each === type)
  if (known === undefined) return `Expected an event type of ${CHUNK_TYPES.join(', ')}; got ${show(type)}.`
  const schema = CHUNK_SCHEMAS[known]
  const parsed = schema.safeParse(json)
  if (parsed.success) return parsed.data
  const issue = parsed.error.issues[0]!
  const field = issue.path.join('.')
  const got =
    field === ''
      ? ''
      : `, got ${show(issue.path.reduce<unknown>((at, key) => (at as Record<PropertyKey, unknown> | undefined)?.[key], json))}`
  return `A "${known}" event has the fields ${fieldsOf(schema)}. ${field === '' ? 'The event' : `Field "${field}"`}: ${issue.message}${got}.`
}

export const validateRecord = (record: StoredRecord, options: ValidateOptions): Valid | Rejected => {
  const reject = (session: string | null, reason: string): Rejected => ({ kind: 'rejected', record, session, reason })

  if (record.undecodable !== undefined) {
    const { next, reason } = record.undecodable
    return reject(
      null,
      `The record batch at offsets ${record.offset} to ${next - 1} cannot be decoded: ${reason}. Its bytes are here as the log has them; let its producer send the events again.`,
    )
  }
  if (record.key === null || record.key.length === 0) {
    return reject(
      null,
      'Expected the session id as the record key, got no key. Send each event with its session as the key.',
    )
  }
  let session: string
  try {
    session = strictKey.decode(record.key)
  } catch {
    return reject(
      null,
      `Expected a session id in UTF-8 as the record key, got bytes ${Buffer.from(record.key).toString('hex').slice(0, 64)}.`,
    )
  }
  if (!sessionId.safeParse(session).success) {
    return reject(null, `A session id has 1 to 512 characters, this one has ${session.length}.`)
  }
  const headerBytes = record.headers.reduce((sum, [name, content]) => sum + Buffer.byteLength(name) + content.length, 0)
  if (headerBytes > MAX_HEADER_BYTES) {
    return reject(
      session,
      `The headers of an event pass through to all it causes and may take ${MAX_HEADER_BYTES} bytes; these take ${headerBytes}. Send large data as events.`,
    )
  }
  const value = record.value ?? EMPTY
  let event: Chunk
  if (options.format === 'text') {
    event = { type: 'text', bytes: Buffer.from(value.buffer, value.byteOffset, value.length).toString('base64') }
  } else {
    const parsed = parseEvent(value)
    if (typeof parsed === 'string') return reject(session, parsed)
    event = parsed
  }
  if (event.type === 'text' && !options.readsText) {
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
  if (event.type === 'generate') {
    const [biased, stops] = [Object.keys(event.logitBias).map(Number), event.stopTokens]
    const wrong = [...biased, ...stops].find((id) => id >= options.vocabSize)
    if (wrong !== undefined) {
      const field = biased.includes(wrong) ? 'logitBias' : 'stopTokens'
      return reject(
        session,
        `Token ids go from 0 to ${options.vocabSize - 1} for this model; ${field} names ${wrong}. Nothing was generated.`,
      )
    }
  }
  return { kind: 'valid', record, session, event, hash: sha256(value) }
}

export const validate = (options: ValidateOptions): OperatorFunction<StoredRecord, Valid | Rejected> =>
  map((record) => validateRecord(record, options))
