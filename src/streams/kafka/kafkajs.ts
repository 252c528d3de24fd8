/**
 * The parts of kafkajs 2.2.4 that this adapter stands on, typed as narrowly as they are used, and the two patches to
 * them.
 *
 * kafkajs's consumer and producer hide what an exactly-once reader and writer must see: positions, aborted
 * transactions, epochs, the outcome of a commit. So records are read and written one layer below them, over kafkajs's
 * connections and protocol; its consumer is used for group membership only. There is no `exports` map: deep requires
 * work, and the version is pinned in package.json.
 */
import { createRequire } from 'node:module'
import { type ISocketFactory, type Kafka as KafkaClient, type KafkaConfig, Kafka as KafkaConstructor } from 'kafkajs'

const require = createRequire(import.meta.url)

export interface Encoder {
  readonly buffer: Buffer
  writeInt8(value: number): Encoder
  writeInt16(value: number): Encoder
  writeInt32(value: number): Encoder
  writeInt64(value: number): Encoder
  writeBoolean(value: boolean): Encoder
  writeString(value: string | null): Encoder
  writeBytes(value: Buffer): Encoder
  writeBuffer(value: Buffer): Encoder
}

/** One request and how to read its answer: what kafkajs's connections send. */
export interface Protocol<T> {
  readonly request: {
    readonly apiKey: number
    readonly apiVersion: number
    readonly apiName: string
    encode(): Promise<Encoder>
  }
  readonly response: {
    /** `clientSideThrottleTime`, if there, makes the connection wait (KIP-219). */
    decode(raw: Buffer): Promise<T>
    parse(decoded: T): Promise<T>
  }
  readonly requestTimeout?: number
  readonly logResponseError?: boolean
}

/** The part of a protocol that is the same wherever a response has one error code. */
export const answeredWith = <T extends { readonly errorCode: number }>(
  decode: (raw: Buffer) => T,
): Pick<Protocol<T>, 'response' | 'logResponseError'> => ({
  response: {
    decode: async (raw) => decode(raw),
    parse: async (decoded) => {
      if (decoded.errorCode !== 0) throw createErrorFromCode(decoded.errorCode)
      return decoded
    },
  },
  logResponseError: false,
})

interface Connection {
  readonly socket?: { destroy(): void }
  send<T>(protocol: Protocol<T>): Promise<T>
  rejectRequests(error: Error): void
}

export interface ConnectionPool {
  readonly host: string
  readonly port: number
  readonly pool: readonly Connection[]
  getConnection(index?: number): Promise<Connection>
  isConnected(): boolean
  destroy(): Promise<void>
}

export interface ConfigEntry {
  readonly configName: string
  readonly configValue: string
  readonly configSource: number
}

export interface BrokerMetadata {
  readonly brokers: readonly { readonly nodeId: number; readonly host: string; readonly port: number }[]
  readonly controllerId: number
  readonly topicMetadata: readonly {
    readonly topic: string
    readonly isInternal: boolean
    readonly partitionMetadata: readonly { readonly partitionId: number; readonly leader: number }[]
  }[]
}

interface Transaction {
  readonly transactionalId: string
  readonly producerId: number
  readonly producerEpoch: number
}

export interface Broker {
  readonly connectionPool: ConnectionPool
  /** Versions that the broker understands, by the number of the request; null before it is connected. */
  readonly versions: Readonly<Record<number, { readonly maxVersion: number }>> | null
  connect(): Promise<void>
  disconnect(): Promise<void>
  isConnected(): boolean
  metadata(topics: readonly string[]): Promise<BrokerMetadata>
  findGroupCoordinator(of: { groupId: string; coordinatorType: number }): Promise<{
    readonly coordinator: { readonly nodeId: number; readonly host: string; readonly port: number }
  }>
  listOffsets(of: {
    isolationLevel: number
    topics: readonly { topic: string; partitions: readonly { partition: number; timestamp: number }[] }[]
  }): Promise<{ readonly responses: readonly { readonly partitions: readonly { readonly offset: string }[] }[] }>
  createTopics(request: {
    topics: readonly {
      topic: string
      numPartitions: number
      replicationFactor: number
      configEntries: readonly { name: string; value: string }[]
    }[]
    timeout?: number
  }): Promise<unknown>
  describeConfigs(request: { resources: readonly { type: number; name: string }[] }): Promise<{
    readonly resources: readonly { readonly resourceName: string; readonly configEntries: readonly ConfigEntry[] }[]
  }>
  describeGroups(request: { groupIds: readonly string[] }): Promise<{
    readonly groups: readonly {
      readonly state: string
      readonly protocolType: string
      readonly members: readonly {
        readonly memberId: string
        readonly memberMetadata: Buffer
        readonly memberAssignment: Buffer
      }[]
    }[]
  }>
  deleteRecords(request: {
    topics: readonly { topic: string; partitions: readonly { partition: number; offset: string }[] }[]
  }): Promise<unknown>
  initProducerId(request: {
    transactionalId?: string
    transactionTimeout: number
  }): Promise<{ readonly producerId: string; readonly producerEpoch: number }>
  addPartitionsToTxn(
    request: Transaction & { topics: readonly { topic: string; partitions: readonly number[] }[] },
  ): Promise<unknown>
  addOffsetsToTxn(request: Transaction & { groupId: string }): Promise<unknown>
  txnOffsetCommit(
    request: Transaction & {
      groupId: string
      topics: readonly { topic: string; partitions: readonly { partition: number; offset: string }[] }[]
    },
  ): Promise<unknown>
  endTxn(request: Transaction & { transactionResult: boolean }): Promise<unknown>
}

/** kafkajs's own logger object; only passed on. */
export interface Logger {
  namespace(name: string): Logger
}

interface ConnectionPoolBuilder {
  build(destination: { host: string; port: number }): Promise<ConnectionPool>
}

interface RequestQueue {
  readonly pending: readonly unknown[]
  readonly throttledUntil: number
  throttleCheckTimeoutId: NodeJS.Timeout | null
  checkPendingRequests(): void
}

export const Encoder = require('kafkajs/src/protocol/encoder') as new () => Encoder
export const createErrorFromCode = (
  require('kafkajs/src/protocol/error') as { createErrorFromCode(code: number): Error }
).createErrorFromCode
export const createBroker = require('kafkajs/src/broker') as new (options: {
  connectionPool: ConnectionPool
  logger: Logger
  nodeId?: number
  allowAutoTopicCreation: boolean
}) => Broker
export const createConnectionPoolBuilder = require('kafkajs/src/cluster/connectionPoolBuilder') as (
  options: KafkaConfig & {
    socketFactory: ISocketFactory
    logger: Logger
    connectionTimeout: number
    requestTimeout: number
  },
) => ConnectionPoolBuilder
export const socketFactory = (require('kafkajs/src/network/socketFactory') as () => ISocketFactory)()
export const { MemberMetadata, MemberAssignment } = require('kafkajs/src/consumer/assignerProtocol') as {
  MemberMetadata: {
    encode(of: { version: number; topics: readonly string[]; userData: Buffer }): Buffer
    decode(buffer: Buffer): { readonly topics: readonly string[]; readonly userData: Buffer | null }
  }
  MemberAssignment: {
    encode(of: { version: number; assignment: Record<string, readonly number[]>; userData: Buffer }): Buffer
    /** null for an empty buffer. */
    decode(buffer: Buffer): { readonly assignment: Readonly<Record<string, readonly number[]>> } | null
  }
}

/**
 * kafkajs plans a look at its queue of waiting requests after every answer, even when none waits, with the negative
 * time that is left of a throttling that never was: a 1 ms timer for ever on each idle connection, and on Node 24 a
 * TimeoutNegativeWarning. A look is needed only while something waits.
 */
const requestQueue = (require('kafkajs/src/network/requestQueue') as { prototype: object }).prototype
export const patched = Object.assign(requestQueue, {
  scheduleCheckPendingRequests(this: RequestQueue): void {
    if (this.pending.length === 0 || this.throttleCheckTimeoutId !== null) return
    this.throttleCheckTimeoutId = setTimeout(
      () => {
        this.throttleCheckTimeoutId = null
        this.checkPendingRequests()
      },
      Math.max(10, this.throttledUntil - Date.now()),
    )
  },
})

interface AuthenticatedConnection {
  /** process.hrtime() of the last authentication; null where there was none. */
  readonly authenticatedAt: [number, number] | null
  /** How long the broker takes it for valid, ms; 0: for ever. */
  readonly sessionLifetime: { toString(): string }
}

/** A broker takes a second authentication on a connection only so long after the first. */
const LEAST_SESSION = 1100 // ms

/**
 * When a connection authenticates again (KIP-368): before the broker's connections.max.reauth.ms is over, because the
 * broker closes an older connection on its next request. kafkajs authenticates again in the last 10 s of that time.
 * Where the broker allows 10 s or less, kafkajs would do so before every request, and the broker would refuse it. Here
 * it is the last 15 % of the time, at most 10 s.
 */
const connection = (require('kafkajs/src/network/connection') as { prototype: object }).prototype
Object.assign(connection, {
  isAuthenticated(this: AuthenticatedConnection): boolean {
    if (this.authenticatedAt === null) return false
    const lifetime = Number(this.sessionLifetime.toString())
    if (lifetime === 0) return true
    const [seconds, nanoseconds] = process.hrtime(this.authenticatedAt)
    const due = lifetime - Math.min(10_000, 0.15 * lifetime)
    return seconds * 1000 + nanoseconds / 1e6 < Math.max(LEAST_SESSION, due)
  },
})

export const Kafka: new (config: KafkaConfig) => KafkaClient = KafkaConstructor
