/**
 * Manifests and their blobs as readers need them: what a snapshot file names, wherever that lies, and the whole state
 * that it stands for.
 */

import { topicNames } from '../../../topics/index.ts'
import { inShared } from '../../blobs/shared.ts'
import type { BlobName, BlobReader, Wanted } from '../../blobs/store.ts'
import { digest, join } from '../../bulk.ts'
import { ContinuoError } from '../../errors.ts'
import { blockBytes, type Growth, type KeptBlock, type StateLayout } from '../../memory.ts'
import { type Assembly, assembly } from '../../state/assembly.ts'
import { blockText, followedBy, pageText, repairHint } from '../../state/block-names.ts'
import {
  type BlobNames,
  IN_TOPIC,
  type Manifest,
  type Outline,
  PAGE_BYTES,
  type PageNames,
  type RunName,
  readManifest,
  readOutline,
} from '../../state/manifest.ts'
import {
  checkWhole,
  decodeSnapshot,
  filePieces,
  readSnapshotFile,
  type Snapshot,
  type SnapshotFile,
} from '../../state/snapshot.ts'
import type { EventLog } from '../../streams/log.ts'
import { topicReader } from '../blobs/topic.ts'

/** Where a block of a session lies that stays in a store like this. */
export type Keep = (where: string, session: string, name: RunName) => KeptBlock | null

/** A block of a session's snapshot cannot be had. */
export class BlockLost extends ContinuoError {
  readonly blob: BlobName
  constructor(message: string, blob: BlobName) {
    super('REFUSED', message)
    this.name = 'BlockLost'
    this.blob = blob
  }
}

/**
 * `what`: what the blob holds (state/block-names.ts). `bytes`: what the store gave for the blob; `take` returns their
 * sha256. Throws BlockLost.
 */
export const checkBlob = async (
  { url }: BlobReader,
  session: string,
  what: string,
  blob: BlobName,
  bytes: Uint8Array | null,
  take: (bytes: Uint8Array) => Promise<string>,
): Promise<void> => {
  const hash = bytes === null ? null : await take(bytes)
  if (hash === blob.hash) return
  const wrong =
    bytes === null
      ? `is not in the blob store ${url}`
      : bytes.length === 0
        ? `cannot be read from the blob store ${url}, where it is damaged`
        : `is damaged in the blob store ${url}: its ${bytes.length} bytes have the sha256 ${hash!.slice(0, 12)}…`
  throw new BlockLost(
    `The blob with ${what} of session "${session}" (sha256 ${blob.hash.slice(0, 12)}…) ${wrong}; ${repairHint(session)}.`,
    blob,
  )
}

/** `where`: as a manifest says it. */
const readerAt = (log: EventLog, where: string, partition: number, session: string): BlobReader => {
  if (where === IN_TOPIC) return topicReader(log, topicNames(log.prefix).blobs, partition)
  if (log.blobs !== undefined) return inShared(log.blobs, where)
  throw new ContinuoError(
    'UNAVAILABLE',
    `The newest snapshot of session "${session}" is in blocks, which lie in a blob store: name it, --blob-store.`,
  )
}

export const readerOf = (log: EventLog, { store, head }: Pick<Manifest, 'store' | 'head'>): BlobReader =>
  readerAt(log, store, head.cursor.partition, head.session)

/** A block that stays in a store, as its session's snapshot names it. */
export const keptBlock = (
  reader: BlobReader,
  where: string,
  session: string,
  growth: Growth,
  { run, ...blob }: RunName,
  /** The copy that has its place by now. */
  now: () => BlobName = () => blob,
): KeptBlock => ({
  key: `${where}/${blob.hash}.${blob.place}`,
  isNear: reader.pathOf !== undefined,
  async read() {
    const wanted = now()
    const what = blockText(followedBy(growth), run)
    let bytes: Uint8Array = new Uint8Array(0)
    await reader.get([{ ...wanted, bytes: blockBytes(growth, run) }], async (_, found) => {
      await checkBlob(reader, session, what, wanted, found, (given) => digest([given]))
      bytes = found!
    })
    return bytes
  },
})

/** Blocks that may sleep stay where they lie. `lost` is called when one of them is wanted and cannot be had. */
export const keepIn = (
  log: EventLog,
  partition: number,
  { growth }: StateLayout,
  lost: (error: BlockLost) => void,
): Keep => {
  const sleepy = growth.find(({ sleeps }) => sleeps)
  return (where, session, name) => {
    if (sleepy === undefined) return null
    const kept = keptBlock(readerAt(log, where, partition, session), where, session, sleepy, name)
    return {
      ...kept,
      read: () =>
        kept.read().catch((error: unknown) => {
          if (error instanceof BlockLost) lost(error)
          throw error
        }),
    }
  }
}

/** The pages that a snapshot file names itself, with what each of them holds. */
export const pagesIn = ({ pages, growth }: Outline): readonly NamedPage[] =>
  pages.flatMap((own, g) =>
    own.map(({ hash, place }, page) => ({
      ...{ hash, place, bytes: PAGE_BYTES, blob: { hash, place } },
      ...{ g, page, what: pageText(growth[g]!, page) },
    })),
  )

export interface NamedPage extends Wanted {
  readonly blob: BlobName
  readonly g: number
  readonly page: number
  readonly what: string
}

/**
 * What a snapshot file names, with its pages from their store; null: it is whole. Throws as `readManifest`, and
 * BlockLost for a page.
 */
export const manifestIn = async (log: EventLog, file: SnapshotFile): Promise<Manifest | null> => {
  const outline = readOutline(file)
  if (outline === null) return null
  const pages = new Map<string, Uint8Array>()
  const wanted = pagesIn(outline)
  if (wanted.length > 0) {
    const reader = readerOf(log, outline)
    await reader.get(wanted, async (at, bytes) => {
      const { blob, what } = wanted[at]!
      await checkBlob(reader, outline.head.session, what, blob, bytes, (found) => digest([found]))
      pages.set(blob.hash, bytes!)
    })
  }
  return readManifest(file, pages)
}

/**
 * A blob, and each block that it is. A ring that is not full, or was reset, names the same one for several blocks: it
 * is read once.
 */
export interface NamedBlob extends Wanted {
  readonly blob: BlobName
  readonly at: readonly { readonly g: number; readonly block: number; readonly run: number }[]
  /** What it holds, of several blocks the first. */
  readonly what: string
}

export const blobsOf = ({ names, sizes, growth }: Manifest): readonly NamedBlob[] => {
  const found = new Map<string, NamedBlob & { readonly at: { g: number; block: number; run: number }[] }>()
  for (const [g, own] of names.entries()) {
    for (const [block, { run, hash, place }] of own.entries()) {
      const key = `${hash}.${place}`
      const at = { g, block, run }
      const known = found.get(key)
      if (known !== undefined) known.at.push(at)
      else {
        const what = blockText(growth[g]!, run)
        found.set(key, { hash, place, bytes: sizes[g]![block]!, blob: { hash, place }, at: [at], what })
      }
    }
  }
  return [...found.values()]
}

/**
 * Reads these blobs and puts each into the state, wherever it stands in it. Rejects with BlockLost for one that is
 * missing or damaged.
 */
export const placeBlobs = (
  reader: BlobReader,
  session: string,
  blobs: readonly NamedBlob[],
  { place }: Pick<Assembly, 'place'>,
): Promise<void> =>
  reader.get(blobs, async (index, bytes) => {
    const { blob, at, what } = blobs[index]!
    for (const { g, block } of at)
      await checkBlob(reader, session, what, blob, bytes, (found) => place(g, block, found))
  })

/** What a manifest and its blobs make together; null for a snapshot that is whole. */
const joined = async (log: EventLog, read: SnapshotFile) => {
  const manifest = await manifestIn(log, read)
  if (manifest === null) return null
  const { names, pages, store: where, head } = manifest
  const whole = assembly(read)
  await placeBlobs(readerOf(log, manifest), head.session, blobsOf(manifest), whole)
  return { ...(await whole.finish()), names, pages, where }
}

/** Where the frozen blocks of a snapshot lie. */
export interface StoredBlocks {
  readonly names: BlobNames
  /** Pages that hold some of these names. */
  readonly pages: PageNames
  /** As a manifest says it. */
  readonly where: string
}

/** A snapshot with all its blocks. `blocks`: their names, and where they lie; null where it has none. */
export interface WholeSnapshot extends Snapshot {
  readonly blocks: StoredBlocks | null
}

/**
 * The state in a snapshot file, with its blocks from the store. Throws REFUSED where the file or a block (`BlockLost`)
 * is damaged or missing or does not fit the layout, UNAVAILABLE where it has blocks and the log was opened without a
 * store for them.
 */
export const wholeSnapshot = async (log: EventLog, file: Uint8Array, layout: StateLayout): Promise<WholeSnapshot> => {
  const read = await readSnapshotFile(file)
  const whole = await joined(log, read)
  if (whole === null) return { ...(await decodeSnapshot(file, layout)), blocks: null }
  const { state, tensors, names, pages, where } = whole
  return { ...checkWhole({ head: read.head, state }, tensors, layout), blocks: { names, pages, where } }
}

/** The same as one file with the blocks inside, without the model. */
export const wholeFile = async (log: EventLog, file: Uint8Array): Promise<Uint8Array> => {
  const read = await readSnapshotFile(file)
  const whole = await joined(log, read)
  return whole === null ? file : join(await filePieces(read.head, whole.state, whole.tensors, read.stats ?? undefined))
}
