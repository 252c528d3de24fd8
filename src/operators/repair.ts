/**
 * repair: blobs that a snapshot names and that are missing or damaged are computed again and put back under their names. Equal bits make the
 * sha256 of a block the proof that it is the one. Nothing is written to the log, so workers may run meanwhile: they compute such a session
 * again by themselves, from its first event, but not before they want the block.
 *
 * Blobs in a topic cannot be put back: a record has another offset when it is written again.
 */
import { nameIn } from '../blobs/shared.ts'
import type { BlobName } from '../blobs/store.ts'
import { digest } from '../bulk.ts'
import { messageOf } from '../errors.ts'
import type { Head } from '../state/head.ts'
import { IN_TOPIC, type Manifest } from '../state/manifest.ts'
import { readSnapshotFile, type SnapshotFile } from '../state/snapshot.ts'
import { BlockLost, blobsOf, checkBlob, manifestIn, readerOf } from './manifests.ts'
import type { ReplayDeps } from './replay.ts'
import { restoreSession } from './restore.ts'
import { readSnapshot } from './snapshots.ts'

export interface Repaired {
  readonly session: string
  readonly partition: number
  /** Blobs that its newest snapshot names, those of them that were wrong, and those that are right now. */
  readonly blobs: number
  readonly wrong: number
  readonly repaired: number
  /** What is wrong, or why it stays so; null: nothing. */
  readonly reason: string | null
}

export type RepairDeps = ReplayDeps & { readonly warn?: (message: string) => void }

const wrongIn = async (
  { log }: RepairDeps,
  manifest: Manifest,
): Promise<{ names: BlobName[]; reason: string | null }> => {
  const reader = readerOf(log, manifest)
  const blobs = blobsOf(manifest)
  const names: BlobName[] = []
  let reason: string | null = null
  await reader.get(blobs, async (index, bytes) => {
    const { blob, what } = blobs[index]!
    try {
      await checkBlob(reader, manifest.head.session, what, blob, bytes, (found) => digest([found]))
    } catch (error) {
      if (!(error instanceof BlockLost)) throw error
      names.push(blob)
      reason ??= error.message
    }
  })
  return { names, reason }
}

/** Computes the session as its snapshot has it, and puts back what is `wrong` of it. How many there were. */
const putBack = async (
  deps: RepairDeps,
  partition: number,
  file: SnapshotFile,
  where: string,
  wrong: ReadonlyMap<string, readonly BlobName[]>,
): Promise<number> => {
  const { log } = deps
  const { context } = await restoreSession(deps, partition, { ...file.head, snapshot: null })
  try {
    const pulse = file.head.conductor.globalStep
    const { fresh } = await context.capture({ pulse, ends: [] })
    let count = 0
    for (const { bytes } of fresh.flat()) {
      const hash = await digest([bytes])
      for (const blob of wrong.get(hash) ?? []) {
        const name = nameIn(where, blob)
        await log.blobs!.remove(name)
        await log.blobs!.put(name, bytes)
        count += 1
      }
    }
    return count
  } finally {
    context.close()
  }
}

const byHash = (names: readonly BlobName[]): ReadonlyMap<string, readonly BlobName[]> => {
  const found = new Map<string, BlobName[]>()
  for (const blob of names) found.set(blob.hash, [...(found.get(blob.hash) ?? []), blob])
  return found
}

/** Looks at the newest snapshot of a session, and mends it. Rejects where log or store give no answer. */
export const repairSession = async (deps: RepairDeps, partition: number, head: Head): Promise<Repaired> => {
  const { session } = head
  const none = { session, partition, blobs: 0, wrong: 0, repaired: 0, reason: null }
  if (head.snapshot?.blobs === undefined) return none
  const file = await readSnapshotFile(await readSnapshot(deps.log, deps.names.snapshots, partition, head))
  let manifest: Manifest | null
  try {
    manifest = await manifestIn(deps.log, file)
  } catch (error) {
    if (!(error instanceof BlockLost)) throw error
    const reason = `${error.message} It says where other blobs lie, and cannot be computed: a worker computes the session again.`
    return { ...none, blobs: 1, wrong: 1, reason }
  }
  if (manifest === null) return none
  const { names, reason } = await wrongIn(deps, manifest)
  const seen = { ...none, blobs: blobsOf(manifest).length + manifest.pages.flat().length, wrong: names.length, reason }
  if (names.length === 0) return seen
  if (manifest.store === IN_TOPIC)
    return { ...seen, reason: `${reason} In a topic it cannot be put back: a worker computes the session again.` }
  try {
    const repaired = await putBack(deps, partition, file, manifest.store, byHash(names))
    return { ...seen, repaired }
  } catch (error) {
    return { ...seen, reason: `${reason} It cannot be computed again: ${messageOf(error)}` }
  }
}
