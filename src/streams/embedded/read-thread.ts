/** A thread of readers.ts: batches, one after the other. */
import { parentPort, workerData } from 'node:worker_threads'
import { codeOf, type ErrorCode, messageOf } from '../../errors.ts'
import type { BulkData } from './bulk.ts'
import { hideSqliteWarning } from './quiet.ts'
import { openBatches } from './read.ts'
import type { ReadAnswer, ReadRequest } from './readers.ts'
import { openRecords } from './records.ts'
import { openTopics } from './topics.ts'

hideSqliteWarning()
const { openDatabase } = await import('./database.ts')

const { path, prefix, ...options } = workerData as BulkData

const opened = openDatabase(path, options).then((db) => openBatches(db, openTopics(db, prefix), openRecords(db)))

const answer = (message: ReadAnswer, buffers: readonly ArrayBuffer[]): void => parentPort!.postMessage(message, buffers)

/** Below, a copy costs less than handing over. */
const OWN_BYTES = 4096

/** Buffers that hold one large value and nothing else. */
const buffersOf = ({ batch }: Extract<ReadAnswer, { batch: unknown }>): readonly ArrayBuffer[] =>
  batch.records.flatMap(({ value }) => {
    const isAlone = value !== null && value.length >= OWN_BYTES && value.length === value.buffer.byteLength
    return isAlone ? [value.buffer as ArrayBuffer] : []
  })

parentPort!.on('message', ({ id, ...request }: ReadRequest) => {
  const reading = opened.then((batches) => batches(request))
  reading.then(
    (batch) => answer({ id, batch }, buffersOf({ id, batch })),
    (error: unknown) => answer({ id, code: (codeOf(error) ?? 'INTERNAL') as ErrorCode, message: messageOf(error) }, []),
  )
})
