/**
 * A piece of text in which no place to cut is found is cut after so many UTF-16 units. They are counted from the
 * beginning of the piece, so the place does not depend on chunks. No part of the text that is held back is longer. Part
 * of the state format.
 */
export const MOST_HELD = 4096

/** `at`, or one less where that would halve a surrogate pair. */
export const wholeAt = (text: string, at: number): number => {
  if (at >= text.length) return text.length
  const unit = text.charCodeAt(at)
  const before = text.charCodeAt(at - 1)
  return unit >= 0xdc00 && unit < 0xe000 && before >= 0xd800 && before < 0xdc00 ? at - 1 : at
}

/**
 * How often a pattern may look at a whole window of MOST_HELD units of a text: `most` times, and once more for each
 * `units` UTF-16 units of the text. Published patterns need three windows for each MOST_HELD units. A window costs up
 * to MOST_INSTRUCTIONS · MOST_HELD steps.
 */
export const WINDOWS = { most: 16, units: 512 } as const

/** Longest pattern that is read, in UTF-16 units; those of published tokenizers have up to a thousand. */
export const MOST_PATTERN = 16_384
/** Groups inside each other in a pattern. */
export const MOST_GROUPS = 64
/** Different character classes of a pattern; each keeps 64 KiB of answers. */
export const MOST_CLASSES = 128
/**
 * Instructions of all patterns of a tokenizer, counted repetitions written out; published ones have one to three
 * hundred.
 */
export const MOST_INSTRUCTIONS = 1024
/** Pre-tokenizers, normalizers or decoders in one list, lists in lists counted through. */
export const MOST_STAGES = 32
/** How many times as long a normalizer, a pre-tokenizer and a decoder may make what they get. */
export const MOST_GROWTH = { normalizer: 64, pretokenizer: 16, decoder: 4 } as const
/**
 * Longest added token in UTF-16 units, also as the normalizer leaves it: so many are looked at from each place of a
 * text.
 */
export const MOST_ADDED = 256
/** Longest token of a vocabulary in UTF-16 units: a record has the text of 16 of them. */
export const MOST_TOKEN = 1024
/** Pieces of a Unigram that begin one another: the lattice of a text has so many at each place. */
export const MOST_PREFIXES = 32
/** Tokens that begin a context. */
export const MOST_BEGIN = 64
/** Nodes of a trie of tokens; RWKV's vocabulary has some 300,000. */
export const MOST_NODES = 1 << 22
/** Of a file of RWKV's vocabulary, in bytes; the published one has 1.1 million. */
export const MOST_VOCABULARY_BYTES = 1 << 24
