/**
 * Claims a partition for a moment without reading its input, for commands that write state (import, repair, blobs gc).
 * The claim fences a running worker, which notices at its next commit.
 */
import { PART_BYTES } from '../../../topics/snapshots.ts'
import { type Head, type PartitionCursor, type SnapshotRef, seal } from '../../state/head.ts'
import type { EventLog } from '../../streams/log.ts'
import type { SessionState } from '../advance/session-state.ts'
import { openBlobs, type PartitionBlobs } from '../blobs/blobs.ts'
import { captureOf } from '../snapshots/capture.ts'
import { encodeCapture } from '../snapshots/encode.ts'
import { writeSnapshot } from '../snapshots/snapshots.ts'
import { inTurns, type TurnWriter } from '../snapshots/turns.ts'
import { openState, type PartitionState, type Reading } from './partition-state.ts'

/** A partition that is owned, and what its log says of it. */
export interface Owned extends Reading {
  readonly partition: number
  readonly writer: TurnWriter
  readonly state: PartitionState
  readonly cursor: PartitionCursor
  /** null: the model has no tables in blocks. */
  readonly blobs: PartitionBlobs | null
}

/**
 * Claims the partition for the time of `work`. Throws as `openState` and `openBlobs` do, before anything is changed.
 */
export const asOwner = async <T>(
  reading: Reading,
  partition: number,
  work: (owned: Owned) => Promise<T>,
): Promise<T> => {
  const { log, names, group, model } = reading
  const writer = inTurns(await log.claim(group, names.chunks, partition))
  try {
    const state = await openState(writer, reading, partition, 0)
    const claimed = { log, names, model, partition, writer, partBytes: PART_BYTES }
    const { blobs, cursor } = await openBlobs(claimed, state.cursor, state.heads)
    return await work({ ...reading, partition, writer, state, cursor, blobs })
  } finally {
    await writer.close()
  }
}

/**
 * Writes the session's state as a snapshot and commits the head that names it, unless `check` rejects before. Returns
 * that head.
 */
export const saveSession = async (
  { log, names, partition, model, writer, cursor, blobs }: Owned,
  session: SessionState,
  check: () => Promise<void> = async () => undefined,
): Promise<Head> => {
  blobs?.begin(session.head.session, undefined)
  const { pulse, file, named } = await encodeCapture(await captureOf(session, blobs), model, blobs)
  const writing = await writeSnapshot(names.snapshots, session.head.session, pulse, file, PART_BYTES, named)
  let snapshot: SnapshotRef | null = null
  while (snapshot === null) snapshot = await writing.step(writer)
  const head = { ...session.head, snapshot }
  const records = [head, cursor].map((record) => ({
    topic: names.state,
    ...seal(record, { topic: names.state, partition, keys: log.sealKeys }),
  }))
  await check()
  await writer.commit(records, cursor.offset)
  return head
}

/** Members of the group that read the topic, as a sentence; null: there are none. */
export const workersOf = async (log: EventLog, group: string, topic: string): Promise<string | null> => {
  const members = await log.members(group)
  if (members === null) return `Group "${group}" is sharing its partitions at this moment.`
  const count = members.filter((member) => member.topic === topic).length
  if (count === 0) return null
  return `${count === 1 ? 'A worker' : `${count} workers`} of group "${group}" ${count === 1 ? 'reads' : 'read'} ${topic} (one that was killed counts until its membership lapses).`
}
