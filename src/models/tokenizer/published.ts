/** Pre-tokenizers of published tokenizers, for packages that name them instead of carrying a tokenizer.json. */
import type { Json } from './build.ts'

const CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
const LAST_SPACES = '\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+'

/** Of Llama 3 and Qwen: `digits` at most in a piece; `marks`: combining marks belong to the letters (Qwen 3.5). */
const words = (digits: string, marks: boolean): string => {
  const letters = marks ? '[\\p{L}\\p{M}]+' : '\\p{L}+'
  const others = marks ? '[^\\s\\p{L}\\p{M}\\p{N}]+' : '[^\\s\\p{L}\\p{N}]+'
  return `${CONTRACTIONS}|[^\\r\\n\\p{L}\\p{N}]?${letters}|${digits}| ?${others}[\\r\\n]*|${LAST_SPACES}`
}

/** Of o200k and Tekken: a capital begins a word. `tail`: what belongs to a word behind its letters. */
const cased = (digits: string, tail: string): string => {
  const [upper, lower] = ['[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]', '[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]']
  const before = '[^\\r\\n\\p{L}\\p{N}]?'
  return `${before}${upper}*${lower}+${tail}|${before}${upper}+${lower}*${tail}|${digits}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|${LAST_SPACES}`
}

/** Of GPT-2, without its last alternative: what it leaves is a piece as well. */
const GPT2 = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)"
/** Of DeepSeek V3. */
const MARKED =
  '[!"#$%&\'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+'
/** Letters with cases, as the tokenizer of DeepSeek LLM lists them: code points, hexadecimal. */
const CASED_LETTERS =
  '41-5a 61-7a b5 c0-d6 d8-f6 f8-1ba 1bc-1bf 1c4-293 295-2af 370-373 376-377 37b-37d 37f 386 388-38a 38c 38e-3a1 3a3-3f5 3f7-481 48a-52f 531-556 10a0-10c5 13a0-13f5 13f8-13fd 1c90-1cba 1cbd-1cbf 1d00-1d2b 1d6b-1d77 1d79-1d9a 1e00-1f15 1f18-1f1d 1f20-1f45 1f48-1f4d 1f50-1f57 1f59 1f5b 1f5d 1f5f-1f7d 1f80-1fb4 1fb6-1fbc 1fbe 1fc2-1fc4 1fc6-1fcc 1fd0-1fd3 1fd6-1fdb 1fe0-1fec 1ff2-1ff4 1ff6-1ffc 2102 2107 210a-2113 2115 2119-211d 2124 2126 2128 212a-212d 212f-2134 2139 213c-213f 2145-2149 214e 2183-2184 2c00-2c7b 2c7e-2ce4 2ceb-2cee 2cf2-2cf3 a640-a66d a680-a69b a722-a76f a771-a787 a78b-a78e ab70-abbf fb00-fb06 fb13-fb17 ff21-ff3a ff41-ff5a 10400-1044f 104b0-104d3 104d8-104fb 10c80-10cb2 10cc0-10cf2 118a0-118df 1e900-1e943'
const ranges = (list: string): string =>
  list
    .split(' ')
    .map((range) => range.replaceAll(/[0-9a-f]+/g, '\\u{$&}'))
    .join('')
const EAST_ASIAN = `[${ranges('4e00-9fa5 800-4e00 ac00-d7ff')}]+`

const byteLevel = (use_regex: boolean): Json => ({ type: 'ByteLevel', add_prefix_space: false, use_regex })
const sequence = (...pretokenizers: readonly Json[]): Json => ({ type: 'Sequence', pretokenizers })
/** Splits by each pattern in turn; what lies between matches is a piece too. */
const splits = (...patterns: readonly string[]): Json =>
  sequence(
    ...patterns.map((Regex): Json => ({ type: 'Split', pattern: { Regex }, behavior: 'Isolated', invert: false })),
    byteLevel(false),
  )

export const PRE_TOKENIZERS = {
  gpt2: byteLevel(true),
  llama3: splits(words('\\p{N}{1,3}', false)),
  qwen2: splits(words('\\p{N}', false)),
  qwen35: splits(words('\\p{N}', true)),
  smollm: sequence({ type: 'Digits', individual_digits: true }, byteLevel(true)),
  falcon: splits('[\\p{P}\\$\\+<=>\\^~\\|`]+', GPT2, '[0-9][0-9][0-9]'),
  deepseekLlm: splits(
    '[\\r\\n]',
    `\\s?[${ranges(CASED_LETTERS)}]+`,
    `\\s?[!-/:-~${ranges('ff01-ff0f ff1a-ff5e 2018-201f 3000-3002')}]+`,
    '\\s+$',
    EAST_ASIAN,
    '\\p{N}+',
  ),
  deepseekCoder: splits('[\\r\\n]', '\\s?\\p{L}+', '\\s?\\p{P}+', EAST_ASIAN, '\\p{N}'),
  deepseekV3: splits('\\p{N}{1,3}', `[${ranges('4e00-9fa5 3040-309f 30a0-30ff')}]+`, MARKED),
  tekken: splits(cased('\\p{N}', '')),
  gpt4o: splits(cased('\\p{N}{1,3}', `${CONTRACTIONS}?`)),
  seedCoder: splits(
    `${CONTRACTIONS}|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1}| ?[^\\s\\p{L}\\p{N}\\r\\n]+|${LAST_SPACES}`,
  ),
  bailing: splits(
    "'(?i:s|d|m|t|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+",
  ),
  bloom: splits(' ?[^(\\s|.,!?…。，、।۔،)]+'),
  viking: splits(' ?[^(\\s|.,!?…。，、।۔،)]+', '\\p{N}'),
  minicpm5: splits('\\p{N}{1,3}', words('\\p{N}+', false)),
  /** What llama.cpp splits by where a file names nothing, or "default". */
  unnamed: splits('[\\p{P}\\$\\+<=>\\^~\\|]+', GPT2, '\\p{N}+', '[0-9][0-9][0-9]'),
} as const

export const BYTE_LEVEL_DECODER: Json = { type: 'ByteLevel' }

/** Puts one token before a text. */
export const beginsWith = (token: string): Json => ({
  type: 'TemplateProcessing',
  single: [{ SpecialToken: { id: token, type_id: 0 } }, { Sequence: { id: 'A', type_id: 0 } }],
})
