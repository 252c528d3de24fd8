/**
 * Roundings to i4 that are better than to the nearest: which scale a group has, and which codes.
 *
 * `search`: of some scales around that of the nearest rule the one with the least Σ h (w − code·scale)², where h = √(σ²
 * + w²) and σ² is the mean square of the row: large weights count for more, for they are where large inputs meet them.
 * `importance`: the same with h the mean square of the input that meets the weight, as it was measured.
 *
 * `compensated` (GPTQ: Frantar, Ashkboos, Hoefler, Alistarh 2022, arXiv 2210.17323): the codes of a row q are chosen
 * one after the other, and each makes good what the rounding of those before did to the outputs. What is to be small is
 * Σ over inputs x of ((w − q)·x)² = δ H δᵀ with δ = w − q and H = Σ x xᵀ. With H = R Rᵀ, R upper triangular, that is
 * Σ_j (δ_j R_jj + Σ_{i<j} δ_i R_ij)², so the term of input j is least for the code nearest to w_j + Σ_{i<j} δ_i R_ij /
 * R_jj. That is GPTQ's rule without the inverse of H. A group's scale is searched when its turn comes, for these sums
 * as they are then, with h = R_jj².
 *
 * Everything is double, in a fixed order: the same weights and moments give the same bytes.
 */
import { setImmediate } from 'node:timers/promises'
import { F16_INFINITY, F16_VALUES, nearestF16, roundHalfEven } from './floats.ts'
import { F16_SIGN, I4, quantizeRow, type Target } from './quantizers.ts'

/** How weights become codes. `nearest` is the rule of the format (quantizers.ts). */
export type Rounding = 'nearest' | 'search' | 'importance' | 'compensated'

/**
 * Rounds the row w[at … at + codes.length): fills codes [K] and the bits of the scales [⌈K/group⌉]; returns the first
 * group whose scale is out of range, else −1.
 */
export type RowRounder = (w: Float32Array, at: number, codes: Int8Array, scales: Uint16Array) => number

const signedF16 = (x: number): number => nearestF16(Math.abs(x)) | (x < 0 ? F16_SIGN : 0)
const isUsable = (bits: number): boolean => (bits & ~F16_SIGN) !== 0 && (bits & ~F16_SIGN) < F16_INFINITY

const codeOf = (value: number, scale: number): number => {
  const code = roundHalfEven(value / scale)
  return code < I4.least ? I4.least : code > I4.most ? I4.most : code
}

/** Scales that are tried are those at which the largest weight would have a code of −6.5, −6.6 … −8.6. */
const [FIRST_TENTH, LAST_TENTH] = [65, 86]

/**
 * The bits of the F16 scale with the least Σ h (t − code·scale)² over n numbers t with weights h: among candidates, and
 * for the codes of each the scale that is best for them. The first of equals; 0 for zeros; infinity where F16 has no
 * such scale.
 */
export const searchScale = (t: Float64Array, h: Float64Array, n: number): number => {
  let most = 0
  for (let k = 0; k < n; k += 1) if (Math.abs(t[k]!) > Math.abs(most)) most = t[k]!
  if (most === 0) return 0
  let best = nearestF16(Math.abs(most) / -I4.least) === F16_INFINITY ? F16_INFINITY : 0
  if (best === F16_INFINITY) return best
  let least = Infinity
  const consider = (bits: number): void => {
    if (!isUsable(bits)) return
    const scale = F16_VALUES[bits]!
    let error = 0
    for (let k = 0; k < n; k += 1) {
      const off = t[k]! - codeOf(t[k]!, scale) * scale
      error += h[k]! * off * off
    }
    if (error >= least) return
    least = error
    best = bits
  }
  for (let tenth = FIRST_TENTH; tenth <= LAST_TENTH; tenth += 1) {
    const scale = (10 * most) / -tenth
    let dot = 0
    let square = 0
    for (let k = 0; k < n; k += 1) {
      const code = codeOf(t[k]!, scale)
      dot += h[k]! * t[k]! * code
      square += h[k]! * code * code
    }
    consider(signedF16(scale))
    if (square > 0) consider(signedF16(dot / square))
  }
  return best
}

/** `importance` [K]: h; null: √(σ² + w²). */
const searching = (group: number, K: number, importance: Float64Array | null): RowRounder => {
  const t = new Float64Array(group)
  const h = new Float64Array(group)
  return (w, at, codes, scales) => {
    let square = 0
    for (let k = 0; k < K; k += 1) square += w[at + k]! * w[at + k]!
    square /= K
    let bad = -1
    for (let from = 0, g = 0; from < K; from += group, g += 1) {
      const n = Math.min(group, K - from)
      for (let i = 0; i < n; i += 1) {
        const value = w[at + from + i]!
        t[i] = value
        h[i] = importance === null ? Math.sqrt(square + value * value) : importance[from + i]!
      }
      const bits = searchScale(t, h, n)
      scales[g] = bits
      if (bits === F16_INFINITY && bad < 0) bad = g
      for (let i = 0; i < n; i += 1) codes[from + i] = isUsable(bits) ? codeOf(t[i]!, F16_VALUES[bits]!) : 0
    }
    return bad
  }
}

/** Numbers that are added between two turns of the event loop. */
const TURN = 2 ** 26

/**
 * R, upper triangular with R Rᵀ = H, in the place of H [K, K], of which the upper triangle is read. False where H is
 * not positive definite, and then the content is lost.
 */
export const upperFactor = async (H: Float64Array, K: number): Promise<boolean> => {
  let work = 0
  for (let j = K - 1; j >= 0; j -= 1) {
    const own = H.subarray(j * K, (j + 1) * K)
    for (let i = j; i >= 0; i -= 1) {
      const row = H.subarray(i * K, (i + 1) * K)
      let [a, b, c, d] = [0, 0, 0, 0]
      let k = j + 1
      for (; k + 3 < K; k += 4) {
        a += row[k]! * own[k]!
        b += row[k + 1]! * own[k + 1]!
        c += row[k + 2]! * own[k + 2]!
        d += row[k + 3]! * own[k + 3]!
      }
      for (; k < K; k += 1) a += row[k]! * own[k]!
      const rest = row[j]! - (a + b + (c + d))
      if (i < j) row[j] = rest / own[j]!
      else if (rest > 0) row[j] = Math.sqrt(rest)
      else return false
    }
    work += (j + 1) * (K - j)
    if (work > TURN) {
      work = 0
      await setImmediate()
    }
  }
  return true
}

/** What is added to the diagonal of H, of its mean: the inputs were few, and some never moved. */
const DAMPING = [0.01, 0.1, 1]

const factorOf = async (moments: Float32Array, K: number): Promise<Float64Array | null> => {
  let mean = 0
  for (let k = 0; k < K; k += 1) mean += moments[k * K + k]! / K
  if (!(mean > 0 && Number.isFinite(mean))) return null
  const H = new Float64Array(K * K)
  for (const part of DAMPING) {
    H.set(moments)
    for (let k = 0; k < K; k += 1) H[k * K + k]! += part * mean
    if (await upperFactor(H, K)) return H
  }
  return null
}

const compensating = (group: number, K: number, R: Float64Array): RowRounder => {
  const t = new Float64Array(group)
  const h = new Float64Array(group)
  const off = new Float64Array(K) // δ
  const sums = new Float64Array(K) // Σ_{i<j} δ_i R_ij
  return (w, at, codes, scales) => {
    sums.fill(0)
    let bad = -1
    for (let from = 0, g = 0; from < K; from += group, g += 1) {
      const to = Math.min(from + group, K)
      for (let k = from; k < to; k += 1) {
        const own = R[k * K + k]!
        t[k - from] = w[at + k]! + sums[k]! / own
        h[k - from] = own * own
      }
      const bits = searchScale(t, h, to - from)
      scales[g] = bits
      if (bits === F16_INFINITY && bad < 0) bad = g
      const scale = isUsable(bits) ? F16_VALUES[bits]! : 0
      for (let k = from; k < to; k += 1) {
        const code = scale === 0 ? 0 : codeOf(w[at + k]! + sums[k]! / R[k * K + k]!, scale)
        codes[k] = code
        const delta = w[at + k]! - code * scale
        off[k] = delta
        for (let j = k + 1; j < to; j += 1) sums[j]! += delta * R[k * K + j]!
      }
      // Four rows of R at a time; a group that is followed by others has a multiple of four.
      for (let k = from; to < K && k < to; k += 4) {
        const [a, b, c, d] = [off[k]!, off[k + 1]!, off[k + 2]!, off[k + 3]!]
        const row = k * K
        for (let j = to; j < K; j += 1)
          sums[j]! += a * R[row + j]! + b * R[row + K + j]! + (c * R[row + 2 * K + j]! + d * R[row + 3 * K + j]!)
      }
    }
    return bad
  }
}

/**
 * What rounds the rows of one matrix. `moments` [K, K]: Σ x xᵀ of its inputs; where there are none, or nothing but
 * zeros, `importance` and `compensated` are `search`.
 */
export const rounderOf = async (
  target: Target,
  group: number,
  K: number,
  rounding: Rounding,
  moments: Float32Array | null,
): Promise<RowRounder> => {
  if (rounding === 'nearest') return (w, at, codes, scales) => quantizeRow(target, group, w, at, codes, scales)
  if (moments !== null && rounding === 'compensated') {
    const R = await factorOf(moments, K)
    if (R !== null) return compensating(group, K, R)
  }
  const isMoved = moments?.some((value) => value !== 0) ?? false
  if (moments === null || !isMoved || rounding === 'search') return searching(group, K, null)
  return searching(
    group,
    K,
    Float64Array.from({ length: K }, (_, k) => moments[k * K + k]!),
  )
}
