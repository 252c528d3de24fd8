/**
 * Applies the rules of an input: to which session a record belongs, and whether a new session may begin in its
 * partition.
 */
import { isDeepStrictEqual } from 'node:util'
import { sessionId } from '../../../topics/common.ts'
import type { InputRules, KeptRules, Partitioner } from '../../../topics/input.ts'
import type { StoredRecord } from '../../streams/log.ts'
import { homeOf } from '../../streams/partitioner.ts'

/** A byte order mark belongs to the id. */
const strict = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true })

/** The value of a header; of several with the name the last counts. */
export const headerOf = ({ headers }: Pick<StoredRecord, 'headers'>, name: string): Uint8Array | undefined =>
  headers.findLast(([each]) => each === name)?.[1]

const KEY = {
  what: 'as the record key',
  none: 'got no key. Send each event with its session as the key.',
}

/** The session of a partition, where each has one. */
const ofPartition = (partition: number): string => `partition-${partition}`
export const PARTITION_NAME = /^partition-(\d{1,9})$/

/** The session of a record, or the sentence that says why it has none. */
export const sessionOf = (
  record: Pick<StoredRecord, 'key' | 'headers' | 'partition'>,
  { session: from }: InputRules = {},
): { readonly session: string } | { readonly fault: string } => {
  if (from?.is === 'partition') return { session: ofPartition(record.partition) }
  if (from?.is === 'constant') return { session: from.name }
  const { bytes, what, none } =
    from === undefined
      ? { bytes: record.key, ...KEY }
      : {
          bytes: headerOf(record, from.name),
          what: `in the header "${from.name}"`,
          none: `got none. Send each record with that header, or choose another --session-from.`,
        }
  if (bytes == null || bytes.length === 0) return { fault: `Expected the session id ${what}, ${none}` }
  let session: string
  try {
    session = strict.decode(bytes)
  } catch {
    return {
      fault: `Expected a session id in UTF-8 ${what}, got bytes ${Buffer.from(bytes).toString('hex').slice(0, 64)}.`,
    }
  }
  if (sessionId.safeParse(session).success) return { session }
  return { fault: `A session id has 1 to 512 characters, this one has ${session.length}.` }
}

/** The session of a record; empty where it has none. */
export const sessionText = (record: StoredRecord, rules?: InputRules): string => {
  const found = sessionOf(record, rules)
  return 'session' in found ? found.session : ''
}

/** A session that is named by its partition, or is the only one, belongs wherever it is. */
const partitionerOf = ({ partitioner = 'murmur2', session }: InputRules): Partitioner =>
  session === undefined || session.is === 'header' ? partitioner : 'any'

/** Where sessions belong, for the judgement of those that begin. */
export interface Homes {
  /** The partition that a session belongs to; null: to any. */
  readonly home: (session: string) => number | null
  /** Judges records from this offset on. */
  readonly since: number
  readonly partitioner: Partitioner
}

/**
 * Of a log whose rules are not kept (an older version wrote it) nothing is refused, and murmur2 is what its clients
 * used.
 */
export const homesOf = (rules: KeptRules | undefined, partitions: number): Homes => {
  const partitioner = partitionerOf(rules ?? {})
  return {
    home: (session) => homeOf(partitioner, session, partitions),
    since: rules?.since ?? Number.POSITIVE_INFINITY,
    partitioner,
  }
}

const CLIENTS = {
  murmur2: "the murmur2 of Kafka's Java clients and kafkajs",
  crc32: "the CRC32 of librdkafka (kcat and Confluent's clients)",
} as const
const REMEDY = {
  murmur2:
    'librdkafka uses another hash by default: set partitioner=murmur2_random in such a client (kcat: -X partitioner=murmur2_random), or begin a log with --key-partitioner crc32',
  crc32:
    'Clients of another hash must send it there: set partitioner=consistent_random, or name the partition; or begin a log with --key-partitioner murmur2',
} as const

/**
 * Why a session that has no head in this partition cannot begin with this record, as a sentence; null: it can. Follows
 * from its name, the number of partitions and the record's place alone: were the session let in, a client that
 * partitions as the log says would make a second one of its name.
 */
export const faultOfPlace = (
  { partition, offset }: Pick<StoredRecord, 'partition' | 'offset'>,
  session: string,
  { home, since, partitioner }: Homes,
): string | null => {
  const to = offset < since ? null : home(session)
  if (to === null || to === partition || partitioner === 'any') return null
  return `Session "${session}" belongs to partition ${to} by ${CLIENTS[partitioner]}, and this record came in partition ${partition}: it would begin a second session of that name. ${REMEDY[partitioner]}.`
}

/** What is wrong with rules for a topic of so many partitions, as a sentence; null: nothing. */
export const faultOfRules = ({ session }: InputRules, partitions: number): string | null =>
  session?.is === 'constant' && partitions > 1
    ? `--session-from constant:${session.name} makes one session of a topic, and this one has ${partitions} partitions, whose records have no order among each other. Use --session-from partition (a session for each), or a topic of one partition.`
    : null

/** Rules as the flags that say them. */
const shown = ({
  partitioner = 'murmur2',
  session,
  unknownFields,
  cloudEvents,
  generate,
  novelty,
  alerts,
}: InputRules): string => {
  const from = session === undefined ? 'key' : session.is === 'partition' ? session.is : `${session.is}:${session.name}`
  const { every, after, header, request } = generate ?? {}
  return [
    `--key-partitioner ${partitioner}`,
    `--session-from ${from}`,
    `--unknown-fields ${unknownFields ?? 'refuse'}`,
    ...(cloudEvents ? ['--cloudevents'] : []),
    ...(novelty ? ['--novelty'] : []),
    ...(alerts === undefined ? [] : [`--alerts ${alerts}`]),
    ...(every === undefined ? [] : [`--generate-every ${every}`]),
    ...(after === undefined ? [] : [`--generate-after ${JSON.stringify(after)}`]),
    ...(header === undefined ? [] : [`--generate-header ${header}`]),
    ...(request === undefined ? [] : [`--generate-request '${JSON.stringify(request)}'`]),
  ].join(' ')
}

/** Both rule sets as flags, where they differ; null: they are the same. */
export const differing = (
  { since: _, ...kept }: KeptRules,
  given: InputRules,
): { readonly kept: string; readonly given: string } | null => {
  const named = (rules: InputRules): InputRules => ({ ...rules, partitioner: rules.partitioner ?? 'murmur2' })
  return isDeepStrictEqual(named(kept), named(given)) ? null : { kept: shown(kept), given: shown(given) }
}
