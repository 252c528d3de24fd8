/**
 * Bytes to text as it becomes certain. An unfinished character waits for its next byte; bytes that cannot begin or
 * continue valid UTF-8 (stray continuations, overlong forms, surrogates, above U+10FFFF) contribute nothing; the byte
 * that breaks a sequence is looked at afresh. So U+FFFD appears only where the bytes are EF BF BD. (RFC 3629, section
 * 4.)
 */
export interface Decoded {
  readonly text: string
  /** At most 3 bytes that begin a character. */
  readonly unfinished: Uint8Array
}

/** The range the next byte must lie in, given the bytes so far; null when the sequence is complete. */
const expects = (bytes: readonly number[]): readonly [number, number] | null => {
  const [first = 0] = bytes
  const length = first < 0x80 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4
  if (bytes.length === length) return null
  if (bytes.length === 1) {
    if (first === 0xe0) return [0xa0, 0xbf]
    if (first === 0xed) return [0x80, 0x9f]
    if (first === 0xf0) return [0x90, 0xbf]
    if (first === 0xf4) return [0x80, 0x8f]
  }
  return [0x80, 0xbf]
}

const begins = (byte: number): boolean => byte < 0x80 || (byte >= 0xc2 && byte <= 0xf4)

export const decodeUtf8 = (unfinished: Uint8Array, bytes: Uint8Array): Decoded => {
  const certain: number[] = []
  let pending = [...unfinished]
  for (const byte of bytes) {
    if (pending.length > 0) {
      const range = expects(pending)!
      if (byte >= range[0] && byte <= range[1]) pending.push(byte)
      else pending = begins(byte) ? [byte] : []
    } else if (begins(byte)) pending = [byte]
    if (pending.length > 0 && expects(pending) === null) {
      certain.push(...pending)
      pending = []
    }
  }
  return { text: Buffer.from(certain).toString('utf8'), unfinished: Uint8Array.from(pending) }
}
