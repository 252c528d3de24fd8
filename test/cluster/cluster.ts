/**
 * Three Kafka brokers, each with its controller, from the published jars: everything replicated three times and
 * acknowledged by two, clients over TLS with SCRAM and access control. Brokers can be killed, stopped, frozen, started
 * again and cut off; every address they advertise is a wire of `wires.ts`.
 *
 * The wires between brokers carry plain text, and who comes by them is a super user: the brokers themselves, and the
 * test where it looks at what the users did.
 */

import { execFile } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import {
  type AclEntry,
  AclOperationTypes,
  AclPermissionTypes,
  AclResourceTypes,
  type Admin,
  ResourcePatternTypes,
} from 'kafkajs'
import { expect } from 'vitest'
import { endOf, type Jvm, spawnBroker } from '../../tools/kafka/embedded-broker.ts'
import { prepareJars } from '../../tools/kafka/jars.ts'
import { freePorts } from '../../tools/kafka/properties.ts'
import '../../src/streams/kafka/kafkajs.ts' // its patch of kafkajs's timers
import { certify } from '../kafka/certificates.ts'
import { plainKafka } from '../kafka/helpers.ts'
import { eventually } from '../streams/helpers.ts'
import { aclsOf, readRights } from './rights.ts'
import { layWires, type Wires } from './wires.ts'

const NODES = [1, 2, 3] as const
export type Node = (typeof NODES)[number]

/** Three of them have to fit beside the workers. */
const HEAP = '-Xmx320m'
/** On a busy machine everything takes its time, and none of the tests asks for speed. */
export const PATIENCE = 300_000

export interface User {
  readonly name: string
  readonly password: string
}

export interface Cluster {
  readonly wires: Wires
  /** The authority that clients must trust, PEM. */
  readonly ca: string
  /** A log as a user sees it: TLS, SCRAM-SHA-512. Credentials come from the environment. */
  secure(prefix: string): string
  /** The same log as the cluster's owner sees it. */
  plain(prefix: string): string
  /** What a process needs in its environment to come in as this user. */
  as(user: string): Readonly<Record<string, string>>
  /** Gives the user the rights that docs/kafka.md lists for `command`, less those that `but` picks. */
  grant(user: string, command: string, prefix: string, group: string, but?: (acl: AclEntry) => boolean): Promise<void>
  /** Takes all the user's rights away. */
  revoke(user: string): Promise<void>
  admin<T>(use: (admin: Admin) => Promise<T>): Promise<T>
  leader(topic: string, partition: number): Promise<Node>
  /** Every partition has all its replicas in sync. */
  whole(): Promise<void>
  /** Process id of a broker that is up. */
  pid(node: Node): number | undefined
  /** SIGKILL. */
  kill(node: Node): Promise<void>
  /** SIGTERM, and the time to hand over what it leads. */
  stop(node: Node): Promise<void>
  /** Resolves when they serve again. They need a majority to start, so those that are down start together. */
  start(...nodes: readonly Node[]): Promise<void>
  /** Whatever a test left behind: everything is lit, up and in sync. */
  mend(): Promise<void>
  freeze(node: Node): void
  thaw(node: Node): void
  close(): Promise<void>
}

interface Ports {
  readonly client: number
  readonly internal: number
  readonly controller: number
}

interface Layout {
  readonly folder: string
  readonly keystore: string
  readonly targets: Readonly<Record<Node, Ports>>
  readonly wires: Readonly<Record<Node, Ports>>
}

const propertiesOf = (node: Node, { folder, keystore, targets, wires }: Layout): string => {
  const addresses = ({ client, internal, controller }: Ports): string =>
    [`CLIENT://127.0.0.1:${client}`, `INTERNAL://127.0.0.1:${internal}`, `CONTROLLER://127.0.0.1:${controller}`].join()
  const settings: Record<string, string> = {
    'process.roles': 'broker,controller',
    'node.id': String(node),
    'controller.quorum.voters': NODES.map((one) => `${one}@127.0.0.1:${wires[one].controller}`).join(),
    listeners: addresses(targets[node]),
    'advertised.listeners': addresses(wires[node]),
    'controller.listener.names': 'CONTROLLER',
    'inter.broker.listener.name': 'INTERNAL',
    'listener.security.protocol.map': 'CLIENT:SASL_SSL,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT',
    'log.dirs': join(folder, `data-${node}`),
    'auto.create.topics.enable': 'false',
    'default.replication.factor': '3',
    'min.insync.replicas': '2',
    'offsets.topic.replication.factor': '3',
    'offsets.topic.num.partitions': '6',
    'transaction.state.log.replication.factor': '3',
    'transaction.state.log.min.isr': '2',
    'transaction.state.log.num.partitions': '6',
    'share.coordinator.state.topic.replication.factor': '3',
    'share.coordinator.state.topic.min.isr': '2',
    // Clients: certificate, passwords, rights.
    'ssl.keystore.type': 'PEM',
    'ssl.keystore.location': keystore,
    'ssl.client.auth': 'none',
    'sasl.enabled.mechanisms': 'SCRAM-SHA-512',
    'listener.name.client.scram-sha-512.sasl.jaas.config':
      'org.apache.kafka.common.security.scram.ScramLoginModule required;',
    'authorizer.class.name': 'org.apache.kafka.metadata.authorizer.StandardAuthorizer',
    'super.users': 'User:ANONYMOUS',
    // A dead or silent broker is found out in seconds, a busy one is not taken for dead.
    'broker.session.timeout.ms': '6000',
    'broker.heartbeat.interval.ms': '1000',
    'controller.quorum.election.timeout.ms': '2000',
    'controller.quorum.fetch.timeout.ms': '4000',
    'replica.lag.time.max.ms': '10000',
    'group.initial.rebalance.delay.ms': '0',
    'group.min.session.timeout.ms': '1000',
    'transaction.abort.timed.out.transaction.cleanup.interval.ms': '500',
    // Memory and threads.
    'log.cleaner.dedupe.buffer.size': '4194304',
    'num.network.threads': '2',
    'num.io.threads': '4',
  }
  return Object.entries(settings)
    .map(([name, value]) => `${name}=${value}\n`)
    .join('')
}

/** One user for each command of the rights table, and one without any right. */
const makeUsers = (): ReadonlyMap<string, User> => {
  const names = [...readRights().keys()].map((command) => command.replaceAll(' ', '-'))
  const users = [...names, 'nobody'].map((name): User => ({ name, password: randomBytes(12).toString('hex') }))
  return new Map(users.map((user) => [user.name, user]))
}

export const startCluster = async (): Promise<Cluster> => {
  const jars = await prepareJars()
  const folder = await mkdtemp(join(tmpdir(), 'continuo-cluster-'))
  const wires = layWires()
  const jvms = new Map<Node, Jvm>()
  const close = async (): Promise<void> => {
    await Promise.all([...jvms.values()].map((jvm) => endOf(jvm, 'SIGKILL')))
    await wires.close()
    await rm(folder, { recursive: true, force: true })
  }
  try {
    return await assemble(jars, folder, wires, jvms, close)
  } catch (error) {
    await close()
    throw error
  }
}

const assemble = async (
  jars: Awaited<ReturnType<typeof prepareJars>>,
  folder: string,
  wires: Wires,
  jvms: Map<Node, Jvm>,
  close: () => Promise<void>,
): Promise<Cluster> => {
  const authority = certify('Continuo test authority', { authority: true })
  const server = certify('Continuo test broker', { issuer: authority, hosts: ['127.0.0.1', 'localhost'] })
  const ca = join(folder, 'ca.pem')
  const keystore = join(folder, 'broker.pem')
  await writeFile(ca, authority.certificate)
  await writeFile(keystore, server.key + server.certificate + authority.certificate)
  const free = [...(await freePorts(3 * NODES.length))]
  const targets = {} as Record<Node, Ports>
  const laid = {} as Record<Node, Ports>
  for (const node of NODES) {
    const [client, internal, controller] = free.splice(0, 3) as [number, number, number]
    targets[node] = { client, internal, controller }
    laid[node] = {
      client: await wires.lay(node, client, false),
      internal: await wires.lay(node, internal, true),
      controller: await wires.lay(node, controller, true),
    }
  }
  const users = makeUsers()
  const configOf = (node: Node): string => join(folder, `server-${node}.properties`)
  const id = randomBytes(16).toString('base64url').replace(/^-/, 'A')
  const scram = [...users.values()].flatMap(({ name, password }) => [
    '--add-scram',
    `SCRAM-SHA-512=[name=${name},password=${password}]`,
  ])
  await Promise.all(
    NODES.map(async (node) => {
      await writeFile(configOf(node), propertiesOf(node, { folder, keystore, targets, wires: laid }))
      const format = ['kafka.tools.StorageTool', 'format', '-t', id, '-c', configOf(node), ...scram]
      await promisify(execFile)('java', [...jars.javaArgs, ...format])
    }),
  )

  const start = async (...nodes: readonly Node[]): Promise<void> => {
    await Promise.all(
      nodes.map(async (node) => {
        if (jvms.has(node)) throw new Error(`Broker ${node} is up.`)
        const { jvm, started } = spawnBroker(jars, configOf(node), undefined, [HEAP])
        jvms.set(node, jvm)
        await started
      }),
    )
  }
  const end = async (node: Node, signal: NodeJS.Signals): Promise<void> => {
    const jvm = jvms.get(node)
    jvms.delete(node)
    if (jvm !== undefined) await endOf(jvm, signal, 60_000)
  }
  await start(...NODES)

  const listed = (pick: (ports: Ports) => number): string => NODES.map((node) => `127.0.0.1:${pick(laid[node])}`).join()
  /** kafkajs stays with a broker that does not answer, so each one that can is asked by itself. */
  const admin = async <T>(use: (admin: Admin) => Promise<T>): Promise<T> => {
    let failure: unknown = new Error('No broker is up.')
    for (const node of NODES.filter((one) => jvms.has(one) && !wires.isCut(one))) {
      const one = plainKafka(`127.0.0.1:${laid[node].internal}`, { retries: 3 }).admin()
      try {
        await one.connect()
        return await use(one)
      } catch (error) {
        failure = error
      } finally {
        await one.disconnect()
      }
    }
    throw failure
  }
  const rights = readRights()

  const whole = (): Promise<void> =>
    eventually(async () => {
      const { brokers } = await admin((one) => one.describeCluster())
      expect(brokers.length).toBe(NODES.length)
      const { topics } = await admin((one) => one.fetchTopicMetadata())
      const behind = topics.flatMap(({ name, partitions }) =>
        partitions.filter(({ isr }) => isr.length < NODES.length).map(({ partitionId }) => `${name}[${partitionId}]`),
      )
      expect(behind).toEqual([])
    }, PATIENCE)

  return {
    wires,
    ca,
    secure: (prefix) => `kafka://${listed(({ client }) => client)}/${prefix}?ssl=true&sasl=scram-sha-512`,
    plain: (prefix) => `kafka://${listed(({ internal }) => internal)}/${prefix}`,
    as(name) {
      const user = users.get(name)
      if (user === undefined) throw new Error(`There is no user ${name}.`)
      return { KAFKA_USERNAME: name, KAFKA_PASSWORD: user.password, KAFKA_TLS_CA: ca }
    },
    async grant(user, command, prefix, group, but) {
      const given = rights.get(command)
      if (given === undefined) throw new Error(`The rights table has no column for ${command}.`)
      const acl = aclsOf(user, given, prefix, group).filter((entry) => but === undefined || !but(entry))
      await admin((one) => one.createAcls({ acl }))
    },
    async revoke(user) {
      const filter = {
        resourceType: AclResourceTypes.ANY,
        resourcePatternType: ResourcePatternTypes.ANY,
        principal: `User:${user}`,
        operation: AclOperationTypes.ANY,
        permissionType: AclPermissionTypes.ANY,
      }
      await admin((one) => one.deleteAcls({ filters: [filter] }))
    },
    admin,
    leader: (topic, partition) =>
      admin(async (one) => {
        const { topics } = await one.fetchTopicMetadata({ topics: [topic] })
        return topics[0]!.partitions.find(({ partitionId }) => partitionId === partition)!.leader as Node
      }),
    whole,
    pid: (node) => jvms.get(node)?.child.pid,
    kill: (node) => end(node, 'SIGKILL'),
    stop: (node) => end(node, 'SIGTERM'),
    start,
    async mend() {
      wires.light()
      for (const { child } of jvms.values()) child.kill('SIGCONT')
      await start(...NODES.filter((node) => !jvms.has(node)))
      await whole()
    },
    freeze: (node) => void jvms.get(node)?.child.kill('SIGSTOP'),
    thaw: (node) => void jvms.get(node)?.child.kill('SIGCONT'),
    close,
  }
}
