/**
 * Byte-level BPE as older packages have it: vocab.json (an object of tokens and their ids) and merges.txt (a merge a
 * line, "a b", behind a line "#version: …"). Which pre-tokens are meant is said by `tokenizer_class` of
 * tokenizer_config.json alone.
 */
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { z } from 'zod'
import { ContinuoError, messageOf } from '../../errors.ts'
import { readBounded } from '../../files.ts'
import { sha256 } from '../../hash.ts'
import { schemaFault } from '../../issues.ts'
import { MOST_CONFIG_BYTES, MOST_TOKENIZER_BYTES, readJsonFile } from '../../json.ts'
import { buildTokenizer, type Json } from './build.ts'
import { BYTE_LEVEL_DECODER, PRE_TOKENIZERS } from './published.ts'
import { controlsOf, eosOf } from './special.ts'
import type { OpenedTokenizer, OpenTokenizerOptions } from './types.ts'
import { Unstreamable } from './unstreamable.ts'

const SOURCE = 'vocab.json and merges.txt'

export const hasVocabMerges = (dir: string): boolean =>
  existsSync(join(dir, 'vocab.json')) && existsSync(join(dir, 'merges.txt'))

/** By the class without its ending "Fast". */
const CLASSES: Readonly<Record<string, { readonly normalizer: Json | null; readonly splits: Json }>> = {
  GPT2Tokenizer: { normalizer: null, splits: PRE_TOKENIZERS.gpt2 },
  Qwen2Tokenizer: { normalizer: { type: 'NFC' }, splits: PRE_TOKENIZERS.qwen2 },
}

const token = z.looseObject({
  content: z.string().min(1),
  lstrip: z.boolean().default(false),
  rstrip: z.boolean().default(false),
  single_word: z.boolean().default(false),
  special: z.boolean().default(true),
  normalized: z.boolean().default(false),
})
const named = z.union([z.string().min(1), token])
const naming = z.looseObject({
  tokenizer_class: z.string().nullish(),
  add_prefix_space: z.boolean().nullish(),
  added_tokens_decoder: z.record(z.string(), token).default({}),
  bos_token: named.nullish(),
  eos_token: named.nullish(),
  unk_token: named.nullish(),
  pad_token: named.nullish(),
  additional_special_tokens: z.array(named).nullish(),
})
const extra = z.record(z.string(), z.int().min(0))

const readOptional = async <T>(path: string, schema: z.ZodType<T>): Promise<T> => {
  let json: unknown = {}
  try {
    json = (await readJsonFile(path, MOST_CONFIG_BYTES)).json
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code !== 'ENOENT') throw cause
  }
  const parsed = schema.safeParse(json)
  if (parsed.success) return parsed.data
  const { path: where, message } = schemaFault(parsed.error)
  throw new ContinuoError('INVALID', `${path} has a malformed ${where.join('.')}: ${message}.`)
}

const readMerges = async (path: string): Promise<{ readonly text: string; readonly merges: readonly string[] }> => {
  const text = (await readBounded(path, MOST_TOKENIZER_BYTES)).toString('utf8')
  const lines = text.split(/\r?\n/)
  return { text, merges: lines.filter((line, at) => line !== '' && !(at === 0 && line.startsWith('#version'))) }
}

/** Added tokens: those that a file gives an id, and those that are named as special and have their id in vocab.json. */
const addedOf = async (
  dir: string,
  vocab: Readonly<Record<string, unknown>>,
  config: z.infer<typeof naming>,
): Promise<Json[]> => {
  const added = new Map<string, Json>()
  for (const [id, about] of Object.entries(config.added_tokens_decoder))
    added.set(about.content, { ...about, id: Number(id) })
  for (const [content, id] of Object.entries(await readOptional(join(dir, 'added_tokens.json'), extra)))
    if (!added.has(content)) added.set(content, { id, content, special: false, normalized: false })
  const map = await readOptional(join(dir, 'special_tokens_map.json'), naming)
  const usual = Object.hasOwn(vocab, '<|endoftext|>') ? ['<|endoftext|>'] : []
  const specials = [config, map].flatMap(({ bos_token, eos_token, unk_token, pad_token, additional_special_tokens }) =>
    [bos_token, eos_token, unk_token, pad_token, ...(additional_special_tokens ?? [])].filter((found) => found != null),
  )
  for (const about of [...specials, ...usual]) {
    const content = typeof about === 'string' ? about : about.content
    const known = added.get(content)
    const id = known?.id ?? (Object.hasOwn(vocab, content) ? vocab[content] : undefined)
    if (id !== undefined) added.set(content, { ...known, id, content, special: true, normalized: false })
  }
  return [...added.values()]
}

/** The tokenizer of a folder with vocab.json and merges.txt. Throws INVALID as `openTokenizer` does. */
export const openVocabMerges = async (
  dir: string,
  { vocabSize, config, warn }: OpenTokenizerOptions,
): Promise<OpenedTokenizer> => {
  const invalid = (what: string, cause?: unknown): ContinuoError =>
    new ContinuoError('INVALID', `${SOURCE} of ${dir} ${what} A tokenizer.json beside them goes before them.`, {
      cause,
    })
  const about = await readOptional(join(dir, 'tokenizer_config.json'), naming)
  const kind = about.tokenizer_class?.replace(/Fast$/, '') ?? 'GPT2Tokenizer'
  const known = Object.hasOwn(CLASSES, kind) ? CLASSES[kind] : undefined
  if (known === undefined)
    throw invalid(`are of the class ${kind}, expected one of: ${Object.keys(CLASSES).join(', ')}.`)
  const { text, json: vocab } = await readJsonFile(join(dir, 'vocab.json'), MOST_TOKENIZER_BYTES)
  const merges = await readMerges(join(dir, 'merges.txt'))
  const ofClass: Json = about.add_prefix_space ? { ...known.splits, add_prefix_space: true } : known.splits
  const isObject = typeof vocab === 'object' && vocab !== null && !Array.isArray(vocab)
  const added_tokens = isObject ? await addedOf(dir, vocab as Record<string, unknown>, about) : []
  const json = {
    added_tokens,
    normalizer: known.normalizer,
    pre_tokenizer: ofClass,
    post_processor: null,
    decoder: BYTE_LEVEL_DECODER,
    model: { type: 'BPE', vocab, merges: merges.merges },
  }
  try {
    const { file, tokenizer } = buildTokenizer(json, vocabSize)
    const eos = await eosOf(dir, file, config, warn, SOURCE)
    const identity = sha256(JSON.stringify([sha256(text), sha256(merges.text), kind, ofClass, added_tokens]))
    return { tokenizer: tokenizer(eos), source: SOURCE, fingerprint: `${identity} ${eos}`, controls: controlsOf(file) }
  } catch (cause) {
    if (cause instanceof ContinuoError) throw cause
    if (cause instanceof Unstreamable) throw invalid(`have ${cause.message}.`, cause)
    throw invalid(`are not a tokenizer that @huggingface/tokenizers can build: ${messageOf(cause)}.`, cause)
  }
}
