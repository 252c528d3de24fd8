/**
 * Reading much, on threads with connections of their own: SQLite takes a second or two for a gigabyte of blobs, and on
 * the event loop everything else would wait for it. What was read comes over without a copy.
 */
import { Worker } from 'node:worker_threads'
import { ContinuoError, type ErrorCode } from '../../errors.ts'
import { beside } from '../../places.ts'
import type { Batch } from '../log.ts'
import type { BulkData } from './bulk.ts'
import type { Batches, BatchRequest } from './read.ts'

export interface ReadRequest extends BatchRequest {
  readonly id: number
}

export type ReadAnswer =
  | { readonly id: number; readonly batch: Batch }
  | { readonly id: number; readonly code: ErrorCode; readonly message: string }

export interface Readers {
  readonly batches: Batches
  close(): Promise<void>
}

/** One alone would keep the others that hash and place waiting. */
const THREADS = 2

interface Waiting {
  readonly resolve: (batch: Batch) => void
  readonly reject: (error: unknown) => void
}

interface Reader {
  readonly worker: Worker
  readonly waiting: Map<number, Waiting>
}

export const openReaders = (data: BulkData): Readers => {
  const readers = new Set<Reader>()
  let closed = false
  let last = 0

  const fail = (reader: Reader, cause: unknown): void => {
    readers.delete(reader)
    const error = new ContinuoError('UNAVAILABLE', `A thread that reads ${data.path} ended: ${String(cause)}.`, {
      cause,
    })
    for (const { reject } of reader.waiting.values()) reject(error)
    reader.waiting.clear()
  }

  const start = (): Reader => {
    if (closed) throw new ContinuoError('MISUSE', `The log ${data.path} is closed. Open it again before reading.`)
    const worker = new Worker(beside(import.meta.url, 'read-thread'), { workerData: data })
    const reader: Reader = { worker, waiting: new Map() }
    readers.add(reader)
    worker.on('message', (answer: ReadAnswer) => {
      const call = reader.waiting.get(answer.id)
      reader.waiting.delete(answer.id)
      if ('batch' in answer) call?.resolve(answer.batch)
      else call?.reject(new ContinuoError(answer.code, answer.message))
      // An idle log must not keep the process alive.
      if (reader.waiting.size === 0) worker.unref()
    })
    worker.once('error', (error) => fail(reader, error))
    worker.once('exit', (code) => {
      if (readers.has(reader)) fail(reader, `exit code ${code}`)
    })
    return reader
  }

  /** One that is idle; a new one; or the one with the least to do. */
  const choose = (): Reader => {
    const [idlest] = [...readers].sort((a, b) => a.waiting.size - b.waiting.size)
    return idlest !== undefined && (idlest.waiting.size === 0 || readers.size === THREADS) ? idlest : start()
  }

  return {
    batches: (request) =>
      new Promise((resolve, reject) => {
        const { worker, waiting } = choose()
        last += 1
        waiting.set(last, { resolve, reject })
        worker.ref()
        const asked: ReadRequest = { id: last, ...request }
        worker.postMessage(asked)
      }),
    async close() {
      closed = true
      const all = [...readers]
      readers.clear()
      await Promise.all(all.map(({ worker }) => worker.terminate()))
      for (const reader of all) if (reader.waiting.size > 0) fail(reader, 'the log was closed')
    },
  }
}
