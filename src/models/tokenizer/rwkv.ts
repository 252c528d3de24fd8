/**
 * The vocabulary that RWKV's author publishes beside the weights, rwkv_vocab_*.txt: a line for each token, `ID LITERAL
 * LENGTH`, separated by the first and the last space of the line. LITERAL is a str or bytes literal of Python, LENGTH
 * its number of bytes. Id 0 ends a text and has no line. (BlinkDL/RWKV-LM, RWKV-v5/tokenizer/rwkv_tokenizer.py.)
 */
import { readdir } from 'node:fs/promises'
import { basename, join } from 'node:path'
import { ContinuoError, messageOf } from '../../errors.ts'
import { readBounded } from '../../files.ts'
import { sha256 } from '../../hash.ts'
import { MOST_VOCABULARY_BYTES } from './limits.ts'
import { bytesOfLiteral } from './python.ts'
import { trieTokenizer } from './trie.ts'
import type { OpenedTokenizer } from './types.ts'
import { Unstreamable } from './unstreamable.ts'

/** The token that ends a text. */
const END = 0

/** The token of a line. Throws Unstreamable. */
const tokenOf = (line: string): readonly [id: number, bytes: Uint8Array] => {
  const [, id, literal, length] = /^(\d{1,10}) (.+) (\d{1,10})$/su.exec(line) ?? []
  if (id === undefined || literal === undefined)
    throw new Unstreamable(`${JSON.stringify(line.slice(0, 60))}; expected ID LITERAL LENGTH`)
  const bytes = bytesOfLiteral(literal)
  if (bytes.length !== Number(length))
    throw new Unstreamable(`${literal.slice(0, 60)} with the length ${length}, but it has ${bytes.length} bytes`)
  return [Number(id), bytes]
}

/** The bytes of each id. Throws Unstreamable. */
export const parseVocabulary = (text: string, vocabSize: number): Map<number, Uint8Array> => {
  const tokens = new Map<number, Uint8Array>()
  const lines = text.split('\n')
  for (const [at, whole] of lines.entries()) {
    const line = whole.endsWith('\r') ? whole.slice(0, -1) : whole
    if (line === '' && at === lines.length - 1) break
    try {
      const [id, bytes] = tokenOf(line)
      if (id === END) throw new Unstreamable('the id 0, which ends a text and has no token')
      if (id >= vocabSize) throw new Unstreamable(`the id ${id}, but the model has only ${vocabSize} ids`)
      if (tokens.has(id)) throw new Unstreamable(`the id ${id} a second time`)
      tokens.set(id, bytes)
    } catch (error) {
      if (!(error instanceof Unstreamable)) throw error
      throw new Unstreamable(`in line ${at + 1} ${error.message}`)
    }
  }
  return tokens
}

/** The one rwkv_vocab_*.txt of a folder; null: it has none. Throws INVALID where there are several. */
export const vocabularyIn = async (dir: string): Promise<string | null> => {
  const found = (await readdir(dir)).filter((name) => /^rwkv_vocab_.*\.txt$/.test(name)).sort()
  if (found.length > 1)
    throw new ContinuoError(
      'INVALID',
      `${dir} has ${found.length} vocabularies (${found.join(', ')}), expected one. Keep the one that the model was trained with.`,
    )
  return found.length === 0 ? null : join(dir, found[0]!)
}

/**
 * The tokenizer of a vocabulary in RWKV's form. Its `eos` is 0, and no text gives it. Throws INVALID for a file that
 * cannot be read or contradicts itself or the model, naming file and line.
 */
export const openTrie = async (
  path: string,
  { vocabSize }: { readonly vocabSize: number },
): Promise<OpenedTokenizer> => {
  const invalid = (what: string, cause?: unknown): ContinuoError =>
    new ContinuoError('INVALID', `${path} ${what} Take the file from the package that the model came with.`, { cause })
  let bytes: Uint8Array
  try {
    bytes = await readBounded(path, MOST_VOCABULARY_BYTES)
  } catch (cause) {
    if (cause instanceof ContinuoError) throw cause
    throw invalid(`cannot be read: ${messageOf(cause)}.`, cause)
  }
  let text: string
  try {
    text = new TextDecoder('utf-8', { fatal: true }).decode(bytes)
  } catch (cause) {
    throw invalid('is not UTF-8.', cause)
  }
  try {
    const tokenizer = trieTokenizer(parseVocabulary(text, vocabSize), { eos: END })
    return { tokenizer, source: basename(path), fingerprint: `${sha256(bytes)} ${END}` }
  } catch (cause) {
    if (cause instanceof Unstreamable) throw invalid(`has ${cause.message}.`, cause)
    throw cause
  }
}
