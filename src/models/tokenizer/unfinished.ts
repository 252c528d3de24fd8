/** How many bytes at the end begin a character of UTF-8 that is not complete: 0 to 3. (RFC 3629, section 4.) */
export const unfinishedAtEnd = (bytes: Uint8Array): number => {
  for (let back = 1; back <= Math.min(3, bytes.length); back += 1) {
    const first = bytes[bytes.length - back]!
    if (first >= 0x80 && first < 0xc0) continue
    const length = first < 0xc2 || first > 0xf4 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4
    if (back >= length) return 0
    const second = bytes[bytes.length - back + 1]
    if (second !== undefined) {
      // Overlong forms, surrogates and what lies above U+10FFFF end at their first byte.
      const low = first === 0xe0 ? 0xa0 : first === 0xf0 ? 0x90 : 0x80
      const high = first === 0xed ? 0x9f : first === 0xf4 ? 0x8f : 0xbf
      if (second < low || second > high) return 0
    }
    return back
  }
  return 0
}
