/** Reads an answer of Kafka's protocol from front to back. Integers are big-endian. */
export interface Cursor {
  int16(): number
  int32(): number
  int64(): bigint
  /** int16 length, UTF-8. */
  string(): string
  /** The next `length` bytes, as a view; nothing for a negative length. */
  bytes(length: number): Buffer
  /** Unsigned varint of the flexible versions. */
  unsigned(): number
  /** Tagged fields of the flexible versions, skipped. */
  tags(): void
}

export const openCursor = (raw: Buffer): Cursor => {
  let at = 0
  const past = (length: number): number => {
    at += length
    return at - length
  }
  const self: Cursor = {
    int16: () => raw.readInt16BE(past(2)),
    int32: () => raw.readInt32BE(past(4)),
    int64: () => raw.readBigInt64BE(past(8)),
    string: () => self.bytes(self.int16()).toString('utf8'),
    bytes: (length) => raw.subarray(past(Math.max(0, length)), at),
    unsigned: () => {
      for (let value = 0, shift = 0; ; shift += 7) {
        const byte = raw.readUInt8(past(1))
        value |= (byte & 127) << shift
        if (byte < 128) return value
      }
    },
    tags: () => {
      for (let left = self.unsigned(); left > 0; left--) {
        self.unsigned()
        self.bytes(self.unsigned())
      }
    },
  }
  return self
}
