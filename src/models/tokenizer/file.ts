/**
 * tokenizer.json as it must be before anything is built from it: vocabulary, merges and added tokens agree with each
 * other. Faults are thrown as Unstreamable; index.ts adds the name of the file.
 */
import { z } from 'zod'
import { schemaFault } from '../../issues.ts'
import type { AddedToken } from './added.ts'
import { MOST_ADDED, MOST_BEGIN, MOST_PREFIXES, MOST_TOKEN } from './limits.ts'
import { Unstreamable } from './unstreamable.ts'

export interface Added extends AddedToken {
  readonly special: boolean
  /** Looked for in the normalized text. */
  readonly normalized: boolean
}

export interface TokenizerFile {
  readonly normalizer: unknown
  readonly preTokenizer: unknown
  readonly decoder: unknown
  /** As in the file, for the library. */
  readonly model: { readonly type: 'BPE' | 'Unigram'; readonly [key: string]: unknown }
  /** The model's own tokens, without added ones. */
  readonly vocab: ReadonlyMap<string, number>
  /** The same by their ids. */
  readonly tokens: ReadonlyMap<number, string>
  /** Tokens that encoding can give besides single characters. */
  readonly pieces: readonly string[]
  readonly fusesUnknown: boolean
  readonly added: readonly Added[]
  /** Ids that begin a context. */
  readonly begin: readonly number[]
  /** Truncation or padding is asked for, which mean nothing in a stream. */
  readonly cutsTexts: boolean
}

const MOST_ID = 2 ** 31 - 1
const id = z.int().min(0).max(MOST_ID)
const addedToken = z.looseObject({
  id,
  content: z.string().min(1).max(MOST_ADDED),
  single_word: z.boolean().default(false),
  lstrip: z.boolean().default(false),
  rstrip: z.boolean().default(false),
  special: z.boolean().default(false),
  normalized: z.boolean().optional(),
})
const outline = z.looseObject({
  added_tokens: z.array(addedToken).default([]),
  model: z.looseObject({ type: z.string() }),
})
const optional = z.string().nullish()
const bpe = z.looseObject({
  dropout: z.number().nullish(),
  unk_token: optional,
  continuing_subword_prefix: optional,
  continuing_subword_suffix: optional,
  end_of_word_suffix: optional,
  fuse_unk: z.boolean().default(false),
  byte_fallback: z.boolean().default(false),
  ignore_merges: z.boolean().default(false),
})
const piece = z.tuple([z.string(), z.number()])
const unigram = z.looseObject({
  unk_id: z.int().min(0),
  vocab: z.array(piece).min(1),
  byte_fallback: z.boolean().default(false),
})
const template = z.looseObject({
  single: z.array(
    z.union([
      z.looseObject({ SpecialToken: z.looseObject({ id: z.string() }) }),
      z.looseObject({ Sequence: z.looseObject({ id: z.string() }) }),
    ]),
  ),
})

const read = <T>(schema: z.ZodType<T>, json: unknown, where: string): T => {
  const parsed = schema.safeParse(json)
  if (parsed.success) return parsed.data
  const { path, message } = schemaFault(parsed.error)
  throw new Unstreamable(`a malformed ${[where, ...path].filter((part) => part !== '').join('.')}: ${message}`)
}

const show = (text: string): string => JSON.stringify(text.length > 40 ? `${text.slice(0, 40)}…` : text)

const checkLength = (token: string): void => {
  if (token.length > MOST_TOKEN)
    throw new Unstreamable(`the token ${show(token)} of ${token.length} characters; at most ${MOST_TOKEN} are taken`)
}

/** By hand: a vocabulary has 10⁵ members, and one of them may be named __proto__. */
const vocabOf = (json: unknown): Map<string, number> => {
  if (typeof json !== 'object' || json === null || Array.isArray(json))
    throw new Unstreamable('a malformed model.vocab: expected an object of tokens and their ids')
  const vocab = new Map<string, number>()
  // A GGUF file's is a Map.
  for (const [token, value] of json instanceof Map ? (json as Map<string, unknown>) : Object.entries(json)) {
    if (!Number.isInteger(value) || (value as number) < 0 || (value as number) > MOST_ID)
      throw new Unstreamable(
        `${show(token)} with the id ${JSON.stringify(value)}; expected a whole number from 0 to 2³¹ − 1`,
      )
    checkLength(token)
    vocab.set(token, value as number)
  }
  if (vocab.size === 0) throw new Unstreamable('an empty model.vocab; expected its tokens')
  return vocab
}

/** The tokens by their ids, each of which may stand for one. */
const byId = (vocab: ReadonlyMap<string, number>): Map<number, string> => {
  const owners = new Map<number, string>()
  for (const [token, value] of vocab) {
    const other = owners.get(value)
    if (other !== undefined) throw new Unstreamable(`the id ${value} twice, for ${show(other)} and ${show(token)}`)
    owners.set(value, token)
  }
  return owners
}

/** Each merge joins two tokens to a third; all three must be known. Returns the third ones. */
const mergedOf = (json: unknown, vocab: ReadonlyMap<string, number>): string[] => {
  if (!Array.isArray(json)) throw new Unstreamable('a malformed model.merges: expected a list')
  const asPairs = Array.isArray(json[0])
  const check = (token: string, at: number): void => {
    if (!vocab.has(token))
      throw new Unstreamable(`a merge (number ${at}) that names ${show(token)}, which is not in model.vocab`)
  }
  return json.map((item: unknown, at) => {
    const pair: unknown = asPairs ? item : typeof item === 'string' ? item.split(' ') : null
    const [left, right] = Array.isArray(pair) && pair.length === 2 ? (pair as unknown[]) : []
    if (typeof left !== 'string' || typeof right !== 'string' || left === '' || right === '')
      throw new Unstreamable(`${JSON.stringify(item)} as merge ${at}; expected two tokens, as all the others have them`)
    const merged = left + right
    check(left, at)
    check(right, at)
    check(merged, at)
    return merged
  })
}

const readBpe = (json: Readonly<Record<string, unknown>>) => {
  const options = read(bpe, json, 'model')
  const refused = (['continuing_subword_prefix', 'continuing_subword_suffix', 'end_of_word_suffix'] as const).find(
    (name) => options[name],
  )
  if (refused !== undefined) throw new Unstreamable(`a model with ${refused}, which is not supported here`)
  if (options.dropout) throw new Unstreamable('a model with dropout: the same text would not give the same ids')
  const vocab = vocabOf(json.vocab)
  const { unk_token: unknown } = options
  if (unknown && !vocab.has(unknown))
    throw new Unstreamable(`${show(unknown)} as unk_token, which is not in model.vocab`)
  const merged = mergedOf(json.merges, vocab)
  const pieces = options.ignore_merges ? [...vocab.keys()] : merged
  return { vocab, pieces, fusesUnknown: options.fuse_unk && Boolean(unknown) }
}

/**
 * The lattice of a text has every piece that begins at a place, for each place; published vocabularies have up to 16.
 */
const checkPrefixes = (vocab: ReadonlyMap<string, number>): void => {
  // In order, a piece comes behind all that begin it: those stand on a stack, so that each piece is looked at once.
  const beginning: string[] = []
  for (const token of [...vocab.keys()].sort()) {
    checkLength(token)
    while (beginning.length > 0 && !token.startsWith(beginning.at(-1)!)) beginning.pop()
    beginning.push(token)
    const prefixes = beginning.length - (beginning[0] === '' ? 1 : 0)
    if (prefixes > MOST_PREFIXES)
      throw new Unstreamable(
        `${prefixes} pieces that begin one another, up to ${show(token)}; at most ${MOST_PREFIXES} are taken`,
      )
  }
}

const readUnigram = (json: unknown) => {
  const { vocab: pairs, unk_id, byte_fallback } = read(unigram, json, 'model')
  if (byte_fallback) throw new Unstreamable('a Unigram model with byte_fallback, which is not supported here')
  if (unk_id >= pairs.length) throw new Unstreamable(`${unk_id} as unk_id; its vocabulary has ${pairs.length} pieces`)
  const vocab = new Map(pairs.map(([token], at) => [token, at] as const))
  if (vocab.size < pairs.length) {
    const double = pairs.find(([token], at) => vocab.get(token) !== at)!
    throw new Unstreamable(`the piece ${show(double[0])} twice`)
  }
  checkPrefixes(vocab)
  return { vocab, pieces: [...vocab.keys()], fusesUnknown: true }
}

/** The tokens a post_processor puts before a text; refuses those that put something behind. */
const beginOf = (json: unknown, idOf: (token: string) => number | undefined): number[] => {
  if (json === null || json === undefined) return []
  const { type } = read(z.looseObject({ type: z.string() }), json, 'post_processor')
  if (type === 'ByteLevel') return []
  if (type === 'Sequence') {
    const { processors } = read(z.looseObject({ processors: z.array(z.unknown()) }), json, 'post_processor')
    // A later one surrounds what the earlier ones gave.
    return processors.toReversed().flatMap((processor) => beginOf(processor, idOf))
  }
  if (type !== 'TemplateProcessing') throw new Unstreamable(`a post_processor of type ${type}, which is not known here`)
  const { single } = read(template, json, 'post_processor')
  const names: string[] = []
  for (const [at, item] of single.entries()) {
    if ('Sequence' in item) {
      if (at === single.length - 1) break
      throw new Unstreamable('a post_processor that puts tokens behind a text; a stream has no end to put them at')
    }
    names.push((item as { SpecialToken: { id: string } }).SpecialToken.id)
  }
  return names.map((name) => {
    const found = idOf(name)
    if (found === undefined) throw new Unstreamable(`a post_processor that names ${show(name)}, which no token has`)
    return found
  })
}

const checkAdded = (
  added: readonly (Added & { readonly single_word: boolean })[],
  vocab: ReadonlyMap<string, number>,
  tokens: ReadonlyMap<number, string>,
): void => {
  const owners = new Map<number, string>()
  const contents = new Set<string>()
  for (const token of added) {
    const { content } = token
    const own = vocab.get(content)
    const other = owners.get(token.id) ?? tokens.get(token.id)
    if (contents.has(content)) throw new Unstreamable(`the added token ${show(content)} twice`)
    if (own !== undefined && own !== token.id)
      throw new Unstreamable(`two ids for ${show(content)}: ${token.id} as added token, ${own} in model.vocab`)
    if (other !== undefined && other !== content)
      throw new Unstreamable(`the id ${token.id} twice, for ${show(other)} and ${show(content)}`)
    if (token.single_word)
      throw new Unstreamable(`the added token ${show(content)} with single_word, which is not supported here`)
    if (!content.isWellFormed()) throw new Unstreamable(`the added token ${show(content)}, which is half a character`)
    contents.add(content)
    owners.set(token.id, content)
  }
  const white = added.find(({ content }) => content !== content.trim())
  const strips = added.find(({ lstrip, rstrip }) => lstrip || rstrip)
  if (white && strips)
    throw new Unstreamable(
      `${show(strips.content)}, which strips white space, beside ${show(white.content)}, which is white space at an end`,
    )
}

/** Throws Unstreamable. */
export const readTokenizerFile = (json: unknown): TokenizerFile => {
  const { added_tokens, model, ...rest } = read(outline, json, '')
  const source = (json as { model: Readonly<Record<string, unknown>> }).model
  if (model.type !== 'BPE' && model.type !== 'Unigram')
    throw new Unstreamable(`a model of type ${model.type}; BPE and Unigram are supported`)
  const found = model.type === 'BPE' ? readBpe(source) : readUnigram(source)
  const tokens = byId(found.vocab)
  const added = added_tokens.map((token) => ({ ...token, normalized: token.normalized ?? !token.special }))
  checkAdded(added, found.vocab, tokens)
  const idOf = (token: string) => added.find(({ content }) => content === token)?.id ?? found.vocab.get(token)
  const begin = beginOf(rest.post_processor, idOf)
  if (begin.length > MOST_BEGIN)
    throw new Unstreamable(
      `a post_processor that puts ${begin.length} tokens before a text; at most ${MOST_BEGIN} are taken`,
    )
  return {
    normalizer: rest.normalizer,
    preTokenizer: rest.pre_tokenizer,
    decoder: rest.decoder,
    model: source as TokenizerFile['model'],
    ...found,
    tokens,
    added,
    begin,
    cutsTexts: Boolean(rest.truncation) || Boolean(rest.padding),
  }
}
