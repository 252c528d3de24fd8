/** Sets of characters (Unicode scalar values), and the bytes of UTF-8 that they are written in. */

/** Ranges [first, last] of code points: ascending, apart, none in it a surrogate. */
export type Chars = readonly (readonly [number, number])[]

const LAST = 0x10ffff
const SURROGATES = [0xd800, 0xdfff] as const

/** The set of these ranges, which may overlap and stand in any order; surrogates are left out. */
export const charsOf = (ranges: readonly (readonly [number, number])[]): Chars => {
  const whole = ranges.flatMap(([first, last]): [number, number][] => {
    const pieces: [number, number][] = [
      [first, Math.min(last, SURROGATES[0] - 1)],
      [Math.max(first, SURROGATES[1] + 1), Math.min(last, LAST)],
    ]
    return pieces.filter(([from, to]) => from <= to)
  })
  const out: [number, number][] = []
  for (const [first, last] of whole.sort(([a], [b]) => a - b)) {
    const before = out.at(-1)
    if (before !== undefined && first <= before[1] + 1) before[1] = Math.max(before[1], last)
    else out.push([first, last])
  }
  return out
}

export const union = (...sets: readonly Chars[]): Chars => charsOf(sets.flat())

/** All others. */
export const inverse = (set: Chars): Chars => {
  const out: [number, number][] = []
  let from = 0
  for (const [first, last] of set) {
    if (first > from) out.push([from, first - 1])
    from = last + 1
  }
  if (from <= LAST) out.push([from, LAST])
  return charsOf(out)
}

export const without = (set: Chars, other: Chars): Chars => inverse(union(inverse(set), other))

export const isMember = (set: Chars, code: number): boolean =>
  set.some(([first, last]) => first <= code && code <= last)

export const ANY: Chars = charsOf([[0, LAST]])
export const DIGITS: Chars = [[0x30, 0x39]]

/** The characters of a text. */
export const among = (text: string): Chars =>
  charsOf([...text].map((char): [number, number] => [char.codePointAt(0)!, char.codePointAt(0)!]))

/** Ranges of bytes that follow one another; any choice of them is a character. */
export type ByteRanges = readonly (readonly [number, number])[]

const utf8 = (code: number): Uint8Array => Buffer.from(String.fromCodePoint(code))

/** The largest code points of one, two, three and four bytes. */
const LENGTHS = [0x7f, 0x7ff, 0xffff, LAST] as const

/** The set as sequences of ranges of bytes (RFC 3629): no two sequences have a character in common. */
export const byteRanges = (set: Chars): readonly ByteRanges[] => {
  const out: ByteRanges[] = []
  const cut = (first: number, last: number): void => {
    const limit = LENGTHS.find((most) => first <= most)!
    if (last > limit) {
      cut(first, limit)
      cut(limit + 1, last)
      return
    }
    // Where a range of characters begins or ends inside a block of 64, 4,096 or 262,144, it is cut there.
    for (let bits = 6; bits <= 18 && limit > 0x7f; bits += 6) {
      const block = 2 ** bits
      if (Math.floor(first / block) === Math.floor(last / block)) break
      if (first % block !== 0) {
        const end = Math.floor(first / block) * block + block - 1
        cut(first, end)
        cut(end + 1, last)
        return
      }
      if (last % block !== block - 1) {
        const begin = Math.floor(last / block) * block
        cut(first, begin - 1)
        cut(begin, last)
        return
      }
    }
    const [low, high] = [utf8(first), utf8(last)]
    out.push(Array.from(low, (byte, at): [number, number] => [byte, high[at]!]))
  }
  for (const [first, last] of set) cut(first, last)
  return out
}
