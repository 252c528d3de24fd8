/**
 * The alphabet of byte-level vocabularies (GPT-2, bytes_to_unicode): every byte has a printable character. Printable
 * bytes of Latin-1 stand for themselves, the others for U+0100 and up, in order.
 */
const itself = (byte: number): boolean =>
  (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae

const others = Array.from({ length: 256 }, (_, byte) => byte).filter((byte) => !itself(byte))

/** The character of each byte. */
export const ALPHABET: readonly string[] = Array.from({ length: 256 }, (_, byte) =>
  String.fromCharCode(itself(byte) ? byte : 0x100 + others.indexOf(byte)),
)

const bytes: ReadonlyMap<string, number> = new Map(ALPHABET.map((char, byte) => [char, byte]))

/** The byte a character stands for; undefined: none. */
export const byteOf = (char: string): number | undefined => bytes.get(char)

const utf8 = new TextEncoder()

/** A text as its bytes of UTF-8, written in the alphabet. */
export const inAlphabet = (text: string): string => {
  let out = ''
  for (const byte of utf8.encode(text)) out += ALPHABET[byte]
  return out
}
