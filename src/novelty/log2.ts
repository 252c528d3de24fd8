const TERMS = 11

/**
 * The binary logarithm of a finite number above 0, within 1e-15 of its size. It is made of divisions, products and sums
 * alone, which IEEE 754 rounds in one way: `Math.log2` may differ from one JavaScript engine to another, and what
 * follows from a committed state must not.
 */
export const log2 = (x: number): number => {
  let exponent = 0
  let mantissa = x
  for (; mantissa >= 1.5; mantissa /= 2) exponent += 1
  for (; mantissa < 0.75; mantissa *= 2) exponent -= 1
  // ln m = 2·artanh((m − 1) / (m + 1)), and |s| is at most a fifth.
  const s = (mantissa - 1) / (mantissa + 1)
  let sum = 0
  for (let term = TERMS; term >= 0; term -= 1) sum = sum * s * s + 1 / (2 * term + 1)
  return exponent + 2 * s * sum * Math.LOG2E
}

const LOG10_2 = 0.3010299956639812

/** The decimal logarithm, by the same rules. */
export const log10 = (x: number): number => log2(x) * LOG10_2

/**
 * Bits of something new where `count` things came, `different` ones of them: the chance of it is d / (c + d) (Witten
 * and Bell 1991, "The Zero-Frequency Problem", method C).
 */
export const bitsOfNew = (count: number, different: number): number => log2((count + different) / different)
