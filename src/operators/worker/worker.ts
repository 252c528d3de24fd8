/**
 * A worker: a member of the group that runs a task for each partition it is assigned. Assignments are hints; the claim
 * is the lock. A task that was fenced is not started again before the group hands out partitions anew.
 */
import type { Subscription } from 'rxjs'
import { ContinuoError, codeOf, messageOf } from '../../errors.ts'
import type { TaskState } from '../../streams/lifecycle.ts'
import type { Assignment } from '../../streams/log.ts'
import { faultOfRules } from '../pipeline/input.ts'
import { type ContextStoreOptions, type ContextStoreStats, createContextStore } from '../sessions/context-store.ts'
import { checkCount, type Service, startGroupMonitor } from './group-monitor.ts'
import { startTask, type Task, type TaskOptions } from './task.ts'

/** What a worker works on, and whom it tells. */
export interface WorkerOptions extends Omit<TaskOptions, 'contexts'> {
  /**
   * How long a fenced partition waits for a new assignment, ms (default 20,000; more than the session time-out). When
   * the group has not assigned anew by then, no other worker owns the partition: the log itself had ended a transaction
   * that stayed open too long.
   */
  readonly fencedPause?: number
  /** First pause before a lost task is claimed again, ms; doubles up to 64 times that. Default 100. */
  readonly retryPause?: number
  /**
   * Time between two looks at the number of partitions of the input and at the members that serve them, ms. Default
   * 5,000.
   */
  readonly monitorInterval?: number
  /** Called for each adaptation that did something. */
  readonly onAdapted?: ContextStoreOptions['onAdapted']
  /** Called when the partitions of this worker change, or the way the input is served. */
  readonly onStanding?: (standing: Standing) => void
}

/** The partitions that this worker has of the input topic, and how the other partitions are served. */
export interface Standing {
  readonly topic: string
  readonly group: string
  readonly partitions: number
  /** null before the group has given anything. */
  readonly owned: readonly number[] | null
  /** null before the group is settled, or where this user may not describe the group. */
  readonly service: Service | null
}

/** A worker that runs. */
export interface Worker {
  /** The partitions that the group gave to this worker. */
  readonly assigned: readonly number[]
  /** The task of each partition that runs here. */
  readonly tasks: ReadonlyMap<number, Task>
  /** Statistics over the contexts of all tasks. */
  readonly contexts: ContextStoreStats
  /** Partitions whose state refuses to resume, with the reason. */
  readonly refused: ReadonlyMap<number, unknown>
  /** Why the task of a partition was lost last, until another one commits. */
  readonly troubles: ReadonlyMap<number, unknown>
  /** Its partitions, and how the others are served. */
  readonly standing: Standing
  /**
   * Why the worker as a whole cannot go on: the input has another number of partitions. It drains and is to be stopped.
   */
  readonly halted: ContinuoError | null
  /**
   * Resolves after stop(), or rejects when membership is lost for good, or the model's device, or when it is halted.
   */
  readonly over: Promise<void>
  /** Whether every assigned partition is running and has had nothing to do for `ms`. */
  idleFor(ms: number): boolean
  /** Drains every task, then leaves the group. */
  stop(): Promise<void>
}

const MONITOR_INTERVAL = 5000

/** How often the pause before a lost task is claimed again doubles. */
const doublings = 6

/**
 * Joins the group and runs until `stop`. Rejects with INVALID where topics are missing, REFUSED where the numbers of
 * their partitions differ, UNAVAILABLE or DENIED where the log cannot be used.
 */
export const startWorker = async (options: WorkerOptions): Promise<Worker> => {
  const { log, group, names, maxResidentBytes, maxSpillBytes, spillDir, blocks, onAdapted } = options
  const partitions = await checkCount(log, names)
  const fault = faultOfRules(options.input ?? {}, partitions)
  if (fault !== null) throw new ContinuoError('INVALID', fault)
  const contexts = createContextStore(options.model, {
    warn: options.warn,
    maxBytes: maxResidentBytes,
    maxSpillBytes,
    spillDir,
    blocks,
    onAdapted,
  })
  const tasks = new Map<number, Task>()
  const refused = new Map<number, unknown>()
  const timers = new Set<NodeJS.Timeout>()
  let current: Assignment = { generation: -1, partitions: [] }
  let stopped = false
  let giveUp: (error: unknown) => void = () => undefined
  let halted: ContinuoError | null = null
  let service: Service | null = null
  const pauses = new Map<number, number>()
  const troubles = new Map<number, unknown>()
  /** How often a partition's task was lost in a row while the model's device was away. */
  const lossesInARow = new Map<number, number>()

  const start = (partition: number): void => {
    if (
      stopped ||
      halted !== null ||
      tasks.has(partition) ||
      refused.has(partition) ||
      !current.partitions.includes(partition)
    )
      return
    const generation = current.generation
    const task = startTask(partition, {
      ...options,
      contexts,
      onCommit: (commit) => {
        pauses.delete(partition)
        troubles.delete(partition)
        options.onCommit?.(commit)
      },
    })
    tasks.set(partition, task)
    void task.over.then(({ state, error }) => {
      tasks.delete(partition)
      settle(partition, generation, state, error)
    })
  }

  const later = (partition: number, pause: number): void => {
    const timer = setTimeout(() => {
      timers.delete(timer)
      start(partition)
    }, pause)
    timers.add(timer)
  }

  const settle = (partition: number, generation: number, state: TaskState, error: unknown): void => {
    if (stopped || halted !== null) return
    if (state === 'refused') {
      refused.set(partition, error)
      return
    }
    // A newer assignment may have come while the old task drained.
    if (generation !== current.generation || state === 'closed') {
      start(partition)
      return
    }
    troubles.set(partition, error)
    if (state === 'migrated') {
      later(partition, options.fencedPause ?? 20_000)
      return
    }
    const first = options.retryPause ?? 100
    const pause = pauses.get(partition) ?? first
    pauses.set(partition, Math.min(pause * 2, 2 ** doublings * first))
    const reason = options.model.unavailableReason()
    const losses = reason === null ? 0 : (lossesInARow.get(partition) ?? 0) + 1
    lossesInARow.set(partition, losses)
    // A log that was away answers again after some pause. A lost device that stays lost through every pause needs
    // another process.
    if (reason !== null && losses > doublings + 1) {
      giveUp(new ContinuoError('UNAVAILABLE', reason, { cause: error }))
      return
    }
    options.warn(`Partition ${partition}: ${messageOf(error)} Trying again in ${pause} ms.`)
    later(partition, pause)
  }

  const standing = (): Standing => ({
    topic: names.chunks,
    group,
    partitions,
    owned: current.generation < 0 ? null : current.partitions,
    service,
  })
  const stand = (): void => {
    if (!stopped) options.onStanding?.(standing())
  }
  const monitor = startGroupMonitor({
    log,
    names,
    group,
    partitions,
    interval: options.monitorInterval ?? MONITOR_INTERVAL,
    warn: options.warn,
    onService(seen) {
      service = seen
      stand()
    },
    // What was read until now is finished and saved, as at any stop: it came while a key had one partition, or before
    // anybody could know that it has another.
    onChanged(error) {
      halted = error
      for (const task of tasks.values()) task.stop()
      giveUp(error)
    },
  })

  const membership = await log.join(group, names.chunks).catch(async (error: unknown) => {
    await contexts.close()
    throw error
  })
  let subscription: Subscription | undefined
  const over = new Promise<void>((resolve, reject) => {
    giveUp = reject
    subscription = membership.assignments.subscribe({
      next: (assignment) => {
        current = assignment
        // Of the group as it was.
        service = null
        for (const [partition, task] of tasks) if (!assignment.partitions.includes(partition)) task.stop()
        for (const partition of assignment.partitions) start(partition)
        stand()
        monitor.soon()
      },
      error: reject,
      complete: resolve,
    })
  })
  monitor.soon()

  return {
    get assigned() {
      return current.partitions
    },
    tasks,
    refused,
    get standing() {
      return standing()
    },
    get halted() {
      return halted
    },
    troubles,
    contexts: contexts.stats,
    over,
    idleFor(ms) {
      const now = performance.now()
      return (
        current.generation >= 0 &&
        current.partitions.every((partition) => {
          if (refused.has(partition)) return true
          const task = tasks.get(partition)
          return (
            task !== undefined &&
            task.state === 'running' &&
            task.load.records === 0 &&
            now - task.load.lastActivity >= ms
          )
        })
      )
    },
    async stop() {
      if (stopped) return
      stopped = true
      monitor.stop()
      for (const timer of timers) clearTimeout(timer)
      const running = [...tasks.values()]
      for (const task of running) task.stop()
      await Promise.all(running.map(({ over: done }) => done))
      await contexts.close()
      subscription?.unsubscribe()
      await membership.leave().catch((error: unknown) => {
        if (codeOf(error) !== 'UNAVAILABLE') throw error
      })
    },
  }
}
