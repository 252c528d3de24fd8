/**
 * The log file: opened, checked, and entered one transaction at a time.
 *
 * SQLite works synchronously on the event loop, so a transaction never spans an await: within a process there is
 * nothing to interleave, and between processes BEGIN IMMEDIATE takes the file's one write lock. When another process
 * holds it, the wait is asynchronous, for heartbeats and other sessions go on meanwhile.
 */
import { closeSync, fsyncSync, openSync, statSync } from 'node:fs'
import { dirname } from 'node:path'
import { DatabaseSync, type SQLInputValue } from 'node:sqlite'
import { setTimeout as sleep } from 'node:timers/promises'
import { ContinuoError } from '../../errors.ts'
import { makeFolder } from '../../files.ts'
import { type Changes, watchChanges } from './changes.ts'
import { checkSpace, explain, isBusy, isRefusedByDisk } from './faults.ts'
import { APPLICATION_ID, ERASED_VERSION, LAYOUT, LAYOUT_VERSION, PAGE_SIZE, UPGRADE } from './layout.ts'

export interface DatabaseOptions {
  /** How long to wait for another process's transaction, in ms. Default 10,000. */
  readonly patience?: number
  /** The file may not grow beyond this number of pages. For tests of a full disk. */
  readonly maxPages?: number
}

/** A prepared statement whose rows have the given shape. */
export interface Query<Row> {
  get(...values: SQLInputValue[]): Row | undefined
  all(...values: SQLInputValue[]): Row[]
  iterate(...values: SQLInputValue[]): IterableIterator<Row>
  run(...values: SQLInputValue[]): { readonly changes: number | bigint }
}

export interface Database {
  readonly path: string
  /**
   * Fires, with the error, once the path does not lead to the file any more, or its file system takes no writes any
   * more.
   */
  readonly lost: AbortSignal
  readonly changes: Changes
  prepare<Row = unknown>(sql: string): Query<Row>
  /** One snapshot for all that `look` reads. `doing` completes "While …" in errors. */
  read<T>(doing: string, look: () => T): Promise<T>
  /** One ACID transaction, on disk when the promise resolves; undone when `act` throws. Notifies `changes`. */
  write<T>(doing: string, act: () => T): Promise<T>
  /**
   * Waits for `work`, which writes through another connection of this process; no `write` begins meanwhile, for it
   * would wait for the file's lock inside SQLite. Notifies `changes`.
   */
  aside<T>(work: () => Promise<T>): Promise<T>
  close(): void
}

/** Waited for inside SQLite, blocking; the longer rest of the patience is waited for outside. */
const BUSY_TIMEOUT = 10 // ms
const PATIENCE = 10_000 // ms

/** Creates the folder such that a power cut after the first commit does not lose it. */
const createFolder = (folder: string): void => {
  const first = makeFolder(folder)
  if (first === undefined || process.platform === 'win32') return
  for (let at = folder; ; at = dirname(at)) {
    const parent = openSync(dirname(at), 'r')
    try {
      fsyncSync(parent)
    } finally {
      closeSync(parent)
    }
    if (at === first || at === dirname(at)) return
  }
}

type Layout = 'ours' | 'old' | 'empty'

const checkLayout = (db: DatabaseSync, path: string): Layout => {
  const number = (sql: string): number => Number(Object.values(db.prepare(sql).get() ?? {})[0])
  const application = number('PRAGMA application_id')
  const version = number('PRAGMA user_version')
  if (application === 0 && version === 0 && number('SELECT count(*) FROM sqlite_schema') === 0) return 'empty'
  if (application !== APPLICATION_ID)
    throw new ContinuoError(
      'REFUSED',
      `${path} is a database of another program (application id ${application}, not ${APPLICATION_ID}). Choose another path.`,
    )
  if (version === 1) return 'old'
  if (version !== LAYOUT_VERSION && version !== ERASED_VERSION)
    throw new ContinuoError(
      'REFUSED',
      `${path} has layout version ${version}, this Continuo reads versions 1 to ${ERASED_VERSION}. Use the Continuo that wrote it, or choose another path.`,
    )
  return 'ours'
}

const setUp = (db: DatabaseSync, path: string, maxPages: number | undefined): void => {
  db.exec(`PRAGMA busy_timeout = ${BUSY_TIMEOUT}`)
  if (checkLayout(db, path) === 'empty') db.exec(`PRAGMA page_size = ${PAGE_SIZE}`)
  const mode = db.prepare('PRAGMA journal_mode = WAL').get()?.journal_mode
  if (mode !== 'wal')
    throw new ContinuoError(
      'REFUSED',
      `The file system of ${path} has no shared memory for SQLite's write-ahead log. Choose a path on a local disk.`,
    )
  // FULL: a commit is on the disk when it returns. The WAL file is cut back to 64 MiB after a burst.
  db.exec('PRAGMA synchronous = FULL; PRAGMA journal_size_limit = 67108864; PRAGMA cell_size_check = ON')
  db.exec('BEGIN IMMEDIATE') // Also proves that the file can be written.
  try {
    const layout = checkLayout(db, path)
    if (layout === 'old') db.exec(UPGRADE)
    if (layout === 'empty')
      db.exec(`${LAYOUT}; PRAGMA application_id = ${APPLICATION_ID}; PRAGMA user_version = ${LAYOUT_VERSION}`)
    db.exec('COMMIT')
  } catch (error) {
    rollBack(db)
    throw error
  }
  if (maxPages !== undefined) db.exec(`PRAGMA max_page_count = ${maxPages}`)
}

/** SQLite has already rolled back after some faults (disk full, I/O); then there is nothing to undo. */
const rollBack = (db: DatabaseSync): void => {
  try {
    db.exec('ROLLBACK')
  } catch {}
}

/**
 * Throws REFUSED where the path does not lead any more to the file that was opened: SQLite would write on into one that
 * no other process finds.
 */
const sameFile = (path: string, lost: AbortController): (() => void) => {
  const opened = statSync(path)
  return () => {
    const { dev, ino } = statSync(path, { throwIfNoEntry: false }) ?? {}
    if (dev === opened.dev && ino === opened.ino) return
    const error = new ContinuoError(
      'REFUSED',
      `The log file ${path} was ${ino === undefined ? 'removed' : 'replaced by another file'} while it was open here, and nothing more is written. Put it back or restore it, then start again.`,
    )
    lost.abort(error)
    throw error
  }
}

/** Tries until the lock is ours or patience ends. */
const persist = async <T>(path: string, doing: string, patience: number, attempt: () => T): Promise<T> => {
  const deadline = performance.now() + patience
  for (let pause = 1; ; pause = Math.min(2 * pause, 32)) {
    try {
      return attempt()
    } catch (error) {
      if (!isBusy(error) || performance.now() >= deadline) throw explain(path, doing, error)
    }
    await sleep(pause * (0.5 + Math.random()))
  }
}

export const openDatabase = async (path: string, options: DatabaseOptions = {}): Promise<Database> => {
  const patience = options.patience ?? PATIENCE
  const db = await persist(path, 'opening the log', patience, () => {
    checkSpace(path)
    createFolder(dirname(path))
    const opened = new DatabaseSync(path)
    try {
      setUp(opened, path, options.maxPages)
      return opened
    } catch (error) {
      opened.close()
      throw error
    }
  })
  const lost = new AbortController()
  const checkFile = sameFile(path, lost)
  /** What a transaction failed by; the log is lost where its disk takes no writes any more. */
  const causeOf = (error: unknown): unknown => {
    if (!isRefusedByDisk(path, error)) return error
    const refused = new ContinuoError(
      'REFUSED',
      `The file system of the log file ${path} became read-only while it was open here, and nothing more is written. Look at its disk, mount it for writing, then start again.`,
      { cause: error },
    )
    lost.abort(refused)
    return refused
  }
  const prepare = <Row>(sql: string): Query<Row> => db.prepare(sql) as unknown as Query<Row>
  const version = prepare<{ data_version: number }>('PRAGMA data_version')
  const begin = prepare('BEGIN')
  const beginImmediate = prepare('BEGIN IMMEDIATE')
  const commit = prepare('COMMIT')
  const changes = watchChanges(() => version.get()!.data_version)
  let closed = false
  /** Settles when the last call of `aside` is over. */
  let beside: Promise<unknown> | null = null

  const checkOpen = (doing: string): void => {
    if (closed) throw new ContinuoError('MISUSE', `The log ${path} is closed. Open it again before ${doing}.`)
  }

  const transaction = <T>(doing: string, opening: Query<unknown>, act: () => T): Promise<T> =>
    persist(path, doing, patience, () => {
      checkOpen(doing)
      try {
        opening.run()
        checkFile()
        const result = act()
        commit.run()
        return result
      } catch (error) {
        rollBack(db)
        throw causeOf(error)
      }
    })

  return {
    path,
    lost: lost.signal,
    changes,
    prepare,
    read: (doing, look) => transaction(doing, begin, look),
    aside: async (work) => {
      while (beside !== null) await beside
      checkOpen('writing')
      const working = work()
      const over = working.then(
        () => undefined,
        () => undefined,
      )
      beside = over
      try {
        return await working
      } finally {
        if (beside === over) beside = null
        changes.notify()
      }
    },
    write: async (doing, act) => {
      while (beside !== null) await beside
      const result = await transaction(doing, beginImmediate, act)
      changes.notify()
      return result
    },
    close: () => {
      if (closed) return
      closed = true
      changes.close()
      db.close()
    },
  }
}
