/**
 * Spilling: idle contexts that make room in memory for others, as files in a folder of this process (pages.ts says
 * which). A spill file is no truth: the process that wrote it reads it, and removes it at its end. So it is neither
 * synced nor described in the file; its length and sha256 stay in memory, where they cannot be changed together with
 * the file.
 */
import { mkdtempSync, readdirSync, rmSync, statSync } from 'node:fs'
import { open, rm, utimes, writeFile } from 'node:fs/promises'
import { hostname, tmpdir } from 'node:os'
import { join } from 'node:path'
import { digest, uninitialised } from '../bulk.ts'
import { ContinuoError, messageOf } from '../errors.ts'
import { makeFolder } from '../files.ts'
import { hasEnded, processName } from '../process-name.ts'

export interface SpillFile {
  readonly path: string
  readonly bytes: number
  readonly sha256: string
}

/** A spill file is missing or was changed: the context in it is lost to this process. */
export class SpillLost extends ContinuoError {
  constructor(message: string, options?: { cause?: unknown }) {
    super('REFUSED', message, options)
    this.name = 'SpillLost'
  }
}

export interface SpillFolder {
  /** Where the files lie; made at the first write. */
  readonly dir: string | null
  /** Rejects with DENIED or UNAVAILABLE (a full disk); nothing is left over then. */
  write(state: Uint8Array): Promise<SpillFile>
  /**
   * Rejects with `SpillLost`; `who` names the context in its message. `hash` gives the sha256 of the bytes, and may do
   * more with them while it has them; what it did counts for nothing when the promise rejects.
   */
  read(file: SpillFile, who: string, hash?: (bytes: Uint8Array) => Promise<string>): Promise<Uint8Array>
  drop(file: SpillFile): void
  /** Removes the folder. */
  close(): void
}

/** Part of the folder's name by which the next process finds what a killed one left. */
const PREFIX = 'continuo-pages'
/** How often a process marks its folder as in use, and after how long without a mark nobody uses it any more, ms. */
const BEAT = 60_000
const ABANDONED = 3_600_000

const isRunning = (pid: number): boolean => {
  try {
    process.kill(pid, 0)
    return true
  } catch (error) {
    return (error as NodeJS.ErrnoException).code !== 'ESRCH'
  }
}

/**
 * Whether nobody has the folder any more. `owner`: the name of a process, or its number where that has no name. Of one
 * in another container, or before the machine's last boot, nothing can be told but that it marks its folder no more.
 */
const isLeft = (path: string, host: string, [made, owner]: readonly [host: string, owner: string]): boolean => {
  // An older version marks nothing.
  if (/^\d+$/.test(owner)) return made === host && !isRunning(Number(owner))
  return isOurs(owner) ? hasEnded(owner) : Date.now() - statSync(path).mtimeMs > ABANDONED
}

/** Whether the process is one that this one could see. */
const isOurs = (owner: string): boolean => {
  const placeOf = (name: string): string => name.replace(/-\d+-\d+$/, '')
  return placeOf(owner) === placeOf(processName() ?? '')
}

/** A process that was killed leaves its files; the next one that spills to the same place removes them. */
const sweep = (base: string, host: string): void => {
  for (const name of readdirSync(base)) {
    const [prefix, made, owner] = name.split('~')
    if (prefix !== PREFIX || made === undefined || owner === undefined) continue
    const path = join(base, name)
    try {
      if (isLeft(path, host, [made, owner])) rmSync(path, { recursive: true, force: true })
    } catch {
      // Another user's, or another process removes it at this moment: no reason not to spill.
    }
  }
}

/** Whose files they are, for sentences: what is kept in them, and the flag that names the folder. */
export interface SpillUse {
  readonly what: string
  readonly flag: string
}

const unwritable = ({ what, flag }: SpillUse, path: string, cause: unknown): ContinuoError => {
  const { code } = cause as NodeJS.ErrnoException
  const denied = code === 'EACCES' || code === 'EPERM' || code === 'EROFS' || code === 'ENOTDIR' || code === 'EEXIST'
  return new ContinuoError(
    denied ? 'DENIED' : 'UNAVAILABLE',
    `${what} cannot be written to ${path}: ${messageOf(cause)}. Expected a folder that can be written and has room; free some, or name another folder (${flag}).`,
    { cause },
  )
}

/** The file's size, and its first bytes, at most `bytes`. */
const contentOf = async (
  path: string,
  bytes: number,
): Promise<{ readonly size: number; readonly content: Uint8Array }> => {
  const file = await open(path)
  try {
    const { size } = await file.stat()
    const content = uninitialised(Math.min(size, bytes))
    let at = 0
    while (at < content.length) {
      const { bytesRead } = await file.read(content, at, content.length - at, at)
      if (bytesRead === 0) break
      at += bytesRead
    }
    return { size: at < content.length ? at : size, content: content.subarray(0, at) }
  } finally {
    await file.close()
  }
}

/**
 * A fresh folder for spill files below `base`. Throws DENIED or UNAVAILABLE when `base` is given and cannot be used.
 */
export const openSpillFolder = (base: string | undefined, use: SpillUse): SpillFolder => {
  const host = hostname().replaceAll(/[^\w.-]/g, '_')
  let dir: string | null = null
  let beat: NodeJS.Timeout | undefined
  let count = 0
  let closed = false
  const folder = (): string => {
    if (dir !== null) return dir
    // What is on its way to a file when its owner goes makes no new folder, which nobody would remove.
    if (closed) throw new ContinuoError('MISUSE', 'The folder of spill files is closed.')
    const place = base ?? tmpdir()
    try {
      makeFolder(place)
      sweep(place, host)
      const made = mkdtempSync(join(place, `${PREFIX}~${host}~${processName() ?? process.pid}~`))
      // Where that fails the folder is gone, or will be taken for abandoned: reading says so then.
      beat = setInterval(() => utimes(made, new Date(), new Date()).catch(() => undefined), BEAT).unref()
      dir = made
    } catch (error) {
      throw unwritable(use, place, error)
    }
    return dir
  }
  // A folder that was named is tried at once, not when memory is already short.
  if (base !== undefined) folder()
  return {
    get dir() {
      return dir
    },
    async write(state) {
      const path = join(folder(), `${++count}.page`)
      try {
        // A memory is as private as what was read into it.
        const writing = writeFile(path, state, { flag: 'wx', mode: 0o600 })
        const [sha256] = await Promise.all([digest([state]), writing])
        return { path, bytes: state.length, sha256 }
      } catch (error) {
        await rm(path, { force: true }).catch(() => undefined)
        throw unwritable(use, path, error)
      }
    },
    async read({ path, bytes, sha256 }, who, hash = (content) => digest([content])) {
      const found = await contentOf(path, bytes).catch((cause: unknown) => {
        throw new SpillLost(
          `The spill file of ${who}, ${path}, cannot be read: ${messageOf(cause)}. Its memory is lost here; resume it from its last checkpoint.`,
          { cause },
        )
      })
      const actual = await hash(found.content)
      if (found.size === bytes && actual === sha256) return found.content
      throw new SpillLost(
        `The spill file of ${who}, ${path}, was changed: ${bytes} bytes with sha256 ${sha256.slice(0, 12)}… were written, ${found.size} bytes with ${actual.slice(0, 12)}… are there. Its memory is lost here; resume it from its last checkpoint.`,
      )
    },
    drop({ path }) {
      // It is garbage now, and what cannot be removed goes with the folder.
      rm(path, { recursive: true, force: true }).catch(() => undefined)
    },
    close() {
      closed = true
      clearInterval(beat)
      // Again where a file came meanwhile that was being written.
      if (dir !== null) rmSync(dir, { recursive: true, force: true, maxRetries: 10, retryDelay: 5 })
      dir = null
    },
  }
}
