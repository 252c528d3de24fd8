/**
 * CloudEvents 1.0 over Kafka (the specification's Kafka protocol binding 1.0.2): in binary mode attributes are headers
 * `ce_…` and the value is the data; in structured mode the value is the whole event as JSON (its JSON format).
 */
import { z } from 'zod'
import { sha256 } from '../../hash.ts'
import { type SchemaFault, schemaFault } from '../../issues.ts'
import type { Headers, StoredRecord } from '../../streams/log.ts'
import { textOf } from '../../text.ts'
import { withoutAsked } from './asked.ts'
import { headerOf } from './input.ts'
import { SHARE_HEADER } from './shares.ts'

const PREFIX = 'ce_'
const TYPE = 'content-type'
const STRUCTURED = 'application/cloudevents'
const SPEC_VERSION = '1.0'
const EMPTY = new Uint8Array(0)

const attribute = z.string().min(1)
const envelope = z.looseObject({
  specversion: z.literal(SPEC_VERSION),
  id: attribute,
  source: attribute,
  type: attribute,
  data: z.unknown().optional(),
  data_base64: z.base64().optional(),
})

/** What a CloudEvent carries: its data as JSON, or as bytes; and its own id. */
export type CloudData = { readonly id: string } & ({ readonly json: unknown } | { readonly bytes: Uint8Array })

const contentType = (record: Pick<StoredRecord, 'headers'>): string =>
  textOf(headerOf(record, TYPE) ?? EMPTY)
    .trim()
    .toLowerCase()

/** A media type without its parameters. */
const media = (type: string): string => type.split(';', 1)[0]!.trim()
const isJson = (type: string): boolean => media(type) === 'application/json' || media(type).endsWith('+json')

/** Whether a record says that it is a CloudEvent, in either mode. */
const isCloudEvent = (record: Pick<StoredRecord, 'headers'>): boolean =>
  headerOf(record, `${PREFIX}specversion`) !== undefined || contentType(record).startsWith(STRUCTURED)

const invalid = (issue: SchemaFault): string =>
  `Expected a CloudEvent with specversion "${SPEC_VERSION}", id, source and type: ${issue.path.join('.') || 'the event'}: ${issue.message}.`

const inBinary = (record: StoredRecord): CloudData | string => {
  const names = ['specversion', 'id', 'source', 'type'] as const
  const given = Object.fromEntries(
    names.flatMap((name) => {
      const bytes = headerOf(record, PREFIX + name)
      return bytes === undefined ? [] : [[name, textOf(bytes)]]
    }),
  )
  const parsed = envelope.safeParse(given)
  if (!parsed.success) return invalid(schemaFault(parsed.error))
  return { id: parsed.data.id, bytes: record.value ?? EMPTY }
}

const inStructured = (type: string, value: Uint8Array): CloudData | string => {
  if (media(type) !== `${STRUCTURED}+json`)
    return `CloudEvents are read one a record, as JSON (${STRUCTURED}+json) or in binary mode; this record says "${media(type)}".`
  let json: unknown
  try {
    json = JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(value))
  } catch {
    return `Expected a CloudEvent as JSON, got ${value.length} bytes that are not JSON.`
  }
  const parsed = envelope.safeParse(json)
  if (!parsed.success) return invalid(schemaFault(parsed.error))
  const { id, data, data_base64: base64 } = parsed.data
  if (base64 === undefined) return { id, json: data }
  return data === undefined
    ? { id, bytes: Buffer.from(base64, 'base64') }
    : 'Expected a CloudEvent with data or data_base64, got both.'
}

/** What the CloudEvent in a record carries; null: it is none; or the sentence that says what is wrong with it. */
export const cloudDataOf = (record: StoredRecord, format: 'json' | 'text'): CloudData | string | null => {
  if (!isCloudEvent(record)) return null
  const type = contentType(record)
  if (type.startsWith(STRUCTURED)) return inStructured(type, record.value ?? EMPTY)
  if (format === 'json' && type !== '' && !isJson(type))
    return `Expected an event as JSON in the CloudEvent, got data of the type "${media(type)}".`
  return inBinary(record)
}

/**
 * Headers of an input record that its outputs may carry: all but the one that says whom the record counts for
 * (shares.ts), and the one that has what a client asked for (asked.ts). Headers that name a CloudEvent or the form of
 * its data are left out where the record is a CloudEvent, and where outputs are CloudEvents and have such headers of
 * their own.
 */
export const passedOn = (record: Pick<StoredRecord, 'headers'>, cloudEvents: boolean): Headers => {
  const isCloud = cloudEvents || isCloudEvent(record)
  const stays = ([name]: Headers[number]): boolean =>
    name !== SHARE_HEADER && !(isCloud && (name.startsWith(PREFIX) || name.toLowerCase() === TYPE))
  return withoutAsked(record.headers).filter(stays)
}

const utf8 = new TextEncoder()

/**
 * The attributes of an output as a CloudEvent in binary mode. The id is that of its bytes, which say what caused it:
 * the same output computed again is the same event, and no other has its id. `time` is left out: outputs follow from
 * the log, and a clock is not in it.
 */
export const attributesOf = (
  value: Uint8Array,
  { type, session }: { readonly type: string; readonly session: string },
  { input, schema }: { readonly input: string; readonly schema: string },
): Headers =>
  Object.entries({
    [`${PREFIX}specversion`]: SPEC_VERSION,
    [`${PREFIX}id`]: sha256(value),
    [`${PREFIX}source`]: `urn:continuo:topic:${input}`,
    [`${PREFIX}type`]: `continuo.${type}.v1`,
    [`${PREFIX}subject`]: session,
    [`${PREFIX}dataschema`]: schema,
    [TYPE]: 'application/json',
  }).map(([name, text]) => [name, utf8.encode(text)] as const)
