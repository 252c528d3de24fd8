/** Reads everything that the log holds of one partition, for `verify` to compare with. */
import { isDeepStrictEqual } from 'node:util'
import type { Cause } from '../../../topics/common.ts'
import { DEAD_LETTER_HEADERS } from '../../../topics/deadletters.ts'
import type { TopicNames } from '../../../topics/index.ts'
import { messageOf } from '../../errors.ts'
import { type Cancelled, faultOfHead, type Head, type PartitionCursor, unseal } from '../../state/head.ts'
import type { EventLog, StoredRecord } from '../../streams/log.ts'
import { textOf } from '../../text.ts'
import { isGenesisCursor } from '../worker/partition-state.ts'

/** One difference between the log and its recomputation. */
export interface Finding {
  /** What differs. */
  readonly kind: 'token' | 'observation' | 'alert' | 'head' | 'snapshot' | 'blob' | 'deadletter' | 'input'
  /** null: it is the partition's. */
  readonly session: string | null
  /** Of the input. */
  readonly partition: number
  /** Topic and offset, or what else says where. */
  readonly where: string
  /** What was expected and what is there. */
  readonly message: string
}
export type Found = (finding: Omit<Finding, 'partition'>) => void

/** Something stored, and the place to name when it is wrong. */
export interface At<T> {
  readonly what: T
  readonly where: string
}

export const keyText = (record: StoredRecord): string => (record.key === null ? '' : textOf(record.key))

/** Where in its stream a head stands, as a map key. */
export const placeOf = ({ cursor }: Head): string => `${cursor.offset}/${cursor.token}/${cursor.complete}`

/** Everything committed in a partition. */
export async function* all(log: EventLog, topic: string, partition: number): AsyncGenerator<StoredRecord> {
  const { begin, end } = await log.bounds(topic, partition)
  for await (const batch of log.read(topic, partition, begin, { until: end })) yield* batch.records
}

export interface StoredState {
  readonly cursor: PartitionCursor | null
  /** Every head that is still there, oldest first. */
  readonly heads: ReadonlyMap<string, readonly At<Head>[]>
  /** Requests that did not come to their own ends, by their offsets. */
  readonly cancelled: ReadonlyMap<number, At<Cancelled>>
  /** Those that a `cancel` ended, by its offset. */
  readonly cancels: ReadonlyMap<number, readonly At<Cancelled>[]>
}

export const readState = async (
  log: EventLog,
  names: TopicNames,
  partition: number,
  found: Found,
): Promise<StoredState> => {
  let cursor: PartitionCursor | null = null
  const heads = new Map<string, At<Head>[]>()
  const cancelled = new Map<number, At<Cancelled>>()
  const place = { topic: names.state, partition, keys: log.sealKeys }
  for await (const record of all(log, names.state, partition)) {
    const where = `${names.state}, partition ${partition}, offset ${record.offset}`
    try {
      const state = unseal(where, record.key, record.value, record.headers, place)
      const fault = state.type === 'head' ? faultOfHead(state) : null
      if (fault !== null)
        found({ kind: 'head', session: keyText(record), where, message: `The head cannot be used: ${fault}.` })
      if (state.type === 'cursor') cursor = cursor !== null && isGenesisCursor(record) ? cursor : state
      else if (state.type === 'deleted') {
        heads.delete(state.session)
        for (const [offset, { what }] of cancelled)
          if (what.session === state.session && offset < state.offset) cancelled.delete(offset)
      } else if (state.type === 'cancelled') {
        const other = cancelled.get(state.offset)
        // Compaction writes a record again as it was.
        if (other !== undefined && !isDeepStrictEqual(other.what, state)) {
          const message = `The record says of the request at offset ${state.offset} that it was cancelled after ${state.index} tokens; the one at ${other.where} says something else.`
          found({ kind: 'head', session: state.session, where, message })
        }
        cancelled.set(state.offset, { what: state, where })
      } else {
        const list = heads.get(state.session) ?? []
        list.push({ what: state, where })
        heads.set(state.session, list)
      }
    } catch (error) {
      found({ kind: 'head', session: keyText(record) || null, where, message: messageOf(error) })
    }
  }
  const byCancel = [...cancelled.values()].filter(({ what }) => what.endedBy === undefined)
  const cancels = Map.groupBy(byCancel, ({ what }) => what.cause.offset)
  return { cursor, heads, cancelled, cancels }
}

/** Content of the dead letters of one event, and their reason. */
export interface DeadLetter {
  readonly parts: Uint8Array[]
  readonly reason: string
  /** Why and where its session was set aside with it, as the header says; null: it was not. */
  readonly stopped: string | null
}

/** Dead letters by the offset of the original; one in parts is put together. */
export const readDeadLetters = async (
  log: EventLog,
  names: TopicNames,
  partition: number,
): Promise<ReadonlyMap<number, DeadLetter>> => {
  const deadLetters = new Map<number, DeadLetter>()
  for await (const record of all(log, names.deadletters, partition)) {
    const header = (wanted: string): string | null => {
      const found = record.headers.findLast(([name]) => name === wanted)
      return found === undefined ? null : textOf(found[1])
    }
    const at = header(DEAD_LETTER_HEADERS.offset)
    if (at === null) continue
    const letter = deadLetters.get(Number(at)) ?? {
      parts: [],
      reason: header(DEAD_LETTER_HEADERS.reason) ?? '',
      stopped: header(DEAD_LETTER_HEADERS.stopped),
    }
    letter.parts.push(record.value ?? new Uint8Array(0))
    deadLetters.set(Number(at), letter)
  }
  return deadLetters
}

/** The topics of outputs that are events, and what a record of each is called. */
export const OUTPUT_KINDS = { tokens: 'token', observations: 'observation', alerts: 'alert' } as const
export type OutputTopic = keyof typeof OUTPUT_KINDS
export const OUTPUTS = Object.keys(OUTPUT_KINDS) as OutputTopic[]

/** The members of output events that say where in the input they belong. */
export interface Placed {
  readonly type: string
  readonly cause: Cause
  readonly toPulse?: number
  readonly pulse?: number
  /** Of `remembered`: what happened, each behind the token with its pulse. */
  readonly events?: readonly { readonly pulse?: number }[]
  readonly finish?: string | null
}

/** null: what stands there is no output event. */
export const placedIn = ({ value }: StoredRecord): Placed | null => {
  try {
    const parsed = JSON.parse(textOf(value ?? new Uint8Array(0))) as Placed | null
    return typeof parsed?.cause?.offset === 'number' ? parsed : null
  } catch {
    return null
  }
}

/** Of a record that was found to be an event. */
export const placedOf = (record: StoredRecord): Placed => placedIn(record)!

/** Says of a record of an output topic that it holds no event. */
export const noEvent = (found: Found, topic: OutputTopic, name: string, record: StoredRecord): void => {
  const { partition, offset } = record
  const where = `${name}, partition ${partition}, offset ${offset}`
  found({
    kind: OUTPUT_KINDS[topic],
    session: keyText(record),
    where,
    message: 'The record is no event: its value was altered, or somebody else wrote it.',
  })
}

/** The last deletion of each session that was deleted, as the observations tell it: the offset of its event. */
export const readDeletions = async (
  log: EventLog,
  names: TopicNames,
  partition: number,
): Promise<ReadonlyMap<string, number>> => {
  const deleted = new Map<string, number>()
  for await (const record of all(log, names.observations, partition)) {
    const value = textOf(record.value ?? new Uint8Array(0))
    const placed = value.startsWith('{"type":"deleted"') ? placedIn(record) : null
    if (placed !== null) deleted.set(keyText(record), placed.cause.offset)
  }
  return deleted
}
