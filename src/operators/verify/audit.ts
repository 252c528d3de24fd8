/** One partition under verification: the content of the log, and the findings so far. */
import type { Cause, EndedBy } from '../../../topics/common.ts'
import type { TopicNames } from '../../../topics/index.ts'
import type { Model, ModelInfo } from '../../engine/types.ts'
import type { Tokenizer } from '../../models/tokenizer/types.ts'
import type { BlockCacheOptions } from '../../state/block-cache.ts'
import type { Head } from '../../state/head.ts'
import type { EventLog, StoredRecord } from '../../streams/log.ts'
import type { Inference, SessionState } from '../advance/session-state.ts'
import type { Homes } from '../pipeline/input.ts'
import type { InputFormat, ValidateOptions } from '../pipeline/validate.ts'
import type { Contexts } from '../sessions/context-store.ts'
import type { ForkEvent } from '../snapshots/ancestors.ts'
import type { Hashed, StoredSnapshot } from './snapshots.ts'
import type { At, DeadLetter, Finding, Found, OutputTopic, StoredState } from './stored.ts'

/** What is verified, and by which model. */
export interface VerifyOptions {
  /** A log at rest: no worker may run. */
  readonly log: EventLog
  /** Names of its topics: `topicNames(log.prefix)`. */
  readonly names: TopicNames
  /** The model that wrote the log. */
  readonly model: Model
  /** Its tokenizer; null where it reads token ids alone. */
  readonly tokenizer: Tokenizer | null
  /** As the worker read the input. */
  readonly format: InputFormat
  /** Only this session. */
  readonly session?: string
  /** Reads every blob that newest snapshots name, too. Default: of blobs only the names are compared. */
  readonly blobs?: boolean
  /** Of a model whose memory lies outside: where archived blocks are while sessions are recomputed. */
  readonly blocks?: BlockCacheOptions | undefined
  /** Called now and then with the place in the input. */
  readonly onProgress?: (progress: {
    readonly partition: number
    readonly offset: number
    readonly end: number
  }) => void
}

/** What was recomputed, and what differs. */
export interface Verification {
  /** Sessions that were recomputed. */
  readonly sessions: number
  /** Sessions that were deleted; what they were before is not recomputed. */
  readonly deleted: number
  /** Sessions whose beginning is not in the log, and the pulse from which they were recomputed. */
  readonly partial: readonly { readonly session: string; readonly fromPulse: number }[]
  /**
   * Sessions that are closed or were set aside, and of which nothing is left to recompute: their first events left the
   * input (`input`), or the session that they were forked from was deleted or cannot be computed up to there
   * (`parent`). A worker needs nothing of them but their heads, so nothing is lost.
   */
  readonly notRecomputed: readonly { readonly session: string; readonly because: 'input' | 'parent' }[]
  /** Input records that were read. */
  readonly events: number
  /** Generated tokens that were compared. */
  readonly tokensCompared: number
  /** Heads that were compared. */
  readonly headsCompared: number
  /** Snapshots that were compared. */
  readonly snapshotsCompared: number
  /** Blobs that were read and are right. */
  readonly blobsRead: number
  /** What differs; empty: everything agrees. */
  readonly findings: readonly Finding[]
}

export type NotRecomputed = Verification['notRecomputed'][number]

export type Totals = {
  -readonly [K in keyof Verification]: Verification[K] extends readonly (infer T)[] ? T[] : Verification[K]
}

export const noTotals = (): Totals => ({
  sessions: 0,
  deleted: 0,
  partial: [],
  notRecomputed: [],
  events: 0,
  tokensCompared: 0,
  headsCompared: 0,
  snapshotsCompared: 0,
  blobsRead: 0,
  findings: [],
})

/** One session under verification. */
export interface Subject {
  readonly target: Head
  readonly heads: Map<string, At<Head>[]>
  readonly snapshots: Map<string, At<StoredSnapshot>[]>
  /** Records of the output topics for the session, in order. */
  readonly outputs: Record<OutputTopic, StoredRecord[]>
  session: SessionState | null
  /** Its blocks as far as they were hashed. */
  readonly hashed: Hashed
  /** A block of the snapshot from which it was recomputed cannot be had. */
  isLost: boolean
  finished: boolean
  /** Its state cannot be had before this offset: the events that lead there are gone. */
  begins: number
  /** Computed for the sake of its forks only: nothing is compared. */
  readonly isSilent: boolean
}

/** The end of a request that did not come to its own, as an output tells it. */
export interface Ended {
  readonly session: string
  readonly requestId?: string | undefined
  readonly cause: Cause
  /** Tokens generated before. */
  readonly index: number
  readonly endedBy: EndedBy
}

/** One partition under verification. */
export interface Audit {
  readonly options: VerifyOptions
  /** Where contexts are made. */
  readonly model: ModelInfo & Contexts
  readonly partition: number
  /** Where sessions belong. */
  readonly homes: Homes
  readonly engine: Inference
  readonly validation: ValidateOptions
  /** The topics of outputs that the log has. */
  readonly outputs: readonly OutputTopic[]
  readonly stored: StoredState
  readonly deadLetters: ReadonlyMap<number, DeadLetter>
  /** Of requests that were ended, by their offset, where and by what the outputs say that they were. */
  readonly told: Map<number, Ended>
  /** Ends of cancelled requests that left the input since, or whose sessions were deleted. */
  readonly goneCancels: readonly Ended[]
  /** Forks that the input asks for. */
  readonly forks: readonly ForkEvent[]
  /**
   * Of each session that was deleted, the offset of the last event that did it: nothing of it up to there is
   * recomputed.
   */
  readonly deleted: ReadonlyMap<string, number>
  /** Of each parent of a fork, the offset of the first record of it; Infinity before one was met. */
  readonly firsts: Map<string, number>
  /** The first offset of the input whose record is gone, erased or trimmed; Infinity: all are there. */
  readonly gap: number
  readonly begin: number
  readonly end: number
  /** Whether the partition cursor says that the record is finished. */
  readonly isDone: (offset: number) => boolean
  readonly totals: Totals
  readonly found: Found
}

/** The same without a word: for sessions that are computed only because others need them. */
export const silenced = (audit: Audit): Audit => ({ ...audit, totals: noTotals(), found: () => undefined })
