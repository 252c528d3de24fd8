/**
 * What brokers limit: the rate of a consumer, the size of a batch, the time a record may claim; and calls that are cut
 * short.
 *
 * @module-tag slow
 */

import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { Encoder } from '../../src/streams/kafka/kafkajs.ts'
import type { EventLog } from '../../src/streams/log.ts'
import { openLog } from '../../src/streams/open.ts'
import { benches, event } from '../operators/harness.ts'
import { bytes, eventually, readAll, record, valuesOf } from '../streams/helpers.ts'
import { freshPrefix, ownBroker } from './broker.ts'
import { asking, plainKafka } from './helpers.ts'

// Its own: what is set here holds for every client of the broker.
const { kafka: broker, missing } = await ownBroker()
const brokers = broker?.brokers ?? null
const { use } = benches()
const connections = (): number => process.getActiveResourcesInfo().filter((name) => name === 'TCPSocketWrap').length

/** AlterClientQuotas, version 0: the rate at which any client may read, bytes a second; null lifts it. */
const setQuota = async (rate: number | null): Promise<void> => {
  const value = Buffer.alloc(8)
  value.writeDoubleBE(rate ?? 0)
  const [host = '', port] = brokers!.split(':')
  await asking(brokers!, (network) =>
    network.common.send(
      { host, port: Number(port) },
      {
        request: {
          apiKey: 49,
          apiVersion: 0,
          apiName: 'AlterClientQuotas',
          encode: async () =>
            new Encoder()
              .writeInt32(1)
              .writeInt32(1)
              .writeString('client-id')
              .writeString(null)
              .writeInt32(1)
              .writeString('consumer_byte_rate')
              .writeBuffer(value)
              .writeInt8(rate === null ? 1 : 0)
              .writeInt8(0),
        },
        response: { decode: async (raw) => raw, parse: async (decoded: Buffer) => decoded },
        logResponseError: false,
      },
    ),
  )
}

describe.skipIf(brokers === null)(
  `Kafka's limits${missing === undefined ? '' : ` (no Kafka here: ${missing})`}`,
  () => {
    const prefix = freshPrefix()
    let log: EventLog
    let count = 0
    beforeAll(async () => {
      log = await openLog(`kafka://${brokers}/${prefix}`)
    })
    afterAll(async () => {
      await log.close()
      await broker?.stop()
    })
    const topic = async (config: Record<string, string> = {}): Promise<string> => {
      const name = `${prefix}.t${count++}`
      await log.createTopics([{ name, partitions: 1, config }])
      return name
    }

    test('records that a topic takes one by one, it takes together: batches are cut to its size', async () => {
      const name = await topic({ 'max.message.bytes': '200000' })
      const values = Array.from({ length: 10 }, (_, n) => `${n}`.repeat(50_000))
      await log.append(
        name,
        values.map((value) => record(value)),
        0,
      )
      const input = await topic()
      const writer = await log.claim('g', input, 0)
      await writer.commit(
        values.map((value) => ({ topic: name, ...record(value) })),
        0,
      )
      await eventually(async () => expect(valuesOf(await readAll(log, name))).toEqual([...values, ...values]))
      await writer.close()
    })

    test('a time in the future does not stop a partition', async () => {
      await use(
        async (bench) => {
          const admin = plainKafka(brokers!).admin()
          await admin.connect()
          await admin.alterConfigs({
            validateOnly: false,
            resources: [
              {
                type: 2,
                name: bench.names.chunks,
                configEntries: [{ name: 'message.timestamp.after.max.ms', value: String(Number.MAX_SAFE_INTEGER) }],
              },
            ],
          })
          await admin.disconnect()
          const timestamp = Date.now() + 48 * 3_600_000
          // A broker answers that a setting is altered before its partitions follow it; until then it refuses the
          // batch, whole.
          await eventually(() =>
            bench.log.append(bench.names.chunks, [
              { ...event('s', { type: 'text', text: 'tomorrow' }), timestamp },
              { ...event('s', '{'), timestamp },
            ]),
          )
          const { worker } = await bench.settle()
          expect([...worker.refused]).toEqual([])
          const [letter] = await bench.records('deadletters')
          expect(letter!.headers.map(([name, value]) => [name, Buffer.from(value).toString()])).toContainEqual([
            'continuo-timestamp',
            String(timestamp),
          ])
        },
        1,
        { url: `kafka://${brokers}/${freshPrefix()}` },
      )
    })

    test('a writer closed in the middle of a commit leaves no connection behind', async () => {
      const [input, out] = [await topic(), await topic()]
      const own = await openLog(`kafka://${brokers}/${prefix}`)
      const writer = await own.claim('g', input, 0)
      await writer.commit([{ topic: out, ...record('one') }], 1)
      for (let n = 0; n < 10; n += 1) {
        const mine = await own.claim('g', input, 0)
        const commit = mine.commit([{ topic: out, key: null, value: bytes(`${n}`) }], 2 + n)
        commit.catch(() => {})
        await mine.close()
      }
      const before = connections()
      await own.close()
      await eventually(() => expect(connections()).toBeLessThan(before))
      // What is left belongs to the log that all tests share.
      const shared = connections()
      expect(shared).toBeLessThanOrEqual(8)
    })

    test('who is throttled waits, and is not told that its position is gone', async () => {
      const name = await topic()
      const values = Array.from({ length: 30 }, (_, n) => `${n % 10}`.repeat(100_000))
      for (const value of values) await log.append(name, [record(value)], 0)
      await setQuota(200_000)
      try {
        const own = await openLog(`kafka://${brokers}/${prefix}`)
        const read: (string | null)[] = []
        for await (const batch of own.read(name, 0, 0, { until: values.length })) read.push(...valuesOf(batch.records))
        expect(read).toEqual(values)
        await own.close()
      } finally {
        await setQuota(null)
      }
    })
  },
)
