/**
 * The blobs of one partition in a store that others share: in a folder of their own, each under `<sha256>.<place>`. The
 * place is a random number of each copy, so a name is written once and never again: what a sweep found dead cannot come
 * to life under its hands. (The number of the claim would not do: one owner may write the same bytes again after it
 * found them dead.)
 *
 * Every such folder has a *mark*. A blob that is missing is lost only where the mark is there. Without the mark the
 * store is away, or it is another store, and nothing can be said of any blob.
 */
import { randomBytes } from 'node:crypto'
import { ContinuoError } from '../errors.ts'
import { inParallel } from '../parallel.ts'
import type { BlobName, BlobStore, SharedStore } from './store.ts'

/** Transfers at a time: enough for a disk or a network, and few blocks in memory. */
const READS = 16

export const nameIn = (folder: string, { hash, place }: BlobName): string => `${folder}/${hash}.${place}`

/** The name of the mark, a small blob. */
export const markIn = (folder: string): string => `${folder}/log`

/** Rejects with UNAVAILABLE where the folder has no mark. `whose`: the folder, for people. */
export const checkMark = async (store: SharedStore, folder: string, whose?: string): Promise<void> => {
  if ((await store.get(markIn(folder))) !== null) return
  throw new ContinuoError(
    'UNAVAILABLE',
    `The blob store ${store.url} is away, or it is another store than the one that the workers before used: it has no ${markIn(folder)}${whose === undefined ? '' : `, the mark of ${whose}`}. Nothing was changed. Mount it, bring its content back, or name the right one (--blob-store).`,
  )
}

export const inShared = (store: SharedStore, folder: string): BlobStore => {
  const read = async (name: string): Promise<Uint8Array | null> => {
    const bytes = await store.get(name)
    if (bytes !== null) return bytes
    await checkMark(store, folder)
    // It may have come back in between.
    return store.get(name)
  }
  return {
    url: store.url,
    async put(hash, bytes) {
      const place = randomBytes(8).toString('hex')
      await store.put(nameIn(folder, { hash, place }), bytes)
      return place
    },
    async get(wanted, found) {
      await inParallel(wanted, READS, async (blob, at) => found(at, await read(nameIn(folder, blob))))
    },
    ...(store.pathOf && { pathOf: (blob: BlobName) => store.pathOf!(nameIn(folder, blob)) }),
  }
}
