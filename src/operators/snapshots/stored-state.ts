/**
 * A snapshot as a context takes it: blocks go from the store to where they stay, without a copy of the whole state in
 * between; those that may sleep stay in the store. A file whose tensors are not exactly those of the layout is put
 * together first (`wholeSnapshot`), which says what is wrong with it.
 */

import type { SnapshotHead } from '../../../topics/state.ts'
import type { StateLayout, StateSource } from '../../memory.ts'
import { assemblyOf } from '../../state/assembly.ts'
import { blockText } from '../../state/block-names.ts'
import { isOfLayout, type Manifest } from '../../state/manifest.ts'
import { checkPulse, decodeSnapshot, readSnapshotFile } from '../../state/snapshot.ts'
import type { EventLog } from '../../streams/log.ts'
import {
  blobsOf,
  checkBlob,
  type Keep,
  manifestIn,
  placeBlobs,
  readerOf,
  type StoredBlocks,
  wholeSnapshot,
} from './manifests.ts'

export interface StoredState {
  readonly head: SnapshotHead
  /** Rejects with `BlockLost` while it is loaded, where a block is missing or damaged. */
  readonly state: Uint8Array | StateSource
  /** As `WholeSnapshot` has it. */
  readonly blocks: StoredBlocks | null
}

/**
 * Throws as `wholeSnapshot` does; what is wrong with a block shows when the state is loaded, and of one that stays in
 * the store when it is wanted.
 */
export const storedState = async (
  log: EventLog,
  file: Uint8Array,
  layout: StateLayout,
  keep: Keep = () => null,
): Promise<StoredState> => {
  const read = await readSnapshotFile(file)
  const manifest = await manifestIn(log, read)
  if (manifest === null) return { ...(await decodeSnapshot(file, layout)), blocks: null }
  if (!isOfLayout(read, manifest, layout)) return wholeSnapshot(log, file, layout)
  const { head, names, pages, store: where } = manifest
  checkPulse(head)
  const isRing = layout.growth.map(({ places }) => places !== undefined)
  const sleepy = layout.growth.findIndex(({ sleeps }) => sleeps)
  const reader = readerOf(log, manifest)
  const { pathOf } = reader
  const partsOf = (part: Manifest) => blobsOf(part).flatMap((each) => each.at.map((place) => ({ ...each, ...place })))
  const only = (wanted: (g: number) => boolean): Manifest => ({
    ...manifest,
    names: names.map((own, g) => (wanted(g) ? own : [])),
  })
  const withRings = async (): Promise<Uint8Array> => {
    const whole = assemblyOf(layout, read.state, names, true)
    await placeBlobs(reader, head.session, blobsOf(only((g) => isRing[g]!)), whole)
    return (await whole.finish()).state
  }
  const fill: StateSource['fill'] = async (sink) => {
    let left = partsOf(only((g) => !isRing[g] && !(sink.rests && g === sleepy)))
    if (pathOf !== undefined) {
      const found = await sink.files(
        left.map(({ g, block, blob }) => ({ g, block, hash: blob.hash, path: pathOf(blob) })),
      )
      // The store says of the others what is wrong with them.
      left = left.filter((_, at) => !found[at])
    }
    await reader.get(left, async (at, bytes) => {
      const { g, block, run, blob } = left[at]!
      const what = blockText(manifest.growth[g]!, run)
      await checkBlob(reader, head.session, what, blob, bytes, (given) => sink.bytes({ g, block }, given))
    })
  }
  const kept = sleepy < 0 ? [] : names[sleepy]!.map((name) => keep(where, head.session, name))
  const state: StateSource = {
    hot: isRing.includes(true) ? await withRings() : read.state,
    blocks: names.map(({ length }, g) => (isRing[g] ? 0 : length)),
    ...(sleepy >= 0 && kept.every((block) => block !== null) && { resting: kept }),
    fill,
  }
  return { head, state, blocks: { names, pages, where } }
}
