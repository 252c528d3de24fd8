/**
 * The port to the log: everything Continuo asks of Kafka, and no more. Two adapters implement it, `embedded/` (SQLite)
 * and `kafka/` (kafkajs); one contract suite (`test/streams/contract.ts`) runs against both.
 *
 * Reading is pulling. A reader asks for the next batch when it has room, so backpressure needs no pause and resume:
 * nothing is fetched that was not asked for. Positions are explicit, and a position that is gone is an error, never a
 * jump.
 *
 * Writing has two doors. `append` is for anyone who feeds events. `claim` is for the owner of an input partition: it
 * fences the former owner and returns the one writer whose transactions carry outputs, state and input offset as one
 * atom. Group membership (`join`) only hints at which worker should claim which partition; the claim's epoch is the
 * lock.
 *
 * Offsets are Kafka's: per partition, growing, with gaps (transaction markers, trimmed records). They are JavaScript
 * numbers, exact below 2^53.
 */
import type { Observable } from 'rxjs'
import type { SharedStore } from '../blobs/store.ts'
import type { SealKeys } from '../seal-key.ts'

/** Names may repeat, as in Kafka. */
export type Headers = readonly (readonly [name: string, value: Uint8Array])[]

/** A record to be appended. */
export interface RecordIn {
  /** The session id, UTF-8; null: no key. */
  readonly key: Uint8Array | null
  /** The event; null: a tombstone. */
  readonly value: Uint8Array | null
  /** Default: none. */
  readonly headers?: Headers
  /** Event time in ms since the epoch; default: now. */
  readonly timestamp?: number
}

/** A record as the log has it. */
export interface StoredRecord {
  /** Full name. */
  readonly topic: string
  /** Number within the topic, from 0. */
  readonly partition: number
  /** Position within the partition; later records have larger ones. */
  readonly offset: number
  /** Event time, ms since the epoch. */
  readonly timestamp: number
  /** null: it has none. */
  readonly key: Uint8Array | null
  /** null: a tombstone. */
  readonly value: Uint8Array | null
  /** As they were appended, in their order. */
  readonly headers: Headers
  /**
   * What stands here is a whole record batch whose records cannot be told apart, up to (not including) `next`: `value`
   * is the batch as the log has it. Only for readers who ask for it.
   */
  readonly undecodable?: { readonly next: number; readonly reason: string }
}

/**
 * `next` is the position after the batch. `next` may move on while `records` is empty: markers, aborted or trimmed
 * records.
 */
export interface Batch {
  /** In the order of their offsets. */
  readonly records: readonly StoredRecord[]
  /** Position after the batch. */
  readonly next: number
}

/** A topic to be created. */
export interface TopicSpec {
  /** Full name. */
  readonly name: string
  /** How many it has; the number does not change. */
  readonly partitions: number
  /** Topic settings in Kafka's names; the embedded log keeps and shows them, and obeys `max.message.bytes`. */
  readonly config: Readonly<Record<string, string>>
}

/** A topic that exists. */
export interface TopicInfo extends TopicSpec {}

/** Committed records only: `begin` is the first offset still there, `end` one past the last stable one. */
export interface Bounds {
  /** First offset still there. */
  readonly begin: number
  /** One past the last stable offset. */
  readonly end: number
}

/** How far and in which pieces a partition is read. */
export interface ReadOptions {
  /** Stop after the last record below this offset. */
  readonly until?: number
  /** Wait for records to come instead of ending at the last stable offset. Default false. */
  readonly follow?: boolean
  /** Rough size of a batch; at least one record is returned. Default 1 MiB. */
  readonly maxBytes?: number
  /** Much is to be read: where reading stops the event loop, it is done on other threads. Default false. */
  readonly bulk?: boolean
  /** Gives a batch that was written as it is and that cannot be decoded as one record. Default: REFUSED. */
  readonly undecodable?: boolean
  /** Ends the iteration (without an error) soon after it fires. */
  readonly signal?: AbortSignal
  /**
   * Reads this very topic: where one of another id has its name, positions mean nothing, and the iteration ends with
   * REFUSED.
   */
  readonly topicId?: string
}

/** The partitions that a member has from now on. */
export interface Assignment {
  /** Grows with every assignment this member receives. */
  readonly generation: number
  /** Numbers of the input's partitions. */
  readonly partitions: readonly number[]
}

/** Being a member of a consumer group. */
export interface Membership {
  /** The current assignment on subscription, then each new one. Errors when membership is lost for good. */
  readonly assignments: Observable<Assignment>
  /** Leaves the group so that others take over at once. Close claimed writers first. */
  leave(): Promise<void>
}

/** One subscription of a member of a group. */
export interface Member {
  readonly member: string
  readonly topic: string
  /** The partitions of that topic that it was given. */
  readonly partitions: readonly number[]
}

/** A record of a transaction. */
export interface OutRecord extends RecordIn {
  /** Full name; the partition is the writer's. */
  readonly topic: string
}

/**
 * The one transactional writer of an input partition. Records go to the same partition number of their own topics.
 *
 *   open ──commit/append fails──▶ broken ──▶ closed        FENCED: the task is gone.
 *     └─────────close()──────────────────────▶ closed       UNAVAILABLE: outcome unknown; claim again and read the cursor.
 *
 * One call at a time; a second one while the first is under way is MISUSE.
 */
export interface PartitionWriter {
  /** Of the input. */
  readonly partition: number
  /** Grows with every claim of the partition: a writer with a smaller one is fenced. */
  readonly epoch: number
  /**
   * One transaction: records and the group's input offset become visible together or not at all. Offsets of the
   * records, in order.
   */
  commit(records: readonly OutRecord[], inputOffset: number): Promise<readonly number[]>
  /** One transaction without an input offset, for bulk that a later commit will name. */
  append(records: readonly OutRecord[]): Promise<readonly number[]>
  /**
   * Rejects with FENCED when a newer owner holds the partition. Writes nothing, and works also after a failed call. A
   * former owner may read state in the log that looks broken and is only newer than it knows; this call tells which.
   */
  confirm(): Promise<void>
  /** Never throws; aborts nothing that was committed. */
  close(): Promise<void>
}

/** What a log can do whose files are its own. */
export interface Eraser {
  /**
   * The records of the partition for which `isVictim` holds leave it; the others keep their offsets. How many they
   * were.
   */
  erase(topic: string, partition: number, isVictim: (record: StoredRecord) => boolean): Promise<number>
  /**
   * What left the log, by `erase` and by trims, leaves its files: they are written anew, which takes as much room and
   * time as they do, and blocks the process. Rejects with UNAVAILABLE where other processes do not let it have the
   * files for half a minute.
   */
  scrub(): Promise<void>
}

/**
 * A log: topics of partitions of records. `openLog` opens one. Calls reject with UNAVAILABLE where the log cannot be
 * reached and DENIED where rights are missing.
 */
export interface EventLog {
  /** The keys that seal the state of this log (seal-key.ts); without them a checksum does. */
  readonly sealKeys?: SealKeys
  /** Where blocks of large states lie; without it in the log, in a topic of their own. */
  readonly blobs?: SharedStore
  /** Which adapter it is. */
  readonly kind: 'embedded' | 'kafka'
  /** As given, without credentials. */
  readonly url: string
  /** First part of every topic name. */
  readonly prefix: string
  /** Creates what is missing. A topic that exists with another number of partitions: INVALID, naming both numbers. */
  createTopics(specs: readonly TopicSpec[]): Promise<void>
  /** Topics below the prefix, and any named ones that exist. */
  topics(names?: readonly string[]): Promise<readonly TopicInfo[]>
  /**
   * Tells a topic from others that had its name before or will have it after; null where the log cannot tell (old
   * brokers), or where no topic is ever deleted (embedded).
   */
  topicId(topic: string): Promise<string | null>
  /**
   * Appends all or (embedded) none; each record to `partition`, or to the partition of its key's hash (Kafka's
   * murmur2). A record larger than the topic takes: INVALID, naming both sizes, before anything is written.
   */
  append(
    topic: string,
    records: readonly RecordIn[],
    partition?: number,
  ): Promise<readonly { partition: number; offset: number }[]>
  /** Which partition a key goes to. */
  partitionOf(topic: string, key: Uint8Array): Promise<number>
  /** First and last position of a partition. Rejects with INVALID where there is no such topic. */
  bounds(topic: string, partition: number): Promise<Bounds>
  /**
   * Records from `from` on, committed ones only. `from` outside the bounds (below begin or above end): POSITION, naming
   * the numbers.
   */
  read(topic: string, partition: number, from: number, options?: ReadOptions): AsyncIterable<Batch>
  /** How many partitions the topic has now, asked anew. INVALID where there is no such topic. */
  partitions(topic: string): Promise<number>
  /** Members of the group, whatever topic each reads; null while the group is being shared anew. */
  members(group: string): Promise<readonly Member[] | null>
  /** Becomes a member of the group that shares the topic's partitions. */
  join(group: string, topic: string): Promise<Membership>
  /** Fences the former owner of the partition, resolves its open transaction, and returns the new writer. */
  claim(group: string, topic: string, partition: number): Promise<PartitionWriter>
  /**
   * The group's committed input offset; null if there is none. A cross-check, not the resume position. Kafka does not
   * answer while a transaction that carries such an offset is open; where its owner may be dead, `claim` first.
   */
  committed(group: string, topic: string, partition: number): Promise<number | null>
  /** Deletes records below `before` (Kafka's DeleteRecords). */
  trim(topic: string, partition: number, before: number): Promise<void>
  /** Missing on Kafka, where brokers delete whole segments only. */
  readonly eraser?: Eraser
  /** Fires, with a REFUSED error, where the log's file is found to be gone. Missing on Kafka. */
  readonly lost?: AbortSignal
  /** Rejects with UNAVAILABLE or DENIED when the log cannot be reached. */
  ping(): Promise<void>
  /** Ends this log's reads and closes its connections. After that, every call on the log rejects with MISUSE. */
  close(): Promise<void>
}

/** Paths of PEM files. */
export interface TlsFiles {
  /** Certificates of the authorities that sign the brokers' certificates, in place of those that Node brings along. */
  readonly ca?: string
  /** The client's certificate, with its chain. */
  readonly cert?: string
  /** Its private key, not encrypted. */
  readonly key?: string
}

/** How a log is opened. */
export interface OpenLogOptions {
  /** Session time-out of group membership in ms (default 10,000): how long a silent worker keeps its partitions. */
  readonly sessionTimeout?: number
  /** Files for TLS to Kafka; `KAFKA_TLS_CA`, `KAFKA_TLS_CERT` and `KAFKA_TLS_KEY` stand in for them. */
  readonly tls?: TlsFiles
  /** Seals the state with a key; without it, by its sha256. */
  readonly sealKeys?: SealKeys
  /** Where blocks of large states are kept: a folder, file:FOLDER, or s3://bucket/prefix. Default: in the log. */
  readonly blobStore?: string
}

/** Whether the log has this topic of its prefix. */
export const hasTopic = async (log: Pick<EventLog, 'topics'>, topic: string): Promise<boolean> =>
  (await log.topics()).some(({ name }) => name === topic)
