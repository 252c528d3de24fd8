/**
 * Values that do not fit a known kind of line. Of a number: how far its decimal logarithm lies outside of what the same
 * place of lines of that pattern had, in spreads of that place. Of a word: how surprising it is that a pattern which
 * was never seen is a known one but for this word, by how often lines with the same other words came and how many words
 * they had there. A run of letters inside of a word with digits is judged alike, by the runs that lines of the same
 * pattern had at this place.
 */
import { type ByteReader, type ByteWriter, Unreadable } from './bytes.ts'
import { HOLE, hashOf, joined, MASKED, SEEDS } from './hash.ts'
import { bitsOfNew, log2, log10 } from './log2.ts'
import { createTable, type Table } from './table.ts'

/**
 * An entry of PLACES (of numbers in lines of a pattern) is two hashes, a count, and mean, variance and range of the
 * logarithms; one of FRAMES (patterns without one of their words) two hashes, how many patterns they are, and the two
 * hashes of the last one. FRAMES has runs of letters, too: of each place in lines of a pattern how many different ones
 * there were, and the last one; and that a run was at that place.
 */
const PLACES = { words: 8, key: 2, most: 4096 } as const
const [COUNT, MEAN, VARIANCE, LOW, HIGH] = [2, 3, 4, 5, 6] as const
const FRAMES = { words: 6, key: 2, most: 4096 } as const
const [PATTERNS, LAST_LOW, LAST_HIGH] = [2, 3, 4] as const
/** Words of a line are looked at where it has no more of them; numbers behind these are not. */
const MOST_WORDS = 64
const MOST_NUMBERS = 32
const MOST_RUNS = 32
/** Shorter runs are parts of numbers in base 16, units and the like. */
const LEAST_RUN = 3
/** A place with more of them varies: no further one is remembered, and none stands out. */
const MOST_DIFFERENT = 32
const MOST_DIGITS = 15
/** Numbers that a place must have had before one can stand out, and from which on it counts in full. */
const FEW = 5
const MANY = 31
const LEAST_SPREAD = 0.15
const RATE = 0.02
/** How fast the ends of a range come back to the mean. */
const FORGETTING = 0.002
const MOST_COUNT = 0xffffffff

const isLetter = (byte: number): boolean => (byte >= 0x41 && byte <= 0x5a) || (byte >= 0x61 && byte <= 0x7a)
const isDigit = (byte: number): boolean => byte >= 0x30 && byte <= 0x39

/** Decimal logarithms of the line's numbers + 1; NaN for one that is too long. */
const numbersOf = (line: Uint8Array): readonly number[] => {
  const numbers: number[] = []
  for (let from = 0; from < line.length && numbers.length < MOST_NUMBERS; from += 1) {
    if (!isDigit(line[from]!)) continue
    let number = 0
    const began = from
    for (; from < line.length && isDigit(line[from]!); from += 1) number = number * 10 + line[from]! - 0x30
    numbers.push(from - began > MOST_DIGITS ? Number.NaN : log10(number + 1))
  }
  return numbers
}

export interface Values {
  /**
   * How strange the strangest number of a line is whose pattern has these hashes, in spreads. Then its numbers are
   * known.
   */
  numbers(line: Uint8Array, low: number, high: number): number
  /**
   * How surprising the word is by which the pattern of these words differs from a known one, bits; 0 for a known
   * pattern. `seen`: lines of the pattern before; `seenOf`: of another one.
   */
  word(
    words: readonly number[],
    pattern: PatternKey,
    seen: number,
    seenOf: (low: number, high: number) => number,
  ): number
  /**
   * How surprising the most surprising run of letters is in the line's words with digits, bits; `seen`: lines of the
   * pattern before. Then its runs are known.
   */
  runs(line: Uint8Array, words: readonly Stretch[], pattern: PatternKey, seen: number): number
  write(to: ByteWriter): void
}

/** Where a word lies in its line, [from, to), and whether it has a digit. */
export interface Stretch {
  readonly from: number
  readonly to: number
  readonly isValue: boolean
}

/** The hashes of a pattern. */
export interface PatternKey {
  readonly low: number
  readonly high: number
}

const readPlaces = (from?: ByteReader): Table => {
  const places = createTable(PLACES, from)
  for (const at of places.entries())
    for (const field of [MEAN, VARIANCE, LOW, HIGH])
      if (!(Math.abs(places.f32[at + field]!) <= 1000))
        throw new Unreadable('has a place of numbers that none can have')
  return places
}

/** `from`: what `write` wrote. Throws `Unreadable`. */
export const createValues = (from?: ByteReader): Values => {
  const places = readPlaces(from)
  const frames = createTable(FRAMES, from)

  /**
   * How far a number's logarithm lies outside of the range of its place, in spreads of the place. Then the number is
   * added to the place.
   */
  const strangeness = (at: number, x: number): number => {
    const { u32, f32 } = places
    const count = u32[at + COUNT]!
    u32[at + COUNT] = Math.min(count + 1, MOST_COUNT)
    if (count === 0) {
      f32[at + MEAN] = x
      f32[at + LOW] = x
      f32[at + HIGH] = x
      return 0
    }
    const [mean, variance, low, high] = [f32[at + MEAN]!, f32[at + VARIANCE]!, f32[at + LOW]!, f32[at + HIGH]!]
    const outside = Math.max(x - high, low - x, 0) / (Math.sqrt(Math.max(variance, 0)) + LEAST_SPREAD)
    const rate = Math.max(1 / (count + 1), RATE)
    const next = mean + rate * (x - mean)
    f32[at + MEAN] = next
    f32[at + VARIANCE] = (1 - rate) * (variance + rate * (x - mean) * (x - mean))
    f32[at + LOW] = Math.min(x, low + (next - low) * FORGETTING)
    f32[at + HIGH] = Math.max(x, high - (high - next) * FORGETTING)
    return count < FEW ? 0 : outside * Math.min(1, log2(count + 1) / log2(MANY + 1))
  }

  /** Bits of a run of letters at a place of a pattern, by the runs that stood there before. Then it is one of them. */
  const surprise = (low: number, high: number, run: number, seen: number): number => {
    const place = frames.take(low, high)
    const different = frames.u32[place + PATTERNS]!
    if (frames.u32[place + LAST_LOW] === run || different >= MOST_DIFFERENT) return 0
    frames.u32[place + LAST_LOW] = run
    frames.take(joined(low, run), joined(high, run))
    if (!frames.isNew) return 0
    // The place may lie elsewhere by now.
    const again = frames.take(low, high)
    frames.u32[again + PATTERNS] = different + 1
    return different === 0 ? 0 : bitsOfNew(seen, different)
  }

  return {
    runs(line, words, { low, high }, seen) {
      let [most, left] = [0, MOST_RUNS]
      for (const [nth, { from, to, isValue }] of words.entries())
        for (let at = from, of = nth; isValue && at < to && left > 0; at += 1) {
          const began = at
          while (at < to && isLetter(line[at]!)) at += 1
          if (at - began < LEAST_RUN) continue
          // Runs of a word are told apart by what was before them.
          of = joined(of, left)
          most = Math.max(most, surprise(joined(low, of), joined(high, of), hashOf(line, began, at, SEEDS[0]), seen))
          left -= 1
        }
      return most
    },
    numbers(line, low, high) {
      let strangest = 0
      for (const [i, x] of numbersOf(line).entries()) {
        if (Number.isNaN(x)) continue
        strangest = Math.max(strangest, strangeness(places.take(joined(low, i), joined(high, i)), x))
      }
      return strangest
    },
    word(words, { low, high }, seen, seenOf) {
      // A pattern that comes again keeps its frames: at its first, second, fourth, eighth line and so on.
      if ((seen & (seen - 1)) !== 0 || words.length > MOST_WORDS) return 0
      let most = 0
      for (const [hole, word] of words.entries()) {
        const without = words.with(hole, HOLE)
        const at = frames.take(without.reduce(joined, SEEDS[0]), without.reduce(joined, SEEDS[1]))
        const { u32 } = frames
        if (frames.isNew) u32[at + PATTERNS] = 1
        else if (seen === 0) {
          const patterns = u32[at + PATTERNS]!
          // A number is no word: where one stands in place of another word, both patterns have words.
          if (word !== MASKED)
            most = Math.max(most, bitsOfNew(seenOf(u32[at + LAST_LOW]!, u32[at + LAST_HIGH]!), patterns))
          u32[at + PATTERNS] = Math.min(patterns + 1, MOST_COUNT)
        }
        u32[at + LAST_LOW] = low
        u32[at + LAST_HIGH] = high
      }
      return most
    },
    write(to) {
      places.write(to)
      frames.write(to)
    },
  }
}
