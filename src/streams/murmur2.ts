/**
 * MurmurHash2, 32 bit, as in Kafka's Java client (org.apache.kafka.common.utils.Utils.murmur2): the seed of its default
 * partitioner, little-endian words, result as a signed 32-bit integer.
 */
export const murmur2 = (data: Uint8Array): number => {
  const m = 0x5bd1e995
  const tail = data.length & ~3
  let h = 0x9747b28c ^ data.length
  for (let i = 0; i < tail; i += 4) {
    let k = data[i]! | (data[i + 1]! << 8) | (data[i + 2]! << 16) | (data[i + 3]! << 24)
    k = Math.imul(k, m)
    k ^= k >>> 24
    h = Math.imul(h, m) ^ Math.imul(k, m)
  }
  const rest = data.length & 3
  if (rest > 0) {
    for (let i = rest - 1; i >= 0; i--) h ^= data[tail + i]! << (8 * i)
    h = Math.imul(h, m)
  }
  h ^= h >>> 13
  h = Math.imul(h, m)
  return h ^ (h >>> 15)
}

/** The partition that Kafka's default partitioner gives a keyed record. */
export const partitionOfKey = (key: Uint8Array, partitions: number): number => (murmur2(key) & 0x7fffffff) % partitions
