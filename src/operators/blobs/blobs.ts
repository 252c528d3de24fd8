/**
 * The blobs of one partition. A snapshot in blocks (state/manifest.ts) is written in this order: the blobs that are
 * new, each durable before the next word; the manifest, as any snapshot ahead of the commit; the head that names it. A
 * crash between any two of them leaves garbage and nothing else. blobs/trim.ts and blobs/sweep.ts remove it.
 *
 * Blobs lie in the topic of the partition (blobs/topic.ts), or in a store that several logs may share, in a folder
 * `<log id>/<partition>` (blobs/shared.ts). The log id is a random number that the partition's cursor carries.
 */
import { randomBytes } from 'node:crypto'
import { blobs as contract } from '../../../topics/blobs.ts'
import type { TopicNames } from '../../../topics/index.ts'
import { checkMark, inShared, markIn } from '../../blobs/shared.ts'
import type { BlobName, BlobStore, SharedStore } from '../../blobs/store.ts'
import { digest } from '../../bulk.ts'
import type { Model } from '../../engine/types.ts'
import { ContinuoError } from '../../errors.ts'
import { failpoint } from '../../failpoint.ts'
import { blockBytes, type StateLayout } from '../../memory.ts'
import { inParallel } from '../../parallel.ts'
import { type Head, type PartitionCursor, seal } from '../../state/head.ts'
import { type BlobNames, IN_TOPIC, type PageNames, pagesOf, type RunName } from '../../state/manifest.ts'
import { type EventLog, hasTopic } from '../../streams/log.ts'
import { type Keep, keptBlock, type StoredBlocks } from '../snapshots/manifests.ts'
import type { TurnWriter } from '../snapshots/turns.ts'
import type { Capture, CapturedBlocks } from '../types.ts'
import { offsetOf, openTopicStore, type TopicStore } from './topic.ts'

/** Blobs of one snapshot that are hashed and written at a time. */
const WRITES = 4

/** Of a session none of whose blocks is known. */
const NO_LIFE: Life = { born: Number.NEGATIVE_INFINITY, origin: -1 }

const text = new TextEncoder()

/**
 * A context from its beginning on: that of the session that was born at this offset, which was last reset at pulse
 * `origin`. A session that is closed and forked anew has another one, which may have the same origin.
 */
export interface Life {
  readonly born: number
  readonly origin: number
}
export const lifeOf = ({ born, conductor: { origin } }: Head): Life => ({ born, origin })
export const isOfLife = (head: Head, life: Life | null): boolean =>
  life?.born === head.born && life.origin === head.conductor.origin

/** The frozen blocks of a session as its newest snapshot names them, while the same context goes on. */
export interface KnownBlocks extends StoredBlocks {
  readonly life: Life
}

/** How the dead leave. */
export type Removal =
  | { readonly by: 'name'; readonly store: SharedStore; readonly folder: string }
  | { readonly by: 'trim'; readonly store: TopicStore }

export interface PartitionBlobs {
  readonly store: BlobStore
  readonly removal: Removal
  /** As a manifest says it. */
  readonly where: string
  /** Blocks of the session at this head that need not be captured again. */
  known(head: Head): BlobNames
  /** The session's context came to memory, with these blocks; and has left it. */
  begin(session: string, blocks: KnownBlocks | undefined): void
  end(session: string): void
  /**
   * Makes blocks of a session durable ahead of the capture that will name them: from then on they are known. Names all
   * of them, also those that were known before.
   */
  ahead(head: Head, blocks: Pick<CapturedBlocks, 'known' | 'fresh'>): Promise<BlobNames>
  /** Whether blobs are being written that no capture names yet. */
  readonly isAhead: boolean
  /**
   * Makes the blocks of a capture durable, where they are not yet, and pages with their names. Null where it has none.
   */
  write(capture: Capture): Promise<{ readonly names: BlobNames; readonly pages: PageNames } | null>
  /** The same pages for other names, durable. */
  paged(names: BlobNames): Promise<PageNames>
  /** Where a block of the session lies that stays in the store for now; null: in another store than this. */
  kept: Keep
  /** The copy is lost or damaged: it is given to no session any more. */
  distrust(blob: BlobName): void
  /** These copies are there and right: blocks with the same bytes are not written again. */
  recall(blobs: Iterable<BlobName>): void
  /** Copies of blobs, by the places of the old ones: from here on they are named instead. */
  move(moved: ReadonlyMap<string, BlobName>): void
  /**
   * From here on a block counts as there only where it was written later, or belongs to a session in memory; and what
   * `write` names is noted.
   */
  forgetOthers(): void
  /** Those names, and those that were written ahead of a capture which has not been written yet. */
  noted(): Iterable<BlobName>
  /** The names that sessions in memory go on from, and those that were noted. */
  held(): Iterable<BlobName>
  /** From here on only such blobs are named again; a session that went on from others is captured anew. */
  retain(isKept: (place: string) => boolean): void
  /** Ends the noting. */
  swept(): void
  /** Bytes of blocks that were named and probably are not any more; `add` counts more of them, or fewer. */
  readonly dead: { readonly bytes: number; add(bytes: number): void }
  /** Mean size of a block. */
  readonly blockBytes: number
}

const createBlobs = (where: string, removal: Removal, layout: StateLayout): PartitionBlobs => {
  const store = removal.by === 'trim' ? removal.store : inShared(removal.store, removal.folder)
  const none: BlobNames = layout.growth.map(() => [])
  const { growth } = layout
  const sessions = new Map<string, KnownBlocks>()
  /** Where the block with this hash lies, for sessions that have the same one. */
  const byHash = new Map<string, BlobName>()
  /**
   * Blobs that are being written, by their hash. All blocks of an empty ring have the same bytes, and are written once.
   */
  const puts = new Map<string, Promise<BlobName>>()
  const noted = new Map<string, BlobName>()
  let noting = false
  /** Of each session whose capture is not written yet, what was written ahead of it, and the bytes of that. */
  const early = new Map<string, { readonly names: BlobNames; readonly bytes: number }>()
  let writingAhead = 0
  let dead = 0
  /** As `move` got it last, for captures and rebuilds that began before. */
  let moved: ReadonlyMap<string, BlobName> = new Map()

  const isLeft = ({ place }: BlobName): boolean => removal.by === 'trim' && offsetOf(place) < removal.store.begin
  const current = (names: BlobNames): BlobNames =>
    names.map((own) => own.map((blob) => ({ ...blob, ...moved.get(blob.place) })))

  /** Of a run only its blob: another session may have the same bytes in another run. */
  const remember = ({ hash, place }: BlobName): void => void byHash.set(hash, { hash, place })

  const stored = async (bytes: Uint8Array): Promise<BlobName> => {
    const hash = await digest([bytes])
    const found = byHash.get(hash) ?? (await puts.get(hash))
    if (found !== undefined) return found
    const put = store.put(hash, bytes).then((place) => ({ hash, place }))
    puts.set(hash, put)
    try {
      const blob = await put
      failpoint('blobs.put')
      byHash.set(hash, blob)
      return blob
    } finally {
      puts.delete(hash)
    }
  }

  const paged = (names: BlobNames): Promise<PageNames> =>
    Promise.all(pagesOf(layout, names).map((own) => inParallel(own, WRITES, stored)))

  /** The blocks of a session by their names, those that are new once they are durable. */
  const named = async (head: Head, blocks: Pick<CapturedBlocks, 'known' | 'fresh'>): Promise<BlobNames> => {
    const fresh = blocks.fresh.flatMap((own, g) => own.map((block) => ({ g, ...block })))
    const added = await inParallel(fresh, WRITES, async ({ g, run, bytes }) => ({ ...(await stored(bytes)), g, run }))
    const known = current(blocks.known)
    const of = (wanted: number): RunName[] =>
      added.filter(({ g }) => g === wanted).map(({ hash, place, run }) => ({ hash, place, run }))
    const names = known.map((own, g) => [...own, ...of(g)])
    const left = names.flat().find(isLeft)
    if (left === undefined) return names
    throw new ContinuoError(
      'UNAVAILABLE',
      `A block of session "${head.session}" (sha256 ${left.hash.slice(0, 12)}…) left ${store.url} while its snapshot waited. The session is rebuilt from the snapshot before.`,
    )
  }

  /** All that the session names. */
  const allOf = ({ names, pages }: KnownBlocks): readonly BlobName[] => [...names.flat(), ...pages.flat()]

  const replace = (session: string, blocks: KnownBlocks): void => {
    const before = sessions.get(session)
    // A capture of the life before may be written when the session has begun anew.
    if (before === undefined || before.life.born > blocks.life.born) return
    sessions.set(session, blocks)
    for (const [g, own] of before.names.entries()) {
      const now = new Set(blocks.names[g]!.map(({ hash }) => hash))
      const gone = new Map(own.filter(({ hash }) => !now.has(hash)).map(({ hash, run }) => [hash, run]))
      for (const run of gone.values()) dead += blockBytes(growth[g]!, run)
    }
  }

  /** The capture will not be written, most likely: nothing else counts what was written ahead of it. */
  const forsake = (session: string): void => {
    dead += early.get(session)?.bytes ?? 0
    early.delete(session)
  }

  return {
    store,
    removal,
    where,
    known(head) {
      const found = sessions.get(head.session)
      return found !== undefined && isOfLife(head, found.life) ? found.names : none
    },
    begin(session, blocks) {
      forsake(session)
      // A manifest from before rings had blocks has none of theirs.
      const names = blocks?.where === where ? current(none.map((own, g) => blocks.names[g] ?? own)) : none
      // What was moved and left while the session was being rebuilt is captured anew.
      const known = names.some((own) => own.some(isLeft)) ? none : names
      const pages = known === names && blocks?.where === where ? blocks.pages : none
      const own = { life: blocks?.life ?? NO_LIFE, names: known, pages, where }
      sessions.set(session, own)
      allOf(own).forEach(remember)
    },
    end(session) {
      sessions.delete(session)
      forsake(session)
    },
    async ahead(head, blocks) {
      writingAhead += 1
      try {
        const names = await named(head, blocks)
        replace(head.session, { life: lifeOf(head), names, pages: sessions.get(head.session)?.pages ?? none, where })
        const bytes = blocks.fresh.flat().reduce((sum, block) => sum + block.bytes.length, 0)
        early.set(head.session, { names, bytes: (early.get(head.session)?.bytes ?? 0) + bytes })
        return names
      } finally {
        writingAhead -= 1
      }
    },
    get isAhead() {
      return writingAhead > 0
    },
    async write({ head, blocks }) {
      if (blocks === undefined) return null
      const names = await named(head, blocks)
      const pages = await paged(names)
      const written = { life: lifeOf(head), names, pages, where }
      if (noting) for (const blob of allOf(written)) noted.set(blob.place, blob)
      failpoint('blobs.written')
      replace(head.session, written)
      early.delete(head.session)
      return names.every((own) => own.length === 0) ? null : written
    },
    paged,
    kept(place, session, name) {
      if (place !== where) return null
      const sleepy = growth.find(({ sleeps }) => sleeps)!
      // A copy may have taken its place meanwhile.
      return keptBlock(store, where, session, sleepy, name, () => byHash.get(name.hash) ?? name)
    },
    distrust({ hash, place }) {
      if (byHash.get(hash)?.place === place) byHash.delete(hash)
    },
    recall(found) {
      for (const blob of found) remember(blob)
    },
    move(places) {
      moved = places
      for (const [session, { names, bytes }] of early) early.set(session, { names: current(names), bytes })
      for (const [session, blocks] of sessions)
        sessions.set(session, {
          ...blocks,
          names: current(blocks.names),
          pages: blocks.pages.map((own) => own.map((page) => ({ ...page, ...moved.get(page.place) }))),
        })
      for (const [hash, { place }] of byHash) {
        const now = moved.get(place)
        if (now !== undefined) byHash.set(hash, now)
      }
    },
    forgetOthers() {
      noting = true
      noted.clear()
      byHash.clear()
      for (const blocks of sessions.values()) allOf(blocks).forEach(remember)
    },
    *noted() {
      yield* noted.values()
      for (const { names } of early.values()) yield* names.flat()
    },
    retain(isKept) {
      byHash.clear()
      for (const [session, blocks] of sessions) {
        const blobs = allOf(blocks)
        if (!blobs.every(({ place }) => isKept(place))) sessions.set(session, { ...blocks, names: none, pages: none })
        else blobs.forEach(remember)
      }
    },
    *held() {
      yield* noted.values()
      for (const blocks of sessions.values()) yield* allOf(blocks)
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
    },
    blockBytes: growth.reduce((sum, each) => sum + blockBytes(each, 0), 0) / Math.max(1, growth.length),
  }
}

export interface Claimed {
  readonly log: EventLog
  readonly names: TopicNames
  readonly model: Pick<Model, 'layout'>
  readonly partition: number
  readonly writer: TurnWriter
  /** Bytes of a blob in one record at most. */
  readonly partBytes: number
}

/**
 * The blobs of a partition that was just claimed; null where the model has no tables in blocks. They lie in the log's
 * blob store, or, where it was opened without one, in the topic of the partition. The first time with a store, the
 * log's id is drawn, marked in the store and committed with the cursor. Throws REFUSED where heads name blobs in a
 * store and none was given: then every session would be computed again, or set aside. Throws UNAVAILABLE where the
 * store has no mark of the partition.
 */
export const openBlobs = async (
  { log, names, model, partition, writer, partBytes }: Claimed,
  cursor: PartitionCursor,
  heads: ReadonlyMap<string, Head>,
): Promise<{ readonly blobs: PartitionBlobs | null; readonly cursor: PartitionCursor }> => {
  const store = log.blobs
  const isElsewhere = ({ snapshot }: Head): boolean => snapshot?.blobs !== undefined && snapshot.blobs.in !== IN_TOPIC
  const named = [...heads.values()].find(isElsewhere)
  if (store === undefined) {
    if (named !== undefined)
      throw new ContinuoError(
        'REFUSED',
        `The snapshot of session "${named.session}" in ${names.state}, partition ${partition}, has blocks in a blob store, and none was given. Nothing was changed. Name the store: --blob-store.`,
      )
    if (model.layout.growth.length === 0) return { blobs: null, cursor }
    await ensureTopic(log, names)
    const topic = await openTopicStore(log, names.blobs, writer, partBytes)
    return { blobs: createBlobs(IN_TOPIC, { by: 'trim', store: topic }, model.layout), cursor }
  }
  if (model.layout.growth.length === 0) return { blobs: null, cursor }
  const inFolder = (logId: string): PartitionBlobs => {
    const folder = folderOf(logId)
    return createBlobs(folder, { by: 'name', store, folder }, model.layout)
  }
  const folderOf = (logId: string): string => `${logId}/${partition}`
  if (cursor.logId !== undefined) {
    await checkMark(store, folderOf(cursor.logId), `${names.state}, partition ${partition}`)
    return { blobs: inFolder(cursor.logId), cursor }
  }
  const logId = randomBytes(16).toString('hex')
  const marked: PartitionCursor = { ...cursor, logId }
  await store.begin(folderOf(logId))
  await store.put(markIn(folderOf(logId)), text.encode(`${names.state}, partition ${partition}, of ${log.url}\n`))
  const sealed = seal(marked, { topic: names.state, partition, keys: log.sealKeys })
  await writer.commit([{ topic: names.state, ...sealed }], cursor.offset)
  return { blobs: inFolder(logId), cursor: marked }
}

/** Logs of older versions have no such topic. */
const ensureTopic = async (log: EventLog, names: TopicNames): Promise<void> => {
  if (await hasTopic(log, names.blobs)) return
  const partitions = await log.partitions(names.chunks)
  await log.createTopics([{ name: names.blobs, partitions, config: contract.settings }])
}
