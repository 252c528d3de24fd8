/**
 * Fetch, version 11 (Kafka ≥ 2.3), for one partition, read_committed, without a consumer group or fetch session; and
 * the filter that leaves aborted transactions out.
 */
import { openCursor } from './cursor.ts'
import { answeredWith, Encoder, type Protocol } from './kafkajs.ts'
import type { BatchView } from './record-batch.ts'

export interface FetchRequest {
  readonly topic: string
  readonly partition: number
  readonly offset: number
  readonly maxBytes: number
  /** How long the broker may wait for the first byte, ms. */
  readonly maxWait: number
}

export interface Aborted {
  readonly producerId: bigint
  readonly firstOffset: number
}

export interface Fetched {
  readonly lastStableOffset: number
  readonly logStartOffset: number
  readonly aborted: readonly Aborted[]
  /** Raw record batches. */
  readonly data: Buffer
}

const FETCH = 1
const READ_COMMITTED = 1

/** `fetched` is null where the broker answers with no topic at all: a quota was exceeded, and nothing is said. */
const decode = (raw: Buffer): { clientSideThrottleTime: number; errorCode: number; fetched: Fetched | null } => {
  const from = openCursor(raw)
  const clientSideThrottleTime = from.int32()
  const sessionError = from.int16()
  from.int32() // session id
  if (sessionError !== 0 || from.int32() === 0)
    return { clientSideThrottleTime, errorCode: sessionError, fetched: null }
  from.string() // the topic
  from.int32() // one partition
  from.int32() // its number
  const errorCode = from.int16()
  from.int64() // high watermark
  const lastStableOffset = Number(from.int64())
  const logStartOffset = Number(from.int64())
  const aborted: Aborted[] = []
  for (let left = from.int32(); left > 0; left--)
    aborted.push({ producerId: from.int64(), firstOffset: Number(from.int64()) })
  from.int32() // preferred read replica
  const data = from.bytes(from.int32())
  return { clientSideThrottleTime, errorCode, fetched: { lastStableOffset, logStartOffset, aborted, data } }
}

export const fetchProtocol = ({
  topic,
  partition,
  offset,
  maxBytes,
  maxWait,
}: FetchRequest): Protocol<ReturnType<typeof decode>> => ({
  request: {
    apiKey: FETCH,
    apiVersion: 11,
    apiName: 'Fetch',
    encode: async () =>
      new Encoder()
        .writeInt32(-1) // replica: a client
        .writeInt32(maxWait)
        .writeInt32(1) // minimum bytes
        .writeInt32(maxBytes)
        .writeInt8(READ_COMMITTED)
        .writeInt32(0) // no fetch session
        .writeInt32(-1)
        .writeInt32(1) // one topic
        .writeString(topic)
        .writeInt32(1) // one partition
        .writeInt32(partition)
        .writeInt32(-1) // leader epoch unknown
        .writeInt64(offset)
        .writeInt64(-1)
        .writeInt32(maxBytes)
        .writeInt32(0) // nothing forgotten
        .writeString(''), // rack
  },
  ...answeredWith(decode),
})

/**
 * Batches that are neither control records nor part of an aborted transaction.
 *
 * As in Java's CompletedFetch: aborted transactions, ordered by their first offset, open when reading reaches it, and
 * close at the producer's marker. The broker lists them by their last offset instead, and several may open at one
 * batch; kafkajs takes them in the broker's order and one a batch, and so lets aborted records through.
 */
export const committedBatches = (batches: readonly BatchView[], aborted: readonly Aborted[]): BatchView[] => {
  const waiting = [...aborted].sort((a, b) => a.firstOffset - b.firstOffset)
  const open = new Set<bigint>()
  return batches.filter(({ next, producerId, transactional, control }) => {
    while (waiting[0] !== undefined && waiting[0].firstOffset < next) open.add(waiting.shift()!.producerId)
    if (control) open.delete(producerId)
    return !control && !(transactional && open.has(producerId))
  })
}
