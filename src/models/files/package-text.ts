/** How a package reads text and where it ends one: whichever files of a tokenizer lie beside its weights. */
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import type { GgufMetadata } from '../../engine/native.ts'
import { type End, endsFrom } from '../ends.ts'
import {
  byteTokenizer,
  eosOfConfig,
  hasVocabMerges,
  type OpenedTokenizer,
  openGgufTokenizer,
  openTokenizer,
  openTrie,
  openVocabMerges,
  type Tokenizer,
  vocabularyIn,
} from '../tokenizer/index.ts'

export interface PackageText {
  /** null: the package takes token ids only. */
  readonly tokenizer: Tokenizer | null
  /** The file that the tokenizer was read from; null: there is none, or a token is a byte. */
  readonly source: string | null
  /** Taken over that file and the token that ends a text; part of the model's fingerprint. */
  readonly fingerprint: string | undefined
  /** The ids that end a generation, in ascending order; undefined: the tokenizer's end of text alone, if it has one. */
  readonly endTokens: readonly number[] | undefined
  /** The same with who names each, also where it is that one. */
  readonly ends: readonly End[]
  /** What a control token is called; null for other tokens. */
  nameOf(id: number): string | null
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
  /** Of a GGUF file whose keys name them: which key names each. */
  readonly endKeys?: ReadonlyMap<number, string>
}

/** The ends of a package, within its ids; `endTokens` as `PackageText` has them. */
const endsOf = (
  { path, config, metadata, endTokens: told, endKeys }: TextSource,
  { tokenizer, controls }: Pick<PackageText, 'tokenizer'> & Required<Pick<OpenedTokenizer, 'controls'>>,
  vocabSize: number,
  warn: (message: string) => void,
): Pick<PackageText, 'endTokens' | 'ends'> => {
  const from = (id: number): string => endKeys?.get(id) ?? 'eos_token_id of generation_config.json'
  const named = told === null ? null : told.map((id) => ({ id, from: from(id) }))
  // A GGUF file that names the end of a turn names all.
  const whole = metadata === null || [...(endKeys?.values() ?? [])].some((key) => key.includes('eot'))
  const ends = endsFrom({ named, whole, listed: endsOfConfig(config), tokenizer, controls }).filter(
    ({ id }) => id >= 0 && id < vocabSize,
  )
  if (told?.some((id) => id < 0 || id >= vocabSize))
    warn(
      `${path} names ${told.join(', ')} as ends of a text, but the model has only ${vocabSize} ids; those beyond end nothing.`,
    )
  const ids = ends.map(({ id }) => id)
  const own = tokenizer?.eos ?? null
  const same = own === null ? ids.length === 0 : ids.length === 1 && ids[0] === own
  return { endTokens: same ? undefined : ids, ends }
}

/**
 * The tokenizer of a package: tokenizer.json, else that of the GGUF file, else RWKV's vocabulary (rwkv_vocab_*.txt),
 * else vocab.json with merges.txt, else bytes where the model has 256 ids. Throws INVALID for one that cannot be used,
 * naming it.
 */
export const readText = async (
  from: TextSource,
  vocabSize: number,
  warn: (message: string) => void,
): Promise<PackageText> => {
  const { dir, path, config, metadata } = from
  const options = { vocabSize, config, warn }
  const none = { tokenizer: null, source: null, fingerprint: undefined }
  const opened = async (): Promise<
    Omit<PackageText, 'endTokens' | 'ends' | 'nameOf'> & Pick<OpenedTokenizer, 'controls'>
  > => {
    if (existsSync(join(dir, 'tokenizer.json'))) return openTokenizer(dir, options)
    if (metadata !== null) return openGgufTokenizer(metadata, { vocabSize, path, warn }) ?? none
    const vocabulary = await vocabularyIn(dir)
    if (vocabulary !== null) return openTrie(vocabulary, options)
    if (hasVocabMerges(dir)) return openVocabMerges(dir, options)
    return vocabSize === 256 ? { ...none, tokenizer: byteTokenizer(eosOfConfig(config, vocabSize)) } : none
  }
  const { controls = new Map<string, number>(), ...text } = await opened()
  const names = new Map([...controls].map(([name, id]) => [id, name]))
  const ends = endsOf(from, { ...text, controls }, vocabSize, warn)
  return { ...text, ...ends, nameOf: (id) => names.get(id) ?? null }
}
