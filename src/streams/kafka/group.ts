/**
 * Membership by kafkajs's consumer, which reads nothing: every partition it is given is paused in the moment it is
 * given, for records are read without it and committed by transactions. What is left of it is join, heartbeat and
 * leave.
 *
 * kafkajs leaves a group only if it knows that it is a member. If it is disconnected while its join request is pending,
 * the broker still makes it a member: no client runs it, and the others wait for it until its session ends. So a join
 * request that was sent is awaited and the group is left afterwards; one that was not sent yet is never sent.
 */
import type { Consumer, Kafka, PartitionAssigner } from 'kafkajs'
import { ReplaySubject } from 'rxjs'
import { within } from '../../aborted.ts'
import type { Assignment, Membership } from '../log.ts'
import { createAssigner } from './assigner.ts'
import { explain } from './faults.ts'

const HEARTBEAT = 500
/** kafkajs wakes this often to see whether a heartbeat is due. */
const WAKE = 100
const LEAVE_PATIENCE = 5000
const JOIN_PATIENCE = 30_000
const REJOIN_PAUSE = 500
/** The largest number that the request can hold. */
const MAX_INT32 = 2 ** 31 - 1

export interface JoinOptions {
  readonly kafka: Kafka
  readonly brokers: string
  readonly group: string
  readonly topic: string
  /** Its partitions. */
  readonly count: number
  /** Partitions of another topic; 0 where that cannot be told. */
  readonly lookUp: (topic: string) => Promise<number>
  readonly sessionTimeout: number
  /** Called once, when the membership ends. */
  readonly onEnd: () => void
}

export const joinGroup = (options: JoinOptions): Membership => {
  const { kafka, brokers, group, topic, count, lookUp, sessionTimeout, onEnd } = options
  const doing = `being a member of group ${group} with a session time-out of ${sessionTimeout} ms`
  const assignments = new ReplaySubject<Assignment>(1)
  const ownership = { partitions: [] as readonly number[], since: 0 }
  let generation = 0
  let left = false
  let consumer: Consumer | undefined
  let rejoin: NodeJS.Timeout | undefined
  /** Since the consumer asked to be let in; resolves when it was, or was turned away. */
  let entry: PromiseWithResolvers<void> | undefined
  let leaving: Promise<void> | undefined

  const end = (error?: unknown): void => {
    if (left) return
    left = true
    if (error === undefined) assignments.complete()
    else assignments.error(explain(brokers, doing, error))
    onEnd()
  }

  const assigner: PartitionAssigner = (config) => {
    const sticky = createAssigner({ topic, count, ownership, lookUp })(config)
    return {
      ...sticky,
      // kafkajs asks for this right before each request to join.
      protocol(subscription) {
        if (left && entry === undefined) throw Object.assign(new Error(`Left group ${group}`), { retriable: false })
        entry ??= Promise.withResolvers()
        return sticky.protocol(subscription)
      },
    }
  }

  const turnedAway = (): void => {
    entry?.resolve()
    entry = undefined
  }

  const start = async (): Promise<void> => {
    if (left) return
    const timeout = Math.min(sessionTimeout, MAX_INT32)
    const current = kafka.consumer({
      groupId: group,
      partitionAssigners: [assigner],
      sessionTimeout: timeout,
      // Nothing has to be finished before a hand-over: the heir's claim fences.
      rebalanceTimeout: timeout,
      heartbeatInterval: Math.min(HEARTBEAT, Math.floor(timeout / 3)),
      maxWaitTimeInMs: WAKE,
      allowAutoTopicCreation: false,
      retry: { initialRetryTime: 100, maxRetryTime: 1000, retries: 8 },
    })
    consumer = current
    // Listeners run before the first fetch, so not a single record comes this way.
    current.on(current.events.GROUP_JOIN, ({ payload }) => {
      current.pause([{ topic }])
      // Only after this listener does kafkajs know itself for a member.
      setImmediate(() => entry?.resolve())
      if (left) return
      const partitions = [...(payload.memberAssignment[topic] ?? [])].sort((a, b) => a - b)
      ownership.partitions = partitions
      ownership.since = Date.now()
      assignments.next({ generation: ++generation, partitions })
    })
    current.on(current.events.CRASH, ({ payload }) => {
      turnedAway()
      if (consumer === current && !payload.restart) again(payload.error)
    })
    await current.connect()
    if (!left) await current.subscribe({ topics: [topic] })
    if (!left) await current.run({ autoCommit: false, eachBatch: async () => {} })
    // What connected after `leave` had disconnected it.
    if (left) await quit()
  }

  /** A crash that kafkajs takes for final may still pass; wrong credentials and what the group refuses do not. */
  const again = (error: unknown): void => {
    void consumer?.disconnect().catch(() => {})
    consumer = undefined
    if (left) return
    const { code } = explain(brokers, doing, error)
    if (code === 'DENIED' || code === 'INVALID') end(error)
    else rejoin = setTimeout(run, REJOIN_PAUSE)
  }

  const run = (): void => {
    start().catch((error: unknown) => {
      turnedAway()
      again(error)
    })
  }

  const quit = async (): Promise<void> => {
    await entry?.promise
    await consumer?.disconnect().catch(() => {})
  }

  run()
  return {
    assignments: assignments.asObservable(),
    async leave() {
      clearTimeout(rejoin)
      end()
      leaving ??= quit()
      // The broker admits no member before every other has answered, or a silent one's session has ended.
      await within(Math.min(sessionTimeout, JOIN_PATIENCE), entry?.promise)
      await within(LEAVE_PATIENCE, leaving)
    },
  }
}
