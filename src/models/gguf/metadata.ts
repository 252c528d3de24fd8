/** The metadata of a GGUF file by what a key must hold. */
import type { GgufMetadata } from '../../engine/native.ts'
import { ContinuoError } from '../../errors.ts'

/**
 * Every getter throws INVALID where the key is missing or holds something else; those with `Or` give the other value
 * where it is missing.
 */
export interface Keys {
  readonly file: string
  has(key: string): boolean
  text(key: string): string
  whole(key: string): number
  wholeOr<T>(key: string, other: T): number | T
  real(key: string): number
  realOr<T>(key: string, other: T): number | T
  flagOr(key: string, other: boolean): boolean
  /** A number of each layer: the key holds one for all, or a list. */
  wholes(key: string, layers: number): readonly number[]
  /** How many elements the list has. */
  lengthOr<T>(key: string, other: T): number | T
}

/** The shortest decimal that rounds to the same f32: files hold 1e-5 as the f32 nearest to it. */
const shortest = (value: number): number => {
  for (let digits = 1; digits < 9; digits += 1) {
    const rounded = Number(value.toPrecision(digits))
    if (Math.fround(rounded) === value) return rounded
  }
  return value
}

const shown = (value: unknown): string =>
  value === undefined
    ? 'nothing'
    : Array.isArray(value)
      ? `a list of ${value.length}`
      : typeof value === 'bigint'
        ? String(value)
        : JSON.stringify(value).slice(0, 80)

export const keysOf = (file: string, metadata: GgufMetadata): Keys => {
  const wrong = (key: string, expected: string): never => {
    throw new ContinuoError('INVALID', `${file} has ${shown(metadata.get(key))} under "${key}", expected ${expected}.`)
  }
  const isWhole = (value: unknown): value is number => Number.isSafeInteger(value) && (value as number) >= 0
  const whole = (key: string): number => {
    const value = metadata.get(key)
    return isWhole(value) ? value : wrong(key, 'a whole number from 0')
  }
  const real = (key: string): number => {
    const value = metadata.get(key)
    return typeof value === 'number' && Number.isFinite(value) ? shortest(value) : wrong(key, 'a number')
  }
  return {
    file,
    has: (key) => metadata.has(key),
    text: (key) => {
      const value = metadata.get(key)
      return typeof value === 'string' ? value : wrong(key, 'a text')
    },
    whole,
    wholeOr: (key, other) => (metadata.has(key) ? whole(key) : other),
    real,
    realOr: (key, other) => (metadata.has(key) ? real(key) : other),
    flagOr: (key, other) => {
      const value = metadata.get(key) ?? other
      return typeof value === 'boolean' ? value : wrong(key, 'true or false')
    },
    wholes: (key, layers) => {
      const value = metadata.get(key)
      if (!Array.isArray(value)) return new Array<number>(layers).fill(whole(key))
      return value.length === layers && value.every(isWhole)
        ? value
        : wrong(key, `${layers} whole numbers, one a layer`)
    },
    lengthOr: (key, other) => {
      const value = metadata.get(key)
      return value === undefined ? other : Array.isArray(value) ? value.length : wrong(key, 'a list')
    },
  }
}
