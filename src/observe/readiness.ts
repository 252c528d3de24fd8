/**
 * Whether a worker serves what it was given: every assigned partition runs, and every partition of the topic has a
 * worker.
 */
import { messageOf } from '../errors.ts'
import type { Worker } from '../operators/worker/worker.ts'
import { gaps, idleness } from './standing.ts'

export interface Readiness {
  readonly ready: boolean
  readonly reason?: string
  /** A worker that owns nothing is ready to take over, and says so here. */
  readonly idle?: string
  readonly partitions: readonly { readonly partition: number; readonly state: string; readonly reason?: string }[]
}

export const readiness = (worker: Worker | null): Readiness => {
  if (worker === null) return { ready: false, reason: 'The worker has not joined its group yet.', partitions: [] }
  const { standing, halted } = worker
  const partitions = worker.assigned.map((partition) => {
    if (worker.refused.has(partition)) {
      return { partition, state: 'refused', reason: messageOf(worker.refused.get(partition)) }
    }
    const task = worker.tasks.get(partition)
    const state = task?.state ?? 'waiting'
    const trouble = state === 'running' ? undefined : worker.troubles.get(partition)
    // One session that holds up the others leaves the worker ready: another worker would find the same.
    const reason = trouble === undefined ? (task?.heldUp ?? undefined) : messageOf(trouble)
    return { partition, state, ...(reason !== undefined && { reason }) }
  })
  const refuse = (reason: string): Readiness => ({ ready: false, reason, partitions })
  if (halted !== null) return refuse(halted.message)
  if (standing.owned === null) return refuse('The worker waits for the group to give it partitions.')
  const behind = partitions.filter(({ state }) => state !== 'running')
  if (behind.length > 0)
    return refuse(
      behind
        .map(
          ({ partition, state, reason: why }) =>
            `Partition ${partition} is ${state}${why === undefined ? '.' : `: ${why}`}`,
        )
        .join(' '),
    )
  const unserved = gaps(standing)
  if (unserved !== null) return refuse(unserved)
  if (partitions.length > 0) return { ready: true, partitions }
  return { ready: true, idle: idleness(standing) ?? 'idle: the group is being shared anew.', partitions }
}
