/**
 * What is new about a line, by what a model that learns the stream needed for it (docs/watch.md). Two things are told apart, as people do:
 *
 *   structure   a kind of line that was not there before: the eight most surprising bytes outside of words with a digit, times
 *               0.1 + the share of its pairs of neighbouring words that were never seen (words with a digit are all one word here)
 *   values      a known kind with a number that does not fit: how far its logarithm lies outside of what the same place of such lines had,
 *               in spreads of that place
 *
 * Each is ranked among the last thousand lines. What is kept is bounded: of kinds and of pairs those that were seen last.
 */
import { bounded } from './bounded.ts'
import { createRanks } from './ranks.ts'

/** One of both. */
export interface Standing {
  readonly score: number
  /** The share of the last lines with a lower score; null while fewer than a hundred lines were read. */
  readonly rank: number | null
}

export interface Novelty {
  readonly structure: Standing
  readonly values: Standing
  /** The line with its words with digits replaced by a mark. */
  readonly pattern: string
  /** Lines of this pattern before this one, as far as they are remembered. */
  readonly seen: number
  /** The words that cost most, dearest first. */
  readonly words: readonly { readonly word: string; readonly bits: number }[]
}

export interface NoveltyJudge {
  /** Judges a line by the bits that each of its bytes cost, and remembers it. `line` and `bits` are without the line's end. */
  judge(line: Uint8Array, bits: Float64Array): Novelty
}

export const MARK = '<*>'
/** Lines that are ranked among each other, and those that must have come before. */
const WINDOW = 1000
const LEARNING = 100
/** Most surprising bytes that count. */
const DEAREST = 8
const KNOWN_SHARE = 0.1
const MOST_KINDS = 4096
const MOST_PAIRS = 65_536
/** Of a line: words and numbers behind these are not looked at. */
const MOST_WORDS = 256
const MOST_NUMBERS = 32
const MOST_DIGITS = 15
/** Numbers that a place must have had before one can stand out, and from which on it counts in full. */
const FEW = 5
const MANY = 31
const LEAST_SPREAD = 0.15
const RATE = 0.02
/** How fast the ends of a range come back to the mean. */
const FORGETTING = 0.002
/** Words that are told, with so many bits at least. */
const TOLD = 3
const TOLD_BITS = 4

/** Logarithms of the numbers that a place had. */
interface Place {
  count: number
  mean: number
  variance: number
  low: number
  high: number
}

interface Kind {
  seen: number
  readonly places: Place[]
}

const isDigit = (byte: number): boolean => byte >= 0x30 && byte <= 0x39
const isBlank = (byte: number): boolean => byte === 0x20 || byte === 0x09

interface Word {
  readonly from: number
  readonly to: number
  readonly isValue: boolean
}

const wordsOf = (line: Uint8Array): readonly Word[] => {
  const words: Word[] = []
  for (let from = 0; from < line.length && words.length < MOST_WORDS; ) {
    if (isBlank(line[from]!)) {
      from += 1
      continue
    }
    let to = from
    let isValue = false
    for (; to < line.length && !isBlank(line[to]!); to += 1) isValue ||= isDigit(line[to]!)
    words.push({ from, to, isValue })
    from = to
  }
  return words
}

/** Decimal logarithms of the line's numbers + 1. */
const numbersOf = (line: Uint8Array): readonly number[] => {
  const numbers: number[] = []
  for (let from = 0; from < line.length && numbers.length < MOST_NUMBERS; from += 1) {
    if (!isDigit(line[from]!)) continue
    let number = 0
    const began = from
    for (; from < line.length && isDigit(line[from]!); from += 1) number = number * 10 + line[from]! - 0x30
    numbers.push(from - began > MOST_DIGITS ? Number.NaN : Math.log10(number + 1))
  }
  return numbers
}

/** How far a number's logarithm lies outside of the range of its place, in spreads of the place. Then the number is added to the place. */
const strangeness = (place: Place, x: number): number => {
  const { count, mean, variance, low, high } = place
  const outside = Math.max(x - high, low - x, 0) / (Math.sqrt(variance) + LEAST_SPREAD)
  const rate = Math.max(1 / (count + 1), RATE)
  place.count += 1
  place.mean += rate * (x - mean)
  place.variance = (1 - rate) * (variance + rate * (x - mean) ** 2)
  place.low = Math.min(x, low + (place.mean - low) * FORGETTING)
  place.high = Math.max(x, high - (high - place.mean) * FORGETTING)
  return count < FEW ? 0 : outside * Math.min(1, Math.log2(count + 1) / Math.log2(MANY + 1))
}

const sum = (bits: Float64Array): number => bits.reduce((a, b) => a + b, 0)

export const createNovelty = (): NoveltyJudge => {
  const kinds = bounded<Kind>(MOST_KINDS)
  const pairs = bounded<true>(MOST_PAIRS)
  const structures = createRanks(WINDOW, LEARNING)
  const values = createRanks(WINDOW, LEARNING)

  return {
    judge(line, bits) {
      const words = wordsOf(line)
      const text = (word: Word): string => Buffer.from(line.subarray(word.from, word.to)).toString('utf8')
      const masked = words.map((word) => (word.isValue ? MARK : text(word)))
      const pattern = masked.join(' ')

      const fresh = ['', ...masked].filter((word, i) => {
        const pair = `${word}\n${masked[i] ?? ''}`
        const isNew = pairs.get(pair) === undefined
        pairs.set(pair, true)
        return isNew
      }).length
      const outside = bits.slice()
      for (const { from, to, isValue } of words) if (isValue) outside.fill(0, from, to)
      const dearest = sum(outside.toSorted().subarray(-DEAREST))
      const structure = dearest * (KNOWN_SHARE + fresh / (masked.length + 1))

      const kind = kinds.get(pattern) ?? { seen: 0, places: [] }
      let strangest = 0
      for (const [i, x] of numbersOf(line).entries()) {
        const place = kind.places[i]
        if (Number.isNaN(x)) kind.places[i] ??= { count: 0, mean: 0, variance: 0, low: 0, high: 0 }
        else if (place === undefined) kind.places[i] = { count: 1, mean: x, variance: 0, low: x, high: x }
        else strangest = Math.max(strangest, strangeness(place, x))
      }
      const { seen } = kind
      kind.seen += 1
      kinds.set(pattern, kind)

      const costs = words
        .map((word) => ({ word: text(word), bits: sum(bits.subarray(word.from, word.to)) }))
        .filter((word) => word.bits >= TOLD_BITS)
        .sort((a, b) => b.bits - a.bits)
      return {
        structure: { score: structure, rank: structures.rank(structure) },
        values: { score: strangest, rank: values.rank(strangest) },
        pattern,
        seen,
        words: costs.slice(0, TOLD),
      }
    },
  }
}
