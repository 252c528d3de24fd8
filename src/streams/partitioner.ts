/**
 * Which partition a session belongs to: what its producers' clients make of the key (topics/input.ts has the names).
 */
import { crc32 } from 'node:zlib'
import type { Partitioner } from '../../topics/input.ts'
import type { EventLog } from './log.ts'
import { partitionOfKey } from './murmur2.ts'

/**
 * librdkafka's `consistent` partitioner, which its default is for records with a key: zlib's CRC-32, unsigned, modulo
 * the partitions.
 */
export const crc32Partition = (key: Uint8Array, partitions: number): number => crc32(key) % partitions

/** The partition of a session; null where the partitioner says nothing of it. */
export const homeOf = (partitioner: Partitioner, session: string, partitions: number): number | null => {
  const key = Buffer.from(session)
  if (partitioner === 'any') return null
  return partitioner === 'crc32' ? crc32Partition(key, partitions) : partitionOfKey(key, partitions)
}

/**
 * The log, for a client that feeds `topic`: records go where that topic's sessions belong, as `partitioner` says at
 * that moment. With `any` nothing says where that is, and they go where Kafka's own clients send them.
 */
export const placing = (log: EventLog, topic: string, partitioner: () => Partitioner): EventLog => {
  // Once is enough: the log refuses to append when the number has changed since.
  let count: Promise<number> | undefined
  const partitionOf: EventLog['partitionOf'] = async (name, key) => {
    if (name !== topic || partitioner() !== 'crc32') return log.partitionOf(name, key)
    count ??= log.partitions(topic).catch((error: unknown) => {
      count = undefined
      throw error
    })
    return crc32Partition(key, await count)
  }
  return {
    ...log,
    partitionOf,
    async append(name, records, partition) {
      if (name !== topic || partition !== undefined || partitioner() !== 'crc32')
        return log.append(name, records, partition)
      const placed: { partition: number; offset: number }[] = []
      // One run of a partition at a time, in order: a client feeds one session, so that is one call.
      for (let at = 0; at < records.length; ) {
        const to = await homeOfRecord(records[at]!.key)
        let end = at + 1
        while (end < records.length && (await homeOfRecord(records[end]!.key)) === to) end += 1
        placed.push(...(await log.append(name, records.slice(at, end), to)))
        at = end
      }
      return placed
    },
  }
  function homeOfRecord(key: Uint8Array | null): Promise<number | undefined> {
    return key === null ? Promise.resolve(undefined) : partitionOf(topic, key)
  }
}
