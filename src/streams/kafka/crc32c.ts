/**
 * CRC-32C (Castagnoli, reflected polynomial 0x82f63b78), eight bytes a step: tables[k][b] is b followed by k zero
 * bytes.
 */
const tables: readonly Int32Array[] = Array.from({ length: 8 }, () => new Int32Array(256))
const [t0, t1, t2, t3, t4, t5, t6, t7] = tables as [
  Int32Array,
  Int32Array,
  Int32Array,
  Int32Array,
  Int32Array,
  Int32Array,
  Int32Array,
  Int32Array,
]
for (let byte = 0; byte < 256; byte++) {
  let crc = byte
  for (let bit = 0; bit < 8; bit++) crc = crc & 1 ? (crc >>> 1) ^ 0x82f63b78 : crc >>> 1
  t0[byte] = crc
}
for (let k = 1; k < 8; k++)
  for (let byte = 0; byte < 256; byte++) {
    const previous = tables[k - 1]![byte]!
    tables[k]![byte] = (previous >>> 8) ^ t0[previous & 255]!
  }

export const crc32c = (data: Uint8Array, from = 0, to = data.length): number => {
  let crc = -1
  let i = from
  for (; i + 8 <= to; i += 8) {
    const low = crc ^ (data[i]! | (data[i + 1]! << 8) | (data[i + 2]! << 16) | (data[i + 3]! << 24))
    crc =
      t7[low & 255]! ^
      t6[(low >>> 8) & 255]! ^
      t5[(low >>> 16) & 255]! ^
      t4[low >>> 24]! ^
      t3[data[i + 4]!]! ^
      t2[data[i + 5]!]! ^
      t1[data[i + 6]!]! ^
      t0[data[i + 7]!]!
  }
  for (; i < to; i++) crc = (crc >>> 8) ^ t0[(crc ^ data[i]!) & 255]!
  return ~crc >>> 0
}
