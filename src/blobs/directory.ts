/** Blobs in a folder: a name is a path below it. A blob is written under a temporary name, synced and renamed. */
import { mkdir, opendir, readFile, unlink } from 'node:fs/promises'
import { dirname, join, resolve } from 'node:path'
import { ContinuoError } from '../errors.ts'
import { syncFolder, whyNotWritten, writeDurably } from '../files.ts'
import type { SharedStore } from './store.ts'

const isMissing = (error: unknown): boolean => (error as NodeJS.ErrnoException).code === 'ENOENT'

export const openDirectoryStore = (given: string): SharedStore => {
  const root = resolve(given)
  /** Folders that are there, and last. */
  const made = new Map<string, Promise<void>>()

  const failed = (doing: string, error: unknown): ContinuoError => {
    const { code } = error as NodeJS.ErrnoException
    const denied = code === 'EACCES' || code === 'EPERM' || code === 'EROFS'
    return new ContinuoError(
      denied ? 'DENIED' : 'UNAVAILABLE',
      `The blob store ${root} could not be ${doing}: ${whyNotWritten(error)}. Expected a folder that this user can read and write and that has room (--blob-store).`,
      { cause: error },
    )
  }

  const makeFolder = async (folder: string): Promise<void> => {
    const first = await mkdir(folder, { recursive: true })
    if (first === undefined) return
    // Each folder's entry lies in the one above it.
    for (let at = folder; at.length >= first.length; at = dirname(at)) await syncFolder(dirname(at))
  }
  const folderOf = (path: string): Promise<void> => {
    const folder = dirname(path)
    const known = made.get(folder)
    if (known !== undefined) return known
    const making = makeFolder(folder).catch((error: unknown) => {
      made.delete(folder)
      throw failed('written', error)
    })
    made.set(folder, making)
    return making
  }

  return {
    url: root,
    async put(name, bytes) {
      const path = join(root, name)
      await folderOf(path)
      await writeDurably(path, bytes)
    },
    async get(name) {
      try {
        return await readFile(join(root, name))
      } catch (error) {
        if (isMissing(error)) return null
        throw failed('read', error)
      }
    },
    pathOf: (name) => join(root, name),
    async remove(name) {
      try {
        await unlink(join(root, name))
      } catch (error) {
        if (!isMissing(error)) throw failed('written', error)
      }
    },
    async *list(folder) {
      try {
        for await (const entry of await opendir(join(root, folder))) if (entry.isFile()) yield `${folder}/${entry.name}`
      } catch (error) {
        if (!isMissing(error)) throw failed('read', error)
      }
    },
    close() {},
  }
}
