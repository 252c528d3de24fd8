/** What a worker does just now, by what its log said last. A log line comes a little later than the deed. */
import type { ChildProcess } from 'node:child_process'

/**
 * starting: Node, the model, the log and the group, up to the first claim of a partition; restoring: from there to the
 * first commit, so reading the state and rebuilding sessions; running: from there on; stopping: from SIGTERM or the end
 * of the input on, so draining, farewell snapshots and leaving.
 */
export const PHASES = ['starting', 'restoring', 'running', 'stopping'] as const
export type Phase = (typeof PHASES)[number]

export interface Phases {
  now(): Phase
  /** Resolves when the phase, or a later one, begins. */
  reached(phase: Phase): Promise<void>
  /** SIGTERM was sent, or the log said something. Never goes back. */
  enter(phase: Phase): void
}

const phaseOf = (line: string): Phase | null => {
  if (line.includes('"msg":"commit"')) return 'running'
  if (line.includes('"state":"claiming"')) return 'restoring'
  if (line.includes('"state":"draining"')) return 'stopping'
  return null
}

/** Needs `--log-level debug`. */
export const watchPhases = ({ stderr }: Pick<ChildProcess, 'stderr'>): Phases => {
  let at = 0
  const gates = PHASES.map(() => Promise.withResolvers<void>())
  gates[0]!.resolve()
  const enter = (phase: Phase): void => {
    while (at < PHASES.indexOf(phase)) {
      at += 1
      gates[at]!.resolve()
    }
  }
  let line = ''
  stderr!.on('data', (data: Buffer) => {
    const lines = (line + data.toString()).split('\n')
    line = lines.pop()!
    for (const each of lines) {
      const phase = phaseOf(each)
      if (phase !== null) enter(phase)
    }
  })
  return { now: () => PHASES[at]!, reached: (phase) => gates[PHASES.indexOf(phase)]!.promise, enter }
}
