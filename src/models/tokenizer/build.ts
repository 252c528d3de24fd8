/** The content of a tokenizer.json, from whatever file it came, to a tokenizer on a stream. */
import { Tokenizer as Library } from '@huggingface/tokenizers'
import { addedTokens } from './added.ts'
import { ALPHABET } from './alphabet.ts'
import { byteTokenizer } from './bytes.ts'
import { decoderOf } from './decode.ts'
import { readTokenizerFile, type TokenizerFile } from './file.ts'
import { FLAGS } from './held.ts'
import { MOST_ADDED } from './limits.ts'
import { type NormalizerPlan, normalizerOf } from './normalize.ts'
import { type Pipeline, pipelineOf } from './pipeline.ts'
import { type Parts, streamTokenizer } from './stream.ts'
import type { Tokenizer } from './types.ts'
import { Unstreamable } from './unstreamable.ts'

export type Json = { readonly [key: string]: unknown }

/** 256 tokens, the byte alphabet in order, and nothing else: a token is a byte, and raw bytes may pass as they are. */
const isBytes = (file: TokenizerFile, json: Json): boolean => {
  const preTokenizer = file.preTokenizer as { type?: unknown; add_prefix_space?: unknown } | null | undefined
  return (
    file.model.type === 'BPE' &&
    file.vocab.size === 256 &&
    file.pieces.length === 0 &&
    ALPHABET.every((char, byte) => file.vocab.get(char) === byte) &&
    file.added.length === 0 &&
    file.begin.length === 0 &&
    (json.normalizer ?? null) === null &&
    (!preTokenizer || (preTokenizer.type === 'ByteLevel' && preTokenizer.add_prefix_space === false))
  )
}

/**
 * What turns a pre-token into ids: the model of @huggingface/tokenizers, which has the vocabulary and the merges or the
 * lattice. The library's own normalizer, pre-tokenizer and decoder are not used.
 */
const encoderOf = ({ model, vocab }: TokenizerFile): Parts['encode'] => {
  const nothing = { normalizer: null, pre_tokenizer: null, post_processor: null, decoder: null, added_tokens: [] }
  const isBpe = model.type === 'BPE'
  const library = new Library({ ...nothing, model: isBpe ? { ...model, vocab: {} } : model }, {}).model!
  if (isBpe) {
    // The vocabulary as it is here: the library would copy it twice.
    library.tokens_to_ids = vocab as Map<string, number>
    library.unk_token_id = vocab.get(model.unk_token as string)
  }
  const unknown = library.unk_token_id
  return (pretoken) =>
    library([pretoken]).flatMap((token: string) => {
      const id = vocab.get(token) ?? unknown
      return id === undefined ? [] : [id]
    })
}

/**
 * A token of the vocabulary that has `mark` behind another character: merges that make it join a word to the word
 * before. The mark itself where it is no token and the model makes one token of neighbouring unknown characters. null:
 * there is none.
 */
const crossingIn =
  ({ pieces, vocab, fusesUnknown }: TokenizerFile) =>
  (mark: string): string | null => {
    if (fusesUnknown && !vocab.has(mark)) return mark
    const crosses = (piece: string): boolean => {
      const letter = [...piece].findIndex((char) => char !== mark)
      return letter >= 0 && piece.lastIndexOf(mark) > letter
    }
    return pieces.find(crosses) ?? null
  }

const flagsOf = (file: TokenizerFile, normalizer: NormalizerPlan | null, pipeline: Pipeline): number => {
  const strips = (normalized: boolean): boolean =>
    file.added.some((token) => token.rstrip && (token.normalized && normalizer !== null) === normalized)
  return (
    (file.begin.length > 0 ? FLAGS.begun : 0) |
    (normalizer?.prepends ? FLAGS.section : 0) |
    (pipeline.prefixFirstOnly ? FLAGS.later : 0) |
    (pipeline.prefix !== '' ? FLAGS.part : 0) |
    (strips(false) ? FLAGS.stripped : 0) |
    (strips(true) ? FLAGS.strippedMarked : 0)
  )
}

const partsOf = (file: TokenizerFile, encode: Parts['encode'] | undefined): Parts => {
  const normalizer = normalizerOf(file.normalizer)
  const pipeline = pipelineOf(file.preTokenizer, normalizer, crossingIn(file))
  const late = normalizer === null ? [] : file.added.filter(({ normalized }) => normalized)
  const marked = late.map((token) => ({ ...token, content: normalizer!.first(token.content) }))
  const long = marked.find(({ content }) => content.length > MOST_ADDED)
  if (long !== undefined)
    throw new Unstreamable(
      `an added token (id ${long.id}) that its normalizer makes ${long.content.length} characters long; at most ${MOST_ADDED} are taken`,
    )
  const specials = new Set(file.added.filter(({ special }) => special).map(({ id }) => id))
  const early = file.added.filter(({ normalized }) => !(normalized && normalizer !== null))
  const plain = <T extends { readonly id: number }>(tokens: readonly T[]): T[] =>
    tokens.filter(({ id }) => !specials.has(id))
  const others = plain(marked)
  return {
    added: addedTokens(early),
    normalizer,
    marked: late.length === 0 ? null : addedTokens(marked),
    apart: {
      special: new Map(file.added.filter(({ special }) => special).map(({ content, id }) => [content, id])),
      added: addedTokens(plain(early)),
      marked: others.length === 0 ? null : addedTokens(others),
    },
    pipeline,
    encode: encode ?? encoderOf(file),
    begin: file.begin,
    flags: flagsOf(file, normalizer, pipeline),
  }
}

const highest = ({ vocab, added }: TokenizerFile): { readonly token: string; readonly id: number } => {
  let most = { token: '', id: -1 }
  for (const [token, id] of vocab) if (id > most.id) most = { token, id }
  for (const { content, id } of added) if (id > most.id) most = { token: content, id }
  return most
}

export interface Built {
  readonly file: TokenizerFile
  readonly tokenizer: (eos: number | null) => Tokenizer
}

/**
 * Builds the tokenizer of the content of a tokenizer.json. `encode` turns a pre-token into ids in place of the library.
 * Checks the whole content first; throws Unstreamable, and what the library throws.
 */
export const buildTokenizer = (json: Json, vocabSize: number, encode?: Parts['encode']): Built => {
  const file = readTokenizerFile(json)
  const top = highest(file)
  if (top.id >= vocabSize)
    throw new Unstreamable(
      `${JSON.stringify(top.token)} with the id ${top.id}, but the model has only ${vocabSize} ids`,
    )
  const parts = encode === undefined && isBytes(file, json) ? null : partsOf(file, encode)
  const bytesOf = decoderOf(file)
  return {
    file,
    tokenizer: (eos) =>
      parts === null ? byteTokenizer(eos) : streamTokenizer(parts, { vocabSize: top.id + 1, eos, bytesOf }),
  }
}
