import { ContinuoError } from '../errors.ts'
import { openDirectoryStore } from './directory.ts'
import type { BlobStore } from './store.ts'

/** Opens a store of blobs by its name: a folder. Throws INVALID for another form. */
export const openBlobStore = async (name: string): Promise<BlobStore> => {
  const scheme = /^([a-z][a-z0-9+.-]+):/i.exec(name)?.[1]
  if (scheme === undefined) return openDirectoryStore(name)
  throw new ContinuoError(
    'INVALID',
    `A blob store is a folder, and "${scheme}:" is the beginning of something else. Try --blob-store /var/lib/continuo/blobs.`,
  )
}
