/**
 * Computes a session again from a snapshot or event early enough that the blocks come out which cannot be read any
 * more.
 */
import { codeOf } from '../../errors.ts'
import type { Head, SnapshotRef } from '../../state/head.ts'
import { unseal } from '../../state/head.ts'
import { endOf } from '../../state/manifest.ts'
import { readSnapshotFile } from '../../state/snapshot.ts'
import { textOf } from '../../text.ts'
import { SessionLost } from '../advance/set-aside.ts'
import { manifestIn } from '../snapshots/manifests.ts'
import type { ReplayDeps } from '../snapshots/replay.ts'
import { type Restored, restoreSession } from '../snapshots/restore.ts'
import { readSnapshot } from '../snapshots/snapshots.ts'

/** Of each growth the first run that is to come out of the computation; none is wanted of one that is not named. */
export type FirstRuns = ReadonlyMap<number, number>

export interface BaseDeps extends ReplayDeps {
  readonly warn?: (message: string) => void
}

/** The snapshots of the session that its heads in the log name or named, the newest first. */
const snapshotsOf = async (
  { log, names }: ReplayDeps,
  partition: number,
  session: string,
): Promise<readonly SnapshotRef[]> => {
  const found = new Map<number, SnapshotRef>()
  const place = { topic: names.state, partition, keys: log.sealKeys }
  const [{ begin, end }, stored] = await Promise.all([
    log.bounds(names.state, partition),
    log.bounds(names.snapshots, partition),
  ])
  for await (const { records } of log.read(names.state, partition, begin, { until: end })) {
    for (const { key, value, headers, offset } of records) {
      if (key === null || textOf(key) !== session) continue
      const where = `${names.state}, partition ${partition}, offset ${offset}`
      const record = unseal(where, key, value, headers, place)
      const ref = record.type === 'head' ? record.snapshot : null
      if (ref !== null && ref.first >= stored.begin) found.set(ref.first, ref)
    }
  }
  return [...found.values()].sort((a, b) => b.pulse - a.pulse || b.first - a.first)
}

/** Whether a context that goes on from this snapshot makes these runs itself. */
const precedes = async (
  { log, names }: ReplayDeps,
  partition: number,
  target: Head,
  snapshot: SnapshotRef,
  wanted: FirstRuns,
): Promise<boolean> => {
  try {
    const file = await readSnapshotFile(await readSnapshot(log, names.snapshots, partition, { ...target, snapshot }))
    const { born, conductor } = file.head
    if (born !== target.born || conductor.globalStep > target.conductor.globalStep) return false
    const manifest = await manifestIn(log, file)
    return [...wanted].every(([g, run]) => {
      const own = manifest?.names[g] ?? []
      // After a reset a table that grows begins anew; a ring keeps what was in it.
      const isEarlier = conductor.origin !== target.conductor.origin && manifest?.growth[g]?.places === undefined
      return isEarlier || endOf(own) <= run
    })
  } catch (error) {
    if (codeOf(error) !== 'REFUSED') throw error
    return false
  }
}

/**
 * The session as it stands at `target`, with these runs computed: from the newest snapshot before them that is left and
 * readable, or from its first event. Throws as `restoreSession`, which also goes back to the first event where that
 * snapshot turns out to be of no use.
 */
export const recomputed = async (
  deps: BaseDeps,
  partition: number,
  target: Head,
  wanted: FirstRuns,
): Promise<Restored> => {
  for (const snapshot of await snapshotsOf(deps, partition, target.session)) {
    if (snapshot.first === target.snapshot?.first) continue
    if (await precedes(deps, partition, target, snapshot, wanted))
      return restoreSession(deps, partition, { ...target, snapshot })
  }
  if (target.born < 0)
    throw new SessionLost(
      `Session "${target.session}" came from another log (continuo import), and no snapshot of it from before these blocks is left. Import its file again.`,
    )
  return restoreSession(deps, partition, { ...target, snapshot: null })
}
