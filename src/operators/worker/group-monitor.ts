/**
 * The monitor of the input: whether it still has the partitions that it had, and which members of the group serve them.
 *
 * The log does not notify a reader of one partition when others are added, and a member of a group learns only its own
 * assignment. So both are asked for: after each assignment, and every `interval`.
 */
import type { TopicNames } from '../../../topics/index.ts'
import { type ContinuoError, codeOf, messageOf } from '../../errors.ts'
import type { EventLog, Member } from '../../streams/log.ts'
import { countChanged } from '../../streams/partition-count.ts'

/** How the input topic is served. */
export interface Service {
  /** Workers of the group that read this topic. */
  readonly members: number
  /** Partitions that no member was given. */
  readonly unserved: readonly number[]
  /** Those among the members that were given none. */
  readonly idle: number
  /** Other topics that members of the group read, ascending. */
  readonly others: readonly string[]
}

export const serviceOf = (members: readonly Member[], topic: string, partitions: number): Service => {
  const sharing = members.filter((member) => member.topic === topic)
  const owned = new Set(sharing.flatMap((member) => member.partitions))
  return {
    members: sharing.length,
    unserved: Array.from({ length: partitions }, (_, partition) => partition).filter((each) => !owned.has(each)),
    idle: sharing.filter((member) => member.partitions.length === 0).length,
    others: [...new Set(members.map((member) => member.topic))].filter((name) => name !== topic).sort(),
  }
}

/** REFUSED where the input has another number of partitions than the state. Returns the number. */
export const checkCount = async (log: EventLog, names: TopicNames): Promise<number> => {
  const [now, before] = await Promise.all([log.partitions(names.chunks), log.partitions(names.state)])
  if (now === before) return now
  throw countChanged({ input: names.chunks, now, before, witness: `the state in ${names.state} was written with` })
}

export interface GroupMonitorOptions {
  readonly log: EventLog
  readonly names: TopicNames
  readonly group: string
  /** Partitions of the input when the worker began. */
  readonly partitions: number
  /** ms between two looks. */
  readonly interval: number
  /** Called after each look at the group; not while it is being shared anew, nor where that cannot be asked. */
  readonly onService: (service: Service) => void
  /** The input has another number of partitions now; called once; the monitor is over then. */
  readonly onChanged: (error: ContinuoError) => void
  readonly warn: (message: string) => void
}

export interface GroupMonitor {
  /** Look as soon as possible. */
  soon(): void
  stop(): void
}

/** ms until the next look at a group that is being shared anew. */
const UNSETTLED_PAUSE = 200

export const startGroupMonitor = (options: GroupMonitorOptions): GroupMonitor => {
  const { log, names, group, partitions, interval, onService, onChanged, warn } = options
  let timer: NodeJS.Timeout | undefined
  let looking = false
  let again = false
  let stopped = false
  let mayAsk = true

  /** Returns when to look again. */
  const look = async (): Promise<number> => {
    const now = await log.partitions(names.chunks)
    if (stopped) return interval
    if (now !== partitions) {
      stopped = true
      onChanged(countChanged({ input: names.chunks, now, before: partitions, witness: 'this worker began with' }))
      return interval
    }
    if (!mayAsk) return interval
    const members = await log.members(group)
    if (stopped) return interval
    if (members === null) return Math.min(interval, UNSETTLED_PAUSE)
    onService(serviceOf(members, names.chunks, partitions))
    return interval
  }

  const round = async (): Promise<void> => {
    clearTimeout(timer)
    if (looking) {
      again = true
      return
    }
    looking = true
    const pause = await look().catch((error: unknown) => {
      // A log that does not answer, or an input that is gone, is for the tasks to tell.
      if (codeOf(error) === 'DENIED' && mayAsk) {
        mayAsk = false
        warn(`Whether every partition is served cannot be told: ${messageOf(error)}`)
      }
      return interval
    })
    looking = false
    if (stopped) return
    timer = setTimeout(round, again ? 0 : pause)
    timer.unref()
    again = false
  }

  return {
    soon: () => void round(),
    stop() {
      stopped = true
      clearTimeout(timer)
    },
  }
}
