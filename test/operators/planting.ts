/**
 * Writes state as the owner of a partition would, every seal in order: what a version with other rules, or an enemy,
 * may have left.
 */

import { sha256 } from '../../src/hash.ts'
import { readSnapshot, writeSnapshot } from '../../src/operators/snapshots/snapshots.ts'
import { readPartitionState } from '../../src/operators/worker/partition-state.ts'
import { type Head, type SnapshotRef, stateKey } from '../../src/state/head.ts'
import { decodeSnapshot, encodeSnapshot } from '../../src/state/snapshot.ts'
import type { Bench } from './harness.ts'

export interface Altered {
  /** The head alone; the one in the snapshot stays. */
  readonly head?: (head: Head) => Head
  /** The head in the snapshot. */
  readonly inside?: (head: Head) => Head
  readonly state?: (state: Uint8Array) => Uint8Array
}

/** Every f32 of the state is finite, and what is computed with them is not. */
export const enormous = (state: Uint8Array): Uint8Array => {
  const large = state.slice()
  const view = new DataView(large.buffer)
  for (let at = 0; at < large.length; at += 4) view.setFloat32(at, 3e38, true)
  return large
}

type Planted = Pick<Bench, 'log' | 'names' | 'model'>

/** Replaces the newest head of a session of partition 0 that no worker has, and the snapshot it names. */
export const plant = async (
  bench: Planted,
  session: string,
  { head, inside, state }: Altered,
  group = 'test',
): Promise<void> => {
  const { log, names, model } = bench
  const before = (await readPartitionState(log, names, 0, 1 << 30)).heads.get(session)!
  const old = await decodeSnapshot(await readSnapshot(log, names.snapshots, 0, before), model.layout)
  const file = await encodeSnapshot(inside?.(old.head) ?? old.head, state?.(old.state) ?? old.state, model.layout)
  await plantFile(bench, session, [file], undefined, head, group)
}

/** The same with the pieces of a snapshot, which names such blobs. */
export const plantFile = async (
  { log, names }: Planted,
  session: string,
  file: readonly Uint8Array[],
  blobs?: SnapshotRef['blobs'],
  head?: Altered['head'],
  group = 'test',
): Promise<void> => {
  const { heads, cursor } = await readPartitionState(log, names, 0, 1 << 30)
  const before = heads.get(session)!
  const writer = await log.claim(group, names.chunks, 0)
  const { pulse } = before.snapshot!
  const writing = await writeSnapshot(names.snapshots, session, pulse, file, undefined, blobs)
  let ref: SnapshotRef | null = null
  while (ref === null) ref = await writing.step(writer)
  // seal() would not write some of these.
  const records = [{ ...(head?.(before) ?? before), snapshot: ref }, cursor!].map((record) => {
    const value = Buffer.from(JSON.stringify(record))
    return {
      topic: names.state,
      key: Buffer.from(stateKey(record)),
      value,
      headers: [['sha256', Buffer.from(sha256(value))] as const],
    }
  })
  await writer.commit(records, cursor!.offset)
  await writer.close()
}
