/**
 * The life of a task, which is all the work of one input partition.
 *
 *   created ──▶ claiming ──▶ restoring ──▶ running ──▶ draining ──▶ closed
 *                  │             │            │            │
 *                  └─────────────┴─────┬──────┴────────────┘
 *                                      ├──▶ migrated   another worker owns the partition; wait for a fresh assignment
 *                                      ├──▶ lost       the log failed, outcome unknown; claim again and read the cursor
 *                                      └──▶ refused    the state does not match; a person has to look
 *
 * draining is the clean way out (finish the step in hand, save, commit); the other three write nothing more.
 */
import { ContinuoError, codeOf } from '../errors.ts'

/** Where a task is in its life. */
export type TaskState =
  | 'created'
  | 'claiming'
  | 'restoring'
  | 'running'
  | 'draining'
  | 'closed'
  | 'migrated'
  | 'lost'
  | 'refused'

const DIRTY = ['migrated', 'lost', 'refused'] as const

const LEGAL: Readonly<Record<TaskState, readonly TaskState[]>> = {
  created: ['claiming', 'closed'],
  claiming: ['restoring', 'closed', ...DIRTY],
  restoring: ['running', 'closed', ...DIRTY],
  running: ['draining', ...DIRTY],
  draining: ['closed', ...DIRTY],
  closed: [],
  migrated: [],
  lost: [],
  refused: [],
}

export interface Lifecycle {
  readonly state: TaskState
  /** Throws INTERNAL for a transition the diagram does not have. */
  to(next: TaskState): void
  readonly over: boolean
}

export const createLifecycle = (onChange?: (state: TaskState) => void): Lifecycle => {
  let state: TaskState = 'created'
  return {
    get state() {
      return state
    },
    get over() {
      return LEGAL[state].length === 0
    },
    to(next) {
      if (!LEGAL[state].includes(next)) {
        throw new ContinuoError('INTERNAL', `A task cannot go from ${state} to ${next}.`)
      }
      state = next
      onChange?.(next)
    },
  }
}

/** The verdict on a task that threw. */
export const verdictOf = (error: unknown): 'migrated' | 'lost' | 'refused' => {
  switch (codeOf(error)) {
    case 'FENCED':
      return 'migrated'
    case 'UNAVAILABLE':
      return 'lost'
    default:
      return 'refused'
  }
}
