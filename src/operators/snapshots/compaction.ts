/**
 * The removal of dead state from the log: *trim* and *compact* (state/live-index.ts), for heads and snapshots; and of
 * dead blobs (blobs/garbage.ts), at moments when no snapshot is on its way.
 */
import type { TopicNames } from '../../../topics/index.ts'
import { codeOf, messageOf } from '../../errors.ts'
import { failpoint } from '../../failpoint.ts'
import type { LiveIndex } from '../../state/live-index.ts'
import type { EventLog, PartitionWriter } from '../../streams/log.ts'
import type { PartitionBlobs } from '../blobs/blobs.ts'
import type { Change, Garbage } from '../blobs/garbage.ts'
import { createSweep } from '../blobs/sweep.ts'
import { createTrim } from '../blobs/trim.ts'
import type { SessionTable } from '../sessions/session-table.ts'
import type { StateKey } from '../worker/partition-state.ts'
import { readSnapshot } from './snapshots.ts'
import type { SnapshotWriter } from './writer.ts'

export interface CompactionDeps {
  readonly log: EventLog
  readonly names: TopicNames
  readonly partition: number
  readonly writer: PartitionWriter
  readonly table: SessionTable
  /** null: there are none. */
  readonly blobs: PartitionBlobs | null
  readonly stateIndex: LiveIndex<StateKey>
  readonly snapshotIndex: LiveIndex
  readonly snapshots: SnapshotWriter
  /** Called for trouble that the next round may overcome (a trim that failed). */
  readonly warn: (message: string) => void
  /** Called when there is garbage for the next quiet moment. */
  readonly wake: () => void
}

export interface Compaction {
  /** Writes the oldest living state again when the dead outweigh the living. */
  compact(): Promise<void>
  /** Trims what lies before the living, once it is worth a call. */
  trim(): Promise<void>
  /** Whether there are dead blobs that wait for a quiet moment. */
  readonly isGarbageDue: boolean
  /** Whether there are some, and it is quiet. */
  readonly hasGarbageWork: boolean
  /** Removes some, where `hasGarbageWork`. */
  garbageStep(): Promise<void>
  /** The task is over: no blob is removed any more. */
  stop(): void
}

/** Bytes of heads and of snapshots compacted with one commit. */
const COMPACT_BYTES = 512 * 1024

const worthTrimming = (index: Pick<LiveIndex, 'total' | 'live' | 'floor' | 'reclaimable'>): boolean =>
  index.total - index.live > index.floor && index.reclaimable().bytes >= index.floor / 2

export const createCompaction = (deps: CompactionDeps): Compaction => {
  const { log, names, partition, writer, table, blobs, stateIndex, snapshotIndex, snapshots, warn, wake } = deps

  /** Writes the session's snapshot again, with what `change` makes of it. Returns its bytes. */
  const renew = async (id: string, change: Change): Promise<number> => {
    const head = table.heads.get(id)
    if (head === undefined || head.snapshot === null || table.snapshotOf(id)?.first !== head.snapshot.first) return 0
    const file = await readSnapshot(log, names.snapshots, partition, head).catch((error: unknown) => {
      if (codeOf(error) !== 'REFUSED') throw error
      // When its session is rebuilt the same error leads to its events. Other sessions must not be stopped by it.
      warn(`${messageOf(error)} It is forgotten.`)
      table.forget(id)
      snapshotIndex.drop(id)
      return null
    })
    const changed = file === null ? null : await change(file)
    if (changed === null) return 0
    const { bytes } = await snapshots.rewrite(id, head.snapshot, changed)
    return bytes
  }

  const createGarbageOf = (blobs: PartitionBlobs): Garbage => {
    const { removal } = blobs
    const garbage = {
      log,
      names,
      partition,
      writer,
      blobs,
      heads: table.heads,
      floor: snapshotIndex.floor,
      living: () => table.living,
      *captured() {
        for (const { blocks } of table.captures.queued()) yield* blocks?.known.flat() ?? []
      },
      renew,
      warn,
      wake,
    }
    return removal.by === 'trim' ? createTrim(garbage, removal.store) : createSweep(garbage, removal)
  }
  const garbage = blobs === null ? null : createGarbageOf(blobs)

  /**
   * Nothing is on its way to the blob store or to a commit, and no capture is being copied, whose blocks nobody could
   * name yet.
   */
  const isQuiet = (): boolean =>
    !table.captures.isCopying &&
    !table.captures.hasUncommitted &&
    blobs?.isAhead !== true &&
    snapshots.isIdle &&
    !table.hasTouched

  return {
    async compact() {
      // While a trim could free the space, writing more would only add to it.
      if (!worthTrimming(stateIndex)) {
        const keys = stateIndex.toCompact(COMPACT_BYTES).filter((key) => key !== '')
        // Nobody computes a request again that has left the input, so nobody asks where it was cancelled.
        const begin = keys.some((key) => typeof key === 'number')
          ? (await log.bounds(names.chunks, partition)).begin
          : 0
        for (const key of keys) {
          if (typeof key === 'string' || key >= begin) table.touch(key)
          else {
            table.forgetCancel(key)
            stateIndex.drop(key)
          }
        }
      }
      if (worthTrimming(snapshotIndex)) return
      // The index stands in the order of offsets: a snapshot half written must be in it before others are written
      // behind it.
      await snapshots.finishParts()
      for (const id of snapshotIndex.toCompact(COMPACT_BYTES)) await renew(id, async (file) => [file])
    },
    async trim() {
      // A new reference counts only once a committed head names it.
      if (table.hasTouched) return
      const both: readonly (readonly [string, LiveIndex<StateKey> | LiveIndex])[] = [
        [names.state, stateIndex],
        [names.snapshots, snapshotIndex],
      ]
      for (const [topic, index] of both) {
        if (!worthTrimming(index)) continue
        const { before } = index.reclaimable()
        if (before === 0) continue
        failpoint('forward.written')
        try {
          await log.trim(topic, partition, before)
          index.trimmed(before)
          failpoint('forward.trimmed')
        } catch (error) {
          warn(
            `Trimming ${topic}, partition ${partition}, below ${before} failed and will be tried again: ${String(error)}`,
          )
        }
      }
    },
    get isGarbageDue() {
      return garbage?.hasWork ?? false
    },
    get hasGarbageWork() {
      return garbage !== null && isQuiet() && garbage.hasWork
    },
    async garbageStep() {
      if (garbage === null || !isQuiet() || !garbage.hasWork) return
      snapshots.madeWay()
      await garbage.step()
    },
    stop() {
      garbage?.stop()
    },
  }
}
