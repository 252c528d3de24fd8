/** A log with many sessions, as a worker leaves it. */

import { chunkRecord } from '../../src/client/chunks.ts'
import { ensureTopics, namesOf } from '../../src/client/topics.ts'
import { openLog } from '../../src/streams/open.ts'

/** Ids have an order of their own. */
export const idOf = (at: number): string => `session-${String(at).padStart(5, '0')}`

/** Appends the first event of so many sessions; a worker makes them. */
export const feedMany = async (url: string, count: number): Promise<void> => {
  const log = await openLog(url)
  try {
    const names = namesOf(log)
    await ensureTopics(log, names)
    for (let from = 0; from < count; from += 1000) {
      const ids = Array.from({ length: Math.min(1000, count - from) }, (_, i) => idOf(from + i))
      await log.append(
        names.chunks,
        ids.map((id) => chunkRecord(id, { type: 'open' })),
      )
    }
  } finally {
    await log.close()
  }
}
