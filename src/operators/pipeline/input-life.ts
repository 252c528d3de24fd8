/**
 * Whether an input keeps its records for good. Where it does, a session with a short past needs no snapshot, however
 * long it is silent: its few events are read again if it comes back. Where records go by age or size, they must be in a
 * snapshot before.
 */
import type { EventLog } from '../../streams/log.ts'

/** Kafka's settings by which records go; −1 is for ever. A broker that does not show them may have any. */
const BOUNDS = ['retention.ms', 'retention.bytes'] as const

/**
 * Whether every record is there that the partition ever had, and no setting removes one. The embedded log removes none
 * by itself.
 */
export const keepsRecords = async (log: EventLog, topic: string, partition: number): Promise<boolean> => {
  const { begin } = await log.bounds(topic, partition)
  if (begin > 0) return false
  if (log.kind !== 'kafka') return true
  const found = (await log.topics([topic])).find(({ name }) => name === topic)
  return BOUNDS.every((setting) => found?.config[setting] === '-1')
}

export interface InputLife {
  /** As of the last answer; false until there is one. */
  readonly keeps: boolean
  /** Asks the log anew. Resolves when that is done, whatever came of it. */
  ask(): Promise<void>
}

export const createInputLife = (log: EventLog, topic: string, partition: number): InputLife => {
  let keeps = false
  let asking: Promise<void> | null = null
  const asked = async (): Promise<void> => {
    // Without an answer records are taken to go. What ails the log, the task meets itself.
    keeps = await keepsRecords(log, topic, partition).catch(() => false)
    asking = null
  }
  return {
    get keeps() {
      return keeps
    },
    ask() {
      asking ??= asked()
      return asking
    },
  }
}
