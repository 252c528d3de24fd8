/** How a package reads text and where it ends one: whichever files of a tokenizer lie beside its weights. */
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import type { GgufMetadata } from '../engine/native.ts'
import {
  byteTokenizer,
  eosOfConfig,
  hasVocabMerges,
  openGgufTokenizer,
  openTokenizer,
  openTrie,
  openVocabMerges,
  type Tokenizer,
  vocabularyIn,
} from './tokenizer/index.ts'

export interface PackageText {
  /** null: the package takes token ids only. */
  readonly tokenizer: Tokenizer | null
  /** The file that the tokenizer was read from; null: there is none, or a token is a byte. */
  readonly source: string | null
  /** Taken over that file and the token that ends a text; part of the model's fingerprint. */
  readonly fingerprint: string | undefined
  /** The ids that end a generation, in ascending order; undefined: the tokenizer's end of text alone, if it has one. */
  readonly endTokens: readonly number[] | undefined
}

type Json = { readonly [key: string]: unknown }

/** The list of config.json, or of the text model inside it. */
const endsOfConfig = (config: Json): readonly number[] => {
  const inner = config.text_config as Json | null | undefined
  const ids = config.eos_token_id ?? inner?.eos_token_id
  return Array.isArray(ids) ? ids.filter((id) => Number.isInteger(id)) : []
}

/** What of a package its text depends on. */
export interface TextSource {
  readonly dir: string
  /** The file or folder that was named, for messages. */
  readonly path: string
  readonly config: Json
  /** Of a GGUF file. */
  readonly metadata: GgufMetadata | null
  /** Those of generation_config.json or of the GGUF file; null: it says nothing of them. */
  readonly endTokens: readonly number[] | null
}

/**
 * Which ids end a generation: those that the package names; else the list of config.json, if the tokenizer's end of text is in it;
 * else that one. undefined where these are the tokenizer's one.
 */
const endsOf = (
  { path, config, endTokens: told }: TextSource,
  tokenizer: Tokenizer | null,
  vocabSize: number,
  warn: (message: string) => void,
): readonly number[] | undefined => {
  const own = tokenizer?.eos ?? null
  const listed = endsOfConfig(config)
  const ids = told ?? (own !== null && listed.includes(own) ? listed : own === null ? [] : [own])
  const known = [...new Set(ids)].filter((id) => id >= 0 && id < vocabSize).sort((a, b) => a - b)
  if (told !== null && known.length < told.length)
    warn(
      `${path} names ${told.join(', ')} as ends of a text, but the model has only ${vocabSize} ids; those beyond end nothing.`,
    )
  const same = own === null ? known.length === 0 : known.length === 1 && known[0] === own
  return same ? undefined : known
}

/**
 * The tokenizer of a package: tokenizer.json, else that of the GGUF file, else RWKV's vocabulary (rwkv_vocab_*.txt), else vocab.json
 * with merges.txt, else bytes where the model has 256 ids. Throws INVALID for one that cannot be used, naming it.
 */
export const readText = async (
  from: TextSource,
  vocabSize: number,
  warn: (message: string) => void,
): Promise<PackageText> => {
  const { dir, path, config, metadata } = from
  const options = { vocabSize, config, warn }
  const none = { tokenizer: null, source: null, fingerprint: undefined }
  const opened = async (): Promise<Omit<PackageText, 'endTokens'>> => {
    if (existsSync(join(dir, 'tokenizer.json'))) return openTokenizer(dir, options)
    if (metadata !== null) return openGgufTokenizer(metadata, { vocabSize, path, warn }) ?? none
    const vocabulary = await vocabularyIn(dir)
    if (vocabulary !== null) return openTrie(vocabulary, options)
    if (hasVocabMerges(dir)) return openVocabMerges(dir, options)
    return vocabSize === 256 ? { ...none, tokenizer: byteTokenizer(eosOfConfig(config, vocabSize)) } : none
  }
  const text = await opened()
  return { ...text, endTokens: endsOf(from, text.tokenizer, vocabSize, warn) }
}
