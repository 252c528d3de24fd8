/**
 * The embedded log: one SQLite file, shared by any number of processes on one machine. What Kafka does with producers,
 * markers and epochs is one ACID transaction here.
 */
import { ContinuoError } from '../../errors.ts'
import type { EventLog, OpenLogOptions } from '../log.ts'
import { partitionOfKey } from '../murmur2.ts'
import { openBulk } from './bulk.ts'
import { type DatabaseOptions, openDatabase } from './database.ts'
import { openEraser } from './erase.ts'
import { explain } from './faults.ts'
import { openGroups } from './groups.ts'
import { openBatches, openReader } from './read.ts'
import { openReaders } from './readers.ts'
import { checkRecord, openRecords } from './records.ts'
import { openTopics } from './topics.ts'
import { openTrim } from './trim.ts'
import { parseEmbeddedUrl } from './url.ts'
import { openClaims } from './writer.ts'

const SESSION_TIMEOUT = 10_000 // ms

/**
 * Throws INVALID for a bad URL, REFUSED for a file that is not a log of this layout, UNAVAILABLE or DENIED as in
 * `openLog`.
 */
export const openEmbeddedLog = async (
  url: string,
  options: OpenLogOptions & DatabaseOptions = {},
): Promise<EventLog> => {
  const { path, prefix } = parseEmbeddedUrl(url)
  const sessionTimeout = options.sessionTimeout ?? SESSION_TIMEOUT
  if (!(sessionTimeout > 0))
    throw new ContinuoError('INVALID', `sessionTimeout is a positive number of ms, ${sessionTimeout} is not.`)
  const db = await openDatabase(path, options)
  try {
    const topics = openTopics(db, prefix)
    const records = openRecords(db)
    const { patience, maxPages } = options
    const data = { path, prefix, ...(patience && { patience }), ...(maxPages && { maxPages }) }
    const bulk = openBulk(db, data)
    const readers = openReaders(data)
    const claims = openClaims(db, topics, records, bulk)
    const groups = openGroups(db, topics, sessionTimeout)
    const read = openReader(db, openBatches(db, topics, records), readers.batches)
    const trim = openTrim(db, topics, records)
    const turns = new Map<string, number>()
    /** Round robin, for records without a key. */
    const nextPartition = (topic: string, partitions: number): number => {
      const turn = turns.get(topic) ?? 0
      turns.set(topic, turn + 1)
      return turn % partitions
    }

    return {
      kind: 'embedded',
      url,
      prefix,
      createTopics: topics.create,
      topics: (names = []) => topics.list(names),
      topicId: async () => null,
      append: (name, input, partition) =>
        db.write(`appending to ${name}`, () => {
          const topic = partition === undefined ? topics.find(name) : topics.findPartition(name, partition)
          for (const record of input) checkRecord(topic, record)
          const placed = input.map((record) => ({
            topic,
            record,
            partition:
              partition ??
              (record.key === null
                ? nextPartition(name, topic.partitions)
                : partitionOfKey(record.key, topic.partitions)),
          }))
          return records.insert(placed).map((offset, i) => ({ partition: placed[i]!.partition, offset }))
        }),
      partitionOf: (name, key) =>
        db.read(`looking up ${name}`, () => partitionOfKey(key, topics.find(name).partitions)),
      bounds: (name, partition) =>
        db.read(`reading the bounds of ${name}[${partition}]`, () =>
          records.bounds(topics.findPartition(name, partition), partition),
        ),
      read,
      partitions: (name) => db.read(`looking up ${name}`, () => topics.find(name).partitions),
      members: groups.members,
      join: groups.join,
      claim: claims.claim,
      committed: claims.committed,
      trim,
      eraser: openEraser(db, topics, records),
      lost: db.lost,
      ping: () => db.write('reaching the log', () => {}),
      close: async () => {
        await groups.close()
        await readers.close()
        await bulk.close()
        db.close()
      },
    }
  } catch (error) {
    db.close()
    throw explain(path, 'opening the log', error)
  }
}
