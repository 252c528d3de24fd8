/**
 * repair: blobs that the newest snapshots name and that are missing or damaged are copied or computed again, and put
 * back under their names. Equal bits make the sha256 of a block the proof that it is the one. What cannot be put back
 * under its name is written anew with its session's snapshot.
 *
 *   wrong blob, in a folder or S3 ──▶ another copy of it, or computed again ──▶ put back; workers may run meanwhile
 *   wrong page, in a folder or S3 ──▶ hashes computed again, places listed ───▶ put back
 *   what is left of these, and in the topic, where a record has another offset when it is written again
 *                                 ──▶ the session is computed again ──▶ a new snapshot, by the partition's owner: no worker may run
 */
import { inShared, nameIn } from '../../blobs/shared.ts'
import type { BlobName } from '../../blobs/store.ts'
import { digest } from '../../bulk.ts'
import { codeOf, messageOf } from '../../errors.ts'
import type { Head } from '../../state/head.ts'
import { withoutHistory } from '../../state/history.ts'
import { IN_TOPIC, type Manifest, type Outline, PAGE_ENTRIES, readOutline } from '../../state/manifest.ts'
import { readSnapshotFile, type SnapshotFile } from '../../state/snapshot.ts'
import { frozenBlocks } from '../snapshots/capture.ts'
import { blobsOf, manifestIn, type NamedBlob, type NamedPage } from '../snapshots/manifests.ts'
import { readSnapshot } from '../snapshots/snapshots.ts'
import { asOwner, type Owned, saveSession, workersOf } from '../worker/owner.ts'
import type { Reading } from '../worker/partition-state.ts'
import { type Wrong, wrongBlobs, wrongPages } from './check.ts'
import { type BaseDeps, type FirstRuns, recomputed } from './repair-base.ts'
import { type Copies, copiesIn, putPage } from './repair-pages.ts'

export interface Repaired {
  readonly session: string
  readonly partition: number
  /**
   * Blobs and pages that its newest snapshot names, each once; those of them that were wrong; and those that are right
   * now.
   */
  readonly blobs: number
  readonly wrong: number
  readonly repaired: number
  /** Its snapshot was written anew. */
  readonly anew: boolean
  /** What was wrong; null: nothing. */
  readonly reason: string | null
  /** Why something stays wrong; null: nothing does. */
  readonly left: string | null
}

export interface RepairDeps extends BaseDeps {
  /** The consumer group that owns the state. */
  readonly group: string
}

/** A session whose snapshot is to be written anew. */
interface Rest {
  readonly seen: Repaired
  readonly head: Head
  /** Blobs that are right and need not be written again. */
  readonly right: readonly BlobName[]
  readonly wanted: FirstRuns
}

type Looked = { readonly seen: Repaired; readonly rest?: Rest }

/** Of each growth with wrong blobs the first run that is wrong. */
const firstRuns = (wrong: readonly NamedBlob[]): FirstRuns => {
  const first = new Map<number, number>()
  for (const { at } of wrong)
    for (const { g, run } of at) first.set(g, Math.min(run, first.get(g) ?? Number.POSITIVE_INFINITY))
  return first
}
const firstOfPages = (wrong: readonly NamedPage[]): FirstRuns => {
  const first = new Map<number, number>()
  for (const { g, page } of wrong) first.set(g, Math.min(page * PAGE_ENTRIES, first.get(g) ?? Number.POSITIVE_INFINITY))
  return first
}

/** Hands out the blocks from these runs on, as the session has them at this head. */
const computed = async (
  deps: RepairDeps,
  partition: number,
  head: Head,
  wanted: FirstRuns,
  take: (block: { readonly g: number; readonly run: number; readonly bytes: Uint8Array }) => Promise<void>,
): Promise<void> => {
  const { context } = await recomputed(deps, partition, head, wanted)
  try {
    const ends = deps.model.layout.growth.map((_, g) => wanted.get(g) ?? Number.POSITIVE_INFINITY)
    for await (const block of frozenBlocks(context, head.conductor.globalStep, ends)) await take(block)
  } finally {
    context.close()
  }
}

/** Why a session cannot be computed; throws what says nothing about it. */
const whyNot = (error: unknown): string => {
  if (!['REFUSED', 'INVALID', 'POSITION'].includes(codeOf(error))) throw error
  return `It cannot be computed again: ${messageOf(error)}`
}

/** Where the snapshot stands, with the reference to it: other snapshots may serve to compute it. */
const targetOf = (file: SnapshotFile, head: Head): Head => ({
  ...withoutHistory(file.head),
  snapshot: head.snapshot,
})

/** Puts back pages in a folder or S3. Those that could not be. */
const mendPages = async (
  deps: RepairDeps,
  partition: number,
  target: Head,
  { store: where }: Outline,
  wrong: readonly Wrong<NamedPage>[],
  copies: Copies,
): Promise<readonly Wrong<NamedPage>[]> => {
  const wanted = firstOfPages(wrong)
  const hashes = deps.model.layout.growth.map((): string[] => [])
  await computed(deps, partition, target, wanted, async ({ g, run, bytes }) => {
    hashes[g]![run] = await digest([bytes])
  })
  const left: Wrong<NamedPage>[] = []
  for (const each of wrong) if (!(await putPage(deps.log.blobs!, where, each, hashes[each.g]!, copies))) left.push(each)
  return left
}

/** Puts back blobs in a folder or S3. Those that could not be. */
const mendBlobs = async (
  deps: RepairDeps,
  partition: number,
  target: Head,
  { store: where }: Manifest,
  wrong: readonly Wrong<NamedBlob>[],
  copies: Copies,
): Promise<readonly Wrong<NamedBlob>[]> => {
  const store = deps.log.blobs!
  const left = new Set(wrong)
  const put = async (each: Wrong<NamedBlob>, bytes: Uint8Array): Promise<void> => {
    await store.put(nameIn(where, each.blob), bytes)
    left.delete(each)
  }
  for (const each of wrong) {
    const places = (copies.get(each.hash) ?? []).filter((place) => place !== each.place)
    const others = places.map((place) => ({ hash: each.hash, place, bytes: each.bytes }))
    await inShared(store, where).get(others, async (_, bytes) => {
      if (left.has(each) && bytes !== null && (await digest([bytes])) === each.hash) await put(each, bytes)
    })
  }
  if (left.size === 0) return []
  await computed(deps, partition, target, firstRuns([...left]), async ({ bytes }) => {
    const hash = await digest([bytes])
    for (const each of [...left]) if (each.hash === hash) await put(each, bytes)
  })
  return [...left]
}

/** Looks at the newest snapshot of a session, and puts back what can be. Rejects where log or store give no answer. */
const look = async (deps: RepairDeps, partition: number, head: Head): Promise<Looked> => {
  const { log, names } = deps
  const { session } = head
  const none: Repaired = {
    ...{ session, partition, blobs: 0, wrong: 0, repaired: 0, anew: false, reason: null, left: null },
  }
  if (head.snapshot?.blobs === undefined) return { seen: none }
  const anew = (seen: Repaired, right: readonly BlobName[], wanted: FirstRuns): Looked => ({
    seen,
    rest: { seen, head, right, wanted },
  })
  const unread = (seen: Repaired, error: unknown): Looked => {
    if (codeOf(error) !== 'REFUSED') throw error
    return anew({ ...seen, reason: messageOf(error) }, [], new Map())
  }
  let file: SnapshotFile
  let outline: Outline | null
  try {
    file = await readSnapshotFile(await readSnapshot(log, names.snapshots, partition, head))
    outline = readOutline(file)
  } catch (error) {
    return unread(none, error)
  }
  if (outline === null) return { seen: none }
  const isInTopic = outline.store === IN_TOPIC
  const target = targetOf(file, head)
  const pages = await wrongPages(log, outline)
  const pagesSeen = { ...none, blobs: outline.pages.flat().length, wrong: pages.length }
  /** Asked for once something is wrong. */
  let copies: Copies | null = null
  const copiesThere = async (): Promise<Copies> => (copies ??= await copiesIn(log.blobs!, outline.store))
  if (pages.length > 0) {
    const seen = { ...pagesSeen, reason: pages[0]!.reason }
    if (isInTopic) return anew(seen, [], firstOfPages(pages))
    try {
      const left = await mendPages(deps, partition, target, outline, pages, await copiesThere())
      const repaired = pages.length - left.length
      if (left.length > 0) return anew({ ...seen, repaired, reason: left[0]!.reason }, [], firstOfPages(left))
    } catch (error) {
      return { seen: { ...seen, left: whyNot(error) } }
    }
  }
  let manifest: Manifest
  try {
    manifest = (await manifestIn(log, file))!
  } catch (error) {
    return unread(pagesSeen, error)
  }
  const all = blobsOf(manifest)
  const wrong = await wrongBlobs(log, manifest)
  const seen: Repaired = {
    ...pagesSeen,
    blobs: pagesSeen.blobs + all.length,
    wrong: pages.length + wrong.length,
    repaired: pages.length,
    reason: pages[0]?.reason ?? wrong[0]?.reason ?? null,
  }
  if (wrong.length === 0) return { seen }
  const isWrong = new Set(wrong.map(({ hash, place }) => `${hash}.${place}`))
  const right = all.map(({ blob }) => blob).filter(({ hash, place }) => !isWrong.has(`${hash}.${place}`))
  if (isInTopic) return anew(seen, right, firstRuns(wrong))
  try {
    const left = await mendBlobs(deps, partition, target, manifest, wrong, await copiesThere())
    const now = { ...seen, repaired: seen.repaired + wrong.length - left.length }
    return left.length === 0 ? { seen: now } : anew(now, right, firstRuns(left))
  } catch (error) {
    return { seen: { ...seen, left: whyNot(error) } }
  }
}

/** Writes the snapshot of a session anew, with whole blobs. */
const renew = async (deps: RepairDeps, owned: Owned, { seen, head, right, wanted }: Rest): Promise<Repaired> => {
  const { partition, state, blobs } = owned
  const now = state.heads.get(head.session)
  if (now?.snapshot?.sha256 !== head.snapshot?.sha256)
    return { ...seen, left: 'The session went on meanwhile. Repair it again.' }
  if (now?.status !== 'open')
    return { ...seen, left: `The session is ${now?.status ?? 'gone'}, so nothing reads its snapshot any more.` }
  try {
    const { context, history } = await recomputed({ ...deps, cancelled: state.cancelled }, partition, now, wanted)
    try {
      blobs?.recall(right)
      await saveSession(owned, { head: now, context, history })
    } finally {
      context.close()
    }
    return { ...seen, repaired: seen.wrong, anew: true }
  } catch (error) {
    return { ...seen, left: whyNot(error) }
  }
}

/**
 * Looks at the newest snapshots of these sessions, and mends them. Rejects where log or store give no answer; what is
 * wrong with one session does not end it.
 */
export async function* repairPartition(
  deps: RepairDeps,
  reading: Reading,
  partition: number,
  heads: Iterable<Head>,
): AsyncGenerator<Repaired> {
  const rests: Rest[] = []
  for (const head of heads) {
    const { seen, rest } = await look(deps, partition, head)
    if (rest === undefined) yield seen
    else rests.push(rest)
  }
  if (rests.length === 0) return
  const workers = await workersOf(deps.log, deps.group, deps.names.chunks)
  if (workers !== null) {
    const left = `Its snapshot must be written anew. ${workers} Stop the workers and repair again; else a worker computes the session again when it comes to what is wrong.`
    for (const { seen } of rests) yield { ...seen, left }
    return
  }
  const done = await asOwner(reading, partition, async (owned) => {
    const all: Repaired[] = []
    for (const rest of rests) all.push(await renew(deps, owned, rest))
    return all
  })
  yield* done
}
