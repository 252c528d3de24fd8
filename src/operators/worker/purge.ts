/**
 * Removes at once what a partition's state and snapshots no longer need, as the owner of the partition and without the
 * model: all live records are written again at the end, and everything before them is trimmed. Workers do the same over
 * time, when it is worth it (compaction.ts); a user who deletes a session should not have to wait for that. Nothing is
 * lost if this is killed: heads name the old copies until they name the new ones, and only then the old ones are
 * trimmed.
 */
import type { TopicNames } from '../../../topics/index.ts'
import { PART_BYTES } from '../../../topics/snapshots.ts'
import type { Cancelled, StateRecord } from '../../../topics/state.ts'
import { type Head, type PartitionCursor, type SnapshotRef, seal } from '../../state/head.ts'
import type { EventLog, OutRecord, PartitionWriter } from '../../streams/log.ts'
import { collectPartition, ownerOf } from '../blobs/gc.ts'
import { readSnapshot, writeSnapshot } from '../snapshots/snapshots.ts'
import { readPartitionState } from './partition-state.ts'

/** Records of one transaction. */
const RECORDS = 256

/** What was left of a partition. */
export interface Purged {
  readonly partition: number
  readonly sessions: number
  /** Bytes of snapshots that were written again. */
  readonly bytes: number
}

interface Owned {
  readonly log: EventLog
  readonly names: TopicNames
  readonly partition: number
  readonly writer: PartitionWriter
}

const renewed = async ({ log, names, partition, writer }: Owned, head: Head): Promise<Head> => {
  const { snapshot: ref, session } = head
  if (ref === null) return head
  const file = await readSnapshot(log, names.snapshots, partition, head)
  const writing = await writeSnapshot(names.snapshots, session, ref.pulse, [file], PART_BYTES, ref.blobs)
  let snapshot: SnapshotRef | null = null
  while (snapshot === null) snapshot = await writing.step(writer)
  return { ...head, snapshot }
}

const rewrite = async (
  owned: Owned,
  heads: readonly Head[],
  cancelled: readonly Cancelled[],
  cursor: PartitionCursor,
): Promise<Purged> => {
  const { log, names, partition, writer } = owned
  const snapshotsFrom = (await log.bounds(names.snapshots, partition)).end
  const place = { topic: names.state, partition, keys: log.sealKeys }
  const sealed = (record: StateRecord): OutRecord => ({ topic: names.state, ...seal(record, place) })
  let stateFrom: number | undefined
  let bytes = 0
  const living = [...heads, ...cancelled]
  for (let at = 0; at === 0 || at < living.length; at += RECORDS) {
    const group: StateRecord[] = []
    for (const record of living.slice(at, at + RECORDS)) {
      group.push(record.type === 'head' ? await renewed(owned, record) : record)
      bytes += record.type === 'head' ? (record.snapshot?.bytes ?? 0) : 0
    }
    const [first] = await writer.commit([...group, cursor].map(sealed), cursor.offset)
    stateFrom ??= first!
  }
  await log.trim(names.snapshots, partition, snapshotsFrom)
  await log.trim(names.state, partition, stateFrom!)
  return { partition, sessions: heads.length, bytes }
}

/**
 * Throws REFUSED for state, snapshots or manifests that cannot be read (`continuo repair` mends the latter two), FENCED
 * when another owner came, and as `collectPartition` does. null: no worker has had the partition yet.
 */
export const purgePartition = async (log: EventLog, names: TopicNames, partition: number): Promise<Purged | null> => {
  const owner = await ownerOf(log, names, partition)
  if (owner === null) return null
  const writer = await log.claim(owner.group, owner.topic, partition)
  let purged: Purged
  try {
    const { heads, cancelled, cursor } = await readPartitionState(log, names, partition, 0)
    const owned = { log, names, partition, writer }
    purged = await rewrite(owned, [...heads.values()], [...cancelled.values()], cursor!)
  } finally {
    await writer.close()
  }
  await collectPartition({ log, names, dry: false, erase: true }, partition)
  return purged
}
