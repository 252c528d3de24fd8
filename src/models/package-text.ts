/** How a package reads text: whichever file of a tokenizer lies beside its weights. */
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { byteTokenizer, eosOfConfig, openTokenizer, openTrie, type Tokenizer, vocabularyIn } from './tokenizer/index.ts'

export interface PackageText {
  /** null: the package takes token ids only. */
  readonly tokenizer: Tokenizer | null
  /** The file that the tokenizer was read from; null: there is none, or a token is a byte. */
  readonly source: string | null
  /** Taken over that file and the token that ends a text; part of the model's fingerprint. */
  readonly fingerprint: string | undefined
}

/**
 * The tokenizer of a folder: tokenizer.json, else RWKV's vocabulary (rwkv_vocab_*.txt), else bytes where the model has 256 ids.
 * Throws INVALID for a file that cannot be used, naming it.
 */
export const readTokenizer = async (
  dir: string,
  vocabSize: number,
  config: { readonly [key: string]: unknown },
  warn: (message: string) => void,
): Promise<PackageText> => {
  if (existsSync(join(dir, 'tokenizer.json'))) return openTokenizer(dir, { vocabSize, config, warn })
  const vocabulary = await vocabularyIn(dir)
  if (vocabulary !== null) return openTrie(vocabulary, { vocabSize })
  const tokenizer = vocabSize === 256 ? byteTokenizer(eosOfConfig(config, vocabSize)) : null
  return { tokenizer, source: null, fingerprint: undefined }
}
