/**
 * One group, several input topics: whatever joins and leaves, each topic is shared among those that read it.
 *
 * @module-tag slow
 */
import type { Consumer, GroupMember, PartitionAssigner } from 'kafkajs'
import { afterAll, afterEach, beforeAll, describe, expect, inject, test } from 'vitest'
import { codeOf } from '../../src/errors.ts'
import { serviceOf } from '../../src/operators/worker/group-monitor.ts'
import { assign } from '../../src/streams/assign.ts'
import { MemberAssignment, MemberMetadata } from '../../src/streams/kafka/kafkajs.ts'
import type { EventLog, Membership } from '../../src/streams/log.ts'
import { openLog } from '../../src/streams/open.ts'
import { eventually, refuses, watch } from '../streams/helpers.ts'
import { freshPrefix } from './broker.ts'
import { plainKafka } from './helpers.ts'

const { brokers, missing } = inject('kafka')
if (brokers === null) console.warn(`Tests on a broker are skipped: ${missing}`)

const COUNTS = { a: 2, b: 3 } as const
type Which = keyof typeof COUNTS

describe.skipIf(brokers === null)('a group that reads two logs of a cluster', { timeout: 120_000 }, () => {
  const prefixes = { a: freshPrefix(), b: freshPrefix() }
  const topics = { a: `${prefixes.a}.chunks`, b: `${prefixes.b}.chunks` }
  const logs: EventLog[] = []
  const consumers: Consumer[] = []
  let looker: EventLog
  let count = 0

  const open = async (which: Which): Promise<EventLog> => {
    const log = await openLog(`kafka://${brokers}/${prefixes[which]}`)
    logs.push(log)
    return log
  }
  beforeAll(async () => {
    looker = await openLog(`kafka://${brokers}/${prefixes.a}`)
    for (const which of ['a', 'b'] as const)
      await looker.createTopics([{ name: topics[which], partitions: COUNTS[which], config: {} }])
  })
  afterEach(async () => {
    await Promise.all(consumers.splice(0).map((consumer) => consumer.disconnect()))
    await Promise.all(logs.splice(0).map((log) => log.close()))
  })
  afterAll(() => looker?.close())

  interface Joined {
    readonly which: Which
    readonly membership: Membership
    readonly now: () => readonly number[]
  }
  const join = async (which: Which, group: string): Promise<Joined> => {
    const membership = await (await open(which)).join(group, topics[which])
    return { which, membership, now: watch(membership).now }
  }

  /**
   * Every partition of a topic that anybody reads has one owner, no reader has two more than another, and the log says
   * so.
   */
  const settled = (group: string, members: readonly Joined[]): Promise<void> =>
    eventually(async () => {
      const seen = await looker.members(group)
      expect(seen).not.toBeNull()
      for (const which of ['a', 'b'] as const) {
        const sharing = members.filter((member) => member.which === which)
        if (sharing.length === 0) continue
        const shares = sharing.map(({ now }) => now())
        expect(shares.flat().sort()).toEqual(Array.from({ length: COUNTS[which] }, (_, partition) => partition))
        const sizes = shares.map(({ length }) => length)
        expect(Math.max(...sizes) - Math.min(...sizes)).toBeLessThanOrEqual(1)
        const { members: told, unserved, idle } = serviceOf(seen!, topics[which], COUNTS[which])
        expect({ told, unserved, idle }).toEqual({
          told: sharing.length,
          unserved: [],
          idle: sizes.filter((size) => size === 0).length,
        })
      }
      expect(seen!.length).toBe(members.length)
    }, 60_000)

  test.each([
    ['a b a b', [0, 1, 2, 3]],
    ['a a a b', [3, 0, 1, 2]],
    ['b a b a', [1, 0, 3, 2]],
  ])('serves both fully, whoever joins (%s) and leaves, in any order', async (joins, leaves) => {
    const group = `${prefixes.a}-${count++}`
    const all: Joined[] = []
    for (const which of joins.split(' ') as Which[]) {
      all.push(await join(which, group))
      await settled(group, all)
    }
    const left = [...all]
    for (const index of leaves.slice(0, -1)) {
      await all[index]!.membership.leave()
      left.splice(left.indexOf(all[index]!), 1)
      await settled(group, left)
    }
  })

  /** A worker of a version that gave every member partitions of the leader's topic, and did not count. */
  const joinOld = async (which: Which, group: string) => {
    const topic = topics[which]
    let partitions: readonly number[] = []
    let since = 0
    const assigner: PartitionAssigner = ({ cluster }) => ({
      name: 'continuo-sticky',
      version: 0,
      protocol: ({ topics: subscribed }) => ({
        name: 'continuo-sticky',
        metadata: MemberMetadata.encode({
          version: 0,
          topics: subscribed,
          userData: Buffer.from(JSON.stringify({ partitions, since })),
        }),
      }),
      assign: async ({ members }: { members: GroupMember[] }) => {
        const holders = members.map(({ memberId }) => ({ member: memberId, partitions: [] }))
        return [...assign(cluster.findTopicPartitionMetadata(topic).length, holders)].map(([memberId, share]) => ({
          memberId,
          memberAssignment: MemberAssignment.encode({
            version: 0,
            assignment: { [topic]: share },
            userData: Buffer.alloc(0),
          }),
        }))
      },
    })
    const consumer = plainKafka(brokers!).consumer({
      groupId: group,
      partitionAssigners: [assigner],
      maxWaitTimeInMs: 100,
      heartbeatInterval: 300,
    })
    consumers.push(consumer)
    consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
      partitions = payload.memberAssignment[topic] ?? []
      since = Date.now()
    })
    await consumer.connect()
    await consumer.subscribe({ topics: [topic] })
    await consumer.run({ autoCommit: false, eachBatch: async () => {} })
    return { consumer, now: () => partitions }
  }

  test('serves a worker of an older version, too, though that does not say how many partitions its topic has', async () => {
    const group = `${prefixes.a}-${count++}`
    const ours = await join('a', group)
    await settled(group, [ours])
    const old = await joinOld('b', group)
    await eventually(() => {
      expect(ours.now()).toEqual([0, 1])
      expect(old.now()).toEqual([0, 1, 2])
    }, 60_000)
  })

  test('led by an older version goes on, says whose partitions nobody serves, and is whole again when that is gone', async () => {
    const group = `${prefixes.a}-${count++}`
    const old = await joinOld('b', group)
    await eventually(() => expect(old.now()).toEqual([0, 1, 2]), 60_000)
    const ours = await join('a', group)
    await eventually(async () => {
      const seen = await looker.members(group)
      expect(seen?.length).toBe(2)
      expect(serviceOf(seen!, topics.a, COUNTS.a)).toEqual({
        members: 1,
        unserved: [0, 1],
        idle: 1,
        others: [topics.b],
      })
    }, 60_000)
    expect(ours.now()).toEqual([])
    await old.consumer.disconnect()
    await settled(group, [ours])
  })

  test('is fed by nobody who would spread a session over two partitions: a feeder notices that there are more', async () => {
    const topic = `${prefixes.a}.grows`
    const log = await open('a')
    await log.createTopics([{ name: topic, partitions: 2, config: {} }])
    const record = { key: Buffer.from('s'), value: Buffer.from('v') }
    const [first] = await log.append(topic, [record])
    const admin = plainKafka(brokers!).admin()
    await admin.connect()
    await admin.createPartitions({ topicPartitions: [{ topic, count: 5 }] })
    await admin.disconnect()
    const refusal = await eventually(async () => {
      const told = await log.append(topic, [record]).then(
        ([placed]) => {
          expect(placed!.partition).toBe(first!.partition)
          return null
        },
        (error: unknown) => error,
      )
      expect(told).not.toBeNull()
      return told
    })
    for (let again = 0; again < 2; again++)
      await refuses(
        log.append(topic, [record]),
        'REFUSED',
        `${topic} has 5 partitions`,
        'what was sent so far went to 2',
      )
    expect(codeOf(refusal)).toBe('REFUSED')
  })
})
