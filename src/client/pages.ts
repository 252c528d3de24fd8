/**
 * pages: stretches of one topic that readers behind its end go through, read from the log once for all of them. A page
 * begins where a reader stands and ends at the next multiple of PAGE_RECORDS, or after PAGE_BYTES; so readers that
 * began at different places meet at the next multiple. The pages that were used last are kept, up to KEPT_BYTES.
 */
import type { EventLog, StoredRecord } from '../streams/log.ts'

const PAGE_RECORDS = 1024
/** Bytes of keys and values of a page, but for its last record. */
const PAGE_BYTES = 1 << 16
/** Of all pages that are kept. */
const KEPT_BYTES = 8 << 20
/** A page without records counts so much. */
const LEAST_BYTES = 1024

export interface Page {
  /** Position behind it. */
  readonly next: number
  /** Its records of one key, in latin1: the same array each time. */
  of(key: string): readonly StoredRecord[]
}

export interface Pages {
  /** The page that begins at `from`, which is below `end`. Rejects with what reading the log rejects with. */
  at(partition: number, from: number, end: number): Promise<Page>
}

const NONE: readonly StoredRecord[] = []

export const sizeOf = ({ key, value }: StoredRecord): number => (key?.length ?? 0) + (value?.length ?? 0)
export const nameOf = (key: Uint8Array): string =>
  Buffer.from(key.buffer, key.byteOffset, key.length).toString('latin1')

export const createPages = (log: Pick<EventLog, 'read'>, topic: string, signal: AbortSignal): Pages => {
  /** In the order of their last use. */
  const pages = new Map<string, { readonly page: Promise<Page>; bytes: number }>()
  let kept = 0

  const read = async (partition: number, from: number, until: number) => {
    const options = { until, undecodable: true, maxBytes: PAGE_BYTES, signal }
    const keys = new Map<string, StoredRecord[]>()
    let [next, bytes] = [from, LEAST_BYTES]
    for await (const batch of log.read(topic, partition, from, options)) {
      for (const record of batch.records) {
        if (record.key === null) continue
        const name = nameOf(record.key)
        const known = keys.get(name)
        if (known === undefined) keys.set(name, [record])
        else known.push(record)
        bytes += sizeOf(record)
      }
      next = batch.next
      // Stretches that a trim or a transaction has left without records are passed at once.
      if (keys.size > 0) break
    }
    return { page: { next, of: (key: string) => keys.get(key) ?? NONE }, bytes }
  }

  return {
    at(partition, from, end) {
      const until = Math.min(end, (Math.floor(from / PAGE_RECORDS) + 1) * PAGE_RECORDS)
      const name = `${partition}:${from}`
      const known = pages.get(name)
      if (known !== undefined) {
        pages.delete(name)
        pages.set(name, known)
        return known.page
      }
      const reading = read(partition, from, until)
      const entry = { page: reading.then(({ page }) => page), bytes: 0 }
      pages.set(name, entry)
      reading.then(
        ({ page, bytes }) => {
          // Nothing could be read yet: the next one who asks looks again.
          if (page.next === from) {
            pages.delete(name)
            return
          }
          entry.bytes = bytes
          kept += bytes
          for (const [oldest, { bytes: less }] of pages) {
            if (kept <= KEPT_BYTES) break
            // One that is still being read has none yet.
            if (less === 0) continue
            pages.delete(oldest)
            kept -= less
          }
        },
        () => pages.delete(name),
      )
      return entry.page
    },
  }
}
