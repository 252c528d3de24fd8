/**
 * Numbers as Python counts with them and writes them: ints are exact, floats are rounded to even where a digit is left
 * out.
 */
import { Fault } from './price.ts'

/** Ints beyond that, in bits, are refused; each has a float beside it. */
const MOST_BITS = 1000n
/** Digits behind the point that are asked for; a double has no more than 1,074. */
const MOST_DIGITS = 1100

/** An int that is not too large. */
export const int = (value: bigint): bigint => {
  if (value >> MOST_BITS === 0n || -value >> MOST_BITS === 0n) return value
  throw new Fault('it makes an int of more than 1000 bits')
}

/** A finite float as the int that it is without its fraction. */
export const truncated = (value: number): bigint => {
  if (Number.isFinite(value)) return int(BigInt(Math.trunc(value)))
  throw new Fault(`it makes an int of ${floatText(value)}`)
}

const modulo = <T extends bigint | number>(rest: T, divisor: T): T =>
  (Number(rest) !== 0 && rest < 0 !== divisor < 0 ? (rest as number) + (divisor as number) : rest) as T

const power = (a: bigint, b: bigint): bigint | number => {
  if (b < 0n) return Number(a) ** Number(b)
  if (BigInt(a.toString(2).length - 1) * b > MOST_BITS) throw new Fault('it makes an int of more than 1000 bits')
  return a ** b
}

/** `a op b` of ints. */
const ofInts = (op: string, a: bigint, b: bigint): bigint | number => {
  if (op === '+') return a + b
  if (op === '-') return a - b
  if (op === '*') return a * b
  if (op === '**') return power(a, b)
  if (op === '/') return Number(a) / Number(b)
  const rest = modulo(a % b, b)
  return op === '%' ? rest : (a - rest) / b
}

const ofFloats = (op: string, a: number, b: number): number => {
  if (op === '+') return a + b
  if (op === '-') return a - b
  if (op === '*') return a * b
  if (op === '/') return a / b
  if (op === '**') {
    if (a < 0 && !Number.isInteger(b)) throw new Fault('it makes a complex number')
    return Math.abs(a) === 1 && !Number.isFinite(b) ? 1 : a ** b
  }
  // As C's fmod, then with the sign of the divisor.
  const rest = a % b
  if (op === '%') return rest === 0 ? (b < 0 ? -0 : 0) : modulo(rest, b)
  const quotient = (a - rest) / b - (rest !== 0 && rest < 0 !== b < 0 ? 1 : 0)
  if (quotient === 0) return a / b < 0 || Object.is(a / b, -0) ? -0 : 0
  const floor = Math.floor(quotient)
  return quotient - floor > 0.5 ? floor + 1 : floor
}

/** `a op b` of two numbers. */
export const calculate = (op: string, a: bigint | number, b: bigint | number): bigint | number => {
  const divides = op === '/' || op === '//' || op === '%'
  if (Number(b) === 0 && divides) throw new Fault('it divides by zero')
  if (Number(a) === 0 && op === '**' && b < 0) throw new Fault('it divides by zero')
  const exact = typeof a === 'bigint' && typeof b === 'bigint'
  const found = exact ? ofInts(op, a, b) : ofFloats(op, Number(a), Number(b))
  if (typeof found === 'bigint') return int(found)
  if (op === '**' && !Number.isFinite(found) && Number.isFinite(Number(a)) && Number.isFinite(Number(b)))
    throw new Fault('it makes a float that is too large')
  return found
}

/** repr() of a float. */
export const floatText = (value: number): string => {
  if (Number.isNaN(value)) return 'nan'
  if (!Number.isFinite(value)) return value < 0 ? '-inf' : 'inf'
  if (Object.is(value, -0)) return '-0.0'
  const [digits = '', exponent = ''] = value.toExponential().split('e')
  const power = Number(exponent)
  if (power < -4 || power >= 16) return `${digits}e${exponentText(power)}`
  const text = value.toFixed(Math.max(0, digits.replace(/[-.]/g, '').length - 1 - power))
  return text.includes('.') ? text : `${text}.0`
}

const exponentText = (power: number): string => `${power < 0 ? '-' : '+'}${String(Math.abs(power)).padStart(2, '0')}`

/** A float that is not negative, as a multiple of a power of 2. */
const parts = (value: number): readonly [bigint, number] => {
  const bits = new BigUint64Array(new Float64Array([value]).buffer)[0]!
  const exponent = Number(bits >> 52n)
  const fraction = bits & ((1n << 52n) - 1n)
  return exponent === 0 ? [fraction, -1074] : [fraction | (1n << 52n), exponent - 1075]
}

/** The value in units of 10^-digits, rounded to even. `digits` may be negative. */
const scaled = (value: number | bigint, digits: number): bigint => {
  if (Math.abs(digits) > MOST_DIGITS) throw new Fault(`it asks for ${digits} digits of a number`)
  const [mantissa, power] = typeof value === 'bigint' ? ([value, 0] as const) : parts(value)
  const above = mantissa * 10n ** BigInt(Math.max(0, digits)) * 2n ** BigInt(Math.max(0, power))
  const below = 10n ** BigInt(Math.max(0, -digits)) * 2n ** BigInt(Math.max(0, -power))
  const [quotient, twice] = [above / below, 2n * (above % below)]
  return quotient + (twice > below || (twice === below && quotient % 2n === 1n) ? 1n : 0n)
}

/** round(value, digits). */
export const rounded = (value: number | bigint, digits: number): number | bigint => {
  const negative = value < 0
  const size = negative ? -value : value
  if (typeof size === 'bigint') {
    if (digits >= 0) return value
    const found = scaled(size, digits) * 10n ** BigInt(-digits)
    return negative ? -found : found
  }
  if (!Number.isFinite(size) || digits > 400) return value
  const found = digits < -400 ? 0 : Number(`${scaled(size, digits)}e${-digits}`)
  return negative ? -found : found
}

/** A finite number that is not negative with `digits` behind the point. */
export const fixed = (value: number | bigint, digits: number): string => {
  const text = String(scaled(value, digits)).padStart(digits + 1, '0')
  return digits === 0 ? text : `${text.slice(0, -digits)}.${text.slice(-digits)}`
}

/** A finite number that is not negative with an exponent: its digits and the exponent. */
const exponential = (value: number, digits: number): readonly [string, number] => {
  if (value === 0) return ['0'.repeat(digits + 1), 0]
  const power = Number(value.toExponential().split('e')[1])
  const text = String(scaled(value, digits - power))
  // 9.99 rounds to 10.0.
  return text.length > digits + 1 ? [text.slice(0, -1), power + 1] : [text, power]
}

const pointed = (digits: string): string => (digits.length > 1 ? `${digits[0]}.${digits.slice(1)}` : digits)

/** A float that is not negative by the rules of `e`, `f`, `g` and `%`; `whole`: `g` keeps its zeros. */
export const written = (value: number, kind: string, digits: number, whole: boolean): string => {
  if (!Number.isFinite(value)) return floatText(value) + (kind === '%' ? '%' : '')
  if (kind === 'f') return fixed(value, digits)
  if (kind === '%') return `${fixed(value * 100, digits)}%`
  if (kind === 'e') {
    const [text, power] = exponential(value, digits)
    return `${pointed(text)}e${exponentText(power)}`
  }
  const precision = Math.max(1, digits)
  const [text, power] = exponential(value, precision - 1)
  const cut = (found: string): string => (whole || !found.includes('.') ? found : found.replace(/\.?0+$/, ''))
  if (power >= -4 && power < precision) return cut(fixed(value, precision - 1 - power))
  return `${cut(pointed(text))}e${exponentText(power)}`
}

/** The float that a text says, as float() reads it; null: none. */
export const parseFloatText = (text: string): number | null => {
  const special = /^([+-]?)(inf|infinity|nan)$/i.exec(text)
  if (special !== null)
    return special[2]!.toLowerCase() === 'nan' ? Number.NaN : special[1] === '-' ? -Infinity : Infinity
  if (!/^[+-]?(?:\d+(?:_\d+)*\.?(?:\d+(?:_\d+)*)?|\.\d+(?:_\d+)*)(?:e[+-]?\d+(?:_\d+)*)?$/i.test(text)) return null
  return Number(text.replaceAll('_', ''))
}

const PREFIXES: Readonly<Record<string, number>> = { x: 16, o: 8, b: 2 }

/** The int that a text says, as int() reads it with a base; null: none. */
export const parseIntText = (text: string, base: number): bigint | null => {
  const found = /^([+-]?)(?:0([xob])_?)?([0-9a-z]+(?:_[0-9a-z]+)*)$/i.exec(text.toLowerCase())
  if (found === null || base < 0 || base === 1 || base > 36) return null
  const [, sign, prefix, all = ''] = found
  const own = prefix === undefined ? 10 : PREFIXES[prefix]!
  let digits = all.replaceAll('_', '')
  // Without the meaning of a prefix, 0b1 is a number of base 16.
  if (prefix !== undefined && base !== 0 && own !== base) digits = `0${prefix}${digits}`
  if (prefix === undefined && base === 0 && /^0+[1-9]/.test(digits)) return null
  if (digits.length > 310) throw new Fault('it makes an int of more than 1000 bits')
  let value = 0n
  for (const digit of digits) {
    const worth = Number.parseInt(digit, 36)
    if (worth >= (base === 0 ? own : base)) return null
    value = value * BigInt(base === 0 ? own : base) + BigInt(worth)
  }
  return int(sign === '-' ? -value : value)
}
