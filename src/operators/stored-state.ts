/**
 * A snapshot as a context takes it: blocks go from the store to where they stay, without a copy of the whole state in between. A file whose
 * tensors are not exactly those of the layout is put together first (`wholeSnapshot`), which says what is wrong with it.
 */
import type { StateLayout, StateSource } from '../memory.ts'
import type { Head } from '../state/head.ts'
import { isOfLayout, readManifest } from '../state/manifest.ts'
import { checkPulse, decodeSnapshot, readSnapshotFile } from '../state/snapshot.ts'
import type { EventLog } from '../streams/log.ts'
import { blobsOf, checkBlock, type KnownBlocks, readerOf, wholeSnapshot } from './blobs.ts'

export interface StoredState {
  readonly head: Head
  /** Rejects with `BlockLost` while it is loaded, where a block is missing or damaged. */
  readonly state: Uint8Array | StateSource
  /** As `WholeSnapshot` has it. */
  readonly blocks: Omit<KnownBlocks, 'origin'> | null
}

/** Throws as `wholeSnapshot` does; what is wrong with a block shows when the state is loaded. */
export const storedState = async (log: EventLog, file: Uint8Array, layout: StateLayout): Promise<StoredState> => {
  const read = await readSnapshotFile(file)
  const manifest = readManifest(read)
  if (manifest === null) return { ...(await decodeSnapshot(file, layout)), blocks: null }
  if (!isOfLayout(read, manifest, layout)) return wholeSnapshot(log, file, layout)
  const { head, names, store: where } = manifest
  checkPulse(head)
  const reader = readerOf(log, manifest)
  const { pathOf } = reader
  const fill: StateSource['fill'] = async (sink) => {
    // Only rings name a blob twice.
    let left = blobsOf(manifest).flatMap((each) => each.at.map((place) => ({ ...each, ...place })))
    if (pathOf !== undefined) {
      const found = await sink.files(
        left.map(({ g, block, blob }) => ({ g, block, hash: blob.hash, path: pathOf(blob) })),
      )
      // The store says of the others what is wrong with them.
      left = left.filter((_, at) => !found[at])
    }
    await reader.get(left, async (at, bytes) => {
      const { g, block, blob } = left[at]!
      await checkBlock(reader, head.session, block, blob, bytes, (given) => sink.bytes({ g, block }, given))
    })
  }
  const state = { hot: read.state, blocks: names.map(({ length }) => length), fill }
  return { head, state, blocks: { names, where } }
}
