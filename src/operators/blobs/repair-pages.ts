/**
 * Pages of a manifest that are missing or damaged. A page holds the sha256 of 256 blocks, which the session's events
 * give again, and the place of each, which is a random number: it stands in the name of the blob, in the folder of the
 * partition. The sha256 of the page is the proof.
 */
import { nameIn } from '../../blobs/shared.ts'
import type { BlobName, SharedStore } from '../../blobs/store.ts'
import { digest } from '../../bulk.ts'
import { PAGE_ENTRIES, pageBytes } from '../../state/manifest.ts'
import type { NamedPage } from '../snapshots/manifests.ts'
import type { Wrong } from './check.ts'

/** Pages that are tried where blocks have more than one copy. */
const MOST_TRIES = 4096

/** Places of the copies that a folder has, by their sha256. */
export type Copies = ReadonlyMap<string, readonly string[]>

export const copiesIn = async (store: SharedStore, folder: string): Promise<Copies> => {
  const found = new Map<string, string[]>()
  for await (const name of store.list(folder)) {
    const [, hash, place] = /\/([0-9a-f]{64})\.([0-9a-f]{16})$/.exec(name) ?? []
    if (hash === undefined) continue
    const known = found.get(hash)
    if (known === undefined) found.set(hash, [place!])
    else known.push(place!)
  }
  return found
}

/**
 * Every choice of one place for each hash, MOST_TRIES of them at most. Blocks with the same bytes have the same place.
 */
function* choices(hashes: readonly string[], copies: Copies): Generator<readonly BlobName[]> {
  const distinct = [...new Set(hashes)]
  const chosen = new Map(distinct.map((hash) => [hash, 0]))
  for (let tries = 0; tries < MOST_TRIES; tries += 1) {
    yield hashes.map((hash) => ({ hash, place: copies.get(hash)![chosen.get(hash)!]! }))
    let at = 0
    for (; at < distinct.length; at += 1) {
      const hash = distinct[at]!
      const next = chosen.get(hash)! + 1
      if (next < copies.get(hash)!.length) {
        chosen.set(hash, next)
        break
      }
      chosen.set(hash, 0)
    }
    if (at === distinct.length) return
  }
}

/** `hashes`: of all blocks of its growth, in order. Whether the page was put back. */
export const putPage = async (
  store: SharedStore,
  folder: string,
  { blob, page }: Wrong<NamedPage>,
  hashes: readonly string[],
  copies: Copies,
): Promise<boolean> => {
  const own = hashes.slice(page * PAGE_ENTRIES, (page + 1) * PAGE_ENTRIES)
  if (own.length < PAGE_ENTRIES || own.some((hash) => !copies.has(hash))) return false
  for (const names of choices(own, copies)) {
    const bytes = pageBytes(names)
    if ((await digest([bytes])) !== blob.hash) continue
    await store.put(nameIn(folder, blob), bytes)
    return true
  }
  return false
}
