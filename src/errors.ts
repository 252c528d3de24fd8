/**
 * The one error class. A message is a sentence or two: what was expected, what arrived, what to do.
 *
 * The codes are verdicts, in the sense of Kafka Streams' exceptions: they say what the catcher must do.
 */
export type ErrorCode =
  /** The input (a flag, an event, a file) is wrong; nothing was changed. */
  | 'INVALID'
  /** The caller used an object in a state that forbids it: closed, busy, not open. */
  | 'MISUSE'
  /** A newer owner holds this partition. The task is gone: write nothing more, wait for a fresh assignment. */
  | 'FENCED'
  /** A position that was committed no longer exists in the log, or the log skipped one. Never read on silently. */
  | 'POSITION'
  /** Stream and model disagree, or stored state fails verification. Refuse to resume; change nothing. */
  | 'REFUSED'
  /** Log unreachable, disk full, time-out: the same call may succeed later. */
  | 'UNAVAILABLE'
  /** Credentials or permissions are wrong; retrying does not help. */
  | 'DENIED'
  /** A bug in Continuo. */
  | 'INTERNAL'

/** Every error that Continuo throws on purpose. */
export class ContinuoError extends Error {
  /** What the catcher must do. */
  readonly code: ErrorCode
  constructor(code: ErrorCode, message: string, options?: { cause?: unknown }) {
    super(message, options)
    this.name = 'ContinuoError'
    this.code = code
  }
}

/** The code of any thrown value; `INTERNAL` for what is not ours. */
export const codeOf = (error: unknown): ErrorCode => (error instanceof ContinuoError ? error.code : 'INTERNAL')

/** The message of any thrown value. */
export const messageOf = (error: unknown): string => (error instanceof Error ? error.message : String(error))
