/**
 * A byte-level BPE vocabulary as a GGUF file carries it, of random words: what both sides build before a prompt can be
 * read.
 */
import type { MetaValue } from './gguf.ts'
import { uniform } from './tensors.ts'

/** GPT-2's character for a byte: itself where it prints, else the next one from U+0100 on. */
const characters = (): readonly string[] => {
  const prints = (byte: number): boolean => (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174
  let next = 256
  return Array.from({ length: 256 }, (_, byte) => String.fromCharCode(prints(byte) ? byte : next++))
}

const LONGEST = 12
const CONTROL = ['<|begin_of_text|>', '<|end_of_text|>']
const TYPES = { normal: 1, control: 3 }

/** `size` tokens: the bytes, joins of two earlier tokens each, and the two ends of a text. */
export const bpeVocabulary = (size: number): Readonly<Record<string, MetaValue>> => {
  const draw = uniform(`vocabulary of ${size}`, 0.5, 1 / Math.sqrt(12))
  const tokens = [...characters()]
  // Words are joined out of letters, with or without a space before them.
  const parts = ['Ġ', ...'abcdefghijklmnopqrstuvwxyz']
  const seen = new Set(tokens)
  const merges: string[] = []
  while (tokens.length < size - CONTROL.length) {
    const [a, b] = Array.from(
      draw(2),
      (number) => parts[Math.min(parts.length - 1, Math.floor(number * parts.length))]!,
    )
    const joined = `${a}${b}`
    if (joined.length > LONGEST || b!.startsWith('Ġ') || seen.has(joined)) continue
    seen.add(joined)
    tokens.push(joined)
    parts.push(joined)
    merges.push(`${a} ${b}`)
  }
  const types = [...tokens.map(() => TYPES.normal), ...CONTROL.map(() => TYPES.control)]
  tokens.push(...CONTROL)
  return {
    'tokenizer.ggml.model': 'gpt2',
    'tokenizer.ggml.pre': 'llama-bpe',
    'tokenizer.ggml.tokens': tokens,
    'tokenizer.ggml.token_type': { i32s: types },
    'tokenizer.ggml.merges': merges,
    'tokenizer.ggml.bos_token_id': { u32: size - 2 },
    'tokenizer.ggml.eos_token_id': { u32: size - 1 },
  }
}
