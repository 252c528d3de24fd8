/** Numbers between two bounds, digit by digit. */
import { type Chars, charsOf } from './chars.ts'
import { chars, EMPTY, type Expression, either, maybe, NOTHING, repeat, sequence, word } from './expression.ts'
import { digit } from './json.ts'

/** In all: two numbers of so many digits are two doubles, so none is rounded to a bound that it must not reach. */
const MOST_DIGITS = 15
const LARGEST = 10 ** MOST_DIGITS - 1

/** A bound that is not negative: digits before and behind the point, and whether the bound itself is left out. */
interface Bound {
  readonly whole: number
  readonly fraction: string
  readonly strict: boolean
}

export interface Bounds {
  readonly least: number
  readonly leastStrict: boolean
  readonly most: number
  readonly mostStrict: boolean
}

const digitsFrom = (first: number, last: number): Chars => charsOf([[0x30 + first, 0x30 + last]])
const digits = (min: number, max = min): Expression => (max === 0 ? EMPTY : repeat(digit, min, max))

/** Numbers of as many digits as `low` and `high` have, from `low` to `high`. */
const sameLength = (low: string, high: string): Expression => {
  if (low === '') return EMPTY
  if (/^0+$/.test(low) && /^9+$/.test(high)) return digits(low.length)
  const [from, to] = [Number(low[0]), Number(high[0])]
  const [lowRest, highRest] = [low.slice(1), high.slice(1)]
  if (from === to) return sequence(word(low[0]!), sameLength(lowRest, highRest))
  const rest = lowRest.length
  return either(
    sequence(word(low[0]!), sameLength(lowRest, '9'.repeat(rest))),
    ...(to - from > 1 ? [sequence(chars(digitsFrom(from + 1, to - 1)), digits(rest))] : []),
    sequence(word(high[0]!), sameLength('0'.repeat(rest), highRest)),
  )
}

/** Whole numbers from `low` to `high`, both ≥ 0, without leading zeros. */
const wholeBetween = (low: number, high: number): Expression => {
  const parts: Expression[] = []
  for (let length = String(low).length; length <= String(high).length; length += 1) {
    const first = Math.max(low, length === 1 ? 0 : 10 ** (length - 1))
    const last = Math.min(high, 10 ** length - 1)
    if (first <= last) parts.push(sameLength(String(first), String(last)))
  }
  return either(...parts)
}

/** Magnitudes of whole numbers with these bounds, which are whole, too. */
const integers = (low: number, high: number): Expression => {
  const negative = low < 0 ? [sequence(word('-'), wholeBetween(Math.max(1, -high), -low))] : []
  const positive = high >= 0 ? [wholeBetween(Math.max(0, low), high)] : []
  return either(...negative, ...positive)
}

/**
 * The digits behind a point that are at least `low` and at most `high`, as numbers behind 0 and point; null: there is
 * no such bound. What is not written counts as zeros. `most`: digits at most.
 */
const fractions = (low: Bound | null, high: Bound | null, most: number): Expression => {
  const seen = new Map<string, Expression>()
  /** From the digit at `at` on; `tightLow`: the digits so far are those of `low`. */
  const from = (at: number, tightLow: boolean, tightHigh: boolean): Expression => {
    if (!tightLow && !tightHigh) return digits(0, most - at)
    const key = `${at},${tightLow},${tightHigh}`
    const known = seen.get(key)
    if (known !== undefined) return known
    const rest = (bound: Bound): string => bound.fraction.slice(at).replace(/0+$/, '')
    const aboveLow = !tightLow || (rest(low!) === '' && !low!.strict)
    const belowHigh = !tightHigh || rest(high!) !== '' || !high!.strict
    const parts: Expression[] = aboveLow && belowHigh ? [EMPTY] : []
    for (let next = 0; next < 10 && at < most; next += 1) {
      const floor = tightLow ? Number(low!.fraction[at] ?? 0) : 0
      const ceiling = tightHigh ? Number(high!.fraction[at] ?? 0) : 9
      if (next < floor || next > ceiling) continue
      const then = from(at + 1, tightLow && next === floor, tightHigh && next === ceiling)
      parts.push(sequence(word(String(next)), then))
    }
    const all = either(...parts)
    seen.set(key, all)
    return all
  }
  const all = from(0, low !== null, high !== null)
  const nothing =
    (low === null || (/^0*$/.test(low.fraction) && !low.strict)) &&
    (high === null || !high.strict || /[1-9]/.test(high.fraction))
  // A point has a digit behind it.
  const written = sequence(word('.'), nonEmpty(all))
  return nothing ? maybe(written) : written
}

/** Those of the digits' expressions that read a digit. */
const nonEmpty = (expression: Expression): Expression =>
  expression.kind === 'either'
    ? either(...expression.parts.filter((part) => part !== EMPTY))
    : expression.kind === 'repeat'
      ? { ...expression, min: 1 }
      : expression === EMPTY
        ? NOTHING
        : expression

/** Numbers ≥ 0 between two bounds. */
const decimals = (low: Bound, high: Bound): Expression => {
  if (low.whole > high.whole) return NOTHING
  const most = MOST_DIGITS - String(high.whole).length
  const inside = (from: number, to: number): Expression => sequence(wholeBetween(from, to), fractions(null, null, most))
  const at = (low: Bound | null, high: Bound | null): Expression =>
    sequence(word(String((low ?? high)!.whole)), fractions(low, high, most))
  if (low.whole === high.whole) return at(low, high)
  const between = high.whole - low.whole > 1 ? [inside(low.whole + 1, high.whole - 1)] : []
  return either(at(low, null), ...between, at(null, high))
}

/** A number ≥ 0 as digits; null where it has more of them than are written. */
const boundOf = (value: number, strict: boolean): Bound | null => {
  if (value > LARGEST) return { whole: LARGEST, fraction: '', strict: false }
  const [whole = '', fraction = ''] = value.toString().split('.')
  return /^\d+$/.test(whole) && /^\d*$/.test(fraction) && whole.length + fraction.length <= MOST_DIGITS
    ? { whole: Number(whole), fraction, strict }
    : null
}

/**
 * Integers or numbers between bounds, which may be infinite; null where a bound cannot be written in MOST_DIGITS
 * digits.
 */
export const numbersBetween = ({ least, leastStrict, most, mostStrict }: Bounds, whole: boolean): Expression | null => {
  if (whole) {
    const low = Number.isInteger(least) && leastStrict ? least + 1 : Math.ceil(least)
    const high = Number.isInteger(most) && mostStrict ? most - 1 : Math.floor(most)
    if (low > high || low > LARGEST || high < -LARGEST) return NOTHING
    return integers(Math.max(low, -LARGEST), Math.min(high, LARGEST))
  }
  const parts: Expression[] = []
  if (most >= 0) {
    const low = boundOf(Math.max(0, least), least >= 0 && leastStrict)
    const high = boundOf(most, mostStrict)
    if (low === null || high === null) return null
    parts.push(decimals(low, high))
  }
  if (least < 0) {
    // Zero has no sign.
    const low = boundOf(Math.max(0, -most), most >= 0 || mostStrict)
    const high = boundOf(-least, leastStrict)
    if (low === null || high === null) return null
    parts.push(sequence(word('-'), decimals(low, high)))
  }
  return either(...parts)
}
