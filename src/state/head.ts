/**
 * State records: heads of sessions and the cursor of a partition. Each is JSON, sealed by the sha256 of its bytes in a
 * header, because neither kafkajs nor SQLite notices a flipped bit. docs/formats.md describes them byte by byte.
 */
import { isDeepStrictEqual } from 'node:util'
import { type Head, type PartitionCursor, type StateRecord, stateRecord } from '../../topics/state.ts'
import { ContinuoError } from '../errors.ts'
import { sha256 } from '../hash.ts'
import { schemaFault } from '../issues.ts'
import { hmac, type SealKeys, sameSeal } from '../seal-key.ts'
import { textOf } from '../text.ts'
import { faultOf, type Positions } from './head-rules.ts'

export type { Cancelled, Head, PartitionCursor, SnapshotRef, StreamCursor } from '../../topics/state.ts'

/** The parts of a log record that a state record uses. */
export interface Sealed {
  readonly key: Uint8Array
  readonly value: Uint8Array
  readonly headers: readonly (readonly [string, Uint8Array])[]
}

const SEAL = 'sha256'
const utf8 = new TextEncoder()

/** The key of a state record: the session id, or nothing for the partition cursor. */
export const stateKey = (record: StateRecord): string => (record.type === 'cursor' ? '' : record.session)

/**
 * Headers that say what a record of a session is that is no head, so that a reader opens only what counts: a
 * `cancelled` record, by the offset of the request, and a tombstone, by that of the `delete` event, both in decimal.
 */
const CANCELLED = 'cancelled'
const DELETED = 'deleted'

const offsetIn = (headers: Sealed['headers'], wanted: string): number | null => {
  const found = headers.find(([name]) => name === wanted)
  return found === undefined ? null : Number(textOf(found[1]))
}

/** The request that a `cancelled` record speaks of, by its header; null: it is another record. */
export const cancelledOffset = (headers: Sealed['headers']): number | null => offsetIn(headers, CANCELLED)

/** The `delete` event of a tombstone, by its header; null: it is another record. */
export const deletedOffset = (headers: Sealed['headers']): number | null => offsetIn(headers, DELETED)

const WHAT = { head: 'head', cancelled: 'cancelled request', deleted: 'deletion' } as const

/** Where a state record lies, and what seals it there: with keys its place is sealed with it. */
export interface SealPlace {
  readonly topic: string
  readonly partition: number
  readonly keys?: SealKeys | undefined
}

const KEYED = 'hmac-sha256'

const keyedSeal = (key: Uint8Array, { topic, partition }: SealPlace, name: Uint8Array, value: Uint8Array): string =>
  hmac(key, 'state', [utf8.encode(topic), utf8.encode(String(partition)), name, value])

/**
 * Throws INTERNAL for a record that `unseal` would refuse or whose head breaks a rule: once sealed it would stop its
 * partition at the next start, when the cause can no longer be found.
 */
export const seal = (record: StateRecord, place?: SealPlace): Sealed => {
  const parsed = stateRecord.safeParse(record)
  const issue = parsed.success ? undefined : schemaFault(parsed.error)
  const fault = issue ? `${issue.path.join('.')} ${issue.message}` : record.type === 'head' ? faultOfHead(record) : null
  if (fault !== null) {
    const who = record.type === 'cursor' ? 'partition cursor' : `${WHAT[record.type]} of session "${record.session}"`
    throw new ContinuoError('INTERNAL', `The ${who} was about to be written and could not be read again: ${fault}.`)
  }
  const key = utf8.encode(stateKey(record))
  const value = utf8.encode(JSON.stringify(record))
  const keys = place?.keys
  const made =
    keys === undefined
      ? ([SEAL, utf8.encode(sha256(value))] as const)
      : ([KEYED, utf8.encode(keyedSeal(keys.key, place!, key, value))] as const)
  if (record.type === 'head' || record.type === 'cursor') return { key, value, headers: [made] }
  const kind = record.type === 'cancelled' ? CANCELLED : DELETED
  return { key, value, headers: [made, [kind, utf8.encode(String(record.offset))]] }
}

/** Whether the seal is one that the keys no longer make: the record is to be written anew. */
export const isOldSeal = ({ key, value, headers }: Sealed, place: SealPlace): boolean => {
  if (place.keys === undefined) return false
  const made = headers.find(([name]) => name === KEYED)?.[1]
  return made === undefined || !sameSeal(textOf(made), keyedSeal(place.keys.key, place, key, value))
}

/** The fault of a seal, as a clause; null where the seal is right. */
const sealFault = (
  key: Uint8Array,
  value: Uint8Array,
  headers: Sealed['headers'],
  place?: SealPlace,
): string | null => {
  const plain = headers.find(([name]) => name === SEAL)?.[1]
  const keyed = headers.find(([name]) => name === KEYED)?.[1]
  const keys = place?.keys
  if (keyed !== undefined) {
    if (place === undefined || keys === undefined)
      return 'is sealed with a key: give it, --seal-key FILE or CONTINUO_SEAL_KEY_FILE'
    const accepted = [keys.key, ...(keys.old === null || keys.old === 'plain' ? [] : [keys.old])]
    if (accepted.some((one) => sameSeal(textOf(keyed), keyedSeal(one, place, key, value)))) return null
    return 'is not sealed with this key: it was altered or moved, or another key (--seal-key) sealed it; --seal-key-old accepts a former one'
  }
  if (plain === undefined) return 'carries no value or no sha256 header'
  if (keys !== undefined && keys.old !== 'plain')
    return 'is sealed without a key, and --seal-key accepts none such: anybody who may write the topic could have made it. --seal-key-old plain accepts it'
  const expected = textOf(plain)
  const actual = sha256(value)
  return expected === actual ? null : `fails its checksum: the header says ${expected}, the bytes give ${actual}`
}

/**
 * Opens a state record. `where` says in a message which record it was ("continuo.state, partition 0, offset 12").
 * Throws REFUSED when the seal is broken, the layout is of another version, or key and content disagree.
 */
export const unseal = (
  where: string,
  key: Uint8Array | null,
  value: Uint8Array | null,
  headers: readonly (readonly [string, Uint8Array])[],
  place?: SealPlace,
): StateRecord => {
  const refuse = (what: string): never => {
    throw new ContinuoError(
      'REFUSED',
      `The state record at ${where} ${what}. Nothing was changed. Restore the log from a copy, or rebuild the state from the events with a new group and prefix.`,
    )
  }
  if (value === null) return refuse('carries no value or no sha256 header')
  const fault = sealFault(key ?? new Uint8Array(0), value, headers, place)
  if (fault !== null) return refuse(fault)
  let json: unknown
  try {
    json = JSON.parse(textOf(value))
  } catch {
    return refuse('is not JSON')
  }
  const version = (json as { version?: unknown } | null)?.version
  if (version !== 1) return refuse(`has layout version ${JSON.stringify(version)}; this Continuo reads version 1`)
  const parsed = stateRecord.safeParse(json)
  if (!parsed.success) {
    const issue = schemaFault(parsed.error)
    return refuse(`does not fit the schema: ${issue.path.join('.')} ${issue.message}`)
  }
  const named = key === null ? null : textOf(key)
  if (named !== stateKey(parsed.data)) {
    return refuse(`has the key ${JSON.stringify(named)} but speaks of ${JSON.stringify(stateKey(parsed.data))}`)
  }
  const state = parsed.data
  const request = cancelledOffset(headers)
  if (request !== (state.type === 'cancelled' ? state.offset : null))
    return refuse(
      `is of the type "${state.type}" and has ${request === null ? 'no header' : `the header "${request}"`} of a cancelled request`,
    )
  const deletion = deletedOffset(headers)
  if (deletion !== (state.type === 'deleted' ? state.offset : null))
    return refuse(
      `is of the type "${state.type}" and has ${deletion === null ? 'no header' : `the header "${deletion}"`} of a deletion`,
    )
  return state
}

const mismatch = (stream: number | bigint, model: number | bigint): string =>
  `Stream/model pulse mismatch: stream at pulse ${stream}, model at pulse ${model}. The continuum of memory is broken. Cannot resume.`

/** Law 2: the stream's pulse and the model's must be one number. */
export const pulseMismatch = (stream: number | bigint, model: number | bigint): ContinuoError =>
  new ContinuoError('REFUSED', mismatch(stream, model))

/** Why a head that fits its schema cannot be used; null: it can. */
export const faultOfHead = (head: Head, model?: Positions): string | null => {
  const { cursor, conductor } = head
  return cursor.pulse === conductor.globalStep ? faultOf(head, model) : mismatch(cursor.pulse, conductor.globalStep)
}

/** Fingerprints of the loaded model, with which a log must agree. */
export interface Fingerprints {
  readonly fingerprint: string
  readonly layoutFingerprint: string
}

/** Throws REFUSED unless the record was written for this model and this state layout. */
export const checkFits = (record: Head | PartitionCursor, model: Fingerprints): void => {
  const who =
    record.type === 'head' ? `Session "${record.session}"` : `Partition ${record.partition} of ${record.topic}`
  const isOtherShape = record.layout !== model.layoutFingerprint
  if (!isOtherShape && record.model === model.fingerprint) return
  const of = (fingerprint: string, layout: string): string =>
    `${fingerprint.slice(0, 12)}…${isOtherShape ? ` with state layout ${layout.slice(0, 12)}…` : ''}`
  throw new ContinuoError(
    'REFUSED',
    `${who} was written by model ${of(record.model, record.layout)}, the loaded model is ${of(model.fingerprint, model.layoutFingerprint)}. Load the model that wrote this log (continuo model show prints a model's fingerprint), or use another --group and prefix.`,
  )
}

/** Whether two heads of a session stand at the same place of their stream. */
export const samePlace = (a: Head, b: Head): boolean =>
  a.cursor.offset === b.cursor.offset && a.cursor.token === b.cursor.token && a.cursor.complete === b.cursor.complete

/** Whether two heads stand for the same state; the snapshot they name may differ. */
export const sameHead = (a: Head, b: Head): boolean =>
  isDeepStrictEqual({ ...a, snapshot: null }, { ...b, snapshot: null })

/** The fields in which two heads differ, for a message. */
export const headDifference = (a: Head, b: Head): string => {
  const fields: string[] = []
  for (const key of Object.keys({ ...a, ...b }) as (keyof Head)[]) {
    if (key === 'snapshot') continue
    if (isDeepStrictEqual(a[key], b[key])) continue
    fields.push(`${key}: ${JSON.stringify(a[key])} against ${JSON.stringify(b[key])}`)
  }
  return fields.join('; ')
}
