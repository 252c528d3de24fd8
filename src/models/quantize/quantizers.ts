/**
 * How a row of weights becomes whole numbers and scales: group by group along the inputs k, the last group of a row may
 * be shorter. w is taken as stored and widened to double, every operation is one of double, sums run in order of k,
 * `round` takes the even one of two neighbours. A scale is an F16, and a weight is read back as code · scale.
 *
 * q8: codes −127 … 127. scale = the F16 nearest to max|w|/127, or the next above it where |w|/scale would exceed 127.5
 * (the F16s below 2^-14 lie far apart); code = round(w/scale), 127 at most in either direction. So no weight is off by
 * more than scale/2. Symmetric absmax blocks are those of llama.cpp's Q8_0 (github.com/ggml-org/llama.cpp), there
 * always of 32.
 *
 * i4: codes −8 … 7; this is the rule of `nearest`, rounding.ts has better ones. With m the first weight of the largest
 * |w|, the scale is the F16 nearest to m/−8, or the next one away from 0 where
 * |m/scale| would exceed 8.5; code = round(w/scale), 7 at most. So m has the code −8, and the scale the sign that this takes: the rule of
 * llama.cpp's Q4_0, there always of 32, but for ties.
 *
 * ternary: codes −1, 0, 1. scale = the F16 nearest to mean|w|, code = round(w/scale) cut off at ±1: the absmean
 * quantiser of BitNet b1.58 (Ma et al. 2024, arXiv 2402.17764, §2, there one scale a matrix). Then once scale = the F16
 * nearest to Σ w·code / Σ code², which minimises Σ (w − code·scale)² for these codes. A model that was not trained for
 * ternary weights loses much of its quality: this is for models that were.
 *
 * A group of zeros has scale 0; so has a ternary group whose mean|w| rounds to 0. A scale above 65504 does not exist:
 * its bits come out as infinity, and the caller must refuse the tensor.
 */
import { F16_INFINITY, F16_VALUES, nearestF16, roundHalfEven } from './floats.ts'

/** Fills codes [from, to) for the weights [at + from, at + to) of `w` and returns the bits of their scale. */
type GroupRule = (w: Float32Array, at: number, from: number, to: number, codes: Int8Array) => number

const q8Group: GroupRule = (w, at, from, to, codes) => {
  let most = 0
  for (let k = from; k < to; k += 1) {
    const size = Math.abs(w[at + k]!)
    if (size > most) most = size
  }
  let bits = Math.min(nearestF16(most / 127), F16_INFINITY - 1)
  if (most > 127.5 * F16_VALUES[bits]!) bits += 1
  if (bits === 0 || bits === F16_INFINITY) {
    codes.fill(0, from, to)
    return bits
  }
  const scale = F16_VALUES[bits]!
  for (let k = from; k < to; k += 1) {
    const code = roundHalfEven(w[at + k]! / scale)
    codes[k] = code > 127 ? 127 : code < -127 ? -127 : code
  }
  return bits
}

/** The sign of an F16. */
export const F16_SIGN = 0x8000

/** The codes of i4. */
export const I4 = { least: -8, most: 7 } as const

const i4Group: GroupRule = (w, at, from, to, codes) => {
  let most = 0
  for (let k = from; k < to; k += 1) {
    const value = w[at + k]!
    if (Math.abs(value) > Math.abs(most)) most = value
  }
  let bits = Math.min(nearestF16(Math.abs(most) / 8), F16_INFINITY - 1)
  if (Math.abs(most) > 8.5 * F16_VALUES[bits]!) bits += 1
  if (bits === 0 || bits === F16_INFINITY) {
    codes.fill(0, from, to)
    return bits
  }
  if (most > 0) bits |= F16_SIGN
  const scale = F16_VALUES[bits]!
  for (let k = from; k < to; k += 1) codes[k] = Math.max(I4.least, Math.min(I4.most, roundHalfEven(w[at + k]! / scale)))
  return bits
}

const ternaryGroup: GroupRule = (w, at, from, to, codes) => {
  let sum = 0
  for (let k = from; k < to; k += 1) sum += Math.abs(w[at + k]!)
  const bits = nearestF16(sum / (to - from))
  if (bits === 0 || bits === F16_INFINITY) {
    codes.fill(0, from, to)
    return bits
  }
  const scale = F16_VALUES[bits]!
  let dot = 0 // Σ w·code
  let ones = 0 // Σ code²
  for (let k = from; k < to; k += 1) {
    const value = w[at + k]!
    // Cut off before rounding: the same codes, and no branch to guess wrong.
    const code = roundHalfEven(Math.max(-1, Math.min(1, value / scale)))
    codes[k] = code
    dot += value * code
    ones += code * code
  }
  return ones === 0 ? bits : nearestF16(dot / ones)
}

const TRITS = 5 // 3^5 = 243 fit a byte

/** Five codes a byte, Σ (code + 1)·3^i for i = k mod 5; behind the last code stand zeros. */
export const packTrits = (codes: Int8Array, bytes: Uint8Array, at: number): void => {
  const { length } = codes
  for (let k = 0; k < length; k += TRITS) {
    let byte = 0
    for (let i = TRITS - 1; i >= 0; i -= 1) byte = 3 * byte + 1 + (k + i < length ? codes[k + i]! : 0)
    bytes[at++] = byte
  }
}

/** Two codes a byte, the even k in the low four bits as code + 8; behind the last code stands a 0. */
const packNibbles = (codes: Int8Array, bytes: Uint8Array, at: number): void => {
  for (let k = 0; k < codes.length; k += 2) bytes[at++] = codes[k]! + 8 + 16 * ((codes[k + 1] ?? 0) + 8)
}

const storeBytes = (codes: Int8Array, bytes: Uint8Array, at: number): void => {
  for (let k = 0; k < codes.length; k += 1) bytes[at + k] = codes[k]!
}

/** One way to store a matrix [N, K]. */
export interface Target {
  /** As config.json and the file's metadata name it. */
  readonly format: 'q8' | 'i4' | 'ternary3'
  readonly dtype: 'I8' | 'U8'
  readonly group: GroupRule
  /** Bytes of a row of K codes. */
  readonly rowBytes: (K: number) => number
  /** Writes a row of codes [K] to `bytes` from `at` on. */
  readonly store: (codes: Int8Array, bytes: Uint8Array, at: number) => void
}

export const TARGETS = {
  q8: { format: 'q8', dtype: 'I8', group: q8Group, rowBytes: (K) => K, store: storeBytes },
  i4: { format: 'i4', dtype: 'U8', group: i4Group, rowBytes: (K) => Math.ceil(K / 2), store: packNibbles },
  ternary: {
    format: 'ternary3',
    dtype: 'U8',
    group: ternaryGroup,
    rowBytes: (K) => Math.ceil(K / TRITS),
    store: packTrits,
  },
} as const satisfies Readonly<Record<string, Target>>
export type TargetName = keyof typeof TARGETS

/**
 * Quantises the row `w[at … at + codes.length)` in groups of `group`: codes to `codes` [K], the bits of the scales to
 * `scales` [⌈K/group⌉]. Returns the place of the first group whose scale is out of range, −1 without one.
 */
export const quantizeRow = (
  target: Target,
  group: number,
  w: Float32Array,
  at: number,
  codes: Int8Array,
  scales: Uint16Array,
): number => {
  const K = codes.length
  let bad = -1
  for (let from = 0, g = 0; from < K; from += group, g += 1) {
    const bits = target.group(w, at, from, Math.min(from + group, K), codes)
    scales[g] = bits
    if (bits === F16_INFINITY && bad < 0) bad = g
  }
  return bad
}

/** Adds Σ (w − code·scale)² and Σ w² of a row to `sums`. */
export const addError = (
  sums: { error: number; energy: number },
  group: number,
  w: Float32Array,
  at: number,
  codes: Int8Array,
  scales: Uint16Array,
): void => {
  let error = 0
  let energy = 0
  for (let from = 0, g = 0; from < codes.length; from += group, g += 1) {
    const scale = F16_VALUES[scales[g]!]!
    const to = Math.min(from + group, codes.length)
    for (let k = from; k < to; k += 1) {
      const value = w[at + k]!
      const off = value - codes[k]! * scale
      error += off * off
      energy += value * value
    }
  }
  sums.error += error
  sums.energy += energy
}
