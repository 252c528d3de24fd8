/** 32-bit hashes of words: FNV-1a, and the last mixing of MurmurHash3. */

const FNV_PRIME = 0x01000193
/** Two hashes that have nothing to do with each other begin here. */
export const SEEDS = [0x811c9dc5, 0x5bd1e995] as const

const mixed = (hash: number): number => {
  let h = hash
  h = Math.imul(h ^ (h >>> 16), 0x85ebca6b)
  h = Math.imul(h ^ (h >>> 13), 0xc2b2ae35)
  return (h ^ (h >>> 16)) >>> 0
}

export const hashOf = (bytes: Uint8Array, from: number, to: number, seed: number): number => {
  let h: number = seed
  for (let at = from; at < to; at += 1) h = Math.imul(h ^ bytes[at]!, FNV_PRIME)
  return mixed(h)
}

/** The hash of what `hash` stands for with `next` behind it. */
export const joined = (hash: number, next: number): number => mixed(Math.imul(hash, 0x9e3779b1) ^ next)

/**
 * In the place of a word's hash: a word with a digit; the beginning and the end of a line; a word that is left out. A
 * hash that is one of them is taken for it.
 */
export const [MASKED, BEGINNING, END, HOLE] = [1, 2, 3, 4] as const
