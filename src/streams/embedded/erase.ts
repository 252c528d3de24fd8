/**
 * Records that leave the middle of a partition, which a log of Kafka's cannot do. Their rows stay and hold nothing:
 * readers pass over them as over the gaps that offsets have on Kafka. What such rows, and trims, leave behind in the
 * pages of the file leaves it with `scrub`.
 */
import { DatabaseSync } from 'node:sqlite'
import { setImmediate as nextTurn, setTimeout as sleep } from 'node:timers/promises'
import { ContinuoError } from '../../errors.ts'
import type { Eraser } from '../log.ts'
import type { Database } from './database.ts'
import { explain } from './faults.ts'
import { ERASED_VERSION } from './layout.ts'
import { decodeHeaders, type Records, type Row } from './records.ts'
import type { Topics } from './topics.ts'

/** Rows of one transaction. */
const SLICE = 1000
/** How long the file is waited for, ms, and the pause between two tries. */
const PATIENCE = 30_000
const PAUSE = 50

export const openEraser = (db: Database, topics: Topics, records: Records): Eraser => {
  const rows = db.prepare<Row>(
    `SELECT "offset", timestamp, key, headers, value FROM records
     WHERE topic = ? AND partition = ? AND "offset" >= ? AND timestamp >= 0 ORDER BY "offset" LIMIT ${SLICE}`,
  )
  const empty = db.prepare(
    `UPDATE records SET timestamp = -1, key = NULL, headers = NULL, value = NULL, checksum = NULL
     WHERE topic = ? AND partition = ? AND "offset" = ?`,
  )
  const mark = db.prepare(`PRAGMA user_version = ${ERASED_VERSION}`)

  return {
    async erase(name, partition, isVictim) {
      let erased = 0
      let from: number | null = 0
      while (from !== null) {
        const at: number = from
        from = await db.write(`erasing records of ${name}[${partition}]`, () => {
          const topic = topics.findPartition(name, partition)
          const { begin } = records.bounds(topic, partition)
          const victims: number[] = []
          let seen = 0
          let last = 0
          // One row in memory at a time: a part of a blob may be as large as a record can be.
          for (const { headers, ...row } of rows.iterate(topic.id, partition, Math.max(at, begin))) {
            seen += 1
            last = row.offset
            if (isVictim({ topic: name, partition, ...row, headers: decodeHeaders(headers) })) victims.push(row.offset)
          }
          if (victims.length > 0) mark.run()
          for (const offset of victims) empty.run(topic.id, partition, offset)
          erased += victims.length
          return seen < SLICE ? null : last + 1
        })
        await nextTurn()
      }
      return erased
    },
    async scrub() {
      const deadline = performance.now() + PATIENCE
      for (;;) {
        // Its own connection: VACUUM is refused where another statement of the connection is open.
        const own = new DatabaseSync(db.path)
        try {
          own.exec('PRAGMA busy_timeout = 1000; PRAGMA secure_delete = ON; VACUUM')
          const { busy } = own.prepare('PRAGMA wal_checkpoint(TRUNCATE)').get() as { readonly busy: number }
          if (busy === 0) return
          if (performance.now() >= deadline)
            throw new ContinuoError(
              'UNAVAILABLE',
              `${db.path}-wal could not be emptied: another process reads the log all the time. What was removed may still be in that file; stop the reader and call this again.`,
            )
        } catch (error) {
          if (performance.now() >= deadline) throw explain(db.path, 'rewriting the log without what was removed', error)
        } finally {
          own.close()
        }
        await sleep(PAUSE)
      }
    },
  }
}
