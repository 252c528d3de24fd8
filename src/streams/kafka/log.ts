/**
 * The Kafka log: the port over kafkajs's connections and protocol. What kafkajs is used for, and what not: kafkajs.ts.
 */
import { logLevel } from 'kafkajs'
import { ContinuoError, codeOf } from '../../errors.ts'
import type { EventLog, Membership, OpenLogOptions } from '../log.ts'
import { openFeeder } from './append.ts'
import { committedProtocol } from './committed.ts'
import { joinGroup } from './group.ts'
import { Kafka, type Logger } from './kafkajs.ts'
import { describeMembers } from './members.ts'
import { createNetwork } from './network.ts'
import { openReader } from './read.ts'
import { readTls } from './tls.ts'
import { openTopics } from './topics.ts'
import { parseKafkaUrl } from './url.ts'
import { claimPartition } from './writer.ts'

const SESSION_TIMEOUT = 10_000
const PING_PATIENCE = 5000

export const openKafkaLog = async (address: string, options: OpenLogOptions = {}): Promise<EventLog> => {
  const asked = parseKafkaUrl(address)
  const { url, prefix } = asked
  const ssl = asked.config.ssl === true
  const tls = readTls(ssl, options.tls)
  const config = { ...asked.config, ssl: ssl && tls }
  const parsed = { ...asked, config }
  const { sessionTimeout = SESSION_TIMEOUT } = options
  if (!Number.isSafeInteger(sessionTimeout) || sessionTimeout < 1)
    throw new ContinuoError('INVALID', `A session time-out is a whole number of ms, ${sessionTimeout} is not.`)
  // kafkajs logs every retry as an error; what matters comes back as an error of ours.
  const kafka = new Kafka({
    ...config,
    logLevel: logLevel.NOTHING,
    logCreator: () => () => {},
    connectionTimeout: 3000,
    retry: { initialRetryTime: 100, maxRetryTime: 1000, retries: 8 },
  })
  const network = createNetwork(parsed, kafka.logger() as unknown as Logger)
  const topics = openTopics(network, prefix)
  const reader = openReader(network)
  const feeder = openFeeder(network, topics)
  const memberships = new Set<Membership>()

  const ping = async (): Promise<void> => {
    const tooLate = new AbortController()
    const asked = network.retry('asking for its topics', () => network.any().then((broker) => broker.metadata([])), {
      patience: PING_PATIENCE / 2,
      signal: tooLate.signal,
    })
    let timer: NodeJS.Timeout | undefined
    const silence = new Promise<never>((_, reject) => {
      timer = setTimeout(() => {
        tooLate.abort()
        const message = `Cannot reach ${network.brokers}: it took the connection and gave no answer for ${PING_PATIENCE / 1000} s. Is it Kafka, and is it well?`
        reject(new ContinuoError('UNAVAILABLE', message))
      }, PING_PATIENCE)
    })
    asked.catch(() => {})
    await Promise.race([asked, silence]).finally(() => clearTimeout(timer))
  }

  try {
    await ping()
  } catch (error) {
    await network.close()
    throw error
  }

  return {
    kind: 'kafka',
    url,
    prefix,
    createTopics: topics.create,
    topics: topics.list,
    topicId: network.topicId,
    append: feeder.append,
    partitionOf: feeder.partitionOf,
    bounds: reader.bounds,
    read: reader.read,
    claim: (group, topic, partition) => claimPartition({ network, topics, group, topic, partition }),
    ping,
    partitions: async (topic) => (await network.freshTopic(topic)).leaders.length,
    members: (group) => describeMembers(network, group),
    async join(group, topic) {
      // As last heard: a member that joins while the broker is away is admitted when it is back.
      const count = (await network.topic(topic)).leaders.length
      // kafkajs takes a refusal for a coordinator that cannot be found, and looks for it for ever.
      await network
        .retry(`joining group ${group}`, () => network.coordinator('group', group))
        .catch((error: unknown) => {
          if (codeOf(error) !== 'UNAVAILABLE') throw error
        })
      const membership = joinGroup({
        kafka,
        brokers: network.brokers,
        group,
        topic,
        count,
        lookUp: async (other) => {
          const found = await network.freshTopic(other).catch(() => undefined)
          return found?.leaders.length ?? 0
        },
        sessionTimeout,
        onEnd: () => memberships.delete(membership),
      })
      memberships.add(membership)
      return membership
    },
    async committed(group, topic, partition) {
      const { offset } = await network.retry(
        `asking for the offset of ${topic}[${partition}] in group ${group}`,
        async () =>
          network.common.send(await network.coordinator('group', group), committedProtocol(group, topic, partition)),
        { patience: 30_000 },
      )
      return offset < 0 ? null : offset
    },
    async trim(topic, partition, before) {
      const { begin, end } = await reader.bounds(topic, partition)
      if (before > end)
        throw new ContinuoError(
          'POSITION',
          `Cannot trim ${topic}[${partition}] below ${before}: the log holds ${begin} to ${end}. Trim up to its end at most.`,
        )
      if (before <= begin) return
      await network.retry(`trimming ${topic}[${partition}]`, async () => {
        const broker = await network.common.to(await network.leader(topic, partition))
        await broker.deleteRecords({ topics: [{ topic, partitions: [{ partition, offset: String(before) }] }] })
      })
    },
    async close() {
      if (network.closed) return
      await Promise.all([...memberships].map((membership) => membership.leave()))
      await network.close()
    },
  }
}
