/** The thread of bulk.ts: appends for the owners of partitions, one after the other. */
import { parentPort, workerData } from 'node:worker_threads'
import { codeOf, type ErrorCode, messageOf } from '../../errors.ts'
import type { BulkAnswer, BulkData, BulkRequest } from './bulk.ts'
import { openDatabase } from './database.ts'
import { openRecords } from './records.ts'
import { openTopics } from './topics.ts'
import { openTransactions } from './writer.ts'

const { path, prefix, ...options } = workerData as BulkData
const answer = (message: BulkAnswer): void => parentPort!.postMessage(message)

const opened = openDatabase(path, options).then((db) => ({
  db,
  write: openTransactions(db, openTopics(db, prefix), openRecords(db)),
}))

const append = async ({ owner, records }: BulkRequest): Promise<readonly number[]> => {
  const { db, write } = await opened
  const { group, topic, partition } = owner
  return db.write(`committing for ${group}/${topic}[${partition}]`, () => write(owner, records, null))
}

parentPort!.on('message', (request: BulkRequest) => {
  append(request).then(
    (offsets) => answer({ id: request.id, offsets }),
    (error: unknown) =>
      answer({ id: request.id, code: (codeOf(error) ?? 'INTERNAL') as ErrorCode, message: messageOf(error) }),
  )
})
