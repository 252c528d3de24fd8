/**
 * Copies of states on their way from contexts in memory to their snapshots. A session has one in the queue at most: a
 * newer one takes the place of an older.
 *
 *   copied with a step ──its head commits──▶ ┐
 *                                            ├─ queued ──▶ taken, to be written
 *   copying, of a session at rest ─────────▶ ┘
 *
 * What is copied with a step waits for the step, because a head must never name a snapshot that is ahead of it. Where
 * no head stands in the log yet that could, the step waits for the snapshot: `begin` queues it, and others commit
 * meanwhile.
 */
import type { Head } from '../../state/head.ts'
import { createBacklog } from '../pipeline/backlog.ts'
import { type Capture, copiedBytes, dropCapture } from '../types.ts'

/** States copied only to make room, being copied or queued: they are held in memory. */
export const MAX_CAPTURES = 8

export interface Captures {
  /**
   * Copied with the step that left this head. `required`: the head commits only with the snapshot: no replay leads to
   * it.
   */
  ofStep(head: Head, capture: Capture, required: boolean): void
  /** Being copied, of a session at rest. Where that fails, `first` throws the error. */
  atRest(copying: Promise<Capture>): void
  /** Copied, of a session at rest. */
  queue(capture: Capture): void
  /** How many more may be copied at rest now. */
  readonly places: number
  /** Resolves when there is room for the bytes of another required capture; undefined when there is now. */
  room(): Promise<void> | undefined

  /**
   * Bytes of the capture whose snapshot the head must name when it commits, and which is not written yet; 0: there is
   * none.
   */
  required(head: Head): number
  /**
   * The head is the first of its session: its required capture is queued now, and the head commits once it is written.
   */
  begin(head: Head): void
  /** The capture's snapshot is whole in the log. */
  written(capture: Capture): void
  /** Whether a snapshot is whole in the log whose head is still to be committed: nobody else knows of its blobs. */
  readonly hasUncommitted: boolean
  /** The head commits next: the capture of its step is queued, if there is one. */
  due(head: Head): void
  /** The oldest in the queue. Throws what `fail` was told. */
  readonly first: Capture | undefined
  /** Takes it out of the queue. */
  take(capture: Capture): void
  /** Whether one of this session is queued. */
  has(session: string): boolean
  /** All that are queued. */
  queued(): Iterable<Capture>
  /** Nobody wants those of this session any more. */
  drop(session: string): void
  /** Whether a copy is being made. */
  readonly isCopying: boolean
  /** Resolves when those that are being made now are. */
  copied(): Promise<void>
  /** Required captures that were due have been committed. */
  committed(): void
  /** Something went wrong with making room; the commit stage is to end with this error. */
  fail(error: unknown): void
  readonly hasFailed: boolean
}

interface OfStep {
  readonly capture: Capture
  readonly required: boolean
  /** waiting: for its step; begun: queued or being written before its step; written: its step may commit. */
  state: 'waiting' | 'begun' | 'written'
}

/**
 * `maxRequired`: bytes of required captures from which on `room` waits. `wake`: called when a capture at rest was
 * copied, or failed.
 */
export const createCaptures = (maxRequired: number, wake: () => void): Captures => {
  const ofSteps = new Map<Head, OfStep>()
  const queue = new Map<string, Capture>()
  const copies = new Set<Promise<void>>()
  const required = createBacklog(maxRequired)
  /** Bytes of required captures whose heads commit next. */
  let committing = 0
  let failed: { readonly error: unknown } | null = null

  const enqueue = (capture: Capture): void => {
    const older = queue.get(capture.head.session)
    if (older !== undefined && older !== capture) dropCapture(older)
    queue.delete(capture.head.session)
    queue.set(capture.head.session, capture)
  }
  const fail = (error: unknown): void => {
    failed ??= { error }
    wake()
  }

  return {
    ofStep(head, capture, isRequired) {
      // It is written at once when its turn comes, and an older one behind it would be named in its place.
      if (isRequired)
        for (const [older, { capture: superseded, required: stays }] of ofSteps) {
          if (older.session !== head.session || stays) continue
          ofSteps.delete(older)
          dropCapture(superseded)
        }
      ofSteps.set(head, { capture, required: isRequired, state: 'waiting' })
      if (isRequired) required.add(copiedBytes(capture))
    },
    atRest(copying) {
      const copy = copying.then(enqueue, fail).then(() => {
        copies.delete(copy)
        wake()
      })
      copies.add(copy)
    },
    queue: enqueue,
    get places() {
      return Math.max(0, MAX_CAPTURES - queue.size - copies.size)
    },
    room: required.room,
    required(head) {
      const found = ofSteps.get(head)
      return found?.required === true && found.state !== 'written' ? copiedBytes(found.capture) : 0
    },
    begin(head) {
      const found = ofSteps.get(head)
      if (found === undefined || found.state !== 'waiting') return
      found.state = 'begun'
      enqueue(found.capture)
    },
    written(capture) {
      for (const found of ofSteps.values()) if (found.capture === capture) found.state = 'written'
    },
    get hasUncommitted() {
      for (const { state } of ofSteps.values()) if (state === 'written') return true
      return false
    },
    due(head) {
      const found = ofSteps.get(head)
      if (found === undefined) return
      ofSteps.delete(head)
      if (found.state === 'waiting') enqueue(found.capture)
      if (found.required) committing += copiedBytes(found.capture)
    },
    get first() {
      if (failed !== null) throw failed.error
      const [next] = queue.values()
      return next
    },
    take: ({ head }) => void queue.delete(head.session),
    has: (session) => queue.has(session),
    queued: () => queue.values(),
    drop(session) {
      const queued = queue.get(session)
      let isNeeded = false
      for (const [head, { capture, required: isRequired }] of ofSteps) {
        if (head.session !== session) continue
        // What a head that is still to be committed needs goes with it.
        if (isRequired) isNeeded ||= capture === queued
        else {
          ofSteps.delete(head)
          dropCapture(capture)
        }
      }
      if (queued === undefined || isNeeded) return
      queue.delete(session)
      dropCapture(queued)
    },
    get isCopying() {
      return copies.size > 0
    },
    async copied() {
      await Promise.all(copies)
    },
    committed() {
      required.release(committing)
      committing = 0
    },
    fail,
    get hasFailed() {
      return failed !== null
    },
  }
}
