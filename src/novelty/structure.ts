/**
 * How new the order of a line's words is: each pair of neighbouring words that no earlier line had counts by how
 * surprising it is that something new follows the one and stands before the other, by how often each came and how many
 * different neighbours it had on that side (`bitsOfNew`).
 */
import type { ByteReader, ByteWriter } from './bytes.ts'
import { BEGINNING, END, joined } from './hash.ts'
import { bitsOfNew } from './log2.ts'
import { createTable } from './table.ts'

/**
 * An entry of PAIRS is a hash; one of WORDS a hash, how often the word came, and how many different ones followed it
 * and stood before it.
 */
const PAIRS = { words: 1, key: 1, most: 32_768 } as const
const WORDS = { words: 4, key: 1, most: 4096 } as const
const [COUNT, FOLLOWERS, LEADERS] = [1, 2, 3] as const
/** Bits of a side of which nothing is known. */
const UNKNOWN = 1
const MOST_COUNT = 0xffffffff

/** Bits of all pairs of a line that are new, and of the most surprising one. */
export interface Freshness {
  readonly all: number
  readonly most: number
}

export interface Structure {
  /** `words`: hashes of a line's words. Then they are known. */
  line(words: readonly number[]): Freshness
  write(to: ByteWriter): void
}

/** `from`: what `write` wrote. Throws `Unreadable`. */
export const createStructure = (from?: ByteReader): Structure => {
  const pairs = createTable(PAIRS, from)
  const known = createTable(WORDS, from)

  const bitsOf = (word: number, different: number): number => {
    const at = known.find(word, 0)
    if (at === -1) return UNKNOWN
    const [count, others] = [known.u32[at + COUNT]!, known.u32[at + different]!]
    return others === 0 ? UNKNOWN : bitsOfNew(count, others)
  }
  const more = (at: number): void => {
    known.u32[at] = Math.min(known.u32[at]! + 1, MOST_COUNT)
  }

  return {
    line(words) {
      const all = [BEGINNING, ...words, END]
      const isFresh = all.map((word, i) => {
        if (i === 0) return false
        pairs.take(joined(all[i - 1]!, word), 0)
        return pairs.isNew
      })
      const bits = all.map((word, i) => (isFresh[i] ? bitsOf(all[i - 1]!, FOLLOWERS) + bitsOf(word, LEADERS) : 0))
      for (const [i, word] of all.entries()) {
        const at = known.take(word, 0)
        more(at + COUNT)
        if (isFresh[i]) more(at + LEADERS)
        if (isFresh[i + 1]) more(at + FOLLOWERS)
      }
      return { all: bits.reduce((a, b) => a + b, 0), most: Math.max(...bits) }
    },
    write(to) {
      pairs.write(to)
      known.write(to)
    },
  }
}
