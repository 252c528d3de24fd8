/** The values that flow between the operators. Each is immutable and names the input record that it belongs to. */

import type { Alert } from '../../topics/alerts.ts'
import type { Chunk } from '../../topics/chunks.ts'
import type { Cause } from '../../topics/common.ts'
import type { Observation } from '../../topics/observations.ts'
import type { Cancelled, Stopped } from '../../topics/state.ts'
import type { Generated } from '../../topics/tokens.ts'
import { giveBack } from '../bulk.ts'
import type { ContinuoError } from '../errors.ts'
import type { GateStatistics, StateParts } from '../memory.ts'
import type { Head } from '../state/head.ts'
import type { Kept } from '../state/history.ts'
import type { BlobNames } from '../state/manifest.ts'
import type { StoredRecord } from '../streams/log.ts'

export type Generate = Extract<Chunk, { type: 'generate' }>

/** An event, or a record of plain text that is read and continued as one. */
export type InputEvent = Chunk | (Generate & { readonly bytes: string })

/**
 * What a rule asks of a record of plain text: this, when so many records of its session came since the last request.
 */
export interface Rule {
  readonly request: Generate
  /** 1: at this record, whatever came before. */
  readonly every: number
  /** The head of the session counts the records. */
  readonly counts: boolean
}

/** After validate: an event that means something by itself. */
export interface Valid {
  readonly kind: 'valid'
  readonly record: StoredRecord
  readonly session: string
  readonly event: InputEvent
  readonly rule?: Rule
  /** Plain text of an input whose sessions all tell of their lines; its end ends a line. */
  readonly novelty?: true
  /** Lines among this share of the last thousand of their session are alerts. */
  readonly alerts?: number
  /** sha256 of the record's value. */
  readonly hash: string
}

/** A `cancel` event. */
export type Cancel = Valid & { readonly event: Extract<Valid['event'], { type: 'cancel' }> }

export const isCancel = (event: Valid): event is Cancel => event.event.type === 'cancel'

/** The part of an event that every operator after validate needs. */
export type SessionEvent = Omit<Valid, 'kind'>

/**
 * An event that cannot be used, and the sentence that says why. It goes to the dead-letter topic; the stream goes on.
 */
export interface Rejected {
  readonly kind: 'rejected'
  readonly record: StoredRecord
  /** null where not even the key could be read. */
  readonly session: string | null
  readonly reason: string
  /** Of an event that was to be done once, and was: the offset of the first one with its key. */
  readonly first?: number
}

/** After tokenize: an event that its session accepts, with the tokens it makes the model read. */
export interface Tokenized extends SessionEvent {
  readonly kind: 'tokenized'
  readonly ids: Int32Array
  /** Text the tokenizer holds back after this event. */
  readonly held: string
  /** The head that the session begins at, where the event forks it from another. */
  readonly parent?: Head
}

/** With this event its session was set aside, after so many of its tokens. */
export interface SetAside {
  readonly cause: Stopped['cause']
  readonly token: number
}

/** A record that a step causes; `emit` gives it its topic. */
export type Output =
  | { readonly to: 'tokens'; readonly value: Generated }
  | { readonly to: 'observations'; readonly value: Observation }
  | { readonly to: 'alerts'; readonly value: Alert }
  | { readonly to: 'deadletters'; readonly reason: string; readonly stopped?: SetAside; readonly first?: number }

/**
 * Offsets of the input records that are finished with the step: its own, where this step is the last, and that of a
 * `cancel` that took effect.
 */
export const finishedBy = ({
  record,
  done,
  cancelled,
}: Pick<Step, 'record' | 'done' | 'cancelled'>): readonly number[] => [
  ...(done ? [record.offset] : []),
  ...(cancelled === undefined || cancelled.endedBy !== undefined ? [] : [cancelled.cause.offset]),
]

/** State copied out of the engine right after a step, to become a snapshot. */
export interface Capture {
  readonly head: Head
  /** What is kept of the session beside its state. */
  readonly kept: Kept
  /** The whole, or its hot part where `blocks` has the rest. */
  readonly state: Uint8Array
  readonly blocks?: CapturedBlocks
  readonly gates: readonly GateStatistics[]
}

/** The frozen blocks of a state, of each growth: first those that lie in the blob store, then copies of the others. */
export interface CapturedBlocks {
  readonly known: BlobNames
  readonly fresh: StateParts['fresh']
  /** As `StateParts` has them. */
  readonly numbers?: readonly number[]
}

/** Nobody needs the capture any more: others may have its memory. */
export const dropCapture = ({ state, blocks }: Capture): void =>
  giveBack(state, ...(blocks?.fresh.flat().map(({ bytes }) => bytes) ?? []))

/** Bytes that a capture holds in memory. */
export const copiedBytes = ({ state, blocks }: Capture): number =>
  (blocks?.fresh.flat() ?? []).reduce((sum, { bytes }) => sum + bytes.length, state.length)

/**
 * After infer: an atom of progress of one session. What it emits and the head it leaves commit together or not at all,
 * and a crash can only ever fall between two steps. Where steps end depends on the record alone, never on time or
 * batching, so a replay passes through the same heads.
 */
export interface Step {
  readonly record: StoredRecord
  readonly session: string | null
  readonly outputs: readonly Output[]
  /** null for a rejected event. Its `snapshot` field is filled in by commit. */
  readonly head: Head | null
  /** The record is finished. */
  readonly done: boolean
  /** Its tokens belong to a request that asked for short records: somebody waits for them. */
  readonly awaited?: boolean
  /** The request was ended with this step; where a `cancel` did that, its own record is finished with it. */
  readonly cancelled?: Cancelled
  /** The session was deleted with this step; `head` is null. */
  readonly deleted?: true
  /** The session was set aside with this step, and this is why. */
  readonly failure?: ContinuoError
}

export const causeOf = (record: StoredRecord, id: string | null): Cause => ({
  topic: record.topic,
  partition: record.partition,
  offset: record.offset,
  id,
})
