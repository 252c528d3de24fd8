import type { Tokenizer } from './types.ts'

const isHighSurrogate = (unit: number): boolean => unit >= 0xd800 && unit < 0xdc00

/**
 * A token is a byte of UTF-8; no special tokens. Text is UTF-16 in JavaScript, so a chunk may end between the halves of
 * a surrogate pair: the first half is held. A half that never meets its partner becomes U+FFFD (EF BF BD). Raw bytes
 * pass as they are.
 */
export const byteTokenizer = (eos: number | null = null): Tokenizer => {
  const encoder = new TextEncoder()
  // TextEncoder replaces lone surrogates by U+FFFD itself.
  const encode = (text: string): Int32Array => Int32Array.from(encoder.encode(text))
  return {
    vocabSize: 256,
    eos,
    begun: '',
    push: (held, text) => {
      const all = held + text
      const holds = all.length > 0 && isHighSurrogate(all.charCodeAt(all.length - 1))
      const end = holds ? all.length - 1 : all.length
      return { ids: encode(all.slice(0, end)), held: all.slice(end) }
    },
    pushBytes: (held, bytes) => {
      // No bytes are no event: they must not break a pair.
      if (bytes.length === 0) return { ids: new Int32Array(0), held }
      const before = encode(held)
      const ids = new Int32Array(before.length + bytes.length)
      ids.set(before)
      ids.set(bytes, before.length)
      return { ids, held: '' }
    },
    flush: (held) => encode(held),
    turns: { special: new Map(), encode },
    bytesOf: (id) => Uint8Array.of(id),
  }
}
