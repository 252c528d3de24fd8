import fc from 'fast-check'
import kafkajs from 'kafkajs'
import { describe, expect, test } from 'vitest'
import { murmur2, partitionOfKey } from '../../src/streams/murmur2.ts'
import { bytes } from './helpers.ts'

describe('murmur2', () => {
  test.each([
    // From Kafka's UtilsTest.testMurmur2.
    ['21', -973932308],
    ['foobar', -790332482],
    ['a-little-bit-long-string', -985981536],
    ['a-little-bit-longer-string', -1486304829],
    ['lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8', -58897971],
    ['abc', 479470107],
  ])("gives Kafka's hash of %s", (key, hash) => {
    expect(murmur2(bytes(key))).toBe(hash)
  })

  test('picks the partition that kafkajs picks, whatever the key', () => {
    const pick = kafkajs.Partitioners.DefaultPartitioner()
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 40 }), fc.integer({ min: 1, max: 100 }), (key, partitions) => {
        const partitionMetadata = Array.from({ length: partitions }, (_, partitionId) => ({
          partitionErrorCode: 0,
          partitionId,
          leader: 0,
          replicas: [],
          isr: [],
        }))
        const message = { key: Buffer.from(key), value: null }
        expect(partitionOfKey(key, partitions)).toBe(pick({ topic: 't', partitionMetadata, message }))
      }),
      { numRuns: 500 },
    )
  })
})
