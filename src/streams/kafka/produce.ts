/**
 * Produce, version 7 (Kafka ≥ 2.1): record batches with a producer's id, epoch and sequence, acknowledged by all
 * replicas.
 */
import { openCursor } from './cursor.ts'
import { createErrorFromCode, Encoder, type Protocol } from './kafkajs.ts'
import { BATCH_OVERHEAD, encodeBatch, type Prepared, sizeBound } from './record-batch.ts'

const PRODUCE = 0
const TIMEOUT = 30_000
/** Kafka's own default is 1,048,588; a topic may allow less. */
const BATCH_LIMIT = 900_000

export interface PartitionRecords {
  readonly topic: string
  readonly partition: number
  readonly records: readonly Prepared[]
}

/**
 * A producer as Kafka knows it. Sequences count the records of each partition, so that a resent batch is not written
 * twice.
 */
export interface Producer {
  readonly transactionalId: string | null
  readonly producerId: bigint
  readonly producerEpoch: number
  readonly sequences: Map<string, number>
}

export const createProducer = (
  transactionalId: string | null,
  { producerId, producerEpoch }: { producerId: string | number; producerEpoch: number },
): Producer => ({ transactionalId, producerId: BigInt(producerId), producerEpoch, sequences: new Map() })

interface Encoded {
  readonly topic: string
  readonly partition: number
  readonly batch: Buffer
}

interface Answer {
  readonly topic: string
  readonly partition: number
  readonly errorCode: number
  readonly baseOffset: number
}

const decode = (raw: Buffer): { clientSideThrottleTime: number; answers: readonly Answer[] } => {
  const from = openCursor(raw)
  const answers: Answer[] = []
  for (let topics = from.int32(); topics > 0; topics--) {
    const topic = from.string()
    for (let partitions = from.int32(); partitions > 0; partitions--) {
      answers.push({ topic, partition: from.int32(), errorCode: from.int16(), baseOffset: Number(from.int64()) })
      from.int64() // log append time
      from.int64() // log start offset
    }
  }
  return { clientSideThrottleTime: from.int32(), answers }
}

/** One batch a topic and partition; the topics differ. Rejects when one of them fails. */
export const produceProtocol = (
  transactionalId: string | null,
  batches: readonly Encoded[],
): Protocol<ReturnType<typeof decode>> => ({
  request: {
    apiKey: PRODUCE,
    apiVersion: 7,
    apiName: 'Produce',
    encode: async () => {
      const request = new Encoder()
        .writeString(transactionalId)
        .writeInt16(-1)
        .writeInt32(TIMEOUT)
        .writeInt32(batches.length)
      for (const { topic, partition, batch } of batches)
        request.writeString(topic).writeInt32(1).writeInt32(partition).writeBytes(batch)
      return request
    },
  },
  response: {
    decode: async (raw) => decode(raw),
    parse: async (decoded) => {
      const failed = decoded.answers.find(({ errorCode }) => errorCode !== 0)
      if (failed !== undefined) throw createErrorFromCode(failed.errorCode)
      return decoded
    },
  },
  logResponseError: false,
})

/**
 * Cuts records into pieces whose batches stay below what the topic takes (and below BATCH_LIMIT); a record that is
 * larger by itself stands alone.
 */
export const cut = (records: readonly Prepared[], most: number): readonly (readonly Prepared[])[] => {
  const limit = Math.min(BATCH_LIMIT, most - BATCH_OVERHEAD)
  const pieces: Prepared[][] = []
  let size = 0
  for (const record of records) {
    const bytes = sizeBound(record)
    const piece = pieces.at(-1)
    if (piece === undefined || size + bytes > limit) {
      pieces.push([record])
      size = bytes
    } else {
      piece.push(record)
      size += bytes
    }
  }
  return pieces
}

/**
 * Encodes one batch for each of `parts` and counts it into the sequences. Encode once, send as often as needed: the
 * same sequence tells Kafka that it is the same batch.
 */
export const encodeFor = (producer: Producer, parts: readonly PartitionRecords[]): readonly Encoded[] =>
  parts.map(({ topic, partition, records }) => {
    const { producerId, producerEpoch, transactionalId, sequences } = producer
    const key = `${topic} ${partition}`
    const sequence = sequences.get(key) ?? 0
    sequences.set(key, (sequence + records.length) % 2 ** 31)
    const transactional = transactionalId !== null
    return { topic, partition, batch: encodeBatch(records, { producerId, producerEpoch, sequence, transactional }) }
  })
