/** kafkajs's errors as verdicts. What Kafka said is kept in the sentence and in `cause`; the code says what to do. */
import { ContinuoError, type ErrorCode } from '../../errors.ts'
import { BROKER } from '../../places.ts'
import { problemOf, problemText } from './tls.ts'

interface Fault {
  readonly name: string
  readonly message: string
  /** Kafka's error name, as kafkajs spells it. */
  readonly type: string
  /** Kafka's number, or the system's name (`ECONNREFUSED`). */
  readonly code: number | string | undefined
}

const layers = function* (error: unknown): Generator<object> {
  for (let layer = error; typeof layer === 'object' && layer !== null; layer = (layer as { cause?: unknown }).cause) {
    yield layer
    const [first] = (layer as { errors?: readonly unknown[] }).errors ?? []
    if (first !== undefined) yield* layers(first)
  }
}

/** kafkajs wraps what failed in what gave up; the innermost protocol error or connection error tells. */
export const faultOf = (error: unknown): Fault => {
  const all = [...layers(error)] as { name?: string; message?: string; type?: string; code?: number | string }[]
  const telling =
    all.findLast(({ type }) => type !== undefined) ??
    all.findLast(({ name }) => name?.startsWith('KafkaJS') && !/NonRetriable|NumberOfRetries/.test(name)) ??
    all.at(-1) ??
    {}
  return {
    name: telling.name ?? 'Error',
    message: telling.message ?? String(error),
    type: telling.type ?? '',
    code: telling.code,
  }
}

const CONNECTION = /^KafkaJS(Connection(Closed)?Error|RequestTimeoutError|LockTimeout|Timeout|BrokerNotFound)$/
export const isConnectionFault = ({ name }: Fault): boolean => CONNECTION.test(name)

/** `host:port` of the broker that took a request and did not answer in time; undefined for any other error. */
export const unansweredBy = (error: unknown): string | undefined => {
  for (const layer of layers(error)) {
    const { name, broker } = layer as { name?: string; broker?: unknown }
    if (name === 'KafkaJSRequestTimeoutError' && typeof broker === 'string') return broker
  }
  return undefined
}

/** Reported like kafkajs's own errors. */
export const connectionFault = (message: string): Error =>
  Object.assign(new Error(message), { name: 'KafkaJSConnectionError' })

/** A newer producer holds the transactional id. kafkajs does not know 90, and Kafka maps it to 47 for its versions. */
export const isFenced = ({ type, code }: Fault): boolean =>
  type === 'INVALID_PRODUCER_EPOCH' || type === 'INVALID_PRODUCER_ID_MAPPING' || code === 90

const TRANSIENT = new Set([
  // Also said by a broker that has not heard of a new topic; a request for metadata says whether there is none.
  'UNKNOWN_TOPIC_OR_PARTITION',
  'LEADER_NOT_AVAILABLE',
  'NOT_LEADER_FOR_PARTITION',
  'FENCED_LEADER_EPOCH',
  'UNKNOWN_LEADER_EPOCH',
  'REQUEST_TIMED_OUT',
  'NETWORK_EXCEPTION',
  'REPLICA_NOT_AVAILABLE',
  'KAFKA_STORAGE_ERROR',
  'NOT_ENOUGH_REPLICAS',
  'NOT_ENOUGH_REPLICAS_AFTER_APPEND',
  'NOT_CONTROLLER',
  // The coordinators' three, for groups and transactions alike.
  'GROUP_LOAD_IN_PROGRESS',
  'GROUP_COORDINATOR_NOT_AVAILABLE',
  'NOT_COORDINATOR_FOR_GROUP',
  'CONCURRENT_TRANSACTIONS',
  'UNSTABLE_OFFSET_COMMIT',
])
/** Nothing moved; what was asked for is only not ready yet. */
const WAITING = new Set(['CONCURRENT_TRANSACTIONS', 'UNSTABLE_OFFSET_COMMIT', 'GROUP_LOAD_IN_PROGRESS'])
export const isWaiting = ({ type }: Fault): boolean => WAITING.has(type)

/** A certificate or a port that does not fit: no further try mends it. */
export const isTlsFault = ({ code }: Fault): boolean => problemOf(code) !== null

/** The same request may succeed in a moment, perhaps elsewhere. */
export const isTransient = (fault: Fault): boolean =>
  (isConnectionFault(fault) && !isTlsFault(fault)) || TRANSIENT.has(fault.type)

const DENIED = /AUTHORIZATION_FAILED$|^SASL_|^ILLEGAL_SASL_STATE$|^UNSUPPORTED_SASL_MECHANISM$/
const INVALID = new Set([
  'UNKNOWN_TOPIC_OR_PARTITION',
  'INVALID_TOPIC_EXCEPTION',
  'INVALID_PARTITIONS',
  'INVALID_CONFIG',
  'INVALID_GROUP_ID',
  'INVALID_REPLICATION_FACTOR',
  'POLICY_VIOLATION',
  'MESSAGE_TOO_LARGE',
  'RECORD_LIST_TOO_LARGE',
  'INVALID_TIMESTAMP',
  'INVALID_RECORD',
])

/** Errors that remain however often a member asks. */
const REFUSED_MEMBER: Readonly<Record<string, string>> = {
  INVALID_SESSION_TIMEOUT:
    "Kafka allows no session time-out of this length: choose one (--session-timeout) between the broker's group.min.session.timeout.ms and group.max.session.timeout.ms, by default 6000 and 1800000",
  INCONSISTENT_GROUP_PROTOCOL:
    'Another application, which shares partitions by another protocol, uses this group: choose another group (--group), or stop that application',
  GROUP_MAX_SIZE_REACHED: "The group is full: stop one of its members, or raise the broker's group.max.size",
}

/** Advice for an error that lasts; Kafka's own words name the symptom. */
const STANDSTILL: Readonly<Record<string, string>> = {
  CONCURRENT_TRANSACTIONS:
    'The end of the transaction before cannot be written yet: where this lasts, a partition that it wrote to has no leader, or fewer replicas in sync than min.insync.replicas',
}

const codeFor = (error: unknown, fault: Fault): ErrorCode => {
  if (fault.name === 'KafkaJSSASLAuthenticationError' || DENIED.test(fault.type) || isTlsFault(fault)) return 'DENIED'
  if (INVALID.has(fault.type) || fault.type in REFUSED_MEMBER) return 'INVALID'
  if (fault.type === 'OFFSET_OUT_OF_RANGE') return 'POSITION'
  if (error instanceof TypeError || error instanceof RangeError || error instanceof ReferenceError) return 'INTERNAL'
  return 'UNAVAILABLE'
}

/** `doing` completes "While …": "committing to partition 3". */
export const explain = (brokers: string, doing: string, error: unknown): ContinuoError => {
  if (error instanceof ContinuoError) return error
  const fault = faultOf(error)
  const code = codeFor(error, fault)
  const said = (what: string): ContinuoError =>
    new ContinuoError(code, `${what} (while ${doing}; Kafka at ${brokers}: ${fault.message})`, { cause: error })
  const problem = problemOf(fault.code)
  if (problem !== null) return said(problemText(problem))
  switch (code) {
    case 'DENIED':
      return said(
        fault.type.endsWith('AUTHORIZATION_FAILED')
          ? 'This user may not do that: ask for the permission'
          : 'Kafka refused the credentials: check username, password and sasl in the URL, or KAFKA_USERNAME and KAFKA_PASSWORD',
      )
    case 'INVALID':
      return said(REFUSED_MEMBER[fault.type] ?? 'Kafka refused the request')
    case 'POSITION':
      return said('The position does not exist')
    case 'INTERNAL':
      return said('The Kafka adapter failed')
    default:
      return said(
        isConnectionFault(fault)
          ? `Cannot reach ${brokers}: is the broker running? \`${BROKER}\` starts one`
          : (STANDSTILL[fault.type] ?? 'Kafka could not do it now: try again'),
      )
  }
}
