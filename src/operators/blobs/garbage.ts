/**
 * The removal of blobs that no committed manifest names: those of sessions that were reset or closed, and what crashes
 * left. What is common to stores where a blob is removed by its name (blobs/sweep.ts) and to the topic, which is
 * trimmed (blobs/trim.ts):
 *
 *   idle ──enough dead──▶ look ──quiet, still the owner──▶ read ──quiet──▶ decide ──▶ remove ──▶ idle
 *
 * *look*: what is there. *read*: the manifests of all committed heads. What was there and is neither in a manifest nor
 * on its way to one is dead. Three things make this safe:
 *
 * - stages follow each other at *quiet* moments only: no blob is being written, and no manifest waits for the commit of
 *   its head;
 * - after the look the log is asked who owns the partition. A newer owner writes only after its claim, so none of its
 *   blobs was seen; and it names again only what a manifest that it found names, which is none of the dead;
 * - from the beginning of the look on, a dead blob is given to no session (`forgetOthers`), and no copy is written over
 *   another.
 */
import type { TopicNames } from '../../../topics/index.ts'
import type { BlobName } from '../../blobs/store.ts'
import { codeOf, messageOf } from '../../errors.ts'
import { inParallel } from '../../parallel.ts'
import type { Head } from '../../state/head.ts'
import type { Manifest } from '../../state/manifest.ts'
import { readSnapshotFile } from '../../state/snapshot.ts'
import type { EventLog, PartitionWriter } from '../../streams/log.ts'
import { manifestIn } from '../snapshots/manifests.ts'
import { readSnapshot } from '../snapshots/snapshots.ts'
import type { PartitionBlobs } from './blobs.ts'

/** Gives the new content of a snapshot file, in pieces; null: the file stays as it is. */
export type Change = (file: Uint8Array) => Promise<readonly Uint8Array[] | null>

export interface GarbageDeps {
  readonly log: EventLog
  readonly names: TopicNames
  readonly partition: number
  readonly writer: PartitionWriter
  readonly blobs: PartitionBlobs
  /** Committed heads. */
  readonly heads: ReadonlyMap<string, Head>
  /** Dead bytes that are not worth any work. */
  readonly floor: number
  /** What committed heads name now in this store; a blob counts as often as it is named. */
  readonly living: () => { readonly count: number; readonly bytes: number }
  /** Blobs that captures on their way name. */
  readonly captured: () => Iterable<BlobName>
  /** Writes the snapshot of a session again. Returns the bytes written. */
  readonly renew: (session: string, change: Change) => Promise<number>
  readonly warn: (message: string) => void
  /** Called when there is something for the next quiet moment. */
  readonly wake: () => void
}

/** Runs at a quiet moment; gives what is then to be done beside the commits. null: over. */
export type Stage = () => Promise<Work | null>
/** Runs beside the commits; gives what comes at the next quiet moment. */
export type Work = () => Promise<Stage | null>

export interface Strategy {
  /** Whether a look is worth its requests. */
  readonly isDue: () => boolean
  readonly begin: Stage
}

export interface Garbage {
  /** Whether the next quiet moment has something to do. */
  readonly hasWork: boolean
  /** To be called at a quiet moment. */
  step(): Promise<void>
  /** The task is over: nothing more is removed. */
  stop(): void
}

/** After a failure, ms. */
const RETRY = 60_000
const AT_A_TIME = 8

export const createGarbage = (
  { blobs, warn, wake }: GarbageDeps,
  { isDue, begin }: Strategy,
  isStopped: { stopped: boolean },
): Garbage => {
  let next: Stage | null = null
  let busy = false
  let retryAt = Number.NEGATIVE_INFINITY

  const beside = async (work: Work): Promise<void> => {
    busy = true
    try {
      next = await work()
    } catch (error) {
      if (!isStopped.stopped) warn(`Garbage in the blob store ${blobs.store.url} stays for now: ${messageOf(error)}`)
      retryAt = performance.now() + RETRY
      next = null
    }
    busy = false
    if (next === null) blobs.swept()
    // Also at the end: more may have died meanwhile.
    if (!isStopped.stopped) wake()
  }

  return {
    stop() {
      isStopped.stopped = true
    },
    get hasWork() {
      return !busy && !isStopped.stopped && (next !== null || (isDue() && performance.now() >= retryAt))
    },
    async step() {
      const work = await (next ?? begin)()
      next = null
      if (work === null) blobs.swept()
      else void beside(work)
    },
  }
}

/** Of a session that moves on while its snapshot is being read, the newer one counts. */
const manifestOf = async ({ log, names, partition, heads }: GarbageDeps, session: string): Promise<Manifest | null> => {
  for (;;) {
    const head = heads.get(session)
    if (head?.snapshot?.blobs === undefined) return null
    try {
      return await manifestIn(log, await readSnapshotFile(await readSnapshot(log, names.snapshots, partition, head)))
    } catch (error) {
      if (codeOf(error) !== 'REFUSED' || heads.get(session) === head) throw error
    }
  }
}

/** Reads the manifests of all committed heads that have blobs in this store. */
export const readManifests = async (
  deps: GarbageDeps,
  found: (session: string, manifest: Manifest) => void,
): Promise<void> => {
  const sessions = [...deps.heads].filter(([, { snapshot }]) => snapshot?.blobs !== undefined).map(([id]) => id)
  await inParallel(sessions, AT_A_TIME, async (id) => {
    const manifest = await manifestOf(deps, id)
    if (manifest?.store === deps.blobs.where) found(id, manifest)
  })
}
