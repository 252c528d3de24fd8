/** How a package reads text and where it ends one: whichever files of a tokenizer lie beside its weights. */
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { z } from 'zod'
import { ContinuoError } from '../errors.ts'
import { MOST_CONFIG_BYTES, readJsonFile } from '../json.ts'
import {
  byteTokenizer,
  eosOfConfig,
  hasVocabMerges,
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

const ends = z.looseObject({ eos_token_id: z.union([z.int(), z.array(z.int())]).nullish() })

/** What generation_config.json says of ends; undefined: there is no such file, or it does not say. */
const endsOfGeneration = async (dir: string): Promise<readonly number[] | undefined> => {
  const path = join(dir, 'generation_config.json')
  let json: unknown
  try {
    json = (await readJsonFile(path, MOST_CONFIG_BYTES)).json
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code === 'ENOENT') return undefined
    throw cause
  }
  const found = ends.safeParse(json)
  if (!found.success)
    throw new ContinuoError(
      'INVALID',
      `${path} has a malformed eos_token_id: expected a whole number or a list of them. Correct it, or remove the file.`,
    )
  const { eos_token_id: ids } = found.data
  return ids == null ? undefined : Array.isArray(ids) ? ids : [ids]
}

/** The list of config.json, or of the text model inside it. */
const endsOfConfig = (config: Json): readonly number[] => {
  const inner = config.text_config as Json | null | undefined
  const ids = config.eos_token_id ?? inner?.eos_token_id
  return Array.isArray(ids) ? ids.filter((id) => Number.isInteger(id)) : []
}

/**
 * Which ids end a generation: those of generation_config.json; else the list of config.json, if the tokenizer's end of text is
 * in it; else that one. undefined where these are the tokenizer's one. Throws INVALID for a generation_config.json that cannot be
 * read.
 */
export const endTokensOf = async (
  dir: string,
  {
    tokenizer,
    vocabSize,
    config,
    warn,
  }: {
    readonly tokenizer: Tokenizer | null
    readonly vocabSize: number
    readonly config: Json
    readonly warn: (message: string) => void
  },
): Promise<readonly number[] | undefined> => {
  const own = tokenizer?.eos ?? null
  const told = await endsOfGeneration(dir)
  const listed = endsOfConfig(config)
  const ids = told ?? (own !== null && listed.includes(own) ? listed : own === null ? [] : [own])
  const known = [...new Set(ids)].filter((id) => id >= 0 && id < vocabSize).sort((a, b) => a - b)
  if (told !== undefined && known.length < new Set(ids).size)
    warn(
      `generation_config.json of ${dir} says eos_token_id ${ids.join(', ')}, but the model has only ${vocabSize} ids; those beyond end nothing.`,
    )
  const same = own === null ? known.length === 0 : known.length === 1 && known[0] === own
  return same ? undefined : known
}

/**
 * The tokenizer of a folder: tokenizer.json, else RWKV's vocabulary (rwkv_vocab_*.txt), else vocab.json with merges.txt, else bytes where the model has 256 ids.
 * Throws INVALID for a file that cannot be used, naming it.
 */
export const readTokenizer = async (
  dir: string,
  vocabSize: number,
  config: Json,
  warn: (message: string) => void,
): Promise<PackageText> => {
  const options = { vocabSize, config, warn }
  const opened = async (): Promise<Omit<PackageText, 'endTokens'>> => {
    if (existsSync(join(dir, 'tokenizer.json'))) return openTokenizer(dir, options)
    const vocabulary = await vocabularyIn(dir)
    if (vocabulary !== null) return openTrie(vocabulary, options)
    if (hasVocabMerges(dir)) return openVocabMerges(dir, options)
    const tokenizer = vocabSize === 256 ? byteTokenizer(eosOfConfig(config, vocabSize)) : null
    return { tokenizer, source: null, fingerprint: undefined }
  }
  const text = await opened()
  return { ...text, endTokens: await endTokensOf(dir, { ...options, tokenizer: text.tokenizer }) }
}
