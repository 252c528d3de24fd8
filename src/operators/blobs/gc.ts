/**
 * The removal of dead blobs by hand (`continuo blobs gc`), without the model. The owner of a partition removes what is
 * dead by itself (blobs/garbage.ts), when it outweighs what lives; here all of it goes, also what nobody counts any
 * more: in the topic of a log that went to a store, and folders of logs that are gone.
 *
 * The order is that of blobs/garbage.ts, with a claim in place of quiet moments: the command claims a partition, which
 * fences the worker that had it, and then reads the heads behind every commit of that worker. Blobs that are there by
 * then and are named by none of these heads are dead; the next owner names only what it writes itself or finds in the
 * same heads.
 */
import type { TopicNames } from '../../../topics/index.ts'
import { checkMark, markIn, nameIn } from '../../blobs/shared.ts'
import type { SharedStore } from '../../blobs/store.ts'
import { ContinuoError } from '../../errors.ts'
import { inParallel } from '../../parallel.ts'
import { IN_TOPIC, type Manifest, PAGE_BYTES } from '../../state/manifest.ts'
import { readSnapshotFile } from '../../state/snapshot.ts'
import { type EventLog, hasTopic, type PartitionWriter, type StoredRecord } from '../../streams/log.ts'
import { textOf } from '../../text.ts'
import { manifestIn } from '../snapshots/manifests.ts'
import { readSnapshot } from '../snapshots/snapshots.ts'
import { type PartitionState, readPartitionState } from '../worker/partition-state.ts'
import { offsetOf } from './topic.ts'

const AT_A_TIME = 8
/** Of a sha256, with which the key of each part begins. */
const HASH_DIGITS = 64

export interface Amount {
  readonly blobs: number
  readonly bytes: number
}

/** What one partition had. With `dry` nothing was removed that is said to be. */
export interface Collected {
  readonly partition: number
  /** Its folder in the blob store; null: it has none. */
  readonly store: { readonly folder: string; readonly kept: Amount; readonly removed: Amount } | null
  /**
   * Its topic of blobs; null: the log has none. `removed`: records below the lowest that is named; `end`: one past the
   * last.
   */
  readonly topic: {
    readonly kept: Amount
    readonly removed: number
    readonly begin: number
    readonly end: number
  } | null
}

interface Living {
  /** Names in the folder of the partition. */
  readonly names: ReadonlySet<string>
  /** Bytes of each blob in the topic, by its offset. */
  readonly offsets: ReadonlyMap<number, number>
  /** The hashes of those blobs. */
  readonly hashes: ReadonlySet<string>
}

/** What the committed heads name. Throws REFUSED where a manifest cannot be read: then nothing can be called dead. */
const livingIn = async (
  log: EventLog,
  names: TopicNames,
  partition: number,
  { heads }: PartitionState,
): Promise<Living> => {
  const found = { names: new Set<string>(), offsets: new Map<number, number>(), hashes: new Set<string>() }
  const note = ({ store, names: own, sizes, pages }: Manifest): void => {
    const blobs = [
      ...own.flatMap((each, g) => each.map((blob, at) => ({ blob, bytes: sizes[g]![at]! }))),
      ...pages.flat().map((blob) => ({ blob, bytes: PAGE_BYTES })),
    ]
    for (const { blob, bytes } of blobs) {
      if (store === IN_TOPIC) {
        found.offsets.set(offsetOf(blob.place), bytes)
        found.hashes.add(blob.hash)
      } else found.names.add(nameIn(store, blob))
    }
  }
  const named = [...heads.values()].filter(({ snapshot }) => snapshot?.blobs !== undefined)
  await inParallel(named, AT_A_TIME, async (head) => {
    const manifest = await manifestIn(
      log,
      await readSnapshotFile(await readSnapshot(log, names.snapshots, partition, head)),
    )
    if (manifest !== null) note(manifest)
  })
  return found
}

const amountOf = (all: readonly { readonly bytes: number }[]): Amount => ({
  blobs: all.length,
  bytes: all.reduce((sum, { bytes }) => sum + bytes, 0),
})

interface Gc {
  readonly log: EventLog
  readonly names: TopicNames
  /** Only says what would be removed. */
  readonly dry: boolean
  /** Erases what is dead between the living of the topic too, where the log can. Default false. */
  readonly erase?: boolean
}

/** What is listed and not named. Removing begins when the log has said that the partition is still owned. */
const sweepFolder = async (
  { log, dry }: Gc,
  folder: string,
  living: () => Promise<Living>,
  confirm: () => Promise<void>,
): Promise<NonNullable<Collected['store']>> => {
  const store = log.blobs!
  await checkMark(store, folder)
  const listed: { name: string; bytes: number }[] = []
  for await (const each of store.sized(folder)) if (each.name !== markIn(folder)) listed.push(each)
  await confirm()
  const { names } = await living()
  const dead = listed.filter(({ name }) => !names.has(name))
  if (!dry) await inParallel(dead, AT_A_TIME, ({ name }) => store.remove(name))
  return { folder, kept: amountOf(listed.filter(({ name }) => names.has(name))), removed: amountOf(dead) }
}

const trimTopic = async (
  { log, names, dry, erase = false }: Gc,
  partition: number,
  living: () => Promise<Living>,
  confirm: () => Promise<void>,
): Promise<NonNullable<Collected['topic']>> => {
  const { begin, end } = await log.bounds(names.blobs, partition)
  await confirm()
  const { offsets, hashes } = await living()
  let before = end
  for (const offset of offsets.keys()) before = Math.min(before, offset)
  const removed = Math.max(0, before - begin)
  if (!dry && removed > 0) await log.trim(names.blobs, partition, before)
  const isDead = ({ key }: StoredRecord): boolean => key === null || !hashes.has(textOf(key).slice(0, HASH_DIGITS))
  if (!dry && erase) await log.eraser?.erase(names.blobs, partition, isDead)
  const kept = { blobs: offsets.size, bytes: [...offsets.values()].reduce((sum, bytes) => sum + bytes, 0) }
  return { kept, removed, begin, end }
}

/** The group and the topic that a partition of the log belongs to; null: no worker has had it yet. */
export const ownerOf = async (
  log: EventLog,
  names: TopicNames,
  partition: number,
): Promise<{ readonly group: string; readonly topic: string; readonly logId: string | undefined } | null> => {
  const { cursor } = await readPartitionState(log, names, partition, 0)
  return cursor && { group: cursor.group, topic: cursor.topic, logId: cursor.logId }
}

/**
 * Removes what no committed head of the partition names, as its owner; with `dry` it claims nothing and removes
 * nothing. Throws REFUSED for state or manifests that cannot be read, UNAVAILABLE for a store that is away, FENCED when
 * another owner came; then nothing was removed.
 */
export const collectPartition = async (gc: Gc, partition: number): Promise<Collected> => {
  const { log, names, dry } = gc
  const owner = await ownerOf(log, names, partition)
  if (owner === null) return { partition, store: null, topic: null }
  const collect = async (writer: PartitionWriter | null): Promise<Collected> => {
    const state = await readPartitionState(log, names, partition, 0)
    let read: Promise<Living> | null = null
    const living = (): Promise<Living> => (read ??= livingIn(log, names, partition, state))
    const confirm = async (): Promise<void> => writer?.confirm()
    const { logId } = state.cursor ?? owner
    const isNamed = logId !== undefined && log.blobs !== undefined
    const store = isNamed ? await sweepFolder(gc, `${logId}/${partition}`, living, confirm) : null
    return {
      partition,
      store,
      topic: (await hasTopic(log, names.blobs)) ? await trimTopic(gc, partition, living, confirm) : null,
    }
  }
  if (dry) return collect(null)
  const writer = await log.claim(owner.group, owner.topic, partition)
  try {
    return await collect(writer)
  } finally {
    await writer.close()
  }
}

/** What a `doctor` that was killed left of its trials. How many there were. */
export const removeTrials = async (store: SharedStore, dry: boolean): Promise<number> => {
  const left: string[] = []
  for await (const name of store.list('ping')) left.push(name)
  if (!dry) await inParallel(left, AT_A_TIME, (name) => store.remove(name))
  return left.length
}

/** A folder of a partition in a blob store which is none of this log's. */
export interface Orphan extends Amount {
  /** `<log id>/<partition>`. */
  readonly folder: string
  /** The text of its mark: whose it is; null: it has none. */
  readonly mark: string | null
  readonly removed: boolean
}

/**
 * Folders of partitions that no cursor of this log names: of other logs, of logs that are gone, or of a worker that was
 * killed before it could commit the name. Nothing in a store says whether its log still lives, so only those are
 * removed whose names are given. Throws INVALID for a name that is none of them, before anything is removed.
 */
export const orphansOf = async (
  store: SharedStore,
  known: ReadonlySet<string>,
  victims: readonly string[],
): Promise<readonly Orphan[]> => {
  const folders: string[] = []
  for await (const logId of store.folders('')) {
    if (!/^[0-9a-f]{32}$/.test(logId)) continue
    for await (const folder of store.folders(logId))
      if (/\/\d{1,10}$/.test(folder) && !known.has(folder)) folders.push(folder)
  }
  for (const victim of victims)
    if (!folders.includes(victim))
      throw new ContinuoError(
        'INVALID',
        `${JSON.stringify(victim)} is ${known.has(victim) ? 'a folder of this log' : 'no folder of a partition in the blob store'}. Nothing was removed. Expected a name that --orphans lists.`,
      )
  const orphans: Orphan[] = []
  for (const folder of folders.sort()) {
    const all: { name: string; bytes: number }[] = []
    for await (const each of store.sized(folder)) all.push(each)
    const mark = await store.get(markIn(folder))
    const removed = victims.includes(folder)
    const blobs = all.filter(({ name }) => name !== markIn(folder))
    if (removed) {
      // The mark goes last: what a kill leaves over is listed again.
      await inParallel(blobs, AT_A_TIME, ({ name }) => store.remove(name))
      await store.remove(markIn(folder))
      await store.end(folder)
    }
    orphans.push({ folder, mark: mark && Buffer.from(mark).toString('utf8').trim(), ...amountOf(blobs), removed })
  }
  return orphans
}
