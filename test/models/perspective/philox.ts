/**
 * Philox4x32-10 (Salmon et al., 2011) as the `perspective` family numbers its draws: counter (low word of a, high word
 * of a, purpose·2²⁴ + sub, index), key (low, high word of the seed).
 */

export const PURPOSE = {
  JITTER: 1,
  DROPOUT: 2,
  RANDOM: 3,
  DIRECTION: 4,
  NES: 5,
  ITEM: 6,
  BASIS: 7,
  ADAPTER: 9,
} as const
export type Purpose = keyof typeof PURPOSE
export type Words = readonly [number, number, number, number]

const low = (n: number): number => n % 2 ** 32
const high = (n: number): number => Math.floor(n / 2 ** 32)

/** The upper 32 of the 64 bits of a·b. */
const upper = (a: number, b: number): number => {
  const [a0, a1, b0, b1] = [a & 0xffff, a >>> 16, b & 0xffff, b >>> 16]
  const middle = a1 * b0 + Math.floor((a0 * b0) / 65536)
  return (a1 * b1 + Math.floor(middle / 65536) + Math.floor((a0 * b1 + (middle % 65536)) / 65536)) >>> 0
}
const lower = (a: number, b: number): number => Math.imul(a, b) >>> 0

export const philox = (counter: Words, key: readonly [number, number]): Words => {
  let [c0, c1, c2, c3] = counter
  let [k0, k1] = key
  for (let round = 0; round < 10; round += 1) {
    const next = [
      (upper(0xcd9e8d57, c2) ^ c1 ^ k0) >>> 0,
      lower(0xcd9e8d57, c2),
      (upper(0xd2511f53, c0) ^ c3 ^ k1) >>> 0,
      lower(0xd2511f53, c0),
    ] as const
    ;[c0, c1, c2, c3] = next
    k0 = (k0 + 0x9e3779b9) >>> 0
    k1 = (k1 + 0xbb67ae85) >>> 0
  }
  return [c0, c1, c2, c3]
}

/** The draws of one purpose and sub at `a` (a pulse, a token, a channel or a layer), by their index. */
export const draws =
  (seed: number, purpose: Purpose, a: number, sub = 0) =>
  (index: number): Words =>
    philox([low(a), high(a), PURPOSE[purpose] * 2 ** 24 + sub, index], [low(seed), high(seed)])

/** Bit number `bit` of a draw, through its words, the lowest of a word first. */
export const bitOf = (words: Words, bit: number): number => (words[bit >> 5]! >>> (bit & 31)) & 1

const NORMAL = Math.fround(1 / Math.sqrt((8 * (2 ** 32 - 1)) / 12))

/** The sum of eight 16-bit halves, centred, by one product of f32. */
export const normalOf = (words: Words): number => {
  const sum = words.reduce((total, word) => total + (word & 0xffff) + (word >>> 16), 0)
  return Math.fround(Math.fround(sum - 262140) * NORMAL)
}
