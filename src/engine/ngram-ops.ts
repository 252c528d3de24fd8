/** The part of the graph builder for ngram memories. native/graph/ngram.h has their tables, docs/ngram.md what they do. */
import type { Names, State, Value, Vector, Write } from './builder-types.ts'
import type { Node } from './graph.ts'

/** The tables of an ngram memory: i32 [slots, 2], i32 [words] and f32 [numbers]. */
export interface NgramTables {
  readonly slots: State
  readonly text: State
  readonly mixture: State
}

/** Operations of ngram memories (docs/ngram.md). */
export interface NgramOps {
  /**
   * Reads a token of 256, and gives the logits [256] of the token after it: votes of what followed such a text before, added to a base [256].
   * `learn`: from which tokens it learns.
   */
  cacheNgram(out: string, tables: NgramTables, token: Value<'i32'>, learn: NgramLearn, base?: Value): Value
  /** The first numbers of a mixture; `learned` by other texts before, or null. */
  cacheNgramFirst(mixture: State, learned: Vector | null): void
}

/** From which tokens an ngram memory learns: those that were read, or those that it drew as well. The others move its contexts on. */
export const NGRAM_LEARN = ['read', 'all'] as const
export type NgramLearn = (typeof NGRAM_LEARN)[number]

/** Tokens that an ngram memory tells apart: bytes. */
export const NGRAM_TOKENS = 256

export const ngramOps = (write: Write, append: (node: Node) => void, names: Names): NgramOps => ({
  cacheNgram: (out, { slots, text, mixture }, token, learn, base) =>
    write('cache.ngram', out, names(token, slots, text, ...(base ? [base] : [])), [NGRAM_TOKENS], 'f32', {
      state: mixture.state,
      learn,
    }),
  cacheNgramFirst: (mixture, learned) =>
    append({ op: 'cache.ngram.first', in: learned === null ? [] : names(learned), state: mixture.state }),
})
