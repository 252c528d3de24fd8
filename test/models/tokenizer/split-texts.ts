/** Texts that are hard to split, and a byte-level vocabulary whose joins cross the places at which they are split. */
import { sha256 } from '../../../src/hash.ts'
import type { GgufValue } from '../files/gguf-header.ts'
import { byteChars, inBytes, train } from './fixtures.ts'

export const SPLIT_TEXTS: readonly string[] = [
  '',
  ' ',
  '  ',
  '   ',
  '\t',
  '\n',
  '\n\n',
  '\n\n\n',
  '\t\n',
  ' \n \n\n \n\n\n\t \n',
  'Hello world',
  ' Hello world',
  'Hello World!',
  ' Hello, world!',
  '   Hello\n    Hello',
  "don't I'LL we'Ve they'RE it'S 'tis rock'n'roll",
  ' (',
  '\n =',
  "' era",
  "Hello, y'all! How are you 😁 ?我想在apple工作1314151天～",
  '!!!!!!',
  '3',
  '33',
  '333',
  '3333',
  '33333',
  '333333',
  '3333333',
  '33333333',
  '333333333',
  '3.14159 and 1,000,000.00, or 0x1F4A9',
  'Ⅷ ½ ² ٣٤٥ १२३ １２３',
  'w048 7tuijk dsdfhu',
  'नेपाली भाषा, कि क्या',
  'កាន់តែពិសេសអាចខលចេញ',
  '🚀 (normal) 😶‍🌫️ (multiple emojis concatenated) ✅ (only emoji that has its own token)',
  'camelCase HTTPServer XMLHttpRequest iOS snake_case SCREAMING_CASE kebab-case',
  'Straße GROẞ Ärger ÉCOLE école ñandú ÑANDÚ Ωmega ωΩ Привет ПРИВЕТ Ǆ ǅ ǆ',
  'İstanbul ıI ſ K Å ﬁ',
  'é e\u0301 ü u\u0308 a\u0300b\u0301C\u0302',
  '日本語のテキスト、カタカナ・ひらがな。漢字',
  '한국어 텍스트와 자모 ㄱㄴㄷ',
  'ไทย ລາວ မြန်မာ',
  'עברית العربية ۔،',
  'a.b.c…d!e?f|g(h)i{j}k[l]m<n>o=p+q^r~s`t$u%v&w*x@y#z',
  '“quoted” ‘single’ —em– -dash- «guillemets» „low“ ‹x›',
  '～！（）：；＠［］｛｝　、。',
  'x\r\ny\r\rz\n\r',
  'end of line   \nnext\t\t\n  ',
  'trailing spaces   ',
  'trailing tab\t',
  'a  b   c    d',
  '\u00a0nbsp\u00a0\u00a0x\u2003em\u2028line\u2029para\u0085nel',
  'path/to/file.ts:12:34 https://example.com/a?b=c&d=%20',
  'def f(x):\n    return x**2  # square\n\n\nclass A:\n\tpass\n',
  '{"key": [1, 2.5e-10, null, true], "k\\n": "v"}',
  '<|im_start|>user\n',
  '$100 €50 £20 ¥1000 +5 -3 ±2 ×4 ÷2 ≠ ≤ ∞ √ ∑',
  'a\u200bb\u200dc\ufeffd\u00ade',
  '\u0000\u0001\u001f\u007f',
  '𝐀𝐛 𐐀𐐨 𞤀𞤢 🇩🇪 👩‍👩‍👧‍👦',
  'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa',
  '/* comment */ // line\n/n /\n//\n',
  'wei\u0301rd\u0301 12a 3b4 c5d6 7.8.9 1st 2nd',
]

/** Joins as merges.txt has them, learned on the texts whole. */
export const learnJoins = (): readonly string[] => train(SPLIT_TEXTS.map(inBytes), [], 900).merges

/** The metadata of a GGUF file whose vocabulary is the bytes, these joins, and two ends of a text. */
export const splitMetadata = (pre: string, joins: readonly string[]): Readonly<Record<string, GgufValue>> => {
  const tokens = [...byteChars, ...joins.map((join) => join.replace(' ', '')), '<|bos|>', '<|eos|>']
  return {
    'tokenizer.ggml.model': 'gpt2',
    'tokenizer.ggml.pre': pre,
    'tokenizer.ggml.tokens': tokens,
    'tokenizer.ggml.token_type': { i32s: tokens.map((_, at) => (at < tokens.length - 2 ? 1 : 3)) },
    'tokenizer.ggml.merges': joins,
    'tokenizer.ggml.bos_token_id': { u32: tokens.length - 2 },
    'tokenizer.ggml.eos_token_id': { u32: tokens.length - 1 },
  }
}

/** The metadata as a reader of the file has them. */
export const asRead = (metadata: Readonly<Record<string, GgufValue>>): Map<string, unknown> =>
  new Map(
    Object.entries(metadata).map(([key, value]): [string, unknown] => {
      if (typeof value !== 'object' || Array.isArray(value)) return [key, value]
      return [key, Object.values(value)[0]]
    }),
  )

/** The published patterns of these know upper and lower case and combining marks; llama.cpp writes them without, and splits words of letters with marks otherwise. */
const CASED: ReadonlySet<string> = new Set(['tekken', 'gpt-4o', 'llama4', 'kanana2', 'minimax-m2'])
export const isKnownToDiffer = (pre: string, text: string): boolean => CASED.has(pre) && /\p{Lo}\p{M}/u.test(text)

/** Of ids, short: what is kept of another program's. */
export const digestOf = (ids: readonly number[]): string => sha256(Buffer.from(JSON.stringify(ids))).slice(0, 10)
