/** The settings of a single-node KRaft broker on 127.0.0.1, small enough for a laptop and quick enough for tests. */
import { createServer } from 'node:net'

export type ListenerProtocol = 'SSL' | 'SASL_SSL' | 'SASL_PLAINTEXT'

export interface BrokerSettings {
  readonly dir: string
  readonly port: number
  readonly controllerPort: number
  /** Further listeners, by their names in capitals; their other settings are in `config` (`listener.name.<name>.…`). */
  readonly more?: Readonly<Record<string, { readonly port: number; readonly protocol: ListenerProtocol }>>
  /** Adds a SASL/PLAIN listener. */
  readonly sasl?: { readonly port: number; readonly users: Readonly<Record<string, string>> }
  /** Further settings in Kafka's names; they override the others. */
  readonly config?: Readonly<Record<string, string>>
}

/** Different ports on which no program listens now. */
export const freePorts = async (count: number): Promise<readonly number[]> => {
  const servers = await Promise.all(
    Array.from({ length: count }, () => {
      const server = createServer()
      return new Promise<typeof server>((resolve, reject) => {
        server.once('error', reject).listen(0, '127.0.0.1', () => resolve(server))
      })
    }),
  )
  const ports = servers.map((server) => {
    const address = server.address()
    return typeof address === 'object' && address !== null ? address.port : 0
  })
  await Promise.all(servers.map((server) => new Promise((resolve) => server.close(resolve))))
  return ports
}

/** Settings that make a broker of one node small and quick, wherever it runs. */
export const SMALL: Readonly<Record<string, string>> = {
  'auto.create.topics.enable': 'false',
  // One node: one replica of everything, and few internal partitions.
  'offsets.topic.replication.factor': '1',
  'offsets.topic.num.partitions': '1',
  'transaction.state.log.replication.factor': '1',
  'transaction.state.log.min.isr': '1',
  'transaction.state.log.num.partitions': '1',
  'share.coordinator.state.topic.replication.factor': '1',
  'share.coordinator.state.topic.min.isr': '1',
  // A group does not wait for further members, and the transaction of a dead worker ends soon.
  'group.initial.rebalance.delay.ms': '0',
  'group.min.session.timeout.ms': '1000',
  'transaction.abort.timed.out.transaction.cleanup.interval.ms': '500',
  // A broker that starts again must wait until its former session at the controller has expired.
  'broker.session.timeout.ms': '2000',
  'broker.heartbeat.interval.ms': '500',
  // Memory and threads.
  'log.cleaner.dedupe.buffer.size': '4194304',
  'num.network.threads': '2',
  'num.io.threads': '4',
}

/** The same, as the environment of Kafka's image has them. */
export const environmentOf = (settings: Readonly<Record<string, string>>): Readonly<Record<string, string>> =>
  Object.fromEntries(
    Object.entries(settings).map(([name, value]) => [`KAFKA_${name.toUpperCase().replaceAll('.', '_')}`, value]),
  )

/** Text of a server.properties. */
export const brokerProperties = ({ dir, port, controllerPort, sasl, more = {}, config }: BrokerSettings): string => {
  const others = Object.entries(more)
  const listeners = [
    `PLAINTEXT://127.0.0.1:${port}`,
    ...(sasl ? [`SASL://127.0.0.1:${sasl.port}`] : []),
    ...others.map(([name, listener]) => `${name}://127.0.0.1:${listener.port}`),
  ]
  const protocols = [
    'PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT',
    ...others.map(([name, { protocol }]) => `${name}:${protocol}`),
  ]
  const users = Object.entries(sasl?.users ?? {}).map(([name, password]) => `user_${name}="${password}"`)
  const settings: Record<string, string> = {
    'process.roles': 'broker,controller',
    'node.id': '1',
    'controller.quorum.voters': `1@127.0.0.1:${controllerPort}`,
    listeners: [...listeners, `CONTROLLER://127.0.0.1:${controllerPort}`].join(','),
    'advertised.listeners': listeners.join(','),
    'controller.listener.names': 'CONTROLLER',
    'inter.broker.listener.name': 'PLAINTEXT',
    'listener.security.protocol.map': protocols.join(','),
    'log.dirs': dir,
    ...SMALL,
    ...(sasl && {
      'sasl.enabled.mechanisms': 'PLAIN',
      'listener.name.sasl.plain.sasl.jaas.config': `org.apache.kafka.common.security.plain.PlainLoginModule required ${users.join(' ')};`,
    }),
    ...config,
  }
  return Object.entries(settings)
    .map(([name, value]) => `${name}=${value}\n`)
    .join('')
}
