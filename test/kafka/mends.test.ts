/**
 * Faults of kafkajs 2.2.4 that would break exactly-once, each shown in plain kafkajs (where it can be shown on demand)
 * and mended here. A claim fails without its mend.
 *
 * @module-tag slow
 */
import type { RetryOptions } from 'kafkajs'
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest'
import { patched } from '../../src/streams/kafka/kafkajs.ts'
import { encodeBatch, prepare, readBatches } from '../../src/streams/kafka/record-batch.ts'
import type { EventLog } from '../../src/streams/log.ts'
import { openLog } from '../../src/streams/open.ts'
import { eventually, readAll, record, refuses, take, valuesOf } from '../streams/helpers.ts'
import { freshPrefix, ownBroker } from './broker.ts'
import { asking, internal, message, plainKafka, plainRead, pristine } from './helpers.ts'

const { kafka: broker, missing } = await ownBroker()
if (broker === undefined) console.warn(`Tests on a broker are skipped: ${missing}`)
const brokers = broker?.brokers ?? ''
afterAll(() => broker?.stop())

describe.skipIf(broker === undefined)('on a real broker', { timeout: 60_000 }, () => {
  const prefix = freshPrefix()
  let log: EventLog
  let count = 0
  beforeAll(async () => {
    log = await openLog(`kafka://${brokers}/${prefix}`)
  })
  afterAll(() => log.close())

  const freshTopic = async (): Promise<string> => {
    const name = `${prefix}.t${count++}`
    await log.createTopics([{ name, partitions: 1, config: {} }])
    return name
  }
  const producer = async (transactionalId: string, retry: RetryOptions = {}) => {
    const made = plainKafka(brokers, retry).producer({ transactionalId, maxInFlightRequests: 1 })
    await made.connect()
    return made
  }
  /**
   * Resolves once the topic has `end` offsets, markers among them: a broker ends a transaction before its marker is in
   * the log.
   */
  const written = (topic: string, end: number): Promise<void> =>
    asking(brokers, async (network) => {
      const leader = await network.common.to(await network.leader(topic, 0))
      const topics = [{ topic, partitions: [{ partition: 0, timestamp: -1 }] }]
      await eventually(async () => {
        // Uncommitted: the last stable offset stays before the first transaction until it ends.
        const { responses } = await leader.listOffsets({ isolationLevel: 0, topics })
        expect(Number(responses[0]?.partitions[0]?.offset)).toBe(end)
      })
    })
  const sentinel = (values: readonly string[]): boolean => values.includes('end')

  test('aborted transactions that overlap stay invisible; plain kafkajs shows records of them', async () => {
    const topic = await freshTopic()
    const [one, two] = [await producer(`${topic}-1`), await producer(`${topic}-2`)]
    const first = await one.transaction()
    const second = await two.transaction()
    // The broker lists aborted transactions by their ends: the second before the first, which began before it.
    await first.send({ topic, messages: [message('aborted 1')] })
    await second.send({ topic, messages: [message('aborted 2')] })
    await second.abort()
    await written(topic, 3)
    await first.send({ topic, messages: [message('aborted 3')] })
    await first.abort()
    await written(topic, 5)
    await log.append(topic, [record('end')], 0)
    await Promise.all([one.disconnect(), two.disconnect()])

    expect(valuesOf(await take(log, topic, 0, 1))).toEqual(['end'])
    const plain = await plainRead(
      plainKafka(brokers).consumer({ groupId: topic, maxWaitTimeInMs: 100 }),
      topic,
      sentinel,
    )
    expect(plain).toContain('aborted 1')
  })

  test('a key of four zero bytes is a key; plain kafkajs takes it for the end of the aborted transaction', async () => {
    const topic = await freshTopic()
    const one = await producer(topic)
    const transaction = await one.transaction()
    await transaction.send({ topic, messages: [message('aborted 1', Buffer.alloc(4)), message('aborted 2')] })
    await transaction.abort()
    await written(topic, 3)
    await log.append(topic, [record('end')], 0)
    await one.disconnect()

    expect(valuesOf(await take(log, topic, 0, 1))).toEqual(['end'])
    const plain = await plainRead(
      plainKafka(brokers).consumer({ groupId: topic, maxWaitTimeInMs: 100 }),
      topic,
      sentinel,
    )
    expect(plain).toContain('aborted 2')
  })

  test('positions move past markers and aborted records, though nothing is there to be seen', async () => {
    const topic = await freshTopic()
    const one = await producer(topic)
    const transaction = await one.transaction()
    await transaction.send({ topic, messages: [message('aborted')] })
    await transaction.abort()
    await one.disconnect()
    const { end } = await eventually(async () => {
      const bounds = await log.bounds(topic, 0)
      expect(bounds.end).toBe(2)
      return bounds
    })
    const batches = []
    for await (const batch of log.read(topic, 0, 0)) batches.push(batch)
    expect(batches).toEqual([{ records: [], next: end }])
  })

  test('a position that was trimmed is an error; plain kafkajs jumps and keeps quiet', async () => {
    const topic = await freshTopic()
    await log.append(
      topic,
      ['0', '1', '2', '3', 'end'].map((value) => record(value)),
      0,
    )
    const admin = plainKafka(brokers).admin()
    await admin.connect()
    await admin.setOffsets({ groupId: topic, topic, partitions: [{ partition: 0, offset: '1' }] })
    await log.trim(topic, 0, 3)

    await refuses(readAll(log, topic, 0, { from: 1 }), 'POSITION', 1, 3)
    const plain = await plainRead(
      plainKafka(brokers).consumer({ groupId: topic, maxWaitTimeInMs: 100 }),
      topic,
      sentinel,
    )
    expect(plain).toEqual(['3', 'end'])
    // And although autoCommit was off, it overwrote the group's offset: -2 stands for "the earliest".
    const [offsets] = await admin.fetchOffsets({ groupId: topic, topics: [topic] })
    expect(offsets?.partitions[0]?.offset).toBe('-2')
    await admin.disconnect()
  })

  test('transactions of offsets alone follow each other at once; plain kafkajs meets the one before and fails', async () => {
    const topic = await freshTopic()
    const writer = await log.claim(`${topic}-ours`, topic, 0)
    for (let offset = 1; offset <= 50; offset++) {
      await writer.commit([], offset)
      // The marker may not be written yet: the answer waits for it. kafkajs's own request would answer `offset - 1`.
      expect(await log.committed(`${topic}-ours`, topic, 0)).toBe(offset)
    }
    await writer.close()

    const one = await producer(`${topic}-plain`)
    const plain = async (): Promise<void> => {
      for (let offset = 1; offset <= 500; offset++) {
        const transaction = await one.transaction()
        const topics = [{ topic, partitions: [{ partition: 0, offset: String(offset) }] }]
        await transaction.sendOffsets({ consumerGroupId: `${topic}-plain`, topics })
        await transaction.commit()
      }
    }
    await expect(plain()).rejects.toMatchObject({ type: 'CONCURRENT_TRANSACTIONS' })
    await one.disconnect()
  })

  test('a member reads nothing by its membership', async () => {
    const topic = await freshTopic()
    await log.append(topic, [record('x')], 0)
    type Active = { getActiveTopicPartitions(): Record<string, Set<number>> }
    const ConsumerGroup = internal<{ prototype: Active }>('kafkajs/src/consumer/consumerGroup')
    const active = vi.spyOn(ConsumerGroup.prototype, 'getActiveTopicPartitions')
    const membership = await log.join(`${topic}-group`, topic)
    await eventually(() => expect(active.mock.results.length).toBeGreaterThan(5))
    for (const { value } of active.mock.results) expect([...(value as Record<string, Set<number>>)[topic]!]).toEqual([])
    await membership.leave()
    active.mockRestore()
    expect(await log.committed(`${topic}-group`, topic, 0)).toBeNull()
  })

  test('a failed commit ends the writer, and a new claim goes on; a plain producer is stuck for ever', async () => {
    const topic = await freshTopic()
    const one = await producer(`${topic}-plain`, { retries: 2 })
    const transaction = await one.transaction()
    // In another topic: its transaction stays open, and holds up all who read there.
    await transaction.send({ topic: await freshTopic(), messages: [message('x')] })
    const writer = await log.claim(topic, topic, 0)
    await writer.commit([{ topic, ...record('kept') }], 1)
    await broker?.kill()
    await expect(transaction.commit()).rejects.toThrow()
    const failed = writer.commit([{ topic, ...record('lost') }], 2)
    await refuses(failed, 'UNAVAILABLE', 'claim the partition again')
    await broker?.restart()

    await expect(transaction.abort()).rejects.toThrow(/Transaction state exception|Cannot/)
    await expect(one.transaction()).rejects.toThrow()
    await one.disconnect()
    await refuses(writer.commit([], 3), 'MISUSE', 'claim the partition again')
    const heir = await log.claim(topic, topic, 0)
    await heir.commit([{ topic, ...record('end') }], 4)
    expect(await log.committed(topic, topic, 0)).toBe(4)
    expect(valuesOf(await take(log, topic, 0, 2))).toEqual(['kept', 'end'])
    await Promise.all([writer.close(), heir.close()])
  })
})

describe('in its internals', () => {
  const nobody = { producerId: -1n, producerEpoch: -1, sequence: -1, transactional: false }
  interface Queue {
    scheduleCheckPendingRequests(): void
  }
  type RequestQueue = new (options: object) => Queue
  const quiet = { debug() {}, warn() {} }
  const options = {
    maxInFlightRequests: null,
    requestTimeout: 1,
    enforceRequestTimeout: false,
    clientId: '',
    broker: '',
    logger: quiet,
  }

  test('an idle connection sets no timers; plain kafkajs sets one each millisecond, for ever', () => {
    vi.useFakeTimers()
    const spy = vi.spyOn(globalThis, 'setTimeout')
    const wakes = (Class: RequestQueue): number => {
      spy.mockClear()
      new Class(options).scheduleCheckPendingRequests()
      vi.advanceTimersByTime(1000)
      const { length } = spy.mock.calls
      vi.clearAllTimers()
      return length
    }
    try {
      const path = 'kafkajs/src/network/requestQueue'
      expect(internal<RequestQueue>(path).prototype).toBe(patched)
      expect(wakes(internal<RequestQueue>(path))).toBe(0)
      expect(wakes(pristine<RequestQueue>(path))).toBeGreaterThan(500)
      // A negative time, which Node 24 warns about.
      expect(spy.mock.calls[0]?.[1]).toBeLessThan(0)
    } finally {
      spy.mockRestore()
      vi.useRealTimers()
    }
  })

  type Decode = (decoder: object) => Promise<{ value: Buffer }[]>
  const plainDecode = async (batches: Buffer): Promise<{ value: Buffer }[]> => {
    const Decoder = internal<new (buffer: Buffer) => object>('kafkajs/src/protocol/decoder')
    const size = Buffer.alloc(4)
    size.writeInt32BE(batches.length)
    return internal<Decode>('kafkajs/src/protocol/requests/fetch/v4/decodeMessages')(
      new Decoder(Buffer.concat([size, batches])),
    )
  }

  test('a batch of 130,000 records is read; plain kafkajs fails on it', async () => {
    const records = Array.from({ length: 130_000 }, () => prepare({ key: null, value: null, timestamp: 0 }))
    const batch = encodeBatch(records, nobody)
    const [view] = readBatches(batch, 't[0]')
    expect([...(view?.records('t', 0) ?? [])].length).toBe(130_000)
    await expect(plainDecode(batch)).rejects.toThrow(RangeError)
  })

  test('a batch whose bits changed is refused; plain kafkajs hands it on', async () => {
    const batch = encodeBatch([prepare({ key: null, value: Buffer.from('good'), timestamp: 0 })], nobody)
    const at = batch.indexOf('good')
    batch[at] = batch[at]! ^ 1
    expect(() => readBatches(batch, 't[0]')).toThrow(/checksum/)
    expect(String((await plainDecode(batch))[0]?.value)).toBe('food')
  })

  test('a batch that a cleaner emptied moves the position; plain kafkajs stays before it for ever', async () => {
    // Offsets 7 to 9, no record left: count 0, last offset delta 2. The checksum is made anew.
    const batch = encodeBatch([], nobody)
    batch.writeBigInt64BE(7n, 0)
    batch.writeInt32BE(2, 23)
    const { crc32c } = await import('../../src/streams/kafka/crc32c.ts')
    batch.writeUInt32BE(crc32c(batch, 21), 17)
    expect(readBatches(batch, 't[0]').map(({ next }) => next)).toEqual([10])

    type Batch = new (
      topic: string,
      fetchedOffset: number,
      data: object,
    ) => { isEmpty(): boolean; isEmptyDueToFiltering(): boolean }
    const Batch = internal<Batch>('kafkajs/src/consumer/batch')
    const data = { partition: 0, highWatermark: '20', abortedTransactions: [], messages: await plainDecode(batch) }
    const plain = new Batch('t', 7, data)
    // Only these two would make its consumer move on, and one of them not.
    expect([plain.isEmpty(), plain.isEmptyDueToFiltering()]).toEqual([true, false])
  })
})
