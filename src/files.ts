/**
 * Files of bounded size, and durable files: after `writeDurably` the path holds all of the new bytes, or what it held
 * before; also after a power cut.
 */
import { constants, mkdirSync, type Stats, statSync } from 'node:fs'
import { copyFile, type FileHandle, open, rename, unlink } from 'node:fs/promises'
import { dirname } from 'node:path'
import { ContinuoError } from './errors.ts'

/** What is no file: nothing says how long it is, or its reader would wait for a writer. */
const kindOf = (stats: Stats): string =>
  stats.isDirectory() ? 'a folder' : stats.isFIFO() ? 'a pipe' : stats.isSocket() ? 'a socket' : 'a device'

/** A pipe without a writer would keep the opening waiting otherwise. */
const openAtOnce = (path: string): Promise<FileHandle> => open(path, constants.O_RDONLY | (constants.O_NONBLOCK ?? 0))

/**
 * The first bytes of a file, `most` of them where it has so many; null: it is no file. Rejects with Node's own error
 * where it cannot be opened.
 */
export const firstBytes = async (path: string, most: number): Promise<Uint8Array | null> => {
  const file = await openAtOnce(path)
  try {
    if (!(await file.stat()).isFile()) return null
    const { buffer, bytesRead } = await file.read({ buffer: Buffer.alloc(most), position: 0 })
    return buffer.subarray(0, bytesRead)
  } finally {
    await file.close()
  }
}

/**
 * All bytes of a file. Throws INVALID, naming the path, for one of more than `most` bytes and for what is no file;
 * rejects with Node's own error where it cannot be opened.
 */
export const readBounded = async (path: string, most: number): Promise<Buffer> => {
  const file = await openAtOnce(path)
  try {
    const stats = await file.stat()
    if (!stats.isFile())
      throw new ContinuoError(
        'INVALID',
        `${path} is ${kindOf(stats)}, expected a file. Take the file from the package that the model came with.`,
      )
    if (stats.size > most)
      throw new ContinuoError(
        'INVALID',
        `${path} has ${stats.size} bytes, expected at most ${most}. Take the file from the package that the model came with.`,
      )
    return await file.readFile()
  } finally {
    await file.close()
  }
}

/** Makes what was renamed into the folder last. */
export const syncFolder = async (folder: string): Promise<void> => {
  // Windows does not open folders; there the rename itself is all there is.
  if (process.platform === 'win32') return
  const handle = await open(folder, 'r')
  try {
    await handle.sync()
  } finally {
    await handle.close()
  }
}

/**
 * Makes a folder and those above it that are missing; returns the first that it made. Node's own `recursive` never ends
 * where a file system has no place for folders and says ENOENT, as /proc does.
 */
export const makeFolder = (path: string): string | undefined => {
  const made = (): string | undefined => {
    try {
      mkdirSync(path)
      return path
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'EEXIST' && statSync(path).isDirectory()) return undefined
      throw error
    }
  }
  try {
    return made()
  } catch (error) {
    const above = dirname(path)
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT' || above === path) throw error
    const first = makeFolder(above)
    return made() === undefined ? first : (first ?? path)
  }
}

/** Writes a new file and syncs it. Rejects with Node's own error, EEXIST where the path is taken. */
export const writeSynced = async (path: string, bytes: Uint8Array | string): Promise<void> => {
  const handle = await open(path, 'wx')
  try {
    await handle.writeFile(bytes)
    await handle.sync()
  } finally {
    await handle.close()
  }
}

/** Copies a file of any size to a new one and syncs it. Rejects as `writeSynced`. */
export const copySynced = async (from: string, to: string): Promise<void> => {
  await copyFile(from, to, constants.COPYFILE_EXCL)
  const handle = await open(to, 'r+')
  try {
    await handle.sync()
  } finally {
    await handle.close()
  }
}

/** Why a file could not be written, for a sentence. */
export const whyNotWritten = (error: unknown): string => {
  const { code, message } = error as NodeJS.ErrnoException
  return code === 'ENOSPC' || code === 'EDQUOT' ? 'the disk is full; free some space' : message
}

/** Writes a temporary file beside the path, syncs it, renames it, syncs the folder. Throws UNAVAILABLE or DENIED. */
export const writeDurably = async (path: string, bytes: Uint8Array): Promise<void> => {
  const temporary = `${path}.${process.pid}.tmp`
  try {
    await writeSynced(temporary, bytes)
    await rename(temporary, path)
    await syncFolder(dirname(path))
  } catch (error) {
    await unlink(temporary).catch(() => {})
    const { code } = error as NodeJS.ErrnoException
    const denied = code === 'EACCES' || code === 'EPERM' || code === 'EROFS'
    throw new ContinuoError(
      denied ? 'DENIED' : 'UNAVAILABLE',
      `${path} could not be written: ${whyNotWritten(error)}.`,
      { cause: error },
    )
  }
}
