/**
 * Kinds of lines that came again and again, and then do not: a heartbeat that stops. For each kind the lines between
 * two of them are remembered, as the range, the mean and the spread of their logarithms. A kind is silent when none
 * came for so many lines that the logarithm lies three spreads outside of the range.
 *
 * Lines are counted, not time: text has no clock that every stream shares. So a stream that stops as a whole says
 * nothing.
 */
import { type ByteReader, type ByteWriter, isCount, Unreadable } from './bytes.ts'
import { log2, log10 } from './log2.ts'

/** A kind of line that stays away. */
export interface Silent {
  readonly pattern: string
  /** Lines from one to the next, as a geometric mean. */
  readonly every: number
  /** Lines since the last one, and where that stood in its stream; 0: before this stream. */
  readonly lines: number
  readonly last: number
}

/** What a line shows of other kinds. */
export interface Silence {
  /** 3 and more; 0 where no kind has just fallen silent. */
  readonly score: number
  /** The kinds that have, the most surprising one first. */
  readonly kinds: readonly Silent[]
}

/** Follows the kinds of one stream. */
export interface Silences {
  /**
   * Takes the next line. `low`, `high`: the hashes of its pattern; `seen`: lines of that pattern before it; `at`: where
   * the line stands in its stream. Returns the kinds that are found silent at this line; a kind that was returned is
   * not returned again before a line of it came.
   */
  line(low: number, high: number, seen: number, at: number, pattern: () => string): Silence
  write(to: ByteWriter): void
}

/** Kinds that are followed, those that came last, once they came so often; characters of their patterns. */
const MOST_KINDS = 512
const KNOWN = 4
const MOST_TEXT = 120
/** Lines of a kind that are nearer to each other count as one: a burst says nothing of how often it comes. */
const APART = 4
/** Gaps that must have been seen before a kind can be silent. */
const FEW = 16
/** How far outside of the range, in spreads. */
const OUTSIDE = 3
const LEAST_SPREAD = 0.15
const RATE = 0.02
const FORGETTING = 0.002
/** A kind that stays away for so many lines is given up. */
const MOST_GAP = 100_000
const MOST_TOLD = 3
const NONE: Silence = { score: 0, kinds: [] }

interface Kind {
  readonly low: number
  readonly high: number
  readonly pattern: string
  /** The number of its last line, and where that stands. */
  line: number
  at: number
  gaps: number
  /** Of log10(gap + 1). */
  mean: number
  variance: number
  longest: number
  /** The line at which to look whether it is silent; 0: none, before it is known well enough and once it was told. */
  check: number
}

const sizeOf = (gap: number): number => log10(gap + 1)
const spreadOf = ({ variance }: Kind): number => Math.sqrt(variance) + LEAST_SPREAD

const silentFrom = (kind: Kind): number => kind.longest + OUTSIDE * spreadOf(kind)

/** The least gap of such a size, found by halves: a power would have other bits on other machines. */
const gapOf = (size: number): number => {
  let [below, gap] = [-1, MOST_GAP]
  while (gap - below > 1) {
    const middle = Math.floor((below + gap) / 2)
    if (sizeOf(middle) >= size) gap = middle
    else below = middle
  }
  return gap
}

/**
 * A gap that was silence counts as one that only just was: a kind that came back is missed again, and one that comes
 * more seldom from now on is not for long.
 */
const add = (kind: Kind, gap: number): void => {
  const x = kind.gaps < FEW ? sizeOf(gap) : Math.min(sizeOf(gap), silentFrom(kind))
  if (kind.gaps === 0) {
    kind.mean = x
    kind.longest = x
  } else {
    const rate = Math.max(1 / (kind.gaps + 1), RATE)
    const from = x - kind.mean
    kind.mean += rate * from
    kind.variance = (1 - rate) * (kind.variance + rate * from * from)
    kind.longest = Math.max(x, kind.longest - (kind.longest - kind.mean) * FORGETTING)
  }
  kind.gaps += 1
}

const readKind = (from: ByteReader): Kind => {
  const [low, high] = [from.u32(), from.u32()]
  const pattern = Buffer.from(from.bytes(from.count(4 * MOST_TEXT))).toString('utf8')
  const [line, at, gaps, check] = [from.f64(), from.f64(), from.f64(), from.f64()]
  const [mean, variance, longest] = [from.f64(), from.f64(), from.f64()]
  if (![line, at, gaps, check].every(isCount)) throw new Unreadable('has a kind of line without its place')
  if (![mean, variance, longest].every((one) => one >= 0 && one <= 1000))
    throw new Unreadable('has a kind of line with gaps that none can have')
  return { low, high, pattern, line, at, gaps, mean, variance, longest, check }
}

/**
 * `from`: what `write` wrote; `elsewhere`: for another stream, before which the lines that it remembers stand, at 0.
 * Throws `Unreadable`.
 */
export const createSilences = (from?: ByteReader, elsewhere = false): Silences => {
  /** By its hashes, that of the last line last. */
  const kinds = new Map<string, Kind>()
  /**
   * Which kinds to look at, by the line. One that came back meanwhile has another line to be looked at, or is looked at
   * again.
   */
  const checks = new Map<number, string[]>()
  let count = 0

  const lookAt = (key: string, kind: Kind, line: number): void => {
    kind.check = line
    const others = checks.get(line)
    if (others === undefined) checks.set(line, [key])
    else others.push(key)
  }
  const keyOf = (low: number, high: number): string => `${low} ${high}`

  if (from !== undefined) {
    count = from.f64()
    if (!isCount(count)) throw new Unreadable('has no number of lines')
    for (let left = from.count(MOST_KINDS); left > 0; left -= 1) {
      const kind = readKind(from)
      if (kind.line > count || (kind.check !== 0 && kind.check <= count))
        throw new Unreadable('has a kind of line behind its last line')
      const key = keyOf(kind.low, kind.high)
      if (elsewhere) kind.at = 0
      kinds.set(key, kind)
      if (kind.check !== 0) lookAt(key, kind, kind.check)
    }
  }

  const came = (low: number, high: number, seen: number, at: number, pattern: () => string): void => {
    const key = keyOf(low, high)
    const known = kinds.get(key)
    if (known === undefined && seen < KNOWN) return
    const kind: Kind = known ?? {
      ...{ low, high, pattern: pattern().slice(0, MOST_TEXT).toWellFormed(), line: count, at },
      ...{ gaps: 0, mean: 0, variance: 0, longest: 0, check: 0 },
    }
    const gap = count - kind.line
    if (gap >= APART) add(kind, gap)
    kind.line = count
    kind.at = at
    kinds.delete(key)
    kinds.set(key, kind)
    if (kinds.size > MOST_KINDS) kinds.delete(kinds.keys().next().value!)
    if (kind.gaps >= FEW && kind.check === 0) lookAt(key, kind, count + gapOf(silentFrom(kind)))
  }

  return {
    line(low, high, seen, at, pattern) {
      count += 1
      came(low, high, seen, at, pattern)
      const keys = checks.get(count)
      if (keys === undefined) return NONE
      checks.delete(count)
      const silent: { readonly score: number; readonly kind: Kind }[] = []
      for (const key of keys) {
        const kind = kinds.get(key)
        if (kind?.check !== count) continue
        const gap = count - kind.line
        const size = sizeOf(gap)
        if (size < silentFrom(kind) && gap < MOST_GAP) {
          lookAt(key, kind, kind.line + gapOf(silentFrom(kind)))
          continue
        }
        kind.check = 0
        const outside = (size - kind.longest) / spreadOf(kind)
        if (size >= silentFrom(kind)) silent.push({ score: (outside * log2(kind.gaps + 1)) / log2(FEW + 1), kind })
      }
      if (silent.length === 0) return NONE
      silent.sort((a, b) => b.score - a.score || a.kind.low - b.kind.low || a.kind.high - b.kind.high)
      return {
        score: Math.fround(silent[0]!.score),
        kinds: silent.slice(0, MOST_TOLD).map(({ kind }) => ({
          pattern: kind.pattern,
          every: gapOf(kind.mean),
          lines: count - kind.line,
          last: kind.at,
        })),
      }
    },
    write(to) {
      to.f64(count)
      to.u32(kinds.size)
      for (const kind of kinds.values()) {
        to.u32(kind.low)
        to.u32(kind.high)
        const text = Buffer.from(kind.pattern)
        to.u32(text.length)
        to.bytes(text)
        for (const number of [kind.line, kind.at, kind.gaps, kind.check, kind.mean, kind.variance, kind.longest])
          to.f64(number)
      }
    },
  }
}
