/**
 * The tokenizer that a GGUF file carries in its metadata (GGUF version 3, keys `tokenizer.ggml.*`): byte-level BPE
 * (`gpt2`, whose pre-tokens `tokenizer.ggml.pre` names), SentencePiece's BPE (`llama`), RWKV's trie (`rwkv`), or none
 * (`no_vocab`).
 */
import type { GgufMetadata } from '../../engine/native.ts'
import { ContinuoError, messageOf } from '../../errors.ts'
import { sha256 } from '../../hash.ts'
import { buildTokenizer, type Json } from './build.ts'
import { GGUF_PRE } from './gguf-pre.ts'
import { BYTE_LEVEL_DECODER, beginsWith } from './published.ts'
import { insideOfBytes } from './python.ts'
import { type ScoredPiece, sentencePieceEncoder } from './sentencepiece.ts'
import { trieTokenizer } from './trie.ts'
import type { OpenedTokenizer, Tokenizer } from './types.ts'
import { Unstreamable } from './unstreamable.ts'

const TYPES = { normal: 1, unknown: 2, control: 3, user: 4, unused: 5, byte: 6 } as const

const MARK = '\u2581'

/** The entries under `tokenizer.ggml.`, each checked when it is read. */
const entriesOf = (metadata: GgufMetadata) => {
  const full = (key: string): string => `tokenizer.ggml.${key}`
  const of = (key: string): unknown => metadata.get(full(key))
  const refuse = (key: string, expected: string): never => {
    const found = of(key)
    throw new Unstreamable(
      `${full(key)} ${found === undefined ? 'missing' : `of type ${typeof found}`}; expected ${expected}`,
    )
  }
  const list = (key: string, most: number): readonly unknown[] | undefined => {
    const value = of(key)
    if (value === undefined) return undefined
    if (!Array.isArray(value) && !(ArrayBuffer.isView(value) && !(value instanceof DataView)))
      return refuse(key, 'an array')
    const values = value as ArrayLike<unknown>
    if (values.length > most)
      throw new Unstreamable(`${full(key)} of ${values.length} values; at most ${most} are taken`)
    return Array.from(values)
  }
  const numbers = (key: string, count: number): readonly number[] | undefined => {
    const values = list(key, count)
    if (values === undefined) return undefined
    if (values.length !== count || !values.every((value) => typeof value === 'number' && !Number.isNaN(value)))
      refuse(key, `${count} numbers, one for each token`)
    return values as readonly number[]
  }
  const strings = (key: string, most: number): readonly string[] => {
    const values = list(key, most) ?? refuse(key, 'an array of strings')
    if (!values.every((value) => typeof value === 'string')) refuse(key, 'an array of strings')
    return values as readonly string[]
  }
  const flag = (key: string, missing: boolean): boolean => {
    const value = of(key) ?? missing
    return typeof value === 'boolean' ? value : refuse(key, 'a boolean')
  }
  /** A token's id; −1 in a file says that there is none, as 2³² − 1. */
  const id = (key: string, count: number): number | null => {
    const value = of(key)
    if (value === undefined) return null
    const number = Number(value)
    if ((typeof value !== 'number' && typeof value !== 'bigint') || !Number.isInteger(number))
      return refuse(key, 'a whole number')
    if (number === -1 || number === 2 ** 32 - 1) return null
    return number >= 0 && number < count ? number : refuse(key, `the id of a token, less than ${count}`)
  }
  const nameOr = (key: string, missing: string): string => {
    const value = of(key) ?? missing
    return typeof value === 'string' ? value : refuse(key, 'a string')
  }
  return { numbers, strings, flag, id, nameOr }
}

type Entries = ReturnType<typeof entriesOf>

interface Tokens {
  readonly tokens: readonly string[]
  readonly types: readonly number[]
}

const tokensOf = (entries: Entries, vocabSize: number): Tokens => {
  const tokens = entries.strings('tokens', vocabSize)
  const types = entries.numbers('token_type', tokens.length) ?? tokens.map(() => TYPES.normal)
  const odd = types.findIndex((type) => !Object.values<number>(TYPES).includes(type))
  if (odd >= 0) throw new Unstreamable(`the token type ${types[odd]} for id ${odd}; known are 1 to 6`)
  return { tokens, types }
}

/** Tokens that are found in the text before it is encoded: control, unknown and user-defined ones. */
const addedOf = ({ tokens, types }: Tokens): Json[] =>
  tokens.flatMap((content, id) => {
    const type = types[id]!
    if (type !== TYPES.control && type !== TYPES.unknown && type !== TYPES.user) return []
    return [{ id, content, special: type !== TYPES.user, normalized: false, lstrip: false, rstrip: false }]
  })

/** Token and id for those of the types. */
const vocabularyOf = ({ tokens, types }: Tokens, wanted: readonly number[]): ReadonlyMap<string, number> => {
  const ids = new Map<string, number>()
  for (const [id, token] of tokens.entries()) {
    if (!wanted.includes(types[id]!)) continue
    const other = ids.get(token)
    if (other !== undefined) throw new Unstreamable(`the token ${JSON.stringify(token)} twice, as ${other} and ${id}`)
    ids.set(token, id)
  }
  return ids
}

const beginOf = (entries: Entries, { tokens }: Tokens, usual: boolean): Json | null => {
  if (entries.flag('add_eos_token', false))
    throw new Unstreamable('add_eos_token, which puts a token behind a text; a stream has no end to put it at')
  const bos = entries.id('bos_token_id', tokens.length)
  return entries.flag('add_bos_token', usual) && bos !== null ? beginsWith(tokens[bos]!) : null
}

type Build = (
  entries: Entries,
  vocabSize: number,
  eos: (count: number) => number | null,
  warn: (what: string) => void,
) => Tokenizer

const gpt2: Build = (entries, vocabSize, eos, warn) => {
  const name = entries.nameOr('pre', 'default')
  if (name === 'default')
    warn(
      'does not say how its tokenizer splits a text (tokenizer.ggml.pre): it is split as llama.cpp does then, which is another way than most models have learned. Convert the model anew, or put its tokenizer.json beside the file.',
    )
  const pre = GGUF_PRE.get(name)
  if (pre === undefined)
    throw new Unstreamable(
      `the pre-tokenizer "${name.slice(0, 40)}" (tokenizer.ggml.pre); known are ${[...GGUF_PRE.keys()].join(', ')}`,
    )
  const all = tokensOf(entries, vocabSize)
  const json = {
    added_tokens: addedOf(all),
    normalizer: null,
    pre_tokenizer: pre.splits,
    post_processor: beginOf(entries, all, pre.begins === true),
    decoder: BYTE_LEVEL_DECODER,
    model: {
      type: 'BPE',
      vocab: vocabularyOf(all, [TYPES.normal, TYPES.byte]),
      merges: entries.strings('merges', 2 ** 24),
      ignore_merges: pre.ignoreMerges === true,
    },
  }
  return buildTokenizer(json, vocabSize).tokenizer(eos(all.tokens.length))
}

const llama: Build = (entries, vocabSize, eos) => {
  const all = tokensOf(entries, vocabSize)
  const { tokens, types } = all
  const scores = entries.numbers('scores', tokens.length)
  if (scores === undefined) throw new Unstreamable('no tokenizer.ggml.scores; expected one for each token')
  const pieces = new Map<string, ScoredPiece>()
  const bytes: (number | undefined)[] = Array(256).fill(undefined)
  for (const [id, token] of tokens.entries()) {
    const hex = types[id] === TYPES.byte ? /^<0x([0-9A-Fa-f]{2})>$/.exec(token)?.[1] : undefined
    if (hex !== undefined) bytes[Number.parseInt(hex, 16)] = id
    else if (types[id] === TYPES.byte)
      throw new Unstreamable(`${JSON.stringify(token)} as a byte; expected <0x00> … <0xFF>`)
    if (types[id] === TYPES.normal) pieces.set(token, { id, score: scores[id]! })
  }
  const replace = { type: 'Replace', pattern: { String: ' ' }, content: MARK }
  const prefix = entries.flag('add_space_prefix', true)
  const json = {
    added_tokens: addedOf(all),
    normalizer: prefix ? { type: 'Sequence', normalizers: [{ type: 'Prepend', prepend: MARK }, replace] } : replace,
    pre_tokenizer: null,
    post_processor: beginOf(entries, all, true),
    decoder: {
      type: 'Sequence',
      decoders: [
        { type: 'Replace', pattern: { String: MARK }, content: ' ' },
        { type: 'ByteFallback' },
        { type: 'Fuse' },
      ],
    },
    // Every piece may be what a join gives, so words are cut by all of them.
    model: { type: 'BPE', vocab: vocabularyOf(all, [TYPES.normal, TYPES.byte]), merges: [], ignore_merges: true },
  }
  const unknown = entries.id('unknown_token_id', tokens.length)
  const encode = sentencePieceEncoder({ pieces, bytes, unknown })
  return buildTokenizer(json, vocabSize, encode).tokenizer(eos(tokens.length))
}

const rwkv: Build = (entries, vocabSize, eos) => {
  const { tokens, types } = tokensOf(entries, vocabSize)
  const found = new Map<number, Uint8Array>()
  for (const [id, token] of tokens.entries()) if (types[id] === TYPES.normal) found.set(id, insideOfBytes(token))
  const control = tokens.flatMap((content, id) =>
    types[id] === TYPES.control || types[id] === TYPES.unknown ? [{ id, content }] : [],
  )
  return trieTokenizer(found, { eos: eos(tokens.length) ?? 0, control })
}

const BUILDS: Readonly<Record<string, Build>> = { gpt2, llama, rwkv }
const NONE = ['no_vocab', 'none']

/** Bytes of the values under `tokenizer.ggml.`, for the fingerprint. */
const textOf = (metadata: GgufMetadata): string => {
  const keys = [...metadata.keys()].filter((key) => key.startsWith('tokenizer.ggml.')).sort()
  const plain = (_: string, value: unknown): unknown => {
    if (typeof value === 'bigint') return Number(value)
    return ArrayBuffer.isView(value) ? Array.from(value as unknown as ArrayLike<number>) : value
  }
  // The arrays of 10⁵ strings without a call for each.
  const text = (value: unknown): string =>
    Array.isArray(value) && value.every((item) => typeof item === 'string')
      ? JSON.stringify(value)
      : JSON.stringify(value, plain)
  return `[${keys.map((key) => `[${JSON.stringify(key)},${text(metadata.get(key))}]`).join(',')}]`
}

/**
 * The tokenizer in the metadata of a GGUF file; null: the file has none, and the model takes token ids only. `path` is
 * for messages. Control, unknown and user-defined tokens are found in the text first, from left to right, the longest
 * at each place. Throws INVALID for metadata that contradicts itself or the model, and for kinds that are not read
 * here.
 */
export const openGgufTokenizer = (
  metadata: GgufMetadata,
  {
    vocabSize,
    path,
    warn = () => {},
  }: { readonly vocabSize: number; readonly path: string; readonly warn?: (message: string) => void },
): OpenedTokenizer | null => {
  const invalid = (what: string, cause?: unknown): ContinuoError =>
    new ContinuoError(
      'INVALID',
      `${path} ${what} Use a file whose tokenizer is of another kind, or put the package's tokenizer.json beside it.`,
      { cause },
    )
  const kind = metadata.get('tokenizer.ggml.model')
  if (kind === undefined || (typeof kind === 'string' && NONE.includes(kind))) return null
  const build = typeof kind === 'string' && Object.hasOwn(BUILDS, kind) ? BUILDS[kind] : undefined
  if (build === undefined) {
    const name = typeof kind === 'string' ? JSON.stringify(kind.slice(0, 40)) : `that is no text (${typeof kind})`
    const what = kind === 'bert' || kind === 't5' ? `${name} (${kind === 'bert' ? 'WordPiece' : 'Unigram'})` : name
    throw invalid(`has a tokenizer of kind ${what}, expected one of: ${Object.keys(BUILDS).join(', ')}.`)
  }
  try {
    const entries = entriesOf(metadata)
    const tokenizer = build(
      entries,
      vocabSize,
      (count) => entries.id('eos_token_id', count),
      (what) => warn(`${path} ${what}`),
    )
    const fingerprint = `${sha256(textOf(metadata))} ${tokenizer.eos}`
    const { tokens, types } = tokensOf(entries, vocabSize)
    const controls = new Map(tokens.flatMap((token, id) => (types[id] === TYPES.control ? [[token, id]] : [])))
    return { tokenizer, source: 'GGUF', fingerprint, controls }
  } catch (cause) {
    if (cause instanceof ContinuoError) throw cause
    if (cause instanceof Unstreamable) throw invalid(`has ${cause.message}.`, cause)
    throw invalid(`has a tokenizer that @huggingface/tokenizers cannot build: ${messageOf(cause)}.`, cause)
  }
}
