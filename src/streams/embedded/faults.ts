/**
 * SQLite's result codes as verdicts. What SQLite says is kept in the sentence and in `cause`; the code says what to do.
 */
import { accessSync, closeSync, constants, existsSync, openSync, rmSync, statfsSync, statSync } from 'node:fs'
import { dirname } from 'node:path'
import { ContinuoError, type ErrorCode } from '../../errors.ts'

const BUSY = 5
const LOCKED = 6
const READONLY = 8
const IO = 10
const CANNOT_OPEN = 14

interface SqliteError extends Error {
  readonly errcode: number
}

const isSqlite = (error: unknown): error is SqliteError =>
  error instanceof Error && 'errcode' in error && typeof error.errcode === 'number'

/** The low byte is the primary code, the rest a refinement (sqlite.org/rescode.html). */
const primary = (error: SqliteError): number => error.errcode & 0xff

export const isBusy = (error: unknown): boolean =>
  isSqlite(error) && (primary(error) === BUSY || primary(error) === LOCKED)

const systemVerdict = (error: Error): ErrorCode | null => {
  const code = 'code' in error ? error.code : null
  if (code === 'EACCES' || code === 'EPERM' || code === 'EROFS') return 'DENIED'
  if (code === 'ENOTDIR' || code === 'EEXIST' || code === 'EISDIR' || code === 'ENAMETOOLONG') return 'INVALID'
  return typeof code === 'string' && /^E[A-Z]+$/.test(code) ? 'UNAVAILABLE' : null
}

/** Space of a log before its first record: a few pages, its write-ahead log, and the index of that in shared memory. */
const LEAST_SPACE = 512 * 1024

const FULL = 'The disk is full, nothing was written: free some space and try again'

/** Bytes that are left where `path` lies or shall lie; Infinity where the file system does not say. */
const spaceAt = (path: string): number => {
  for (let at = path; ; at = dirname(at)) {
    try {
      const { blocks, bavail, bsize } = statfsSync(at)
      return blocks === 0 ? Number.POSITIVE_INFINITY : bavail * bsize
    } catch {
      if (at === dirname(at)) return Number.POSITIVE_INFINITY
    }
  }
}

/**
 * Throws UNAVAILABLE where there is no room for a new log. Looked at before anything is created: an empty file that was
 * left behind could not be removed without the risk that another process has just begun its log in it.
 */
export const checkSpace = (path: string): void => {
  if (!existsSync(path) && spaceAt(path) < LEAST_SPACE)
    throw new ContinuoError('UNAVAILABLE', `${FULL} (while creating the log file ${path}).`)
}

/**
 * A write that a full disk refused, and that SQLite calls a failure: it tells ENOSPC apart for the database alone, not
 * for what lies beside it.
 */
const isFull = (path: string): boolean => spaceAt(path) < LEAST_SPACE

const READ_ONLY =
  'The file system of the log file is read-only: mount it for writing where its disk is well, or choose another path'

/**
 * Whether nothing can be made beside the file because the file system takes no writes any more. Only trying tells:
 * after a fault some are still mounted for writing.
 */
const isReadOnly = (path: string): boolean => {
  const probe = `${path}.${process.pid}.probe`
  try {
    closeSync(openSync(probe, 'wx'))
    rmSync(probe)
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EROFS'
  }
  return false
}

/** Whether SQLite failed because the file system of `path` takes no writes. */
export const isRefusedByDisk = (path: string, error: unknown): boolean =>
  isSqlite(error) && [READONLY, IO, CANNOT_OPEN].includes(primary(error)) && isReadOnly(path)

/** SQLite does not say why it cannot open a file; the file system does. */
const cannotOpen = (path: string, fault: (code: ErrorCode, what: string) => ContinuoError): ContinuoError => {
  try {
    if (statSync(path, { throwIfNoEntry: false })?.isDirectory())
      return fault('INVALID', 'The path names a folder: name a file in it')
    accessSync(dirname(path), constants.W_OK | constants.X_OK)
    if (existsSync(path)) accessSync(path, constants.R_OK | constants.W_OK)
  } catch (reason) {
    if (reason instanceof Error && systemVerdict(reason) === 'DENIED')
      return fault('DENIED', 'This user may not use the log file or its folder: change the permissions')
  }
  if (isFull(path)) return fault('UNAVAILABLE', FULL)
  return fault('UNAVAILABLE', 'The log file cannot be opened: check that its folder is still there')
}

/** `doing` completes "While …": "committing to partition 3". */
export const explain = (path: string, doing: string, error: unknown): ContinuoError => {
  if (error instanceof ContinuoError) return error
  const fault = (code: ErrorCode, what: string): ContinuoError =>
    new ContinuoError(code, `${what} (while ${doing}; log file ${path}: ${(error as Error).message})`, { cause: error })
  if (!(error instanceof Error))
    return new ContinuoError('INTERNAL', `While ${doing}: ${String(error)}`, { cause: error })
  if (!isSqlite(error)) {
    const verdict = systemVerdict(error)
    if ('code' in error && error.code === 'EROFS') return fault('DENIED', READ_ONLY)
    if ('code' in error && (error.code === 'ENOSPC' || error.code === 'EDQUOT')) return fault('UNAVAILABLE', FULL)
    if (verdict === 'DENIED')
      return fault('DENIED', 'This user may not use the log file or its folder: change the permissions')
    if (verdict === 'INVALID')
      return fault('INVALID', 'The path does not name a file that can be created: choose another')
    if (verdict === 'UNAVAILABLE')
      return fault('UNAVAILABLE', 'The log file cannot be reached: check its folder and disk')
    return fault('INTERNAL', 'The embedded log failed')
  }
  if (isRefusedByDisk(path, error)) return fault('DENIED', READ_ONLY)
  switch (primary(error)) {
    case BUSY:
    case LOCKED:
      return fault('UNAVAILABLE', 'Another process kept the log locked for too long: try again, or stop that process')
    case 7:
      return fault('UNAVAILABLE', 'Memory ran out: free some and try again')
    case 13:
      return fault('UNAVAILABLE', FULL)
    case IO:
      if (isFull(path)) return fault('UNAVAILABLE', FULL)
      return fault('UNAVAILABLE', 'The disk failed to read or write: check it, then try again')
    case CANNOT_OPEN:
      return cannotOpen(path, fault)
    case 3:
    case READONLY:
    case 23:
      return fault('DENIED', 'The log file or its folder is read-only for this user: change the permissions')
    case 11:
      return fault(
        'REFUSED',
        'The log file is damaged: stop writing to it and restore it from a copy (sqlite3 FILE .recover may save parts)',
      )
    case 26:
      return fault('REFUSED', 'The file is not a log but something else: choose another path')
    case 18:
      return fault('INVALID', 'The record is larger than SQLite can hold: split it')
    default:
      return fault('INTERNAL', `The embedded log failed with SQLite code ${error.errcode}`)
  }
}
