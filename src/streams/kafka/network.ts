/**
 * Connections, metadata and coordinators.
 *
 * A Kafka broker answers the requests of one connection one after the other, so a request that waits long (a follower's
 * fetch) or for a disk (a transaction) would delay all others on a shared connection. Hence lanes: a lane is the
 * private set of connections of one user, one per broker, made when first needed. Short requests share the lane
 * `common`.
 *
 * Metadata and coordinators are cached; an error that says they are stale drops them.
 */
import { setTimeout as delay } from 'node:timers/promises'
import type { ConnectionOptions } from 'node:tls'
import { ContinuoError } from '../../errors.ts'
import {
  connectionFault,
  explain,
  faultOf,
  isConnectionFault,
  isTlsFault,
  isTransient,
  isWaiting,
  unansweredBy,
} from './faults.ts'
import {
  type Broker,
  createBroker,
  createConnectionPoolBuilder,
  type Logger,
  type Protocol,
  socketFactory,
} from './kafkajs.ts'
import { diagnose } from './tls.ts'
import { METADATA, METADATA_WITH_IDS, topicIdProtocol } from './topic-id.ts'
import type { KafkaUrl } from './url.ts'

export interface Node {
  readonly host: string
  readonly port: number
}

/** `leaders[partition]`; null while a partition has none. */
export interface Topic {
  readonly name: string
  readonly leaders: readonly (Node | null)[]
}

export interface Lane {
  to(node: Node): Promise<Broker>
  /** Sends one of our own protocols. */
  send<T>(node: Node, protocol: Protocol<T>): Promise<T>
  /** Gives up the connections, or the one to this address, so that a later use makes new ones. */
  drop(address?: string): void
  close(): Promise<void>
}

export interface RetryOptions {
  /** How long to go on, ms. Default 5,000. */
  readonly patience?: number
  /** First pause, ms; it doubles up to 250. Default 10. */
  readonly pause?: number
  readonly signal?: AbortSignal
  readonly lane?: Lane
  /** Further errors after which a request may be tried again. */
  readonly also?: (error: unknown) => boolean
}

export interface Network {
  readonly brokers: string
  readonly common: Lane
  lane(): Lane
  /** Any broker that answers. */
  any(): Promise<Broker>
  controller(): Promise<Broker>
  /** INVALID when there is no such topic. */
  topic(name: string): Promise<Topic>
  /** As `topic`, from the broker and not from the cache, which may be minutes old. */
  freshTopic(name: string): Promise<Topic>
  /** The id of a topic as it is now, uncached; null from brokers before 2.8. */
  topicId(name: string): Promise<string | null>
  /** All topics, uncached. */
  topics(): Promise<readonly (Topic & { readonly internal: boolean })[]>
  /** INVALID when there is no such partition. */
  leader(topic: string, partition: number): Promise<Node>
  coordinator(of: 'group' | 'transaction', id: string): Promise<Node>
  /**
   * Runs `work` again while what it throws is transient; then throws a verdict. Drops caches and connections between.
   */
  retry<T>(doing: string, work: () => Promise<T>, options?: RetryOptions): Promise<T>
  readonly closed: boolean
  /** Fires on close. */
  readonly signal: AbortSignal
  close(): Promise<void>
}

const CONNECTION_TIMEOUT = 3000
const REQUEST_TIMEOUT = 30_000
/** How long a connection may wait for answers that are under way when it is closed. */
const LINGER = 1000
/** As in the Java client. */
const METADATA_AGE = 300_000

interface Cached<T> {
  readonly answer: Promise<T>
  readonly until: number
}

const tlsOf = (ssl: KafkaUrl['config']['ssl']): ConnectionOptions | false => (ssl === true ? {} : (ssl ?? false))

/** The other side accepted the connection and then closed it: it may expect another protocol. */
const isBrokenOff = (fault: ReturnType<typeof faultOf>): boolean =>
  isConnectionFault(fault) &&
  !isTlsFault(fault) &&
  (fault.code === undefined || fault.code === 'ECONNRESET' || fault.code === 'EPIPE')

export const createNetwork = ({ config }: KafkaUrl, logger: Logger): Network => {
  const brokers = config.brokers.join(',')
  const builder = createConnectionPoolBuilder({
    ...config,
    socketFactory,
    logger,
    connectionTimeout: CONNECTION_TIMEOUT,
    requestTimeout: REQUEST_TIMEOUT,
  })
  const seeds: readonly Node[] = config.brokers.map((broker) => {
    const [host = '', port] = broker.split(':')
    return { host, port: Number(port) }
  })
  const topicCache = new Map<string, Cached<Topic>>()
  const coordinatorCache = new Map<string, Cached<Node>>()
  const lanes = new Set<Lane>()
  const closing = new AbortController()
  let known: readonly Node[] = []
  let controllerNode: Node | undefined
  /** Brokers that gave no answer when they were last asked: others are asked before them. */
  const silent = new Set<string>()

  const failIfClosed = (): void => {
    if (closing.signal.aborted) throw new ContinuoError('MISUSE', `The log at ${brokers} is closed: open it again.`)
  }

  /**
   * kafkajs waits for all answers before it lets a connection go, and half a minute for the first one of a silent
   * server.
   */
  const release = async (broker: Broker): Promise<void> => {
    const linger = new AbortController()
    await Promise.race([
      broker.disconnect().catch(() => {}),
      delay(LINGER, undefined, { signal: linger.signal }).catch(() => {}),
    ])
    linger.abort()
    for (const connection of broker.connectionPool.pool) {
      connection.rejectRequests(connectionFault('the connection was closed'))
      connection.socket?.destroy()
    }
  }

  const connect = async (node: Node): Promise<Broker> => {
    const connectionPool = await builder.build(node)
    const broker = new createBroker({ connectionPool, logger, allowAutoTopicCreation: false })
    const silence = new AbortController()
    const connected = broker.connect()
    connected.catch(() => {})
    try {
      await Promise.race([
        connected,
        delay(CONNECTION_TIMEOUT, undefined, { signal: silence.signal }).then(() => {
          throw connectionFault(`no answer from ${node.host}:${node.port} within ${CONNECTION_TIMEOUT / 1000} s`)
        }),
      ])
    } catch (error) {
      void release(broker)
      const fault = faultOf(error)
      throw (isBrokenOff(fault) && (await diagnose(node, tlsOf(config.ssl)))) || error
    } finally {
      silence.abort()
    }
    return broker
  }

  const lane = (): Lane => {
    const links = new Map<string, Promise<Broker>>()
    let closed = false
    const discard = (link: Promise<Broker>): Promise<void> => link.then(release, () => {})
    const self: Lane = {
      async to(node) {
        failIfClosed()
        if (closed) throw new ContinuoError('MISUSE', `The connection to ${brokers} was closed by its user.`)
        const address = `${node.host}:${node.port}`
        const link = links.get(address)
        if (link !== undefined) {
          const broker = await link.catch(() => undefined)
          // Not broker.isConnected(), which says no where the broker only wants to be shown the password again.
          if (broker?.connectionPool.isConnected()) return broker
          if (links.get(address) !== link) return self.to(node)
          if (broker !== undefined) void discard(link)
        }
        const fresh = connect(node)
        links.set(address, fresh)
        return fresh
      },
      async send(node, protocol) {
        const broker = await self.to(node)
        const connection = await broker.connectionPool.getConnection(0)
        return connection.send(protocol)
      },
      drop(address) {
        for (const [to, link] of [...links]) {
          if (address !== undefined && to !== address) continue
          links.delete(to)
          void discard(link)
        }
      },
      async close() {
        closed = true
        lanes.delete(self)
        const old = [...links.values()]
        links.clear()
        await Promise.all(old.map(discard))
      },
    }
    lanes.add(self)
    return self
  }

  const common = lane()

  const any = async (): Promise<Broker> => {
    let failure: unknown
    const isSilent = ({ host, port }: Node): number => (silent.has(`${host}:${port}`) ? 1 : 0)
    for (const node of [...known, ...seeds].sort((a, b) => isSilent(a) - isSilent(b))) {
      try {
        const broker = await common.to(node)
        silent.delete(`${node.host}:${node.port}`)
        return broker
      } catch (error) {
        silent.add(`${node.host}:${node.port}`)
        // A TLS fault, which no other broker mends, says more than that another broker cannot be reached: it is kept as
        // the reason.
        if (failure === undefined || !isTlsFault(faultOf(failure))) failure = error
        if (!isConnectionFault(faultOf(error))) break
      }
    }
    throw failure
  }

  const metadata = async (names: readonly string[]): Promise<readonly (Topic & { readonly internal: boolean })[]> => {
    const broker = await any()
    const { brokers: listed, controllerId, topicMetadata } = await broker.metadata(names)
    known = listed.map(({ host, port }) => ({ host, port }))
    controllerNode = listed.find(({ nodeId }) => nodeId === controllerId)
    return topicMetadata.map(({ topic, isInternal, partitionMetadata }) => {
      const leaders: (Node | null)[] = []
      for (const { partitionId, leader } of partitionMetadata)
        leaders[partitionId] = listed.find(({ nodeId }) => nodeId === leader) ?? null
      return { name: topic, internal: isInternal, leaders }
    })
  }

  /** One question at a time for the same thing; a failed one is forgotten at once, an old one after a while. */
  const cached = <T>(cache: Map<string, Cached<T>>, key: string, ask: () => Promise<T>): Promise<T> => {
    const found = cache.get(key)
    if (found !== undefined && performance.now() < found.until) return found.answer
    const asked = { answer: ask(), until: performance.now() + METADATA_AGE }
    cache.set(key, asked)
    asked.answer.catch(() => cache.get(key) === asked && cache.delete(key))
    return asked.answer
  }

  const missing = (name: string): ContinuoError =>
    new ContinuoError(
      'INVALID',
      `There is no topic "${name}" at ${brokers}: create it, for example with \`continuo topics apply\`.`,
    )

  const ask = (name: string): Promise<Topic> =>
    self.retry(`asking for topic ${name}`, async () => {
      if (!/^[a-zA-Z0-9._-]{1,249}$/.test(name)) throw missing(name)
      try {
        const [topic] = await metadata([name])
        return topic ?? Promise.reject(missing(name))
      } catch (error) {
        throw faultOf(error).type === 'UNKNOWN_TOPIC_OR_PARTITION' ? missing(name) : error
      }
    })

  const self: Network = {
    brokers,
    common,
    lane,
    any,
    async controller() {
      if (controllerNode === undefined) await metadata([])
      return controllerNode === undefined ? any() : common.to(controllerNode)
    },
    topic: (name) => cached(topicCache, name, () => ask(name)),
    async freshTopic(name) {
      const answer = await ask(name)
      // Only an answer takes the place of the last one: while brokers are away that is the best there is.
      topicCache.set(name, { answer: Promise.resolve(answer), until: performance.now() + METADATA_AGE })
      return answer
    },
    topicId: (name) =>
      self.retry(`asking for the id of topic ${name}`, async () => {
        const broker = await any()
        if ((broker.versions?.[METADATA]?.maxVersion ?? 0) < METADATA_WITH_IDS) return null
        const connection = await broker.connectionPool.getConnection(0)
        return (await connection.send(topicIdProtocol(name))).id
      }),
    topics: () => self.retry('listing topics', () => metadata([])),
    async leader(name, partition) {
      const topic = await self.topic(name)
      const leader = topic.leaders[partition]
      if (leader === undefined)
        throw new ContinuoError(
          'INVALID',
          `Topic ${name} has no partition ${partition}: it has ${topic.leaders.length}, counted from 0.`,
        )
      if (leader === null) {
        topicCache.delete(name)
        throw Object.assign(new Error(`${name}[${partition}] has no leader`), { type: 'LEADER_NOT_AVAILABLE' })
      }
      return leader
    },
    coordinator: (of, id) =>
      cached(coordinatorCache, `${of} ${id}`, async () => {
        const broker = await any()
        const coordinatorType = of === 'group' ? 0 : 1
        const { coordinator } = await broker.findGroupCoordinator({ groupId: id, coordinatorType })
        return coordinator
      }),
    async retry(doing, work, { patience = 5000, pause = 10, signal, lane: used = common, also } = {}) {
      const deadline = performance.now() + patience
      for (let wait = pause; ; wait = Math.min(250, wait * 2)) {
        try {
          failIfClosed()
          return await work()
        } catch (error) {
          failIfClosed()
          // A step of the work may have had less patience than the work has.
          const gaveUp = error instanceof ContinuoError && error.code === 'UNAVAILABLE'
          if (error instanceof ContinuoError && !gaveUp) throw error
          const fault = faultOf(error)
          // A connection without answers looks open until one side closes it.
          const unanswered = unansweredBy(error)
          if (unanswered !== undefined) {
            silent.add(unanswered)
            common.drop(unanswered)
          }
          const again = gaveUp || isTransient(fault) || also?.(error) === true
          if (!again || signal?.aborted || performance.now() + wait > deadline) throw explain(brokers, doing, error)
          if (!isWaiting(fault)) {
            topicCache.clear()
            coordinatorCache.clear()
            controllerNode = undefined
          }
          if (isConnectionFault(fault)) used.drop()
          await delay(wait, undefined, { signal: closing.signal }).catch(() => {})
        }
      }
    },
    get closed() {
      return closing.signal.aborted
    },
    signal: closing.signal,
    async close() {
      closing.abort()
      await Promise.all([...lanes].map((open) => open.close()))
    },
  }
  return self
}
