/**
 * A text as the contexts of an ngram memory see it, from its description (docs/ngram.md): hashes in whole numbers of
 * any length.
 */

const MOST_DIGITS = 20

const WORD = (1n << 64n) - 1n
export const mix = (hash: bigint): bigint => {
  let h = hash & WORD
  h ^= h >> 29n
  h = (h * 0xbf58476d1ce4e5b9n) & WORD
  return h ^ (h >> 32n)
}
const big = BigInt

const between = (c: number, from: string, to: string): boolean => c >= from.charCodeAt(0) && c <= to.charCodeAt(0)
const CLASSES: readonly ((c: number) => boolean)[] = [
  (c) => c === 10,
  (c) => c === 32,
  (c) => between(c, '0', '9'),
  (c) => between(c, 'a', 'f'),
  (c) => between(c, 'g', 'z'),
  (c) => between(c, 'A', 'F'),
  (c) => between(c, 'G', 'Z'),
  ...['.', ':', '/', '=,', '_-', '([<', ')]>'].map((of) => (c: number) => of.includes(String.fromCharCode(c))),
  (c) => c >= 128,
  () => true,
]
export const classOf = (c: number): number => CLASSES.findIndex((is) => is(c))
export const coarse = (of: number): number => [0, 1, 2, 3, 3, 4, 4, 5, 5, 5, 5, 5, 6, 6, 7, 6][of]!
interface Numbered {
  last: bigint
  before: bigint
  place: number
  digits: number
  two: boolean
}

/** Of `order` tokens a hash; null where there are not so many. `back(0)` is the last one. */
const hashOfLast = (order: number, read: number, back: (n: number) => number): bigint | null => {
  if (read < order) return null
  let h = (big(order) * 0x9e3779b97f4a7c15n) & WORD
  for (let i = 0; i < order; i += 1) h = ((h ^ big(back(i))) * 0x100000001b3n + (h >> 41n)) & WORD
  return mix(h) | 1n
}

/** A ring of tokens, and the places in it of those that followed the longest matches. */
interface Matched {
  readonly size: number
  readonly at: (place: number) => number
  /** Tokens read. */
  readonly read: () => number
  readonly match: { place: number; length: number }
  readonly places: number[]
}

/** `order`: tokens that are looked up by their hash; so many must agree at least. */
const followMatch = ({ size, at, read, match, places }: Matched, order: number, least: number): void => {
  const position = read()
  const back = (n: number): number => at(position - 1 - n)
  const holds = (place: number): boolean => position - place <= size
  if (match.length > 0 && at(match.place) === back(0)) {
    match.length += 1
    match.place += 1
  } else {
    match.length = 0
  }
  if (position < order) return
  let h = 0n
  for (let i = 0; i < order; i += 1) h = ((h ^ big(back(i))) * 0x100000001b3n) & WORD
  const index = Number(mix(h) % big(places.length))
  const place = places[index]!
  places[index] = position
  if (match.length > 0 || place === 0 || !holds(place)) return
  let length = 0
  while (length < 32 && length < place && holds(place - 1 - length) && at(place - 1 - length) === back(length))
    length += 1
  if (length < least) return
  match.place = place
  match.length = length
}

/** A text as contexts see it. */
export interface TextReader {
  readonly t: ReturnType<typeof byteText>['t']
  readonly read: (token: number) => void
  /** Hashes of the contexts of the next token; null where there is none. */
  readonly keys: () => (bigint | null)[]
  /** Tokens read. */
  readonly tokens: () => number
  /** The byte so many before the last one; 0 where there is none. */
  readonly back: (n: number) => number
  /** The token that follows the match; 0 without one. */
  readonly matched: () => number
  readonly firstByte: (token: number) => number
}

const byteText = (slots: number) => {
  let ringSize = 4096
  while (ringSize < slots && ringSize < 65536) ringSize *= 2
  const places = ringSize / 16
  const list = (): number[] => Array<number>(places).fill(0)
  const t = {
    word: 0n,
    word1: 0n,
    word2: 0n,
    line: 0n,
    masked: 0n,
    masked1: 0n,
    masked2: 0n,
    field: 0n,
    shape: 0n,
    number: 0n,
    position: 0,
    lineStart: 0,
    numberStart: 0,
    fields: 0,
    match: { place: 0, length: 0 },
    column: 0,
    fieldPlace: 0,
    entry: 0,
    digits: 0,
    order: 0,
    afterDigit: false,
    expects: [0, 0] as [number, number],
    expected: [Array<number>(MOST_DIGITS).fill(0), Array<number>(MOST_DIGITS).fill(0)] as const,
    follows1: Array.from({ length: 256 }, () => [0, 0, 0, 0]),
    numbers: Array.from(
      { length: ringSize / 64 },
      (): Numbered => ({ last: 0n, before: 0n, place: 0, digits: 0, two: false }),
    ),
    matches: list(),
    columns: list(),
    fieldPlaces: list(),
    follows2: list(),
    ring: new Uint8Array(ringSize),
  }
  const at = (place: number): number => t.ring[(place + ringSize) % ringSize]!
  const back = (n: number): number => at((t.position - 1 - n + 2 ** 32) % ringSize)
  const holds = (place: number): boolean => t.position - place <= ringSize
  const index = (hash: bigint): number => Number(mix(hash) % big(places))
  /** Puts the position into a list of places, and gives what was there. */
  const exchanged = (of: number[], hash: bigint): number => {
    const i = index(hash)
    const was = of[i]!
    of[i] = t.position
    return was
  }

  const beginLine = (): void => {
    t.masked2 = t.masked1
    t.masked1 = t.masked
    t.line = 1n
    t.masked = 1n
    t.shape = 1n
    t.word = 0n
    t.word1 = 0n
    t.word2 = 0n
    t.field = 0n
    t.fields = 0
    t.afterDigit = false
    t.fieldPlace = 0
    t.lineStart = t.position
  }

  const followLine = (c: number, digit: boolean): void => {
    const char = String.fromCharCode(c)
    t.line = mix(t.line * 31n + big(c) + 7n)
    if (!digit) t.masked = mix(t.masked * 31n + big(c) + 7n)
    else if (!t.afterDigit) t.masked = mix(t.masked * 31n + 300n)
    t.afterDigit = digit
    t.shape = mix(t.shape * 31n + big(classOf(c)))
    if (between(c, 'a', 'z') || between(c, 'A', 'Z') || c >= 128 || digit || '_.-$'.includes(char)) {
      t.word = mix(t.word * 37n + big(c) + 3n)
    } else {
      if (t.word !== 0n) {
        t.word2 = t.word1
        t.word1 = t.word
      }
      t.word = 0n
    }
    if (' =,:[(;"'.includes(char)) {
      t.fields += 1
      t.field = 0n
      t.fieldPlace = exchanged(t.fieldPlaces, big(t.fields) * 77n + t.word1 * 5n)
    } else {
      t.field = mix(t.field * 41n + big(c) + 5n)
      if (t.fieldPlace !== 0) t.fieldPlace += 1
    }
  }

  const expectedAt = (which: 0 | 1): number => (t.digits < t.expects[which] ? (t.expected[which][t.digits] ?? 0) : 0)
  const expect = (which: 0 | 1, number: bigint, least: number): void => {
    const digits = number.toString().padStart(least, '0')
    for (const [i, digit] of [...digits].entries()) t.expected[which][i] = digit.charCodeAt(0)
    t.expects[which] = digits.length
  }
  const numbered = (): Numbered => t.numbers[t.entry - 1]!

  const followNumber = (c: number, digit: boolean): void => {
    if (digit) {
      if (t.digits === 0) {
        t.numberStart = t.position - 1
        t.number = 0n
      }
      if (t.entry !== 0) {
        const { place, digits } = numbered()
        const last = t.digits < digits ? at(place + t.digits) : 0
        if (t.order === 1 && last !== c) t.order = last < c ? 2 : 3
        for (const which of [0, 1] as const) if (expectedAt(which) !== c) t.expects[which] = 0
      }
      t.digits += 1
      if (t.digits < 19) t.number = t.number * 10n + big(c - 48)
      return
    }
    if (t.digits > 0 && t.entry !== 0) {
      const entry = numbered()
      entry.two = entry.digits > 0
      entry.before = entry.last
      entry.last = t.number
      entry.place = t.numberStart
      entry.digits = Math.min(t.digits, 255)
    }
    t.digits = 0
    t.order = 1
    t.entry = Number(mix(t.masked * 3n + 0x77n) % big(t.numbers.length)) + 1
    t.expects = [0, 0]
    const { last, before, place, digits, two } = numbered()
    const most = 10n ** 18n
    if (digits === 0 || digits >= 19 || last >= most || before > most) return
    const step = two ? 2n * last - before : last + 1n
    const least = holds(place) && at(place) === 48 ? digits : 1
    // A number that fell below 0 is none.
    expect(0, step < 0n || step > most ? last : step, least)
    expect(1, last + 1n, least)
  }

  const ofBytes: Matched = { size: ringSize, at, read: () => t.position, match: t.match, places: t.matches }

  /** `isToken`: else the byte is a part of one. */
  const read = (c: number, isToken: boolean): void => {
    const here = t.position
    t.ring[here % ringSize] = c
    t.position += 1
    if (isToken) followMatch(ofBytes, 6, 5)
    const digit = between(c, '0', '9')
    if (c === 10) beginLine()
    else followLine(c, digit)
    followNumber(c, digit)
    t.column = exchanged(t.columns, t.masked)
    if (here < 2) return
    const follows = t.follows1[back(1)]!
    follows.splice(0, 3, c, follows[0]!, follows[1]!)
    const both = index(big((back(1) << 8) | back(2)))
    t.follows2[both] = ((t.follows2[both]! << 8) | c) & 0xffffff
  }

  /** `own`: contexts 0 to 2, 9, 10, 14 and 15; `matched`: the token that follows the match. */
  const keys = (own: readonly (bigint | null)[], matched: number): (bigint | null)[] => {
    const c = big(back(0))
    const golden = 0x9e3779b1n
    const hashed = (h: bigint): bigint => mix(h) | 1n
    const bytes = (...of: number[]): bigint => of.reduce((all, byte) => (all << 8n) | big(byte), 0n)
    const above = t.column !== 0 && holds(t.column) ? at(t.column) : 0
    const there = t.fieldPlace !== 0 && holds(t.fieldPlace) ? at(t.fieldPlace) : 0

    const entry = t.entry === 0 || numbered().digits === 0 ? null : numbered()
    const [next, after] = [0, 1].map((i) =>
      entry !== null && t.digits + i < entry.digits ? at(entry.place + t.digits + i) : 0,
    ) as [number, number]
    const [step, one] = entry === null ? [0, 0] : [expectedAt(0), expectedAt(1)]
    const rest = entry === null ? -1 : entry.digits - t.digits
    const left = big(rest < 0 ? 0 : rest < 14 ? rest + 1 : 15)
    const line = mix(t.masked * 5n + 0x99n)
    const steps = bytes(step, t.expects[0] > 0 ? 1 : 0, one) * 64n
    return [
      ...own.slice(0, 3),
      hashed(t.word * 3n + t.word1 * 5n + 0x101n),
      hashed(t.line + 0x303n),
      hashed(t.masked * 3n + 0x404n),
      hashed(t.masked * 3n + t.masked1 * 5n + 0x606n),
      hashed(t.line * 3n + t.masked1 * 5n + t.masked2 * 11n + 0x707n),
      hashed(big(t.fields) * 977n + t.field * 5n + 0x808n),
      own[3]!,
      own[4]!,
      hashed((bytes(above) * 256n + c) * 0x9e3779n + t.field * 3n + 0xc0cn),
      hashed((bytes(there) * 256n + c) * 0x9e3779n + (big(t.fields) << 32n) + 0xd0dn),
      hashed(big(t.position - t.lineStart) * 911n + c + 0x111n),
      own[5]!,
      own[6]!,
      hashed(((big(matched) << 16n) | bytes(Math.min(t.match.length, 15), back(0))) * golden + 0x1414n),
      hashed(line + big((next * 4 + t.order) * 16) + left + 0x2121n),
      hashed((bytes(next, t.order, after) * 16n + left) * golden + 0x2222n),
      hashed((steps + big(t.order * 16) + left) * golden + 0x2323n),
      hashed(line * 3n + steps + 0x2424n),
      hashed(line * 3n + big(t.digits * 16) + (t.digits > 0 ? c : 0n) + 0x2525n),
    ]
  }
  return { t, at, back, read, keys, index }
}

/** A text whose tokens are bytes. */
export const byteReader = (slots: number): TextReader => {
  const { t, at, back, read, keys, index } = byteText(slots)
  const golden = 0x9e3779b1n
  const bytes = (...of: number[]): bigint => of.reduce((all, byte) => (all << 8n) | big(byte), 0n)
  const few = (order: number): bigint | null => hashOfLast(order, t.position, back)
  const behind = (is: () => bigint): bigint | null => (t.position >= 5 ? mix(is()) | 1n : null)
  const matched = (): number => (t.match.length > 0 ? at(t.match.place) : 0)
  return {
    ...{ t, back, matched },
    tokens: () => t.position,
    firstByte: (byte) => byte,
    read: (byte) => read(byte, true),
    keys: () => {
      const [one0, one1] = t.follows1[back(0)]! as [number, number]
      const own = [
        ...[2, 3, 4].map(few),
        behind(() => bytes(back(1), back(2), back(3)) * 0x9e37n + 0x909n),
        behind(() => bytes(back(0), back(2), back(3)) * 0x9e37n + 0xa0an),
        behind(() => bytes(one1, one0, back(0)) * golden + 0x1212n),
        behind(() => {
          const both = t.follows2[index(big((back(0) << 8) | back(1)))]!
          return ((big(both) << 16n) | bytes(back(0), back(1))) * golden + 0x1313n
        }),
      ]
      return keys(own, matched())
    },
  }
}

/**
 * A text whose tokens stand for these bytes. `written`: what the table has behind that of the bytes; `votes`: the
 * tokens that voted.
 */
export const subwordReader = (slots: number, texts: readonly Uint8Array[]) => {
  const { t, back, read, keys } = byteText(slots)
  const size = t.ring.length / 2
  const ring = new Uint32Array(size)
  const follows = new Uint32Array(512)
  let position = 0
  const at = (place: number): number => ring[(place + size) % size]!
  const last = (n: number): number => at(position - 1 - n)
  const followsOf = (token: number): number => 2 * Number(mix(big(token)) % 256n)
  const ofTokens: Matched = { size, at, read: () => position, match: t.match, places: t.matches }
  const matched = (): number => (t.match.length > 0 ? at(t.match.place) : 0)
  const text: TextReader = {
    ...{ t, back, matched },
    tokens: () => position,
    firstByte: (token) => texts[token]![0] ?? 0,
    read(token) {
      ring[position % size] = token
      position += 1
      followMatch(ofTokens, 2, 2)
      for (const byte of texts[token]!) read(byte, false)
      if (position < 2) return
      const place = followsOf(last(1))
      follows[place + 1] = follows[place]!
      follows[place] = token
    },
    keys() {
      const golden = 0x9e3779b1n
      const few = (order: number): bigint | null => hashOfLast(order, position, last)
      const behind = (is: () => bigint): bigint | null => (position >= 4 ? mix(is()) | 1n : null)
      const two = (a: number, b: number): bigint => (big(a) << 24n) | big(b)
      const place = position === 0 ? 0 : followsOf(last(0))
      const own = [
        ...[1, 2, 3].map(few),
        behind(() => two(last(1), last(2)) * golden + 0x909n),
        behind(() => two(last(0), last(2)) * golden + 0xa0an),
        behind(() => mix(two(follows[place + 1]!, follows[place]!)) * 31n + big(last(0)) + 0x1212n),
        position >= 4 ? few(4) : null,
      ]
      return keys(own, matched())
    },
  }
  const written = (votes: readonly number[]): Uint8Array =>
    new Uint8Array(Uint32Array.from([position, ...follows, ...votes, 0, ...ring]).buffer)
  return { text, written }
}
