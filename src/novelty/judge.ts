/**
 * What is new about a line, by what a model that learns the stream needed for it (docs/watch.md). Four things are told
 * apart, as people do:
 *
 *   structure   a kind of line that was not there before: the eight most surprising bytes outside of words with a digit, more where neighbouring words
 *               were never seen beside each other (structure.ts; words with a digit are all one word)
 *   values      a known kind with a number or a word that does not fit (values.ts)
 *   rate        how many of the fifteen lines before were the same line
 *   silence     other kinds of lines that came again and again, and now do not (silence.ts)
 *
 * Each is ranked among the last thousand lines. What is kept is bounded: of patterns, places and pairs those that were
 * seen last. It is a part of a session's state: it follows from the lines and their bits alone, on any machine, and
 * goes on where it was written down.
 */
import { type ByteReader, type ByteWriter, isCount, Unreadable } from './bytes.ts'
import { hashOf, joined, MASKED, SEEDS } from './hash.ts'
import { createRanks, type Ranks } from './ranks.ts'
import { createSilences, type Silent } from './silence.ts'
import { createStructure } from './structure.ts'
import { createTable } from './table.ts'
import { createValues, type Stretch } from './values.ts'

/** One of the four. */
export interface Standing {
  readonly score: number
  /** The share of the last lines with a lower score; null while fewer than a hundred lines were read. */
  readonly rank: number | null
}

/** A word of a line, and the bits that it cost. */
export interface Word {
  readonly word: string
  readonly bits: number
}

/** What a judge says of a line. */
export interface Novelty {
  readonly structure: Standing
  readonly values: Standing
  readonly rate: Standing
  /** With the kinds of lines that have just fallen silent. */
  readonly silence: Standing & { readonly kinds: readonly Silent[] }
  /** Lines of this pattern before this one, as far as they are remembered. */
  readonly seen: number
  /** Where the first and the last of them stood; 0: before this stream; null: there was none. */
  readonly first: number | null
  readonly last: number | null
  /** The line with its words with digits replaced by a mark. */
  pattern(): string
  /** The words that cost most, dearest first. */
  words(): readonly Word[]
}

/** Judges the lines of one stream, one after the other, by those before. */
export interface NoveltyJudge {
  /**
   * Judges a line by the bits that each of its bytes cost, and remembers it. `line` and `bits` are without the line's
   * end, and are not kept; `at`: where the line stands in its stream.
   */
  judge(line: Uint8Array, bits: Float64Array, at: number): Novelty
  /** Writes what it remembers, for `createJudge` to go on from. */
  write(to: ByteWriter): void
}

export const MARK = '<*>'
/** Lines that are ranked among each other, and those that must have come before. */
const WINDOW = 1000
const LEARNING = 100
/** Most surprising bytes that count. */
const DEAREST = 8
/**
 * The weights of the dearest bytes' bits in `structure`: KNOWN_SHARE in every line, FRESH more for each bit of its new
 * pairs of words. FRESHEST is the weight of the bits of the most surprising pair.
 */
const KNOWN_SHARE = 0.1
const FRESH = 0.05
const FRESHEST = 5
/** An entry of the table of patterns is two hashes, a count and two places in the stream. */
const PATTERNS = { words: 8, key: 2, most: 4096 } as const
const SEEN = 2
const [FIRST, LAST] = [2, 3] as const
/** Words of a line behind these are not looked at. */
const MOST_WORDS = 256
/** Words that are told, with so many bits at least. */
const TOLD = 3
const TOLD_BITS = 4
/**
 * Lines that a line is compared with for its rate, and repeats that count: the rest of a long burst is no newer than
 * its tenth line. Where a time stands among the first words, those of them that have digits differ in lines that are
 * otherwise the same.
 */
const BEFORE = 15
const REPEATS = 9
const TIMES = 4
const BETWEEN: ReadonlySet<number> = new Set(Buffer.from(':.,-/'))
/** Numbers of 32 bits end at 3.4e38. */
const MOST_SCORE = 3e38
const MOST_COUNT = 0xffffffff

const isDigit = (byte: number): boolean => byte >= 0x30 && byte <= 0x39
/** Line ends stand between the lines of a record. */
const isBlank = (byte: number): boolean => byte === 0x20 || byte === 0x09 || byte === 0x0a

const wordsOf = (line: Uint8Array): readonly Stretch[] => {
  const words: Stretch[] = []
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

/** Whether a word holds a digit, one of `:.,-/`, and a digit, as times and dates do. */
const hasTime = (line: Uint8Array, { from, to }: Stretch): boolean => {
  for (let at = from + 1; at + 1 < to; at += 1)
    if (isDigit(line[at - 1]!) && isDigit(line[at + 1]!) && BETWEEN.has(line[at]!)) return true
  return false
}

const ranked = (score: number, among: Ranks): Standing => {
  const bounded = Math.fround(Math.min(score, MOST_SCORE))
  return { score: bounded, rank: among.rank(bounded) }
}

const sum = (bits: Float64Array): number => bits.reduce((a, b) => a + b, 0)

/**
 * `from`: what `write` wrote; `elsewhere`: for another stream, before which the lines that it remembers stand, at 0.
 * Throws `Unreadable`.
 */
export const createJudge = (from?: ByteReader, elsewhere = false): NoveltyJudge => {
  const structure = createStructure(from)
  const patterns = createTable(PATTERNS, from)
  const strangeness = createValues(from)
  const structures = createRanks(WINDOW, LEARNING, from)
  const values = createRanks(WINDOW, LEARNING, from)
  const rates = createRanks(WINDOW, LEARNING, from)
  const gaps = createRanks(WINDOW, LEARNING, from)
  /** Hashes of the lines before, the last one first; 0: there was none. */
  const before = Uint32Array.from({ length: BEFORE }, () => from?.u32() ?? 0)
  const silences = createSilences(from, elsewhere)
  for (const at of patterns.entries())
    for (const field of [FIRST, LAST])
      if (!isCount(patterns.f64[at / 2 + field]!)) throw new Unreadable('has a pattern without its place')
      else if (elsewhere) patterns.f64[at / 2 + field] = 0
  const seenOf = (low: number, high: number): number => {
    const at = patterns.find(low, high)
    return at === -1 ? 0 : patterns.u32[at + SEEN]!
  }

  /** How many of the lines before were the same. Then the line is one of them. */
  const repeats = (line: Uint8Array, words: readonly Stretch[]): number => {
    const timed = words[0]?.isValue || words.slice(0, TIMES).some((word) => hasTime(line, word)) ? TIMES : 0
    const same = words
      .map(({ from, to, isValue }, i) => (isValue && i < timed ? MASKED : hashOf(line, from, to, SEEDS[1])))
      .reduce(joined, SEEDS[1])
    const hash = Math.max(same, 1)
    const count = before.filter((one) => one === hash).length
    before.copyWithin(1, 0)
    before[0] = hash
    return Math.min(count, REPEATS)
  }

  return {
    judge(line, bits, at) {
      const words = wordsOf(line)
      const masked = words.map(({ from, to, isValue }) => (isValue ? MASKED : hashOf(line, from, to, SEEDS[0])))
      const outside = bits.slice()
      for (const { from, to, isValue } of words) if (isValue) outside.fill(0, from, to)
      const dearest = sum(outside.toSorted().subarray(-DEAREST))
      const fresh = structure.line(masked)
      const newness = dearest * (KNOWN_SHARE + fresh.all * FRESH) + fresh.most * FRESHEST

      const low = masked.reduce(joined, SEEDS[0])
      const high = masked.reduce(joined, SEEDS[1])
      const repeated = repeats(line, words)

      const entry = patterns.take(low, high)
      const seen = patterns.u32[entry + SEEN]!
      // FIRST and LAST count 64-bit numbers from the beginning of the entry, which has two hashes, the count and a gap
      // before them.
      const [firstAt, lastAt] = [entry / 2 + FIRST, entry / 2 + LAST]
      const strangest = Math.max(
        strangeness.numbers(line, low, high),
        strangeness.word(masked, { low, high }, seen, seenOf),
        strangeness.runs(line, words, { low, high }, seen),
      )
      const [first, last] = seen === 0 ? [null, null] : [patterns.f64[firstAt]!, patterns.f64[lastAt]!]
      if (seen === 0) patterns.f64[firstAt] = at
      patterns.f64[lastAt] = at
      patterns.u32[entry + SEEN] = Math.min(seen + 1, MOST_COUNT)

      const text = ({ from, to }: Stretch): string => Buffer.from(line.subarray(from, to)).toString('utf8')
      const pattern = (): string => words.map((word) => (word.isValue ? MARK : text(word))).join(' ')
      const silence = silences.line(low, high, seen, at, pattern)
      return {
        structure: ranked(newness, structures),
        values: ranked(strangest, values),
        rate: { score: repeated, rank: rates.rank(repeated) },
        silence: { ...silence, rank: gaps.rank(silence.score) },
        seen,
        first,
        last,
        pattern,
        words: () =>
          words
            .map((word) => ({ word: text(word), bits: sum(bits.subarray(word.from, word.to)) }))
            .filter((word) => word.bits >= TOLD_BITS)
            .sort((a, b) => b.bits - a.bits)
            .slice(0, TOLD),
      }
    },
    write(to) {
      for (const part of [structure, patterns, strangeness, structures, values, rates, gaps]) part.write(to)
      for (const hash of before) to.u32(hash)
      silences.write(to)
    },
  }
}
