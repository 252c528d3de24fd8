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
  /** Reads a token of 256, and gives the logits [256] of the token after it: votes of what followed such a text before, added to a base [256]. */
  cacheNgram(out: string, tables: NgramTables, token: Value<'i32'>, base?: Value): Value
  /** The first numbers of a mixture; `learned` by other texts before, or null. */
  cacheNgramFirst(mixture: State, learned: Vector | null): void
}

/** Tokens that an ngram memory tells apart: bytes. */
export const NGRAM_TOKENS = 256

export const ngramOps = (write: Write, append: (node: Node) => void, names: Names): NgramOps => ({
  cacheNgram: (out, { slots, text, mixture }, token, base) =>
    write('cache.ngram', out, names(token, slots, text, ...(base ? [base] : [])), [NGRAM_TOKENS], 'f32', {
      state: mixture.state,
    }),
  cacheNgramFirst: (mixture, learned) =>
    append({ op: 'cache.ngram.first', in: learned === null ? [] : names(learned), state: mixture.state }),
})
