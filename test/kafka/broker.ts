/**
 * A real Apache Kafka for the tests: KAFKA_BROKERS if set, else a container where a Docker engine answers, else the
 * published jars with Java. Under CI the absence of all three is a failure, elsewhere the tests are skipped with the
 * reason.
 */
import { execFile } from 'node:child_process'
import { promisify } from 'node:util'
import { messageOf } from '../../src/errors.ts'
import { type EmbeddedBroker, type StartOptions, startBroker } from '../../tools/kafka/embedded-broker.ts'
import { environmentOf, freePorts, SMALL } from '../../tools/kafka/properties.ts'

export interface TestKafka {
  /** host:port[,host:port…] */
  readonly brokers: string
  readonly source: 'environment' | 'container' | 'jars'
  stop(): Promise<void>
}

/** Either Kafka, or why there is none here. */
export type Found<T> =
  | { readonly kafka: T; readonly missing?: never }
  | { readonly kafka?: never; readonly missing: string }

const IMAGE = 'apache/kafka:4.3.1'

const dockerAnswers = (): Promise<boolean> =>
  promisify(execFile)('docker', ['version', '--format', '{{.Server.Version}}'], { timeout: 5000 }).then(
    () => true,
    () => false,
  )

/**
 * The advertised address is the mapped port, so the port is chosen before the container starts. It is open to this
 * machine alone: the broker asks for no password.
 */
const startContainer = async (): Promise<TestKafka> => {
  const { GenericContainer, Wait } = await import('testcontainers')
  class ForThisMachine extends GenericContainer {
    protected override async beforeContainerCreated(): Promise<void> {
      const bindings: { HostIp?: string }[][] = Object.values(this.hostConfig.PortBindings ?? {})
      for (const binding of bindings.flat()) binding.HostIp = '127.0.0.1'
    }
  }
  const [port] = await freePorts(1)
  const container = await new ForThisMachine(IMAGE)
    .withExposedPorts({ container: 9094, host: port! })
    .withEnvironment({
      KAFKA_PROCESS_ROLES: 'broker,controller',
      KAFKA_NODE_ID: '1',
      KAFKA_CONTROLLER_QUORUM_VOTERS: '1@localhost:9093',
      KAFKA_LISTENERS: 'INTERNAL://:9092,HOST://:9094,CONTROLLER://:9093',
      KAFKA_ADVERTISED_LISTENERS: `INTERNAL://localhost:9092,HOST://127.0.0.1:${port}`,
      KAFKA_LISTENER_SECURITY_PROTOCOL_MAP: 'INTERNAL:PLAINTEXT,HOST:PLAINTEXT,CONTROLLER:PLAINTEXT',
      KAFKA_CONTROLLER_LISTENER_NAMES: 'CONTROLLER',
      KAFKA_INTER_BROKER_LISTENER_NAME: 'INTERNAL',
      ...environmentOf(SMALL),
    })
    .withWaitStrategy(Wait.forLogMessage(/Kafka Server started/))
    .start()
  return { brokers: `127.0.0.1:${port}`, source: 'container', stop: async () => void (await container.stop()) }
}

const orMissing = async <T>(start: () => Promise<T>): Promise<Found<T>> => {
  try {
    return { kafka: await start() }
  } catch (error) {
    if (process.env.CI) throw error
    return { missing: messageOf(error) }
  }
}

/** One broker for many tests; each takes its own prefix. The options are those of a broker from the jars. */
export const findKafka = (options?: StartOptions): Promise<Found<TestKafka>> =>
  orMissing(async () => {
    const brokers = process.env.KAFKA_BROKERS
    if (brokers) return { brokers, source: 'environment', stop: async () => {} }
    if (await dockerAnswers()) {
      const started = await startContainer().catch((error: unknown) => {
        if (process.env.CONTINUO_TEST_KAFKA === 'container') throw error
        // An engine that cannot get the image: the jars serve as well.
        console.error(`The image ${IMAGE} cannot be run here (${messageOf(error)}); Kafka runs from its jars.`)
        return null
      })
      if (started !== null) return started
    }
    const broker = await startBroker(options)
    return { brokers: broker.brokers, source: 'jars', stop: broker.stop }
  })

/** A broker of one's own, to be killed, frozen and restarted: always from the jars. */
export const ownBroker = (options?: StartOptions): Promise<Found<EmbeddedBroker>> =>
  orMissing(() => startBroker(options))

let count = 0
/** A prefix of topics and groups that no other test uses, in no other run either. */
export const freshPrefix = (): string => `t${process.pid}-${Date.now().toString(36)}-${count++}`
