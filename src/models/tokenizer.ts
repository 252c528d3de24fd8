/**
 * Text to token ids and back. The result must not depend on how a text was cut into pieces: what could still merge with what
 * follows is held back and returned as `held`, which travels in the StreamCursor.
 */
export interface Pushed {
  readonly ids: Int32Array
  /** What was held back; give it to the next call. */
  readonly held: string
}

export interface Tokenizer {
  readonly vocabSize: number
  /** The next piece of text, after what was held back. */
  push(held: string, text: string): Pushed
  /** Raw bytes between texts. */
  pushBytes(held: string, bytes: Uint8Array): Pushed
  /** The text ends here: the ids of what was held back. */
  flush(held: string): Int32Array
  bytesOf(id: number): Uint8Array
  /** The token that ends a text, of which generation stops; null: there is none. */
  readonly eos: number | null
}

const isHighSurrogate = (unit: number): boolean => unit >= 0xd800 && unit < 0xdc00

/**
 * A token is a byte of UTF-8; no special tokens. Text is UTF-16 in JavaScript, so a chunk may end between the halves of a
 * surrogate pair: the first half is held. A half that never meets its partner becomes U+FFFD (EF BF BD). Raw bytes pass as
 * they are.
 */
export const byteTokenizer = (): Tokenizer => {
  const encoder = new TextEncoder()
  // TextEncoder replaces lone surrogates by U+FFFD itself.
  const encode = (text: string): Int32Array => Int32Array.from(encoder.encode(text))
  return {
    vocabSize: 256,
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
    bytesOf: (id) => Uint8Array.of(id),
    eos: null,
  }
}
