/** Pre-tokenizers of published tokenizers, for packages that name them instead of carrying a tokenizer.json. */
import type { Json } from './build.ts'

/** Of Llama 3 and Qwen: `digits` at most in a piece; `marks`: combining marks belong to the letters (Qwen 3.5). */
const words = (digits: string, marks: boolean): string => {
  const letters = marks ? '[\\p{L}\\p{M}]+' : '\\p{L}+'
  const others = marks ? '[^\\s\\p{L}\\p{M}\\p{N}]+' : '[^\\s\\p{L}\\p{N}]+'
  return `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?${letters}|${digits}| ?${others}[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+`
}

const byteLevel = (use_regex: boolean): Json => ({ type: 'ByteLevel', add_prefix_space: false, use_regex })
const sequence = (...pretokenizers: readonly Json[]): Json => ({ type: 'Sequence', pretokenizers })
const split = (Regex: string): Json =>
  sequence({ type: 'Split', pattern: { Regex }, behavior: 'Isolated', invert: false }, byteLevel(false))

export const PRE_TOKENIZERS = {
  gpt2: byteLevel(true),
  llama3: split(words('\\p{N}{1,3}', false)),
  qwen2: split(words('\\p{N}', false)),
  qwen35: split(words('\\p{N}', true)),
  smollm: sequence({ type: 'Digits', individual_digits: true }, byteLevel(true)),
} as const

export const BYTE_LEVEL_DECODER: Json = { type: 'ByteLevel' }

/** Puts one token before a text. */
export const beginsWith = (token: string): Json => ({
  type: 'TemplateProcessing',
  single: [{ SpecialToken: { id: token, type_id: 0 } }, { Sequence: { id: 'A', type_id: 0 } }],
})
