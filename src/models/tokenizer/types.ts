/**
 * Text to token ids and back. The result must not depend on how a text was cut into pieces: what could still merge with
 * what follows is held back and returned as `held`, which travels in the StreamCursor.
 */
export interface Pushed {
  readonly ids: Int32Array
  /** Text that was held back; it goes into the next call. */
  readonly held: string
}

/**
 * Every call gets and returns `held`, the text that is held back: '' at the beginning of a context; then what the last
 * call returned; and `begun` when a text has ended, or ids were fed, and the context goes on. Its length is bounded.
 * Lone surrogates in it mark what is not text (docs/formats.md, Held text).
 */
export interface Tokenizer {
  /** Token ids go from 0 to `vocabSize` − 1. */
  readonly vocabSize: number
  /** The id that ends a generation; null: none does. */
  readonly eos: number | null
  /** The held text between two texts of one context; '' where a text's ids do not depend on whether it is the first. */
  readonly begun: string
  /** The next piece of text, after what was held back. */
  push(held: string, text: string): Pushed
  /** The next piece as bytes of UTF-8. */
  pushBytes(held: string, bytes: Uint8Array): Pushed
  /** The text ends here: the ids of what was held back. */
  flush(held: string): Int32Array
  /**
   * The bytes that a token adds to the text: UTF-8, not necessarily whole characters; nothing for special tokens and
   * unused ids.
   */
  bytesOf(id: number): Uint8Array
  /**
   * For conversations, in which special tokens and text are told apart; absent where a conversation cannot be written.
   */
  readonly turns?: Turns
}

/** Special tokens apart from text. */
export interface Turns {
  /** The ids of the special tokens, by their contents. */
  readonly special: ReadonlyMap<string, number>
  /**
   * The ids of a whole piece of text in which no special token is looked for, and before which no tokens are put.
   * `after`: what stands before it in the context.
   */
  encode(text: string, after: 'nothing' | 'text' | 'token'): Int32Array
}

export interface OpenedTokenizer {
  readonly tokenizer: Tokenizer
  /** The name of the file that it was read from. */
  readonly source: string
  /** The sha256 of the file that it was read from, and the token that ends a text: part of the model's fingerprint. */
  readonly fingerprint: string
  /**
   * Control tokens, which have no text of their own in what is generated: their ids by what they are called. Absent:
   * not known.
   */
  readonly controls?: ReadonlyMap<string, number>
}

export interface OpenTokenizerOptions {
  /** How many ids the model has; an id beyond is a load error. */
  readonly vocabSize: number
  /** The content of config.json, which the tokenizer's own files overrule. */
  readonly config: { readonly [key: string]: unknown }
  readonly warn: (message: string) => void
}
