/**
 * The calls by which a partition reports how its records fare; src/observe/tracing.ts makes spans of them. Without
 * tracing they are not made.
 */
import type { StoredRecord } from '../../streams/log.ts'
import type { Commit } from '../pipeline/commit.ts'
import type { Step } from '../types.ts'

/** Who is told how the records of one partition fare (observe/tracing.ts makes spans of it). */
export interface Tracing {
  /** The record was delivered; it waits for its turn in its session. */
  received(record: StoredRecord): void
  /** Its turn has come. */
  begun(record: StoredRecord): void
  /** A step of it is done; the commit comes later. */
  stepped(step: Step): void
  /** One transaction is over. */
  committed(commit: Commit): void
  /** The task is over: nothing more is told of records that are not finished. */
  close(): void
}
