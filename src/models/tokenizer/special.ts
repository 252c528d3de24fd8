/**
 * Which token ends a text. tokenizer.json is the truth about ids; config.json may be left over from another tokenizer
 * and counts only where there is no tokenizer.json.
 */
import { join } from 'node:path'
import { z } from 'zod'
import { ContinuoError, messageOf } from '../../errors.ts'
import { MOST_CONFIG_BYTES, readJsonFile } from '../../json.ts'
import type { TokenizerFile } from './file.ts'

/** Names an end of text goes by, where no file says which. */
const USUAL = ['</s>', '<|endoftext|>', '<eos>', '[EOS]']
const NAMING = ['tokenizer_config.json', 'special_tokens_map.json']

const naming = z.looseObject({ eos_token: z.union([z.string(), z.looseObject({ content: z.string() })]).nullish() })

/** The content that a file beside tokenizer.json names as eos_token; null: none does. */
const namedEos = async (dir: string): Promise<{ readonly content: string; readonly path: string } | null> => {
  for (const file of NAMING) {
    const path = join(dir, file)
    let parsed: unknown
    try {
      parsed = (await readJsonFile(path, MOST_CONFIG_BYTES)).json
    } catch (cause) {
      if (cause instanceof ContinuoError) throw cause
      if ((cause as NodeJS.ErrnoException).code === 'ENOENT') continue
      throw new ContinuoError('INVALID', `Cannot read ${path}: ${messageOf(cause)}.`, { cause })
    }
    const found = naming.safeParse(parsed)
    if (!found.success)
      throw new ContinuoError(
        'INVALID',
        `${path} has a malformed eos_token: expected a string, or an object with a content.`,
      )
    const { eos_token: eos } = found.data
    if (eos) return { content: typeof eos === 'string' ? eos : eos.content, path }
  }
  return null
}

const edges = z.looseObject({ add_bos_token: z.boolean().nullish(), add_eos_token: z.boolean().nullish() })

/**
 * Says through `warn` where tokenizer_config.json speaks of a token before or behind a text, and tokenizer.json, which
 * counts, does otherwise.
 */
export const warnOfEdges = async (
  dir: string,
  { begin }: Pick<TokenizerFile, 'begin'>,
  warn: (message: string) => void,
): Promise<void> => {
  const path = join(dir, 'tokenizer_config.json')
  const found = edges.safeParse(
    await readJsonFile(path, MOST_CONFIG_BYTES).then(
      ({ json }) => json,
      () => ({}),
    ),
  )
  if (!found.success) return
  const { add_bos_token: before, add_eos_token: behind } = found.data
  if (before === true && begin.length === 0)
    warn(
      `${path} says add_bos_token, but tokenizer.json puts no token before a text, and it counts, as in transformers 5. Older transformers and llama.cpp begin a text with one: correct the post_processor of tokenizer.json if the model was trained so.`,
    )
  if (before === false && begin.length > 0)
    warn(
      `${path} says add_bos_token: false, but tokenizer.json puts ${begin.length === 1 ? 'a token' : `${begin.length} tokens`} before a text, and it counts. Take both files from the same package.`,
    )
  if (behind === true) warn(`${path} says add_eos_token; a stream has no end to put a token at, and none is put there.`)
}

const idsIn = (value: unknown): number[] =>
  (Array.isArray(value) ? value : [value]).filter((id): id is number => Number.isInteger(id) && id >= 0)

/** config.json's eos_token_id (of several the first), for packages without tokenizer.json; null where it has none. */
export const eosOfConfig = (config: { readonly [key: string]: unknown }, vocabSize: number): number | null => {
  const [first] = idsIn(config.eos_token_id)
  return first !== undefined && first < vocabSize ? first : null
}

/**
 * The id of the token that ends a text; null: none does. Says once through `warn` where config.json has another one.
 * Throws INVALID where a file of the package names one that the tokenizer does not have. `source` is its file, for
 * messages.
 */
export const eosOf = async (
  dir: string,
  { added, vocab }: Pick<TokenizerFile, 'added' | 'vocab'>,
  config: { readonly [key: string]: unknown },
  warn: (message: string) => void,
  source = 'tokenizer.json',
): Promise<number | null> => {
  const idOf = (content: string): number | undefined =>
    added.find((token) => token.content === content)?.id ?? vocab.get(content)
  const named = await namedEos(dir)
  const usual = USUAL.find((content) => added.some((token) => token.special && token.content === content))
  const content = named?.content ?? usual
  if (content === undefined) return null
  const eos = idOf(content)
  if (eos === undefined) {
    throw new ContinuoError(
      'INVALID',
      `${named!.path} names ${JSON.stringify(content)} as eos_token, but ${source} has no such token. Take both files from the same package.`,
    )
  }
  const stale = idsIn(config.eos_token_id)
  if (stale.length > 0 && !stale.includes(eos)) {
    warn(
      `config.json of ${dir} says eos_token_id ${stale.join(', ')}, but in ${source} ${JSON.stringify(content)} has the id ${eos}. ${source} counts.`,
    )
  }
  return eos
}

/** The special ones among added tokens, by their content. */
export const controlsOf = ({ added }: Pick<TokenizerFile, 'added'>): ReadonlyMap<string, number> =>
  new Map(added.filter(({ special }) => special).map(({ content, id }) => [content, id]))
