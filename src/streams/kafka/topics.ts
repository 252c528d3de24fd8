import { ContinuoError } from '../../errors.ts'
import type { RecordIn, TopicInfo, TopicSpec } from '../log.ts'
import { faultOf } from './faults.ts'
import type { Network } from './network.ts'
import { aloneSize, type Prepared, prepare } from './record-batch.ts'

export interface Topics {
  create(specs: readonly TopicSpec[]): Promise<void>
  list(names?: readonly string[]): Promise<readonly TopicInfo[]>
  /**
   * The record, ready to be written there; INVALID if the partition is missing or the record too large for the topic.
   */
  check(topic: string, partition: number, record: RecordIn): Promise<Prepared>
  /** Bytes of a batch that the topic takes. */
  limit(topic: string): Promise<number>
}

const TOPIC_RESOURCE = 2
/** Set for the topic itself, not inherited from the broker. */
const TOPIC_SOURCE = 1
/** Settings that are listed even where a broker's default sets them: they act on the topic all the same. */
const EFFECTIVE: readonly string[] = ['cleanup.policy', 'retention.ms', 'retention.bytes', 'max.message.bytes']
/** Kafka's default, for users without the right to read settings. */
const DEFAULT_LIMIT = 1_048_588
const LIMIT_AGE = 60_000
/** How long a topic that was just created may take until every partition has a leader, ms. */
const NEW_PATIENCE = 30_000

export const openTopics = (network: Network, prefix: string): Topics => {
  const limits = new Map<string, { readonly limit: Promise<number>; readonly until: number }>()

  const settings = (
    names: readonly string[],
  ): Promise<Map<string, readonly { configName: string; configValue: string; configSource: number }[]>> =>
    network.retry(`asking for the settings of ${names.join(', ')}`, async () => {
      if (names.length === 0) return new Map()
      const broker = await network.any()
      const { resources } = await broker.describeConfigs({
        resources: names.map((name) => ({ type: TOPIC_RESOURCE, name })),
      })
      return new Map(resources.map(({ resourceName, configEntries }) => [resourceName, configEntries]))
    })

  const limitOf = async (topic: string): Promise<number> => {
    try {
      const entries = (await settings([topic])).get(topic)
      return Number(entries?.find(({ configName }) => configName === 'max.message.bytes')?.configValue ?? DEFAULT_LIMIT)
    } catch (error) {
      if (faultOf(error).type.endsWith('AUTHORIZATION_FAILED') || (error as ContinuoError).code === 'DENIED')
        return DEFAULT_LIMIT
      throw error
    }
  }

  const limit = (topic: string): Promise<number> => {
    const known = limits.get(topic)
    if (known !== undefined && known.until > Date.now()) return known.limit
    const asked = { limit: limitOf(topic), until: Date.now() + LIMIT_AGE }
    limits.set(topic, asked)
    asked.limit.catch(() => limits.delete(topic))
    return asked.limit
  }

  const createOne = async (spec: TopicSpec, existing: ReadonlyMap<string, number>): Promise<void> => {
    const { name, partitions, config } = spec
    if (!/^[a-zA-Z0-9._-]{1,249}$/.test(name) || name === '.' || name === '..')
      throw new ContinuoError(
        'INVALID',
        `A topic's name is 1 to 249 of a-z, A-Z, 0-9, ".", "_" and "-"; "${name}" is not.`,
      )
    if (!Number.isSafeInteger(partitions) || partitions < 1)
      throw new ContinuoError(
        'INVALID',
        `Topic ${name} needs a whole number of partitions from 1 on, not ${partitions}.`,
      )
    const sameCount = (found: number): void => {
      if (found !== partitions)
        throw new ContinuoError(
          'INVALID',
          `Topic ${name} has ${found} partitions, expected ${partitions}: the number cannot change, because keys belong to partitions. Use another prefix, or the number it has.`,
        )
    }
    const found = existing.get(name)
    if (found !== undefined) return sameCount(found)
    const configEntries = Object.entries(config).map(([setting, value]) => ({ name: setting, value }))
    await network.retry(`creating topic ${name}`, async () => {
      const broker = await network.controller()
      try {
        await broker.createTopics({
          topics: [{ topic: name, numPartitions: partitions, replicationFactor: -1, configEntries }],
        })
      } catch (error) {
        if (faultOf(error).type !== 'TOPIC_ALREADY_EXISTS') throw error
      }
    })
    limits.delete(name)
    // A broker learns of a new topic a moment after the controller.
    const isNew = (error: unknown): boolean => error instanceof NotYet
    await network.retry(
      `waiting for topic ${name}`,
      async () => {
        const topic = (await network.topics()).find((candidate) => candidate.name === name)
        if (topic === undefined || topic.leaders.some((leader) => leader === null))
          throw new NotYet('not every broker knows it yet, or a partition has no leader')
        sameCount(topic.leaders.length)
      },
      { also: isNew, patience: NEW_PATIENCE },
    )
  }

  return {
    async create(specs) {
      const existing = new Map((await network.topics()).map(({ name, leaders }) => [name, leaders.length]))
      await Promise.all(specs.map((spec) => createOne(spec, existing)))
    },
    async list(names = []) {
      const wanted = (await network.topics()).filter(
        ({ name, internal }) => names.includes(name) || (!internal && name.startsWith(`${prefix}.`)),
      )
      const config = await settings(wanted.map(({ name }) => name))
      return wanted.map(({ name, leaders }) => ({
        name,
        partitions: leaders.length,
        config: Object.fromEntries(
          (config.get(name) ?? [])
            .filter(({ configName, configSource }) => configSource === TOPIC_SOURCE || EFFECTIVE.includes(configName))
            .map(({ configName, configValue }) => [configName, configValue]),
        ),
      }))
    },
    limit,
    async check(topic, partition, record) {
      await network.retry(`writing to ${topic}[${partition}]`, () => network.leader(topic, partition))
      const prepared = prepare(record)
      const size = aloneSize(prepared)
      const most = await limit(topic)
      if (size > most)
        throw new ContinuoError(
          'INVALID',
          `A record of ${size} bytes is larger than topic ${topic} takes, which is ${most}: send less at once, or raise the topic's max.message.bytes.`,
        )
      return prepared
    },
  }
}

/** The topic is created but not yet known everywhere. */
class NotYet extends Error {}
