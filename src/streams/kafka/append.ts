/** Feeding events: an idempotent producer, so that a batch sent twice because its answer was lost is written once. */

import { codeOf } from '../../errors.ts'
import type { EventLog } from '../log.ts'
import { partitionOfKey } from '../murmur2.ts'
import { countChanged } from '../partition-count.ts'
import type { Network } from './network.ts'
import { createProducer, cut, encodeFor, type Producer, produceProtocol } from './produce.ts'
import type { Prepared } from './record-batch.ts'
import type { Topics } from './topics.ts'

const PATIENCE = 15_000
/** How long a number of partitions is believed, ms. */
const COUNT_AGE = 5000

export type Feeder = Pick<EventLog, 'append' | 'partitionOf'>

export const openFeeder = (network: Network, topics: Topics): Feeder => {
  const lane = network.lane()
  /** Sequences are ordered, so the appends to a partition go one after the other. */
  const tails = new Map<string, Promise<unknown>>()
  /** Partitions of each topic when the first record was sent to it. */
  const counts = new Map<string, { readonly before: number; readonly askedAt: number }>()
  let producer: Promise<Producer> | undefined
  let turn = 0

  /**
   * Kafka gives a producer id to a user that may write to some topic, and does not name the topic to one that may not.
   */
  const identify = (topic: string): Promise<Producer> => {
    producer ??= network
      .retry(`asking for a producer id, to write to ${topic}`, async () =>
        (await network.any()).initProducerId({ transactionTimeout: 0 }),
      )
      .then((identity) => createProducer(null, identity))
      .catch((error: unknown) => {
        producer = undefined
        throw error
      })
    return producer
  }

  /**
   * REFUSED where the number changed meanwhile: the rest of a session must not go to another partition than its
   * beginning.
   */
  const countOf = async (topic: string): Promise<number> => {
    const { before, askedAt } = counts.get(topic) ?? { before: null, askedAt: Number.NEGATIVE_INFINITY }
    if (before !== null && performance.now() - askedAt < COUNT_AGE) return before
    const now = await network.freshTopic(topic).then(
      ({ leaders }) => leaders.length,
      (error: unknown) => {
        // What follows has more patience with brokers that are away.
        if (before === null || codeOf(error) !== 'UNAVAILABLE') throw error
        return before
      },
    )
    if (before !== null && now !== before)
      throw countChanged({ input: topic, now, before, witness: 'what was sent so far went to' })
    counts.set(topic, { before: now, askedAt: performance.now() })
    return now
  }

  const partitionOf = async (topic: string, key: Uint8Array): Promise<number> =>
    partitionOfKey(key, await countOf(topic))

  const write = async (topic: string, partition: number, records: readonly Prepared[]): Promise<number[]> => {
    const offsets: number[] = []
    for (const piece of cut(records, await topics.limit(topic))) {
      const mine = await identify(topic)
      const batches = encodeFor(mine, [{ topic, partition, records: piece }])
      try {
        const { answers } = await network.retry(
          `appending to ${topic}[${partition}]`,
          async () => lane.send(await network.leader(topic, partition), produceProtocol(null, batches)),
          { lane, patience: PATIENCE },
        )
        for (let i = 0; i < piece.length; i++) offsets.push(answers[0]!.baseOffset + i)
      } catch (error) {
        // Which sequences arrived is unknown now: go on under another id.
        producer = undefined
        throw error
      }
    }
    return offsets
  }

  const inTurn = <T>(key: string, work: () => Promise<T>): Promise<T> => {
    const result = (tails.get(key) ?? Promise.resolve()).then(work, work)
    const tail = result.catch(() => {}).finally(() => tails.get(key) === tail && tails.delete(key))
    tails.set(key, tail)
    return result
  }

  return {
    partitionOf,
    async append(topic, records, partition) {
      const count = await countOf(topic)
      // Like Kafka's sticky partitioner: records without a key stay together, and the next ones go elsewhere.
      const keyless = turn++ % count
      const groups = new Map<number, Prepared[]>()
      const slots: { readonly partition: number; readonly index: number }[] = []
      for (const record of records) {
        const to = partition ?? (record.key === null ? keyless : partitionOfKey(record.key, count))
        const group = groups.get(to) ?? []
        groups.set(to, group)
        slots.push({ partition: to, index: group.length })
        group.push(await topics.check(topic, to, record))
      }
      const offsets = new Map<number, number[]>()
      await Promise.all(
        [...groups].map(async ([to, group]) =>
          offsets.set(to, await inTurn(`${topic} ${to}`, () => write(topic, to, group))),
        ),
      )
      return slots.map(({ partition: to, index }) => ({ partition: to, offset: offsets.get(to)![index]! }))
    },
  }
}
