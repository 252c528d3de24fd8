/** Commands that work for a while: a line that says how far they are, and a signal that stops them. */
import { startProgress } from '../observe/progress.ts'
import type { ExitCode } from './command.ts'
import { exitCodeOfSignal, untilSignal } from './signals.ts'

export interface Work {
  readonly signal: AbortSignal
  /** What the line says from now on. */
  show(line: string): void
  /** Ends the line, for what the command prints. Seconds since the beginning. */
  finish(): number
}

/**
 * Runs `work` and returns the exit code: its own, or that of the signal by which it was stopped. `quiet`: there is no
 * line. `stopping`: what the first signal says.
 */
export const interruptible = async (
  quiet: boolean,
  stopping: string,
  work: (work: Work) => Promise<ExitCode>,
): Promise<ExitCode> => {
  let at: string | null = null
  const signal = untilSignal(stopping)
  const progress = quiet ? null : startProgress(process.stderr, () => at)
  const started = performance.now()
  const finish = (): number => {
    at = null
    progress?.stop()
    return (performance.now() - started) / 1000
  }
  const show = (line: string): void => {
    at = line
  }
  try {
    return await work({ signal, show, finish })
  } catch (error) {
    if (signal.aborted) return exitCodeOfSignal(signal)
    throw error
  } finally {
    progress?.stop()
  }
}
