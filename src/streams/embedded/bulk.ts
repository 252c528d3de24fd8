/**
 * Large appends, on a thread with a connection of its own: SQLite copies, checksums and syncs megabytes of snapshot in
 * one call, and on the event loop everything else would wait for it. A log that had one has the commits of its writers
 * there as well. The transaction is the one that the writer itself would run. Logs of small records never start the
 * thread.
 */
import { Worker } from 'node:worker_threads'
import { giveBack, join } from '../../bulk.ts'
import { ContinuoError, type ErrorCode } from '../../errors.ts'
import { beside } from '../../places.ts'
import type { OutRecord } from '../log.ts'
import type { Database, DatabaseOptions } from './database.ts'

/** The owner of an input partition, as its claim says it. */
export interface Owner {
  readonly group: string
  readonly topic: string
  readonly partition: number
  readonly epoch: number
}

export interface BulkData extends DatabaseOptions {
  readonly path: string
  readonly prefix: string
}

export interface BulkRequest {
  readonly id: number
  readonly owner: Owner
  readonly records: readonly OutRecord[]
  readonly inputOffset: number | null
}

/** `values`: those of the request, for others to use. */
export type BulkAnswer = { readonly id: number; readonly values: readonly (Uint8Array | null)[] } & (
  | { readonly offsets: readonly number[] }
  | { readonly code: ErrorCode; readonly message: string }
)

export interface Bulk {
  /**
   * Whether these records are worth the way to the thread. Once it runs, all are: a commit is synced there, and the
   * event loop goes on.
   */
  takes(records: readonly OutRecord[]): boolean
  /** As `commit` of the owner's writer, or with null as its `append`. */
  write(owner: Owner, records: readonly OutRecord[], inputOffset: number | null): Promise<readonly number[]>
  close(): Promise<void>
}

/** Fewer bytes are written at once. */
const BULK_BYTES = 64 * 1024
/**
 * Pages of the write-ahead log after which a commit of this thread moves them to the database; the other thread does it
 * after 1,000.
 */
const CHECKPOINT_PAGES = 8000

interface Waiting {
  readonly resolve: (offsets: readonly number[]) => void
  readonly reject: (error: unknown) => void
}

/** What a message with these values takes along. */
export const buffersOf = (values: readonly (Uint8Array | null)[]): ArrayBuffer[] =>
  values.flatMap((value) => (value?.buffer instanceof ArrayBuffer ? [value.buffer] : []))

const bytesOf = ({ value }: OutRecord): number => value?.length ?? 0

export const openBulk = (db: Database, data: BulkData): Bulk => {
  const waiting = new Map<number, Waiting>()
  let thread: Worker | null = null
  let closed = false
  let last = 0

  const fail = (cause: unknown): void => {
    thread = null
    const error = new ContinuoError('UNAVAILABLE', `The thread that writes to ${data.path} ended: ${String(cause)}.`, {
      cause,
    })
    for (const { reject } of waiting.values()) reject(error)
    waiting.clear()
  }

  const start = (): Worker => {
    if (closed) throw new ContinuoError('MISUSE', `The log ${data.path} is closed. Open it again before writing.`)
    db.prepare(`PRAGMA wal_autocheckpoint = ${CHECKPOINT_PAGES}`).get()
    const worker = new Worker(beside(import.meta.url, 'bulk-thread'), { workerData: data })
    worker.on('message', (answer: BulkAnswer) => {
      const call = waiting.get(answer.id)
      waiting.delete(answer.id)
      giveBack(...answer.values.filter((value) => value !== null))
      if ('offsets' in answer) call?.resolve(answer.offsets)
      else call?.reject(new ContinuoError(answer.code, answer.message))
      // An idle log must not keep the process alive.
      if (waiting.size === 0) worker.unref()
    })
    worker.once('error', fail)
    worker.once('exit', (code) => {
      if (thread === worker) fail(`exit code ${code}`)
    })
    return worker
  }

  return {
    takes: (records) => thread !== null || records.reduce((sum, record) => sum + bytesOf(record), 0) >= BULK_BYTES,
    async write(owner, records, inputOffset) {
      // A message takes the whole buffer that a value lies in, so it gets copies.
      const copied = async (record: OutRecord): Promise<OutRecord> =>
        record.value === null ? record : { ...record, value: await join([record.value]) }
      const copies = await Promise.all(records.map(copied))
      return db.aside(
        () =>
          new Promise((resolve, reject) => {
            thread ??= start()
            const worker = thread
            last += 1
            waiting.set(last, { resolve, reject })
            worker.ref()
            const request: BulkRequest = { id: last, owner, records: copies, inputOffset }
            worker.postMessage(request, buffersOf(copies.map(({ value }) => value)))
          }),
      )
    },
    async close() {
      closed = true
      const worker = thread
      thread = null
      await worker?.terminate()
      if (waiting.size > 0) fail('the log was closed')
    },
  }
}
