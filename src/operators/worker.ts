/**
 * A worker: a member of the group that runs a task for each partition it is assigned. Assignments are hints; the claim is
 * the lock. A task that was fenced is not started again before the group hands out partitions anew.
 */
import type { Subscription } from 'rxjs'
import { ContinuoError, codeOf, messageOf } from '../errors.ts'
import type { TaskState } from '../streams/lifecycle.ts'
import type { Assignment } from '../streams/log.ts'
import type { Batcher } from './batcher.ts'
import { createResidency, type ResidencyStats } from './residency.ts'
import { startTask, type Task, type TaskOptions } from './task.ts'

export interface WorkerOptions extends Omit<TaskOptions, 'contexts'> {
  readonly batcher: Batcher
  /** Memory of all contexts together, bytes; those not in use go to files beyond it. Default: no bound. */
  readonly maxResidentBytes?: number
  /** Where the folder for those files is made; default: the system's folder for temporary files. */
  readonly pageDir?: string
  /**
   * How long a fenced partition waits for a new assignment, ms (default 20,000; more than the session time-out). When the group
   * has said nothing new by then, nobody else owns it: the log itself had ended a transaction that stayed open too long.
   */
  readonly fencedPause?: number
  /** First pause before a lost task is claimed again, ms; doubles up to 64 times that. Default 100. */
  readonly retryPause?: number
}

export interface Worker {
  /** The partitions that the group gave to this worker. */
  readonly assigned: readonly number[]
  readonly tasks: ReadonlyMap<number, Task>
  /** Of the contexts of all tasks. */
  readonly residency: ResidencyStats
  /** Partitions whose state refuses to resume, with the reason. */
  readonly refused: ReadonlyMap<number, unknown>
  /** Why the task of a partition was lost last, until another one commits. */
  readonly troubles: ReadonlyMap<number, unknown>
  /** Resolves after stop(), or rejects when membership is lost for good, or the model's device. */
  readonly over: Promise<void>
  /** Whether every assigned partition is running and has had nothing to do for `ms`. */
  idleFor(ms: number): boolean
  /** Drains every task, then leaves the group. */
  stop(): Promise<void>
}

/** How often the pause before a lost task is claimed again doubles. */
const doublings = 6

export const startWorker = async (options: WorkerOptions): Promise<Worker> => {
  const { log, group, names, maxResidentBytes, pageDir } = options
  const contexts = createResidency(options.model, options.batcher, {
    warn: options.warn,
    ...(maxResidentBytes !== undefined && { maxBytes: maxResidentBytes }),
    ...(pageDir !== undefined && { pageDir }),
  })
  const tasks = new Map<number, Task>()
  const refused = new Map<number, unknown>()
  const timers = new Set<NodeJS.Timeout>()
  let current: Assignment = { generation: -1, partitions: [] }
  let stopped = false
  let giveUp: (error: unknown) => void = () => undefined
  const pauses = new Map<number, number>()
  const troubles = new Map<number, unknown>()
  /** How often a partition's task was lost in a row while the model's device was away. */
  const away = new Map<number, number>()

  const start = (partition: number): void => {
    if (stopped || tasks.has(partition) || refused.has(partition) || !current.partitions.includes(partition)) return
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
    if (stopped) return
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
    const reason = options.model.deviceAway()
    const losses = reason === null ? 0 : (away.get(partition) ?? 0) + 1
    away.set(partition, losses)
    // A log comes back to who waits for it; a device that stayed away through every pause may come back to another process.
    if (reason !== null && losses > doublings + 1) {
      giveUp(new ContinuoError('UNAVAILABLE', reason, { cause: error }))
      return
    }
    options.warn(`Partition ${partition}: ${messageOf(error)} Trying again in ${pause} ms.`)
    later(partition, pause)
  }

  const membership = await log.join(group, names.chunks).catch((error: unknown) => {
    contexts.close()
    throw error
  })
  let subscription: Subscription | undefined
  const over = new Promise<void>((resolve, reject) => {
    giveUp = reject
    subscription = membership.assignments.subscribe({
      next: (assignment) => {
        current = assignment
        for (const [partition, task] of tasks) if (!assignment.partitions.includes(partition)) task.stop()
        for (const partition of assignment.partitions) start(partition)
      },
      error: reject,
      complete: resolve,
    })
  })

  return {
    get assigned() {
      return current.partitions
    },
    tasks,
    refused,
    troubles,
    residency: contexts.stats,
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
      for (const timer of timers) clearTimeout(timer)
      const running = [...tasks.values()]
      for (const task of running) task.stop()
      await Promise.all(running.map(({ over: done }) => done))
      contexts.close()
      subscription?.unsubscribe()
      await membership.leave().catch((error: unknown) => {
        if (codeOf(error) !== 'UNAVAILABLE') throw error
      })
    },
  }
}
