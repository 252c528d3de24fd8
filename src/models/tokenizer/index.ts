/**
 * Tokenizers: bytes, RWKV's trie, or a tokenizer.json on a stream. docs/tokenizers.md says what is supported and why.
 */
import { join } from 'node:path'
import { ContinuoError, messageOf } from '../../errors.ts'
import { sha256 } from '../../hash.ts'
import { MOST_TOKENIZER_BYTES, readJsonFile } from '../../json.ts'
import { buildTokenizer, type Json } from './build.ts'
import { controlsOf, eosOf, warnOfEdges } from './special.ts'
import type { OpenedTokenizer, OpenTokenizerOptions } from './types.ts'
import { Unstreamable } from './unstreamable.ts'

export { byteTokenizer } from './bytes.ts'
export { openGgufTokenizer } from './gguf.ts'
export { openTrie, vocabularyIn } from './rwkv.ts'
export { eosOfConfig } from './special.ts'
export type { OpenedTokenizer, OpenTokenizerOptions, Pushed, Tokenizer } from './types.ts'
export { hasVocabMerges, openVocabMerges } from './vocab-merges.ts'

/**
 * The tokenizer of a package that has a tokenizer.json. Throws INVALID where the file cannot be read, contradicts
 * itself or the model, or holds what cannot be streamed exactly; the message names it.
 */
export const openTokenizer = async (dir: string, options: OpenTokenizerOptions): Promise<OpenedTokenizer> => {
  const path = join(dir, 'tokenizer.json')
  const { vocabSize, config, warn } = options
  const invalid = (what: string, cause: unknown): ContinuoError =>
    new ContinuoError('INVALID', `${path} ${what}`, { cause })
  let json: Json
  let text: string
  try {
    const read = await readJsonFile(path, MOST_TOKENIZER_BYTES)
    text = read.text
    json = read.json as Json
  } catch (cause) {
    if (cause instanceof ContinuoError) throw cause
    throw invalid(`cannot be read as JSON: ${messageOf(cause)}.`, cause)
  }
  try {
    const { file, tokenizer } = buildTokenizer(json, vocabSize)
    const eos = await eosOf(dir, file, config, warn)
    if (file.cutsTexts) warn(`${path} asks for truncation or padding; a stream has no length, and both are ignored.`)
    await warnOfEdges(dir, file, warn)
    return {
      tokenizer: tokenizer(eos),
      source: 'tokenizer.json',
      fingerprint: `${sha256(text)} ${eos}`,
      controls: controlsOf(file),
    }
  } catch (cause) {
    if (cause instanceof ContinuoError) throw cause
    if (cause instanceof Unstreamable)
      throw invalid(`has ${cause.message}. Use a tokenizer.json of another kind, or correct this one.`, cause)
    throw invalid(`is not a tokenizer that @huggingface/tokenizers can build: ${messageOf(cause)}.`, cause)
  }
}
