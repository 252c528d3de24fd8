/** Blobs in a folder: a name is a path below it. A blob is written under a temporary name, synced and renamed. */
import type { Dirent } from 'node:fs'
import { opendir, readFile, rmdir, stat, unlink } from 'node:fs/promises'
import { dirname, join, resolve } from 'node:path'
import { ContinuoError } from '../errors.ts'
import { makeFolder, syncFolder, whyNotWritten, writeDurably } from '../files.ts'
import type { SharedStore } from './store.ts'

const isMissing = (error: unknown): boolean => (error as NodeJS.ErrnoException | undefined)?.code === 'ENOENT'

export const openDirectoryStore = (given: string): SharedStore => {
  const root = resolve(given)

  const failed = (doing: string, error: unknown): ContinuoError => {
    const { code } = error as NodeJS.ErrnoException
    const denied = code === 'EACCES' || code === 'EPERM' || code === 'EROFS'
    return new ContinuoError(
      denied ? 'DENIED' : 'UNAVAILABLE',
      `The blob store ${root} could not be ${doing}: ${whyNotWritten(error)}. Expected a folder that this user can read and write and that has room (--blob-store).`,
      { cause: error },
    )
  }

  const makeLasting = async (folder: string): Promise<void> => {
    const first = makeFolder(folder)
    if (first === undefined) return
    // Each folder's entry lies in the one above it.
    for (let at = folder; at.length >= first.length; at = dirname(at)) await syncFolder(dirname(at))
  }

  async function* entriesIn(folder: string): AsyncGenerator<Dirent> {
    try {
      yield* await opendir(join(root, folder))
    } catch (error) {
      if (!isMissing(error)) throw failed('read', error)
    }
  }

  async function* list(folder: string): AsyncGenerator<string> {
    for await (const entry of entriesIn(folder)) if (entry.isFile()) yield `${folder}/${entry.name}`
  }

  return {
    url: root,
    async begin(folder) {
      try {
        await makeLasting(join(root, folder))
      } catch (error) {
        throw failed('written', error)
      }
    },
    async put(name, bytes) {
      const path = join(root, name)
      await writeDurably(path, bytes).catch((error: Error) => {
        if (!isMissing(error.cause)) throw error
        throw new ContinuoError(
          'UNAVAILABLE',
          `The blob store ${root} is away: it has no folder ${dirname(name)}. Nothing was written. Mount it, or bring its content back (--blob-store).`,
          { cause: error },
        )
      })
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
    list,
    async *sized(folder) {
      for await (const name of list(folder)) {
        try {
          yield { name, bytes: (await stat(join(root, name))).size }
        } catch (error) {
          // It was removed meanwhile.
          if (!isMissing(error)) throw failed('read', error)
        }
      }
    },
    async *folders(folder) {
      for await (const entry of entriesIn(folder))
        if (entry.isDirectory()) yield folder === '' ? entry.name : `${folder}/${entry.name}`
    },
    async end(folder) {
      for (let at = folder; at !== '.' && at !== ''; at = dirname(at)) {
        try {
          await rmdir(join(root, at))
        } catch (error) {
          // Another partition of the log has its folder there.
          if ((error as NodeJS.ErrnoException).code === 'ENOTEMPTY') return
          if (!isMissing(error)) throw failed('written', error)
        }
      }
    },
    close() {},
  }
}
