/**
 * The text that a tokenizer holds back between two calls, and its flags, written as one string. Most such strings are
 * plain text. Text inside the tokenizer has no lone surrogates, so lone low surrogates can mark what is not text.
 * docs/formats.md (Held text) is the specification.
 */
export interface Held {
  /** The sum of those of FLAGS that hold. */
  readonly flags: number
  /** Normalized text whose first pre-token may still grow. */
  readonly word: string
  /** Normalized text that may become an added token. */
  readonly marked: string
  /** Text whose last character the normalizer may still compose with what follows. */
  readonly raw: string
  /** Text that may become an added token. */
  readonly open: string
  /**
   * Half a character: a high surrogate, or bytes of UTF-8 as U+DC80 … U+DCFF (as Python's surrogateescape, PEP 383).
   */
  readonly half: string
}

export const FLAGS = {
  /** The ids that begin a context were given out. */
  begun: 1,
  /** The section has text already, so the normalizer puts nothing before what follows. */
  section: 2,
  /** An added token or a section came before: what follows is not the first part of the text. */
  later: 4,
  /** White space that follows is dropped (an added token with rstrip went before), in the text as given. */
  stripped: 8,
  /** The part has text already, so the pre-tokenizer puts no prefix before what follows. */
  part: 16,
  /** White space that follows is dropped, in normalized text. */
  strippedMarked: 32,
} as const

const FLAG = 0xdc10
const bytesAtEnd = /[\udc80-\udcff]+$/u
const parts =
  /^([\udc10-\udc4f]?)([^\udc01-\udc03]*)(?:\udc01([^\udc02\udc03]*))?(?:\udc02([^\udc03]*))?(?:\udc03(.*))?$/su

export const encodeHeld = ({ flags, word, marked, raw, open, half }: Held): string =>
  (flags === 0 ? '' : String.fromCharCode(FLAG + flags)) +
  word +
  (marked && `\udc01${marked}`) +
  (raw && `\udc02${raw}`) +
  (open && `\udc03${open}`) +
  half

const isHigh = (unit: number): boolean => unit >= 0xd800 && unit < 0xdc00

/** Reads any string: what does not carry marks is text in which no pre-token has ended. */
export const decodeHeld = (held: string): Held => {
  const half = isHigh(held.charCodeAt(held.length - 1)) ? held.slice(-1) : (bytesAtEnd.exec(held)?.[0] ?? '')
  const found = parts.exec(held.slice(0, held.length - half.length))
  const [flag = '', word = '', marked = '', raw = '', open = ''] = found?.slice(1) ?? []
  return { flags: flag === '' ? 0 : flag.charCodeAt(0) - FLAG, word, marked, raw, open, half }
}

export const halfOfBytes = (bytes: Uint8Array): string =>
  Array.from(bytes, (byte) => String.fromCharCode(0xdc00 + byte)).join('')

export const bytesOfHalf = (half: string): Uint8Array => Uint8Array.from(half, (char) => char.charCodeAt(0) - 0xdc00)

export const isHighHalf = (half: string): boolean => half !== '' && isHigh(half.charCodeAt(0))
