/**
 * Reads the blobs that a manifest names, and says of each that is missing or damaged what it holds and what is wrong
 * with it.
 */
import type { Wanted } from '../../blobs/store.ts'
import { digest } from '../../bulk.ts'
import type { Manifest, Outline } from '../../state/manifest.ts'
import type { EventLog } from '../../streams/log.ts'
import {
  BlockLost,
  blobsOf,
  checkBlob,
  type NamedBlob,
  type NamedPage,
  pagesIn,
  readerOf,
} from '../snapshots/manifests.ts'

/** What is wrong with it, as a sentence. */
export type Wrong<T> = T & { readonly reason: string }

/** Copies that were read and are right: they need not be read again, whoever names them. */
export type Right = Set<string>

const wrongOf = async <T extends Wanted & Pick<NamedBlob, 'blob' | 'what'>>(
  log: EventLog,
  { store, head }: Pick<Manifest, 'store' | 'head'>,
  named: readonly T[],
  right: Right,
): Promise<readonly Wrong<T>[]> => {
  const keyOf = ({ hash, place }: T): string => `${store}/${hash}.${place}`
  const all = named.filter((each) => !right.has(keyOf(each)))
  if (all.length === 0) return []
  const reader = readerOf(log, { store, head })
  const wrong = new Map<number, Wrong<T>>()
  await reader.get(all, async (at, bytes) => {
    const each = all[at]!
    try {
      await checkBlob(reader, head.session, each.what, each.blob, bytes, (found) => digest([found]))
      right.add(keyOf(each))
    } catch (error) {
      if (!(error instanceof BlockLost)) throw error
      wrong.set(at, { ...each, reason: error.message })
    }
  })
  // In their order, whatever came first.
  return [...wrong].sort(([a], [b]) => a - b).map(([, each]) => each)
}

/** Each blob once, however many blocks it is. Rejects where the store gives no answer. */
export const wrongBlobs = (
  log: EventLog,
  manifest: Manifest,
  right: Right = new Set(),
): Promise<readonly Wrong<NamedBlob>[]> => wrongOf(log, manifest, blobsOf(manifest), right)

/** The same of the pages, which name most of the blobs of a long context. */
export const wrongPages = (
  log: EventLog,
  outline: Outline,
  right: Right = new Set(),
): Promise<readonly Wrong<NamedPage>[]> => wrongOf(log, outline, pagesIn(outline), right)
