/**
 * Membership by kafkajs's consumer, which reads nothing: every partition it is given is paused in the moment it is given,
 * for records are read without it and committed by transactions. What is left of it is join, heartbeat and leave.
 */
import type { Consumer, Kafka, PartitionAssigner } from 'kafkajs'
import { ReplaySubject } from 'rxjs'
import type { Assignment, Membership } from '../log.ts'
import { createAssigner } from './assigner.ts'
import { explain } from './faults.ts'

const HEARTBEAT = 500
/** kafkajs wakes this often to see whether a heartbeat is due. */
const WAKE = 100
const LEAVE_PATIENCE = 5000
const REJOIN_PAUSE = 500

export interface JoinOptions {
  readonly kafka: Kafka
  readonly brokers: string
  readonly group: string
  readonly topic: string
  readonly sessionTimeout: number
  /** Called once, when the membership ends. */
  readonly onEnd: () => void
}

export const joinGroup = ({ kafka, brokers, group, topic, sessionTimeout, onEnd }: JoinOptions): Membership => {
  const assignments = new ReplaySubject<Assignment>(1)
  const ownership = { partitions: [] as readonly number[], since: 0 }
  const assigner: PartitionAssigner = createAssigner(topic, ownership)
  let generation = 0
  let left = false
  let consumer: Consumer | undefined
  let rejoin: NodeJS.Timeout | undefined

  const end = (error?: unknown): void => {
    if (left) return
    left = true
    if (error === undefined) assignments.complete()
    else assignments.error(explain(brokers, `being a member of group ${group}`, error))
    onEnd()
  }

  const start = async (): Promise<void> => {
    const current = kafka.consumer({
      groupId: group,
      partitionAssigners: [assigner],
      sessionTimeout,
      // Nothing has to be finished before a hand-over: the heir's claim fences.
      rebalanceTimeout: sessionTimeout,
      heartbeatInterval: Math.min(HEARTBEAT, Math.floor(sessionTimeout / 3)),
      maxWaitTimeInMs: WAKE,
      allowAutoTopicCreation: false,
      retry: { initialRetryTime: 100, maxRetryTime: 1000, retries: 8 },
    })
    consumer = current
    // Listeners run before the first fetch, so not a single record comes this way.
    current.on(current.events.GROUP_JOIN, ({ payload }) => {
      if (left || consumer !== current) return void current.disconnect().catch(() => {})
      current.pause([{ topic }])
      const partitions = [...(payload.memberAssignment[topic] ?? [])].sort((a, b) => a - b)
      ownership.partitions = partitions
      ownership.since = Date.now()
      assignments.next({ generation: ++generation, partitions })
    })
    current.on(current.events.CRASH, ({ payload }) => {
      if (left || consumer !== current || payload.restart) return
      again(payload.error)
    })
    await current.connect()
    await current.subscribe({ topics: [topic] })
    await current.run({ autoCommit: false, eachBatch: async () => {} })
  }

  /** A crash that kafkajs takes for final may still pass; wrong credentials and missing topics do not. */
  const again = (error: unknown): void => {
    const { code } = explain(brokers, `being a member of group ${group}`, error)
    if (code === 'DENIED' || code === 'INVALID') {
      end(error)
      return
    }
    void consumer?.disconnect().catch(() => {})
    consumer = undefined
    rejoin = setTimeout(() => start().catch(again), REJOIN_PAUSE)
  }

  start().catch(again)
  return {
    assignments: assignments.asObservable(),
    leave: async () => {
      clearTimeout(rejoin)
      const current = consumer
      end()
      consumer = undefined
      if (current === undefined) return
      let timer: NodeJS.Timeout | undefined
      const patience = new Promise<void>((resolve) => {
        timer = setTimeout(resolve, LEAVE_PATIENCE)
      })
      await Promise.race([current.disconnect().catch(() => {}), patience])
      clearTimeout(timer)
    },
  }
}
