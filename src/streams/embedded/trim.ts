import { setImmediate as nextTurn } from 'node:timers/promises'
import { ContinuoError } from '../../errors.ts'
import type { Database } from './database.ts'
import type { Records } from './records.ts'
import type { Topics } from './topics.ts'

/** Deleted in one transaction, so that trimming gigabytes delays no other commit for long. */
const SLICE_BYTES = 8 << 20
const SLICE_RECORDS = 2000

export type Trim = (topic: string, partition: number, before: number) => Promise<void>

/**
 * Moves `begin` first, in one transaction: from then on the records below it are gone for every reader. Then deletes
 * them slice by slice; what a crash leaves behind, the next trim of the partition deletes. Pages are used again.
 */
export const openTrim = (db: Database, topics: Topics, records: Records): Trim => {
  const moveBegin = db.prepare('UPDATE partitions SET "begin" = ? WHERE topic = ? AND partition = ?')
  const sizes = db.prepare<{ offset: number; bytes: number }>(
    `SELECT "offset", ifnull(length(value), 0) + ifnull(length(key), 0) AS bytes FROM records
     WHERE topic = ? AND partition = ? AND "offset" < ? ORDER BY "offset" LIMIT ${SLICE_RECORDS}`,
  )
  const remove = db.prepare('DELETE FROM records WHERE topic = ? AND partition = ? AND "offset" <= ?')

  return async (name, partition, before) => {
    const doing = `trimming ${name}[${partition}] below ${before}`
    if (!Number.isSafeInteger(before) || before < 0)
      throw new ContinuoError('INVALID', `A log is trimmed below an offset, ${before} is not one.`)
    const { topic, begin } = await db.write(doing, () => {
      const found = topics.findPartition(name, partition)
      const bounds = records.bounds(found, partition)
      if (before > bounds.end)
        throw new ContinuoError(
          'POSITION',
          `${name}[${partition}] ends at ${bounds.end} and cannot be trimmed below ${before}. Trim at most to its end.`,
        )
      if (before > bounds.begin) moveBegin.run(before, found.id, partition)
      return { topic: found, begin: Math.max(before, bounds.begin) }
    })
    for (let more = true; more; ) {
      more = await db.write(doing, () => {
        let last = -1
        let bytes = 0
        for (const row of sizes.iterate(topic.id, partition, begin)) {
          last = row.offset
          bytes += row.bytes
          if (bytes >= SLICE_BYTES) break
        }
        if (last >= 0) remove.run(topic.id, partition, last)
        return last >= 0
      })
      await nextTurn()
    }
  }
}
