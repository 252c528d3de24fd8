import { randomBytes } from 'node:crypto'
import { ContinuoError } from '../errors.ts'
import { openDirectoryStore } from './directory.ts'
import type { SharedStore } from './store.ts'

/**
 * The folder of `file:PATH`, in the form that the URL of a log has: relative, absolute, or behind `//` and an empty or
 * local host.
 */
const folderIn = (url: string): string => {
  const [, path] = /^file:(?:\/\/(?:localhost)?(?=\/))?([^?#]+)$/i.exec(url) ?? []
  try {
    if (path !== undefined && !path.startsWith('//')) return decodeURIComponent(path)
  } catch {
    // A % that begins no character.
  }
  throw new ContinuoError(
    'INVALID',
    'The blob store begins with file: and is not of the form file:FOLDER, with ?, # and % as %3F, %23 and %25. Try --blob-store /var/lib/continuo/blobs.',
  )
}

/**
 * Opens a store of blobs by its name: a folder, also as `file:FOLDER`, or `s3://bucket[/prefix]`. Throws INVALID for
 * another form.
 */
export const openBlobStore = async (name: string): Promise<SharedStore> => {
  const scheme = /^([a-z][a-z0-9+.-]+):/i.exec(name)?.[1]?.toLowerCase()
  if (scheme === undefined) return openDirectoryStore(name)
  if (scheme === 'file') return openDirectoryStore(folderIn(name))
  if (scheme === 's3') {
    // Loaded only here: it takes as long to load as the rest of the program.
    const { openS3Store } = await import('./s3.ts')
    return openS3Store(name)
  }
  throw new ContinuoError(
    'INVALID',
    `A blob store is a folder, file:FOLDER or s3://bucket/prefix, and "${scheme}:" is the beginning of something else. Try --blob-store /var/lib/continuo/blobs.`,
  )
}

/** Writes, reads and removes a blob. Throws UNAVAILABLE or DENIED where one of them cannot be done. */
export const tryBlobStore = async (store: SharedStore): Promise<void> => {
  const name = `ping/${randomBytes(8).toString('hex')}`
  await store.begin('ping')
  await store.put(name, new Uint8Array(1))
  await store.get(name)
  for await (const _ of store.list('ping')) break
  await store.remove(name)
}
