import { createRequire } from 'node:module'
import { type Consumer, Kafka, logLevel, type Message, type RetryOptions } from 'kafkajs'

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
