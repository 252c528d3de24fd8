/**
 * Who is not let into a group, and who leaves while the door is still closed.
 *
 * @module-tag slow
 */
import { type ChildProcess, fork } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import type { Admin, GroupDescription } from 'kafkajs'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import type { EventLog, Membership, OpenLogOptions } from '../../src/streams/log.ts'
import { openLog } from '../../src/streams/open.ts'
import { eventually, refuses, watch } from '../streams/helpers.ts'
import { freshPrefix, ownBroker } from './broker.ts'
import { internal, plainKafka } from './helpers.ts'

const { kafka: broker, missing } = await ownBroker({ config: { 'group.max.size': '2' } })
if (broker === undefined) console.warn(`Tests on a broker are skipped: ${missing}`)
const brokers = broker?.brokers ?? ''
afterAll(() => broker?.stop())

describe.skipIf(broker === undefined)('a group', { timeout: 60_000 }, () => {
  const prefix = freshPrefix()
  const topic = `${prefix}.t`
  const url = `kafka://${brokers}/${prefix}`
  const logs: EventLog[] = []
  const children: ChildProcess[] = []
  let admin: Admin
  let count = 0

  const open = async (options?: OpenLogOptions): Promise<EventLog> => {
    const log = await openLog(url, options)
    logs.push(log)
    return log
  }
  const freshGroup = (): string => `${prefix}-${count++}`
  const describeGroup = async (group: string): Promise<GroupDescription> =>
    (await admin.describeGroups([group])).groups[0]!
  /** Rejects with what ended it. */
  const lost = ({ assignments }: Membership): Promise<void> =>
    new Promise((resolve, reject) => assignments.subscribe({ error: reject, complete: resolve }))

  beforeAll(async () => {
    const log = await open()
    admin = plainKafka(brokers).admin()
    await admin.connect()
    await log.createTopics([{ name: topic, partitions: 2, config: {} }])
  })
  afterAll(async () => {
    for (const child of children) child.kill('SIGKILL')
    await Promise.all(logs.map((log) => log.close()))
    await admin.disconnect()
  })

  test.each([999, 1_800_001, 2 ** 40])('takes nobody with a session time-out of %i ms', async (sessionTimeout) => {
    const membership = await (await open({ sessionTimeout })).join(freshGroup(), topic)
    const parts = [`${sessionTimeout} ms`, '--session-timeout', 'group.min.session.timeout.ms', 'not within the range']
    await refuses(lost(membership), 'INVALID', ...parts)
    await membership.leave()
  })

  test('of another application takes nobody of ours', async () => {
    const group = freshGroup()
    const other = plainKafka(brokers).consumer({ groupId: group, maxWaitTimeInMs: 100 })
    await other.connect()
    await other.subscribe({ topics: [topic] })
    const joined = new Promise<void>((resolve) => other.on(other.events.GROUP_JOIN, () => resolve()))
    await other.run({ eachMessage: async () => {} })
    await joined
    const membership = await logs[0]!.join(group, topic)
    await refuses(lost(membership), 'INVALID', group, 'Another application', '--group', 'incompatible')
    await other.disconnect()
  })

  test('that is full takes nobody more, and those within stay', async () => {
    const group = freshGroup()
    const within = [await logs[0]!.join(group, topic), await (await open()).join(group, topic)]
    const seen = within.map(watch)
    await eventually(() => expect(seen.map(({ now }) => now().length)).toEqual([1, 1]))
    await refuses(lost(await (await open()).join(group, topic)), 'INVALID', group, 'group.max.size')
    expect((await describeGroup(group)).members.length).toBe(2)
    for (const membership of within) await membership.leave()
  })

  test('is left by who waits to be let in: nobody remains in it', async () => {
    const group = freshGroup()
    // A member that joins and is never heard of again: until its session ends, the group waits for it.
    const silent = await silentMember(group)
    const membership = await logs[0]!.join(group, topic)
    const { history } = watch(membership)
    await eventually(async () => expect((await describeGroup(group)).state).toBe('PreparingRebalance'))
    await membership.leave()
    expect(history).toEqual([])
    expect(await describeGroup(group)).toMatchObject({ state: 'Empty', members: [] })
    await silent.disconnect()
  })

  /** Through kafkajs's protocol, for its consumer always beats. */
  const silentMember = async (group: string): Promise<{ disconnect(): Promise<void> }> => {
    type Join = { generationId: number; memberId: string }
    type Coordinator = {
      joinGroup(request: object): Promise<Join>
      syncGroup(request: object): Promise<unknown>
    }
    type Cluster = {
      connect(): Promise<void>
      disconnect(): Promise<void>
      refreshMetadata(): Promise<void>
      findGroupCoordinator(of: { groupId: string }): Promise<Coordinator>
    }
    const { MemberMetadata } = internal<{ MemberMetadata: { encode(of: object): Buffer } }>(
      'kafkajs/src/consumer/assignerProtocol',
    )
    const Cluster = internal<new (options: object) => Cluster>('kafkajs/src/cluster')
    const quiet = plainKafka(brokers).logger()
    const cluster = new Cluster({
      logger: quiet,
      brokers: [brokers],
      socketFactory: internal<() => unknown>('kafkajs/src/network/socketFactory')(),
      allowAutoTopicCreation: false,
    })
    await cluster.connect()
    await cluster.refreshMetadata()
    const coordinator = await cluster.findGroupCoordinator({ groupId: group })
    const metadata = MemberMetadata.encode({ version: 0, topics: [topic], userData: Buffer.alloc(0) })
    const { generationId, memberId } = await coordinator.joinGroup({
      groupId: group,
      sessionTimeout: 3000,
      rebalanceTimeout: 3000,
      groupProtocols: [{ name: 'continuo-sticky', metadata }],
    })
    await coordinator.syncGroup({ groupId: group, generationId, memberId, groupAssignment: [] })
    return cluster
  }

  const startLeaver = async (group: string, moments: readonly number[]) => {
    const script = fileURLToPath(new URL('./leaver.ts', import.meta.url))
    const child = fork(script, [url, topic, group, ...moments.map(String)], { execArgv: [] })
    children.push(child)
    const ended = new Promise<number | null>((resolve) => child.once('exit', resolve))
    await new Promise<void>((resolve) => child.once('message', () => resolve()))
    return { child, ended }
  }

  test('is left at any moment of a join: nobody remains in it, and the process ends by itself', async () => {
    const group = freshGroup()
    const moments = [0, 0, 0, ...Array.from({ length: 30 }, (_, i) => i * 3)]
    const { child, ended } = await startLeaver(group, moments)
    child.send('go')
    expect(await ended).toBe(0)
    const { groups } = await admin.describeGroups(moments.map((_, n) => `${group}-${n}`))
    expect(groups.flatMap(({ members }) => members)).toEqual([])
  })

  test('is left while the broker is away: nobody joins when it is back, and the process ends by itself', async () => {
    const group = freshGroup()
    const { child, ended } = await startLeaver(group, [0])
    await broker!.kill()
    child.send('go')
    // Its memberships fail to connect, and are left, before there is a broker again.
    await new Promise<void>((resolve) => child.once('disconnect', () => resolve()))
    await broker!.restart()
    expect(await ended).toBe(0)
    expect((await describeGroup(`${group}-0`)).members).toEqual([])
  })
})
