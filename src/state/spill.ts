/**
 * Spilling: idle contexts that make room in memory for others, each as a file in a folder of this process. A spill file is no truth:
 * the process that wrote it reads it once, and removes it at its end. So it is neither synced nor described in the file; its length
 * and sha256 stay in memory, where they cannot be changed together with the file.
 *
 * Reading and writing block. A state is copied out of the engine and hashed in the same turn, so a context is at any moment
 * either in memory or in a file, never half of both.
 */
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { hostname, tmpdir } from 'node:os'
import { join } from 'node:path'
import { ContinuoError, messageOf } from '../errors.ts'
import { sha256 as digest } from '../hash.ts'

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
  /** Throws DENIED or UNAVAILABLE (a full disk); nothing is left over then. */
  write(state: Uint8Array): SpillFile
  /** Throws `SpillLost`; `who` names the context in its message. */
  read(file: SpillFile, who: string): Uint8Array
  drop(file: SpillFile): void
  /** Removes the folder. */
  close(): void
}

/** Part of the folder's name by which the next process finds what a killed one left. */
const PREFIX = 'continuo-pages'

const isRunning = (pid: number): boolean => {
  try {
    process.kill(pid, 0)
    return true
  } catch (error) {
    return (error as NodeJS.ErrnoException).code !== 'ESRCH'
  }
}

/** A process that was killed leaves its files; the next one on the same host that spills to the same place removes them. */
const sweep = (base: string, host: string): void => {
  for (const name of readdirSync(base)) {
    const [prefix, owner, pid] = name.split('~')
    if (prefix !== PREFIX || owner !== host || !/^\d+$/.test(pid ?? '') || isRunning(Number(pid))) continue
    try {
      rmSync(join(base, name), { recursive: true, force: true })
    } catch {
      // Another user's, or another process removes it at this moment: no reason not to spill.
    }
  }
}

const unwritable = (path: string, cause: unknown): ContinuoError => {
  const { code } = cause as NodeJS.ErrnoException
  const denied = code === 'EACCES' || code === 'EPERM' || code === 'EROFS' || code === 'ENOTDIR' || code === 'EEXIST'
  return new ContinuoError(
    denied ? 'DENIED' : 'UNAVAILABLE',
    `Contexts cannot be spilled to ${path}: ${messageOf(cause)}. Expected a folder that can be written and has room; free some, or name another folder (--spill-dir).`,
    { cause },
  )
}

/** A fresh folder for spill files below `base`. Throws DENIED or UNAVAILABLE when `base` is given and cannot be used. */
export const openSpillFolder = (base?: string): SpillFolder => {
  const host = hostname().replaceAll(/[^\w.-]/g, '_')
  let dir: string | null = null
  let count = 0
  const folder = (): string => {
    if (dir !== null) return dir
    const place = base ?? tmpdir()
    try {
      mkdirSync(place, { recursive: true })
      sweep(place, host)
      dir = mkdtempSync(join(place, `${PREFIX}~${host}~${process.pid}~`))
    } catch (error) {
      throw unwritable(place, error)
    }
    return dir
  }
  // A folder that was named is tried at once, not when memory is already short.
  if (base !== undefined) folder()
  return {
    get dir() {
      return dir
    },
    write(state) {
      const path = join(folder(), `${++count}.page`)
      try {
        // A memory is as private as what was read into it.
        writeFileSync(path, state, { flag: 'wx', mode: 0o600 })
      } catch (error) {
        rmSync(path, { force: true })
        throw unwritable(path, error)
      }
      return { path, bytes: state.length, sha256: digest(state) }
    },
    read({ path, bytes, sha256 }, who) {
      let state: Uint8Array
      try {
        // Node's Buffer has another `slice` than the array it passes for.
        const { buffer, byteOffset, length } = readFileSync(path)
        state = new Uint8Array(buffer, byteOffset, length)
      } catch (cause) {
        throw new SpillLost(
          `The spill file of ${who}, ${path}, cannot be read: ${messageOf(cause)}. Its memory is lost here; resume it from its last checkpoint.`,
          { cause },
        )
      }
      const actual = digest(state)
      if (state.length === bytes && actual === sha256) return state
      throw new SpillLost(
        `The spill file of ${who}, ${path}, was changed: ${bytes} bytes with sha256 ${sha256.slice(0, 12)}… were written, ${state.length} bytes with ${actual.slice(0, 12)}… are there. Its memory is lost here; resume it from its last checkpoint.`,
      )
    },
    drop({ path }) {
      try {
        rmSync(path, { recursive: true, force: true })
      } catch {
        // It is garbage now, and goes with the folder.
      }
    },
    close() {
      if (dir !== null) rmSync(dir, { recursive: true, force: true })
      dir = null
    },
  }
}
