/**
 * The blobs of one partition. A snapshot in blocks (state/manifest.ts) is written in this order: the blobs that are new, each durable
 * before the next word; the manifest, as any snapshot ahead of the commit; the head that names it. A crash between any two of them
 * leaves garbage and nothing else. blob-sweep.ts removes it.
 *
 * A blob lies at `<log id>/<partition>/<sha256>.<place>` in the store. The log id is a random number that the partition's cursor
 * carries: two logs may share a store. The place is a random number of each copy, so a name is written once and never again: what a
 * sweep found dead cannot come to life under its hands.
 */
import { randomBytes } from 'node:crypto'
import type { TopicNames } from '../../topics/index.ts'
import type { BlobStore } from '../blobs/store.ts'
import type { Model } from '../engine/types.ts'
import { ContinuoError } from '../errors.ts'
import { failpoint } from '../failpoint.ts'
import type { StateLayout } from '../memory.ts'
import { type Head, type PartitionCursor, seal } from '../state/head.ts'
import { assemble, type BlobName, type BlobNames, blockBytes, readManifest } from '../state/manifest.ts'
import {
  checkWhole,
  decodeSnapshot,
  encodeFile,
  readSnapshotFile,
  type Snapshot,
  type SnapshotFile,
} from '../state/snapshot.ts'
import type { EventLog, PartitionWriter } from '../streams/log.ts'
import type { Capture } from './types.ts'

/** Transfers of one snapshot at a time: enough for a disk or a network, and few blocks in memory. */
const READS = 16
const WRITES = 4

const text = new TextEncoder()
/** A small blob that every partition of a log has in its store: without it another store was named. */
const MARK = 'log'

export const nameIn = (folder: string, { hash, place }: BlobName): string => `${folder}/${hash}.${place}`

const NAME = /\/([0-9a-f]{64})\.([0-9a-f]{16})$/
/** Of the whole name of a blob; null for other names. */
export const parseName = (name: string): BlobName | null => {
  const [, hash, place] = NAME.exec(name) ?? []
  return hash === undefined ? null : { hash, place: place! }
}

/** On a thread of its own: hashing a block takes as long as a step. */
const hashOf = async (bytes: Uint8Array): Promise<string> =>
  Buffer.from(await crypto.subtle.digest('SHA-256', bytes as Uint8Array<ArrayBuffer>)).toString('hex')

/** At most `limit` at a time; the results in order. After a failure no other item is begun. */
export const inParallel = async <T, R>(
  items: readonly T[],
  limit: number,
  work: (item: T) => Promise<R>,
): Promise<R[]> => {
  const results: R[] = []
  let next = 0
  const lane = async (): Promise<void> => {
    while (next < items.length) {
      const at = next
      next += 1
      try {
        results[at] = await work(items[at]!)
      } catch (error) {
        next = items.length
        throw error
      }
    }
  }
  await Promise.all(Array.from({ length: Math.min(limit, items.length) }, lane))
  return results
}

/** A block of a session's snapshot cannot be had. */
export class BlockLost extends ContinuoError {
  readonly blob: BlobName
  constructor(message: string, blob: BlobName) {
    super('REFUSED', message)
    this.name = 'BlockLost'
    this.blob = blob
  }
}

const readBlock = async (
  store: BlobStore,
  folder: string,
  session: string,
  block: number,
  blob: BlobName,
): Promise<Uint8Array> => {
  const bytes = await store.get(nameIn(folder, blob))
  const what = `Block ${block} of session "${session}" (sha256 ${blob.hash.slice(0, 12)}…)`
  if (bytes === null) throw new BlockLost(`${what} is not in the blob store ${store.url}.`, blob)
  const actual = await hashOf(bytes)
  if (actual === blob.hash) return bytes
  throw new BlockLost(
    `${what} is damaged in the blob store ${store.url}: its ${bytes.length} bytes have the sha256 ${actual.slice(0, 12)}….`,
    blob,
  )
}

/** What a manifest and its blobs make together; null for a snapshot that is whole. */
const joined = async (log: EventLog, read: SnapshotFile) => {
  const manifest = readManifest(read)
  if (manifest === null) return null
  const { names, store: folder, head } = manifest
  const { blobs } = log
  if (blobs === undefined)
    throw new ContinuoError(
      'UNAVAILABLE',
      `The newest snapshot of session "${head.session}" is in blocks, which lie in a blob store: name it, --blob-store.`,
    )
  const numbered = names.flatMap((own, g) => own.map((blob, block) => ({ g, blob, block })))
  const bytes = await inParallel(numbered, READS, ({ blob, block }) =>
    readBlock(blobs, folder, head.session, block, blob),
  )
  const blocks = names.map((_, g) => bytes.filter((_, i) => numbered[i]!.g === g))
  return { ...assemble(read, blocks), names }
}

/** A snapshot with all its blocks, and their names where it has any. */
export interface WholeSnapshot extends Snapshot {
  readonly names: BlobNames | null
}

/**
 * The state in a snapshot file, with its blocks from the store. Throws REFUSED where the file or a block (`BlockLost`) is damaged or
 * missing or does not fit the layout, UNAVAILABLE where it has blocks and the log was opened without a store for them.
 */
export const wholeSnapshot = async (log: EventLog, file: Uint8Array, layout: StateLayout): Promise<WholeSnapshot> => {
  const read = readSnapshotFile(file)
  const whole = await joined(log, read)
  if (whole === null) return { ...decodeSnapshot(file, layout), names: null }
  const { state, tensors, names } = whole
  return { ...checkWhole({ head: read.head, state }, tensors, layout), names }
}

/** The same as one file with the blocks inside, without the model. */
export const wholeFile = async (log: EventLog, file: Uint8Array): Promise<Uint8Array> => {
  const read = readSnapshotFile(file)
  const whole = await joined(log, read)
  return whole === null ? file : encodeFile(read.head, whole.state, whole.tensors, read.stats ?? undefined)
}

/** The frozen blocks of a session as its newest snapshot names them, while the context that began at `origin` goes on. */
export interface KnownBlocks {
  readonly origin: number
  readonly names: BlobNames
}

export interface PartitionBlobs {
  readonly store: BlobStore
  /** Where in the store. */
  readonly folder: string
  /** Blocks of the session that need not be captured again. */
  known(session: string, origin: number): BlobNames
  /** The session's context came to memory, with these blocks; and has left it. */
  begin(session: string, blocks: KnownBlocks | undefined): void
  end(session: string): void
  /** Makes the blocks of a capture durable, where they are not yet. Their names, or null where it has none. */
  write(capture: Capture): Promise<BlobNames | null>
  /** The copy is lost or damaged: it is given to no session any more. */
  distrust(blob: BlobName): void
  /** From here on a block counts as there only where it was written later, or belongs to a session in memory; and what `write` names is noted. */
  forgetOthers(): void
  /** The names that sessions in memory go on from, and those that `write` gave since `forgetOthers`. */
  held(): Iterable<BlobName>
  /** Ends the noting. */
  swept(): void
  /** Bytes of blocks that were named and probably are not any more; `add` counts more of them, `clear` none. */
  readonly dead: { readonly bytes: number; add(bytes: number): void; clear(): void }
  /** Mean size of a block. */
  readonly blockBytes: number
}

const createBlobs = (store: BlobStore, folder: string, layout: StateLayout): PartitionBlobs => {
  const none: BlobNames = layout.growth.map(() => [])
  const sizes = layout.growth.map(blockBytes)
  const sessions = new Map<string, KnownBlocks>()
  /** Where the block with this hash lies, for sessions that have the same one. */
  const byHash = new Map<string, BlobName>()
  const noted = new Map<string, BlobName>()
  let noting = false
  let dead = 0

  const stored = async (bytes: Uint8Array): Promise<BlobName> => {
    const hash = await hashOf(bytes)
    const found = byHash.get(hash)
    if (found !== undefined) return found
    const blob = { hash, place: randomBytes(8).toString('hex') }
    await store.put(nameIn(folder, blob), bytes)
    failpoint('blobs.put')
    byHash.set(hash, blob)
    return blob
  }

  const replace = (session: string, blocks: KnownBlocks): void => {
    const before = sessions.get(session)
    if (before === undefined) return
    sessions.set(session, blocks)
    for (const [g, own] of before.names.entries()) {
      const now = new Set(blocks.names[g]!.map(({ hash }) => hash))
      for (const { hash } of own) if (!now.has(hash)) dead += sizes[g]!
    }
  }

  return {
    store,
    folder,
    known(session, origin) {
      const found = sessions.get(session)
      return found?.origin === origin ? found.names : none
    },
    begin(session, blocks = { origin: -1, names: none }) {
      sessions.set(session, blocks)
      for (const blob of blocks.names.flat()) byHash.set(blob.hash, blob)
    },
    end: (session) => sessions.delete(session),
    async write({ head, blocks }) {
      if (blocks === undefined) return null
      const fresh = blocks.fresh.flatMap((own, g) => own.map((bytes) => ({ g, bytes })))
      const added = await inParallel(fresh, WRITES, ({ bytes }) => stored(bytes))
      const names = blocks.known.map((own, g) => [...own, ...added.filter((_, i) => fresh[i]!.g === g)])
      if (noting) for (const blob of names.flat()) noted.set(nameIn(folder, blob), blob)
      failpoint('blobs.written')
      replace(head.session, { origin: head.conductor.origin, names })
      return names.every((own) => own.length === 0) ? null : names
    },
    distrust({ hash, place }) {
      if (byHash.get(hash)?.place === place) byHash.delete(hash)
    },
    forgetOthers() {
      noting = true
      noted.clear()
      byHash.clear()
      for (const { names } of sessions.values()) for (const blob of names.flat()) byHash.set(blob.hash, blob)
    },
    *held() {
      yield* noted.values()
      for (const { names } of sessions.values()) yield* names.flat()
    },
    swept() {
      noting = false
      noted.clear()
    },
    dead: {
      get bytes() {
        return dead
      },
      add: (bytes) => {
        dead += bytes
      },
      clear: () => {
        dead = 0
      },
    },
    blockBytes: sizes.reduce((sum, bytes) => sum + bytes, 0) / Math.max(1, sizes.length),
  }
}

export interface Claimed {
  readonly log: EventLog
  readonly names: TopicNames
  readonly model: Pick<Model, 'layout'>
  readonly partition: number
  readonly writer: PartitionWriter
}

/**
 * The blobs of a partition that was just claimed; null where the log has no store, or the model no tables that grow. The first time, the
 * log's id is drawn, marked in the store and committed with the cursor. Throws REFUSED where heads name blobs and no store was given, or
 * another than theirs: then every session would be computed again, or set aside.
 */
export const openBlobs = async (
  { log, names, model, partition, writer }: Claimed,
  cursor: PartitionCursor,
  heads: ReadonlyMap<string, Head>,
): Promise<{ readonly blobs: PartitionBlobs | null; readonly cursor: PartitionCursor }> => {
  const store = log.blobs
  const named = [...heads.values()].find(({ snapshot }) => snapshot?.blobs !== undefined)
  if (store === undefined) {
    if (named === undefined) return { blobs: null, cursor }
    throw new ContinuoError(
      'REFUSED',
      `The snapshot of session "${named.session}" in ${names.state}, partition ${partition}, has blocks in a blob store, and none was given. Nothing was changed. Name the store: --blob-store.`,
    )
  }
  if (model.layout.growth.length === 0) return { blobs: null, cursor }
  const folderOf = (logId: string): string => `${logId}/${partition}`
  if (cursor.logId !== undefined) {
    const folder = folderOf(cursor.logId)
    if ((await store.get(`${folder}/${MARK}`)) === null)
      throw new ContinuoError(
        'REFUSED',
        `The blob store ${store.url} does not belong to ${names.state}, partition ${partition}: it has no ${folder}/${MARK}. Nothing was changed. Name the store that the workers before used (--blob-store), or bring its content back.`,
      )
    return { blobs: createBlobs(store, folder, model.layout), cursor }
  }
  const logId = randomBytes(16).toString('hex')
  const marked: PartitionCursor = { ...cursor, logId }
  await store.put(`${folderOf(logId)}/${MARK}`, text.encode(`${names.state}, partition ${partition}\n`))
  const sealed = seal(marked, { topic: names.state, partition, keys: log.sealKeys })
  await writer.commit([{ topic: names.state, ...sealed }], cursor.offset)
  return { blobs: createBlobs(store, folderOf(logId), model.layout), cursor: marked }
}
