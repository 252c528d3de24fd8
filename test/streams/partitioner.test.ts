import { describe, expect, test } from 'vitest'
import { crc32Partition, homeOf } from '../../src/streams/partitioner.ts'

/** CRC-32 of zlib, bit by bit: another way than the table of node:zlib. */
const slowCrc = (data: Uint8Array): number => {
  let sum = 0xffffffff
  for (const byte of data) {
    sum ^= byte
    for (let bit = 0; bit < 8; bit += 1) sum = (sum >>> 1) ^ (0xedb88320 & -(sum & 1))
  }
  return (sum ^ 0xffffffff) >>> 0
}

describe('the partition of a session', () => {
  test('is that of the CRC-32 of its name, without a sign', () => {
    // The check value of CRC-32/ISO-HDLC.
    expect(slowCrc(Buffer.from('123456789'))).toBe(0xcbf43926)
    for (const key of ['123456789', 'user1', 'z\u00fc', '', 'x'.repeat(512)])
      for (const partitions of [1, 3, 8, 50])
        expect(crc32Partition(Buffer.from(key), partitions)).toBe(slowCrc(Buffer.from(key)) % partitions)
  })

  test('is another one by another partitioner, and none where nothing says it', () => {
    // What kcat and kafkajs did with this key and 8 partitions.
    expect(homeOf('crc32', 'user1', 8)).toBe(5)
    expect(homeOf('murmur2', 'user1', 8)).toBe(2)
    expect(homeOf('any', 'user1', 8)).toBeNull()
  })
})
