import { createRequire } from 'node:module'
import { type Consumer, Kafka, logLevel, type Message, type RetryOptions } from 'kafkajs'
import type { Logger } from '../../src/streams/kafka/kafkajs.ts'
import { createNetwork, type Network } from '../../src/streams/kafka/network.ts'
import { parseKafkaUrl } from '../../src/streams/kafka/url.ts'

/** kafkajs as anybody uses it: the foil of the mends. */
export const plainKafka = (brokers: string, retry: RetryOptions = {}): Kafka =>
  new Kafka({ retry, brokers: brokers.split(','), logLevel: logLevel.NOTHING, connectionTimeout: 3000 })

/** What a plain consumer is given, from the beginning (or its group's offset) until `enough` says so. */
export const plainRead = async (
  consumer: Consumer,
  topic: string,
  enough: (values: readonly string[]) => boolean,
  fromBeginning = true,
): Promise<string[]> => {
  const values: string[] = []
  await consumer.connect()
  await consumer.subscribe({ topics: [topic], fromBeginning })
  await new Promise<void>((resolve, reject) => {
    consumer.on(consumer.events.CRASH, ({ payload }) => payload.restart || reject(payload.error))
    consumer
      .run({
        autoCommit: false,
        eachMessage: async ({ message }) => {
          values.push(String(message.value))
          if (enough(values)) resolve()
        },
      })
      .catch(reject)
  })
  await consumer.disconnect()
  return values
}

/** Asks a broker by our own network what no client of kafkajs asks. */
export const asking = async <T>(brokers: string, ask: (network: Network) => Promise<T>): Promise<T> => {
  const url = parseKafkaUrl(`kafka://${brokers}/asking`)
  const network = createNetwork(
    url,
    new Kafka({ ...url.config, logLevel: logLevel.NOTHING }).logger() as unknown as Logger,
  )
  try {
    return await ask(network)
  } finally {
    await network.close()
  }
}

export const message = (value: string, key: Buffer | null = null): Message => ({ key, value, partition: 0 })

const require = createRequire(import.meta.url)
/** A module of kafkajs, loaded anew and so without our patch. */
export const pristine = <T>(path: string): T => {
  const file = require.resolve(path)
  const patched = require.cache[file]
  delete require.cache[file]
  try {
    return require(path) as T
  } finally {
    if (patched) require.cache[file] = patched
  }
}
export const internal = <T>(path: string): T => require(path) as T
