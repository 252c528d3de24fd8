/**
 * What the tokens of a vocabulary stand for, in the engine's form: stop strings and memories of subwords ask for it.
 */
import { callNative, type TokenBytesHandle } from './native.ts'
import type { StopStrings } from './work.ts'

export type Vocabulary = StopStrings['vocabulary']

const tables = new WeakMap<Vocabulary, { readonly vocabSize: number; readonly table: TokenBytesHandle }>()

export const tokenBytes = (vocabulary: Vocabulary, vocabSize: number): TokenBytesHandle => {
  const known = tables.get(vocabulary)
  if (known !== undefined && known.vocabSize >= vocabSize) return known.table
  const pieces = Array.from({ length: vocabSize }, (_, id) => vocabulary.bytesOf(id))
  let end = 0
  const ends = Uint32Array.from(pieces, ({ length }) => (end += length))
  const table = callNative((addon) => addon.tokenBytes(Buffer.concat(pieces), ends))
  tables.set(vocabulary, { vocabSize, table })
  return table
}
