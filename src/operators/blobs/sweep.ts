/**
 * Garbage in a store where blobs are listed and removed by their names (blobs/garbage.ts has the order). Listing and
 * reading cost requests, so a sweep begins only when more is dead than alive. The first look of a task, at garbage of
 * crashes, lists and goes on only where that is so, or cannot be told: heads say how many blobs each names, and not
 * which of them are the same. Where a list has fewer blobs than the heads name together, some are shared, and only
 * manifests say how many. What a look has counted holds for later ones.
 */

import { nameIn } from '../../blobs/shared.ts'
import { failpoint } from '../../failpoint.ts'
import { inParallel } from '../../parallel.ts'
import type { Removal } from './blobs.ts'
import { createGarbage, type Garbage, type GarbageDeps, readManifests, type Stage, type Work } from './garbage.ts'

const AT_A_TIME = 8

export const createSweep = (deps: GarbageDeps, { store, folder }: Extract<Removal, { by: 'name' }>): Garbage => {
  const { writer, blobs, floor, living } = deps
  const state = { stopped: false }
  let looked = false
  /** Dead bytes that were counted when the look began: it takes note of these, and of none that die meanwhile. */
  let seen = 0
  /** The part of the named bytes that is left when each blob is counted once, as of the last reading of manifests. */
  let distinct = 1

  const isWorth = (bytes: number): boolean => bytes > Math.max(floor, living().bytes * distinct)
  /** Bytes that were named, counted likewise. */
  const dead = (): number => blobs.dead.bytes * distinct

  const list: Work = async () => {
    const listed: string[] = []
    for await (const name of store.list(folder)) if (/\/[0-9a-f]{64}\./.test(name)) listed.push(name)
    const unnamed = listed.length - living().count
    const isShared = unnamed < 0 && listed.length * blobs.blockBytes > floor
    if (!isShared && !isWorth(Math.max(unnamed * blobs.blockBytes, dead()))) return null
    return async () => {
      await writer.confirm()
      return () => read(listed)
    }
  }

  const read = async (listed: readonly string[]): Promise<Stage> => {
    const keep = new Set<string>()
    let named = 0
    await readManifests(deps, (_, { names, pages }) => {
      const own = new Set([...names.flat(), ...pages.flat()].map((blob) => nameIn(folder, blob)))
      named += own.size
      for (const name of own) keep.add(name)
    })
    distinct = named === 0 ? 1 : keep.size / named
    return async () => {
      for (const blob of blobs.held()) keep.add(nameIn(folder, blob))
      for (const blob of deps.captured()) keep.add(nameIn(folder, blob))
      failpoint('blobs.swept')
      blobs.dead.add(-seen)
      // What is about to be removed is given to no session, whoever left memory meanwhile.
      blobs.forgetOthers()
      return () => remove(listed.filter((name) => !keep.has(name)))
    }
  }

  const remove = async (victims: readonly string[]): Promise<null> => {
    await inParallel(victims, AT_A_TIME, async (name) => {
      if (state.stopped) return
      await store.remove(name)
      failpoint('blobs.removed')
    })
    return null
  }

  return createGarbage(
    deps,
    {
      isDue: () => !looked || isWorth(dead()),
      begin: async () => {
        looked = true
        seen = blobs.dead.bytes
        blobs.forgetOthers()
        return list
      },
    },
    state,
  )
}
