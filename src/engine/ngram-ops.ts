/**
 * The part of the graph builder for ngram memories. native/graph/ngram.h has their tables, docs/ngram.md what they do.
 */
import type { Names, State, Value, Vector, Write } from './builder-types.ts'
import type { Node } from './graph.ts'

/**
 * The tables of an ngram memory, whose kind follows from the numbers of its mixture: i32 [slots, 2], i32 [words] and
 * f32 [numbers]; of subwords i32 [slots, 4], and the base f32 [tokens].
 */
export interface NgramTables {
  readonly slots: State
  readonly text: State
  readonly mixture: State
  readonly base?: State
}

/** Operations of ngram memories (docs/ngram.md). */
export interface NgramOps {
  /**
   * Reads a token of 256, and gives the logits [256] of the token after it: votes of what followed such a text before,
   * added to a base [256]. With a table of the base the tokens are subwords, and the base and the logits are [tokens].
   * `learn`: from which tokens it learns.
   */
  cacheNgram(out: string, tables: NgramTables, token: Value<'i32'>, learn: NgramLearn, base?: Value): Value
  /** The first numbers of a mixture; `learned` by other texts before, or null. */
  cacheNgramFirst(mixture: State, learned: Vector | null): void
}

/**
 * From which tokens an ngram memory learns: those that were read, or those that it drew as well. The others move its
 * contexts on.
 */
export const NGRAM_LEARN = ['read', 'all'] as const
export type NgramLearn = (typeof NGRAM_LEARN)[number]

/** A vocabulary of so many tokens is one of bytes; those of another one stand for bytes. */
export const NGRAM_TOKENS = 256
/** What the tokens of a memory are: bytes, bytes with the small form of the tables, or subwords. */
export type NgramKind = 'bytes' | 'small' | 'subwords'
/** Numbers of a slot: of bytes, and of subwords. */
export const SLOT_NUMBERS = { bytes: 2, subwords: 4 } as const

export const ngramOps = (write: Write, append: (node: Node) => void, names: Names): NgramOps => ({
  cacheNgram: (out, { slots, text, mixture, base: kept }, token, learn, base) => {
    const inputs = names(token, slots, text, ...(base ? [base] : []), ...(kept ? [kept] : []))
    const shape = kept && base ? base.shape : [NGRAM_TOKENS]
    return write('cache.ngram', out, inputs, shape, 'f32', { state: mixture.state, learn })
  },
  cacheNgramFirst: (mixture, learned) =>
    append({ op: 'cache.ngram.first', in: learned === null ? [] : names(learned), state: mixture.state }),
})
