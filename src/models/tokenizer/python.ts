/**
 * Literals of Python as `repr` writes them: the tokens of RWKV's vocabularies. The escapes are \\ \' \" \n \t \r \xHH,
 * and \uHHHH \UHHHHHHHH in a str. (The Python Language Reference 3, section 2.4.1.)
 */
import { Unstreamable } from './unstreamable.ts'

const utf8 = new TextEncoder()
const SIMPLE: Readonly<Record<string, number>> = { '\\': 0x5c, "'": 0x27, '"': 0x22, n: 10, t: 9, r: 13 }
/** Hexadecimal digits behind the letter of an escape. */
const DIGITS: Readonly<Record<string, number>> = { x: 2, u: 4, U: 8 }

const show = (text: string): string => JSON.stringify(text.length > 40 ? `${text.slice(0, 40)}…` : text)

/**
 * Code points: of characters for a str, of bytes for bytes. `quote` must not stand in it without a backslash; '' for
 * none.
 */
const codes = (inside: string, isBytes: boolean, quote: string): number[] => {
  const refuse = (what: string): never => {
    throw new Unstreamable(`${show(inside)} as a token, with ${what}`)
  }
  const found: number[] = []
  for (let at = 0; at < inside.length; ) {
    const code = inside.codePointAt(at)!
    const char = String.fromCodePoint(code)
    at += char.length
    if (char === quote) refuse('a quote inside that has no backslash')
    if (char !== '\\') {
      if (isBytes && code > 0x7f) refuse('a character in bytes that is not ASCII')
      found.push(code)
      continue
    }
    const letter = inside[at] ?? ''
    at += 1
    const simple = Object.hasOwn(SIMPLE, letter) ? SIMPLE[letter] : undefined
    const digits = letter === 'x' || !isBytes ? (DIGITS[letter] ?? 0) : 0
    if (simple !== undefined) found.push(simple)
    else if (digits === 0) refuse(`the escape ${show(`\\${letter}`)}; known are \\\\ \\' \\" \\n \\t \\r \\x \\u \\U`)
    else {
      const hex = inside.slice(at, at + digits)
      const value = hex.length === digits && /^[0-9A-Fa-f]+$/.test(hex) ? Number.parseInt(hex, 16) : -1
      if (value < 0 || value > 0x10ffff || (value >= 0xd800 && value < 0xe000))
        refuse(`the escape ${show(`\\${letter}${hex}`)}, which is no character`)
      found.push(value)
      at += digits
    }
  }
  return found
}

/** The inside of a bytes literal, without b and its quotes. Throws Unstreamable. */
export const insideOfBytes = (inside: string): Uint8Array => Uint8Array.from(codes(inside, true, ''))

/** A str literal as its UTF-8, or a bytes literal. Throws Unstreamable. */
export const bytesOfLiteral = (literal: string): Uint8Array => {
  const parts = /^(b?)(['"])(.*)\2$/su.exec(literal)
  if (parts === null)
    throw new Unstreamable(`${show(literal)} as a token; expected a literal of Python: '…', "…", b'…' or b"…"`)
  const [, prefix, quote, inside] = parts
  const found = codes(inside!, prefix === 'b', quote!)
  if (prefix === 'b') return Uint8Array.from(found)
  let text = ''
  for (const code of found) text += String.fromCodePoint(code)
  return utf8.encode(text)
}
