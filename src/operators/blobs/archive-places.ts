/** Says, for people, where the archived blocks of a session's newest snapshot are stored. No blob is read for it. */
import type { TopicNames } from '../../../topics/index.ts'
import { nameIn } from '../../blobs/shared.ts'
import type { BlobName } from '../../blobs/store.ts'
import { messageOf } from '../../errors.ts'
import { ARCHIVE } from '../../memory.ts'
import { IN_TOPIC, type Manifest } from '../../state/manifest.ts'
import type { SnapshotFile } from '../../state/snapshot.ts'
import type { EventLog } from '../../streams/log.ts'
import { manifestIn } from '../snapshots/manifests.ts'
import { offsetOf } from './topic.ts'

/** Archived blocks `from` … `to` − 1. */
export interface ArchivePlace {
  /**
   * `topic` and `store`: in blobs, several blocks in each. `snapshot`: in the snapshot's own file, until as many as a
   * blob has are there.
   */
  readonly in: 'topic' | 'store' | 'snapshot'
  /** The topic, or the URL of the blob store; null: of the snapshot, and of a store that the command was not given. */
  readonly where: string | null
  readonly from: number
  readonly to: number
  readonly bytes: number
  readonly blobs: number
  /**
   * Blocks whose blob is not there, as far as that can be told without reading it. Whether the others are whole,
   * `verify --blobs` says.
   */
  readonly missing: readonly number[]
  /** Why it cannot be told which are missing; null: it can. */
  readonly untold: string | null
}

/** Which of the blobs are there. Rejects where the store gives no answer. */
const thereOf = async (
  log: EventLog,
  names: TopicNames,
  { store, head }: Manifest,
): Promise<(blob: BlobName) => boolean> => {
  if (store === IN_TOPIC) {
    const { begin, end } = await log.bounds(names.blobs, head.cursor.partition)
    return ({ place }) => offsetOf(place) >= begin && offsetOf(place) < end
  }
  const known = new Set<string>()
  for await (const name of log.blobs!.list(store)) known.add(name)
  return (blob) => known.has(nameIn(store, blob))
}

export const archivePlaces = async (
  log: EventLog,
  names: TopicNames,
  file: SnapshotFile,
  archived: number,
): Promise<readonly ArchivePlace[]> => {
  const own = file.tensors.find(({ name }) => name === ARCHIVE)
  if (own === undefined || archived === 0) return []
  const inFile = own.shape[0]!
  const from = archived - inFile
  const rest: ArchivePlace = {
    ...{ in: 'snapshot', where: null, from, to: archived, bytes: own.bytes, blobs: 0, missing: [], untold: null },
  }
  if (from === 0) return [rest]
  const inTopic = file.manifest?.store === IN_TOPIC
  const place = {
    in: inTopic ? ('topic' as const) : ('store' as const),
    where: inTopic ? names.blobs : (log.blobs?.url ?? null),
    ...{ from: 0, to: from, bytes: 0, blobs: 0, missing: [], untold: null },
  }
  const stored = async (): Promise<ArchivePlace> => {
    const manifest = (await manifestIn(log, file))!
    const growth = manifest.growth.findIndex(({ tables }) => tables.includes(ARCHIVE))
    const blobs = manifest.names[growth]!
    const each = from / blobs.length
    const known = {
      ...place,
      bytes: manifest.sizes[growth]!.reduce((sum, size) => sum + size, 0),
      blobs: blobs.length,
    }
    if (known.where === null) return { ...known, untold: 'Name it, --blob-store, and what it lacks is told.' }
    try {
      const isThere = await thereOf(log, names, manifest)
      const missing = blobs.flatMap((blob, at) =>
        isThere(blob) ? [] : Array.from({ length: each }, (_, i) => at * each + i),
      )
      return { ...known, missing }
    } catch (error) {
      return { ...known, untold: messageOf(error) }
    }
  }
  // A page of the manifest may be lost, or its store away: what else there is to see must not be hidden by that.
  const told = await stored().catch((error: unknown) => ({ ...place, untold: messageOf(error) }))
  return [told, ...(inFile > 0 ? [rest] : [])]
}
