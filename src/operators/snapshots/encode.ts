/** A capture as a snapshot file: whole, or, once its blocks are durable, as a manifest that names them. */

import type { StateLayout } from '../../memory.ts'
import type { SnapshotRef } from '../../state/head.ts'
import { withHistory } from '../../state/history.ts'
import { type BlobNames, encodeManifest, hotTensors, namedIn } from '../../state/manifest.ts'
import { type MemoryReport, type ModelMemory, memoryStats } from '../../state/memory-stats.ts'
import { filePieces } from '../../state/snapshot.ts'
import type { PartitionBlobs } from '../blobs/blobs.ts'
import type { Capture } from '../types.ts'

export interface Encoded {
  readonly pulse: number
  /** The file in pieces. */
  readonly file: readonly Uint8Array[]
  /** The blobs that it names, as its reference says it. */
  readonly named: SnapshotRef['blobs']
  /** Their names; null where it is whole. */
  readonly names: BlobNames | null
  readonly seen: MemoryReport
}

export const encodeCapture = async (
  taken: Capture,
  model: ModelMemory & { readonly layout: StateLayout },
  blobs: PartitionBlobs | null,
): Promise<Encoded> => {
  const { head, state, gates } = taken
  const inside = withHistory(head, taken.kept)
  const { layout } = model
  const blocks = taken.blocks === undefined ? null : await blobs!.write(taken)
  const tensors = blocks === null ? layout.tensors(state) : hotTensors(layout, state, blocks.names)
  const seen = await memoryStats(model, head.conductor, state, gates, tensors)
  const file =
    blocks === null
      ? await filePieces(inside, state, tensors, seen.stats)
      : await encodeManifest(inside, state, layout, blobs!.where, blocks.names, seen.stats, blocks.pages)
  const named = blocks === null ? undefined : namedIn(layout, blocks.names, blobs!.where, blocks.pages)
  return { pulse: head.conductor.globalStep, file, named, names: blocks?.names ?? null, seen }
}
