/**
 * Garbage in the topic of the partition (blobs/garbage.ts has the order). A topic loses only what lies before all that
 * lives, so
 *
 * - it is *trimmed* below the lowest living place;
 * - where the living lie in the way, the lowest of them are *moved*: copied to the end, and the manifests that name
 *   them are written again with the new places. The old ones stay until those manifests are committed; the next look
 *   finds nothing below and trims.
 *
 * A look reads every manifest, so it comes when the topic has grown by as much as lived at the last one, or when
 * sessions that were reset or closed named more than the others do. Only blobs before half of the dead ones are moved,
 * and only when more is dead than alive. So reading and copying cost a fixed share of what is written, and the topic
 * holds two to four times what lives at most, or `floor` more.
 */
import type { BlobName, Wanted } from '../../blobs/store.ts'
import { digest } from '../../bulk.ts'
import { failpoint } from '../../failpoint.ts'
import { PAGE_BYTES, withNames } from '../../state/manifest.ts'
import { readSnapshotFile } from '../../state/snapshot.ts'
import { manifestIn } from '../snapshots/manifests.ts'
import { createGarbage, type Garbage, type GarbageDeps, readManifests, type Stage, type Work } from './garbage.ts'
import { offsetOf, placeOf, type TopicStore } from './topic.ts'

/** Bytes of manifests written again between two commits. */
const RENEW_BYTES = 512 * 1024

/** What manifests name: the blobs by their offsets, and the sessions by theirs. */
interface Named {
  readonly blobs: ReadonlyMap<number, Wanted>
  readonly sessions: ReadonlyMap<string, readonly number[]>
}

export const createTrim = (deps: GarbageDeps, store: TopicStore): Garbage => {
  const { writer, blobs, floor, living, renew } = deps
  const state = { stopped: false }
  /** Bytes that count as living: those of the last look. */
  let counted: number | null = null
  /** The look before moved blobs, and this one is there to trim. */
  let moved = false
  /** Offsets of blobs that are missing or damaged: nothing is kept for them. */
  const lost = new Set<number>()

  const perOffset = blobs.blockBytes / store.offsetsOf(blobs.blockBytes)
  const total = (): number => (store.end - store.begin) * perOffset
  const isWorth = (dead: number, alive: number): boolean => dead > Math.max(floor, alive)

  /** Dead bytes that were counted when the look began: it takes note of these, and of none that die meanwhile. */
  let seen = 0
  const begin: Stage = async () => {
    blobs.forgetOthers()
    seen = blobs.dead.bytes
    return look
  }

  const look: Work = async () => {
    const bound = await store.bound()
    return async () => {
      await writer.confirm()
      return () => read(bound)
    }
  }

  const read = async (bound: number): Promise<Stage> => {
    const found = new Map<number, Wanted>()
    const sessions = new Map<string, readonly number[]>()
    await readManifests(deps, (session, { names, pages, sizes }) => {
      for (const [g, own] of names.entries())
        for (const [i, { hash, place }] of own.entries())
          found.set(offsetOf(place), { hash, place, bytes: sizes[g]![i]! })
      for (const page of pages.flat()) found.set(offsetOf(page.place), { ...page, bytes: PAGE_BYTES })
      sessions.set(
        session,
        [...names.flat(), ...pages.flat()].map(({ place }) => offsetOf(place)),
      )
    })
    for (const offset of lost) found.delete(offset)
    return async () => decide(bound, { blobs: found, sessions })
  }

  const decide = (bound: number, named: Named): Work | null => {
    const living = new Set(named.blobs.keys())
    for (const { place } of blobs.noted()) living.add(offsetOf(place))
    for (const { place } of deps.captured()) living.add(offsetOf(place))
    failpoint('blobs.swept')
    blobs.dead.add(-seen)
    blobs.retain((place) => living.has(offsetOf(place)))
    const ordered = [...named.blobs].sort(([a], [b]) => a - b)
    const alive = ordered.reduce((sum, [, { bytes }]) => sum + store.offsetsOf(bytes), 0)
    const dead = Math.max(0, bound - store.begin - alive)
    let lowest = bound
    for (const offset of living) lowest = Math.min(lowest, offset)
    const free = lowest - store.begin
    const wasMoved = moved
    moved = false
    if (free > 0 && free * perOffset >= Math.min(floor, dead * perOffset) / 2) {
      counted = alive * perOffset
      store.leave(lowest)
      return async () => {
        await store.trim()
        failpoint('blobs.removed')
        return null
      }
    }
    if (!wasMoved && isWorth(dead * perOffset, alive * perOffset)) return move(named, ordered, dead)
    counted = total()
    return null
  }

  /** Those before half of the dead, to the end. */
  const move =
    (named: Named, ordered: readonly (readonly [number, Wanted])[], dead: number): Work =>
    async () => {
      const victims: Wanted[] = []
      let before = 0
      for (const [offset, blob] of ordered) {
        if (offset - store.begin - before >= dead / 2) break
        before += store.offsetsOf(blob.bytes)
        victims.push(blob)
      }
      const places = new Map<string, BlobName>()
      await store.get(victims, async (at, bytes) => {
        const { hash, place } = victims[at]!
        if (state.stopped) return
        // Who needs it is told when its session is rebuilt.
        if (bytes === null || (await digest([bytes])) !== hash) lost.add(offsetOf(place))
        else places.set(place, { hash, place: await store.put(hash, bytes) })
      })
      failpoint('blobs.moved')
      return async () => {
        blobs.move(places)
        const sessions = [...named.sessions].filter(([, offsets]) => offsets.some((at) => places.has(placeOf(at))))
        return rename(
          sessions.map(([id]) => id),
          places,
        )
      }
    }

  /** Some at a time: each commit names those that were written since the last. */
  const rename = async (sessions: string[], places: ReadonlyMap<string, BlobName>): Promise<Work | null> => {
    let bytes = 0
    while (sessions.length > 0 && bytes < RENEW_BYTES)
      bytes += await renew(sessions.shift()!, async (file) => {
        const read = await readSnapshotFile(file)
        const manifest = await manifestIn(deps.log, read)
        if (manifest?.store !== blobs.where) return null
        const moved = manifest.names.map((own) => own.map((blob) => ({ ...blob, ...places.get(blob.place) })))
        return withNames(read, moved, await blobs.paged(moved))
      })
    if (sessions.length > 0) return async () => () => rename(sessions, places)
    moved = true
    return null
  }

  return createGarbage(
    deps,
    {
      isDue() {
        counted ??= Math.min(total(), living().bytes)
        return moved || isWorth(total() - counted, counted) || isWorth(blobs.dead.bytes, living().bytes)
      },
      begin,
    },
    state,
  )
}
