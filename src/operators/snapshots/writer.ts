/**
 * Captures become snapshots, one at a time, beside the commits: blobs to their store, however long that takes, then the
 * measured and hashed file in parts to the log, between two commits. The next commit's head names it.
 */
import type { TopicNames } from '../../../topics/index.ts'
import type { StateLayout } from '../../memory.ts'
import type { SnapshotRef } from '../../state/head.ts'
import type { LiveIndex } from '../../state/live-index.ts'
import type { BlobNames } from '../../state/manifest.ts'
import type { MemoryReport, ModelMemory } from '../../state/memory-stats.ts'
import type { PartitionWriter } from '../../streams/log.ts'
import type { PartitionBlobs } from '../blobs/blobs.ts'
import type { ContextStore } from '../sessions/context-store.ts'
import type { SessionTable } from '../sessions/session-table.ts'
import { type Capture, dropCapture } from '../types.ts'
import { MAX_CAPTURES } from './captures.ts'
import { encodeCapture } from './encode.ts'
import { type SnapshotWriting, writeSnapshot } from './snapshots.ts'

export interface SnapshotWriterDeps {
  readonly names: TopicNames
  readonly writer: PartitionWriter
  readonly table: SessionTable
  readonly model: ModelMemory & { readonly layout: StateLayout }
  /** Where blocks of snapshots lie; null: snapshots are whole. */
  readonly blobs: PartitionBlobs | null
  /** Tells who has the blocks in memory where they are kept. */
  readonly keep?: ContextStore['keep']
  readonly snapshotIndex: LiveIndex
  /** Bytes of a snapshot in one record at most. */
  readonly partBytes: number
  /** Called for each state that becomes a snapshot. */
  readonly onSnapshot?: (capture: Capture, seen: MemoryReport) => void
  /** Called when a snapshot is whole in the log. */
  readonly onWritten?: () => void
  /** Called when work that went on beside the commits has come to where `step` can go on. */
  readonly wake: () => void
  /** Dead blobs wait for a moment without captures. */
  readonly isGarbageDue: () => boolean
}

export interface SnapshotWriter {
  /** One small piece of work: the next parts of a snapshot, or the beginning of another. */
  step(): Promise<void>
  /** Whether `step` has something to do. */
  readonly hasWork: boolean
  /** Whether nothing is on its way to the blob store or to the log. */
  readonly isIdle: boolean
  /** All captures to their end, also those that are being copied. */
  finish(): Promise<void>
  /** Those of this session, and what is being copied, to their end. */
  finishOf(session: string): Promise<void>
  /** The snapshot whose parts are being written, to its end. */
  finishParts(): Promise<void>
  /** Another file takes the place of a session's snapshot. */
  rewrite(session: string, before: SnapshotRef, file: readonly Uint8Array[]): Promise<SnapshotRef>
  /** Garbage had its moment. */
  madeWay(): void
}

export const createSnapshotWriter = (deps: SnapshotWriterDeps): SnapshotWriter => {
  const { names, writer, table, model, blobs, snapshotIndex } = deps
  const { captures } = table
  let writing: SnapshotWriting | null = null
  /**
   * What goes on before a capture can be written to the log; null: nothing. `stored` gives the result once it has
   * ended.
   */
  let storing: Promise<void> | null = null
  let stored: (() => SnapshotWriting) | null = null
  /** That is being stored or written. */
  let current: Capture | null = null
  /** Captures begun since garbage was looked at. */
  let begun = 0

  const sleepy = model.layout.growth.findIndex(({ sleeps }) => sleeps)
  /** Of its blocks that may sleep, those that were written now are durable. */
  const keep = ({ head, blocks }: Capture, names: BlobNames): void => {
    if (blocks?.numbers === undefined || sleepy < 0) return
    const own = names[sleepy]!
    const first = blocks.known[sleepy]!.length
    deps.keep?.(
      blocks.numbers.slice(first, own.length),
      (at) => blobs!.kept(blobs!.where, head.session, own[first + at]!)!,
    )
  }

  /** A capture as a snapshot that can be written. */
  const encoded = async (taken: Capture): Promise<SnapshotWriting> => {
    const { pulse, file, named, names: blocks, seen } = await encodeCapture(taken, model, blobs)
    if (blocks !== null) keep(taken, blocks)
    deps.onSnapshot?.(taken, seen)
    return writeSnapshot(names.snapshots, taken.head.session, pulse, file, deps.partBytes, named)
  }

  const store = (taken: Capture): void => {
    current = taken
    storing = encoded(taken)
      .then(
        (ready) => () => ready,
        (error: unknown) => () => {
          throw error
        },
      )
      .then((outcome) => {
        storing = null
        stored = outcome
        deps.wake()
      })
  }

  const written = (session: string, ref: SnapshotRef): void => {
    table.written(session, ref)
    snapshotIndex.put(session, { offset: ref.first, bytes: ref.bytes })
  }

  /** Whether garbage has its turn before the next capture. */
  const makesWay = (): boolean => begun >= MAX_CAPTURES && deps.isGarbageDue()

  const step = async (makeWay: boolean): Promise<void> => {
    const next = captures.first
    if (writing === null && stored !== null) {
      const outcome = stored
      stored = null
      writing = outcome()
    }
    if (writing === null) {
      if (next === undefined || storing !== null || (makeWay && makesWay())) return
      captures.take(next)
      begun += 1
      store(next)
      return
    }
    const ref = await writing.step(writer)
    if (ref === null) return
    written(writing.session, ref)
    writing = null
    if (current !== null) {
      captures.written(current)
      dropCapture(current)
    }
    current = null
    deps.onWritten?.()
    // The next ones at once, so that one commit names all that were written since the last.
    table.makeRoom()
  }

  const hasWork = (): boolean =>
    captures.hasFailed ||
    writing !== null ||
    stored !== null ||
    (storing === null && captures.first !== undefined && !makesWay())

  const goOn = async (): Promise<void> => {
    await Promise.all([storing, captures.copied()])
    await step(false)
  }

  return {
    step: () => step(true),
    get hasWork() {
      return hasWork()
    },
    get isIdle() {
      return storing === null && stored === null && writing === null
    },
    async finish() {
      while (hasWork() || storing !== null || captures.first !== undefined || captures.isCopying) await goOn()
    },
    async finishOf(session) {
      await captures.copied()
      while (captures.hasFailed || current?.head.session === session || captures.has(session)) await goOn()
    },
    async finishParts() {
      while (writing !== null) await step(true)
    },
    async rewrite(session, { pulse, blobs: named }, file) {
      const again = await writeSnapshot(names.snapshots, session, pulse, file, deps.partBytes, named)
      let ref: SnapshotRef | null = null
      while (ref === null) ref = await again.step(writer)
      written(session, ref)
      return ref
    },
    madeWay() {
      begun = 0
    },
  }
}
