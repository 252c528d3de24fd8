/** The thread of bulk.ts: transactions for the owners of partitions, one after the other. */
import { parentPort, workerData } from 'node:worker_threads'
import { codeOf, type ErrorCode, messageOf } from '../../errors.ts'
import { type BulkAnswer, type BulkData, type BulkRequest, buffersOf } from './bulk.ts'
import { hideSqliteWarning } from './quiet.ts'
import { openRecords } from './records.ts'
import { openTopics } from './topics.ts'
import { openTransactions } from './writer.ts'

hideSqliteWarning()
const { openDatabase } = await import('./database.ts')

const { path, prefix, ...options } = workerData as BulkData
const answer = (message: BulkAnswer): void => parentPort!.postMessage(message, buffersOf(message.values))

const opened = openDatabase(path, options).then((db) => ({
  db,
  write: openTransactions(db, openTopics(db, prefix), openRecords(db)),
}))

const transact = async ({ owner, records, inputOffset }: BulkRequest): Promise<readonly number[]> => {
  const { db, write } = await opened
  const { group, topic, partition } = owner
  return db.write(`committing for ${group}/${topic}[${partition}]`, () => write(owner, records, inputOffset))
}

parentPort!.on('message', (request: BulkRequest) => {
  const { id, records } = request
  const values = records.map(({ value }) => value)
  transact(request).then(
    (offsets) => answer({ id, values, offsets }),
    (error: unknown) =>
      answer({ id, values, code: (codeOf(error) ?? 'INTERNAL') as ErrorCode, message: messageOf(error) }),
  )
})
