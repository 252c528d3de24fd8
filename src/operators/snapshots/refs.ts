/** The snapshots that the heads of a partition name, or will name with their next commit. */
import type { SnapshotRef } from '../../state/head.ts'
import type { PartitionBlobs } from '../blobs/blobs.ts'

export interface SnapshotRefs {
  get(session: string): SnapshotRef | undefined
  /** undefined: the session has none any more, and its blobs count as dead. */
  set(session: string, ref: SnapshotRef | undefined): void
  /** What they name in this blob store; a blob counts as often as it is named. */
  readonly living: { readonly count: number; readonly bytes: number }
}

export const createSnapshotRefs = (blobs: PartitionBlobs | null): SnapshotRefs => {
  const refs = new Map<string, SnapshotRef>()
  // Summed with every change, so that it is known without counting.
  let living = { count: 0, bytes: 0 }
  const isInTopic = blobs?.removal.by === 'trim'
  /** What it names in this store. */
  const here = (ref: SnapshotRef | undefined): Partial<NonNullable<SnapshotRef['blobs']>> =>
    ref?.blobs !== undefined && (ref.blobs.in !== undefined) === isInTopic ? ref.blobs : {}
  return {
    get: (session) => refs.get(session),
    set(session, ref) {
      const { count: less = 0, bytes: lost = 0 } = here(refs.get(session))
      const { count: more = 0, bytes: won = 0 } = here(ref)
      living = { count: living.count - less + more, bytes: living.bytes - lost + won }
      if (ref === undefined) {
        refs.delete(session)
        blobs?.dead.add(lost)
      } else refs.set(session, ref)
    },
    get living() {
      return living
    },
  }
}
