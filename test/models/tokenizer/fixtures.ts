/** Small tokenizer.json files of every kind that is supported, made here; and texts that are hard to cut. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Tokenizer as Library } from '@huggingface/tokenizers'
import fc from 'fast-check'
import { openTokenizer, type Tokenizer } from '../../../src/models/tokenizer/index.ts'

export type Json = { readonly [key: string]: unknown }

const CORPUS = `the memory of the stream is not the stream, but what the stream did to it. don't say it's over; they're here!
  1234 tokens and 56 bytes    of naïve café über Ünïcödé — ångström, Hello World I'LL 'tis こんにちは、世界。記憶は流れる。 한국어 텍스트
👩‍👩‍👧‍👦 🌊 the the them`

/** The characters GPT-2 writes bytes with: printable ones as they are, the others moved up. */
export const byteChars: readonly string[] = (() => {
  let moved = 0
  return Array.from({ length: 256 }, (_, byte) => {
    const plain = (byte > 32 && byte < 127) || (byte > 160 && byte !== 173)
    return String.fromCharCode(plain ? byte : 256 + moved++)
  })
})()

export const inBytes = (text: string): string => Array.from(Buffer.from(text), (byte) => byteChars[byte]).join('')

/** The most frequent pair becomes a token, again and again. */
export const train = (words: readonly string[], alphabet: readonly string[], merges: number) => {
  const split = words.map((word) => [...word])
  const tokens = [...alphabet]
  const known = new Set(tokens)
  const pairs: string[] = []
  for (let round = 0; round < merges; round += 1) {
    const counts = new Map<string, number>()
    for (const word of split) {
      for (let at = 1; at < word.length; at += 1) {
        const pair = `${word[at - 1]} ${word[at]}`
        counts.set(pair, (counts.get(pair) ?? 0) + 1)
      }
    }
    const [best] = [...counts].filter(([pair]) => !known.has(pair.replace(' ', ''))).sort((a, b) => b[1] - a[1])
    if (best === undefined) break
    const [left, right] = best[0].split(' ') as [string, string]
    pairs.push(best[0])
    tokens.push(left + right)
    known.add(left + right)
    for (const word of split) {
      for (let at = 1; at < word.length; at += 1)
        if (word[at - 1] === left && word[at] === right) word.splice(at - 1, 2, left + right)
    }
  }
  return { tokens, merges: pairs }
}

const ids = (tokens: readonly string[], from = 0): Record<string, number> =>
  Object.fromEntries(tokens.map((token, at) => [token, at + from]))

const added = (id: number, content: string, rest: Json = {}): Json => ({
  ...{ id, content, single_word: false, lstrip: false, rstrip: false, normalized: false, special: true },
  ...rest,
})

const plain = { version: '1.0', truncation: null, padding: null }
const level = { type: 'ByteLevel', add_prefix_space: false, trim_offsets: true, use_regex: true }

const trained = train(CORPUS.split(/(?= )/).map(inBytes), byteChars, 80)

/** A byte-level BPE; `rest` replaces members. */
export const byteLevel = (rest: Json = {}): Json => ({
  ...plain,
  added_tokens: [],
  normalizer: null,
  pre_tokenizer: level,
  post_processor: { ...level, trim_offsets: false },
  decoder: level,
  model: { type: 'BPE', dropout: null, unk_token: null, vocab: ids(trained.tokens), merges: trained.merges },
  ...rest,
})

const top = trained.tokens.length

/**
 * 256 tokens, as many as the shipped model has ids: the printable bytes of ASCII and what merges of them fill the rest.
 */
export const wordsOf256 = (): Json => {
  const alphabet = byteChars.filter((_, byte) => byte === 10 || (byte >= 32 && byte < 127))
  const { tokens, merges } = train(
    CORPUS.split(/(?= )/).map((word) => inBytes(word.replaceAll(/[^ -~\n]/g, ''))),
    alphabet,
    256 - alphabet.length,
  )
  return byteLevel({ model: { type: 'BPE', dropout: null, unk_token: null, vocab: ids(tokens), merges } })
}

const LLAMA_3 =
  "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

const split = (Regex: string): Json => ({ type: 'Split', pattern: { Regex }, behavior: 'Isolated', invert: false })
const bytesOnly = { ...level, use_regex: false }

/** The pattern, and nothing else, in front of the bytes; `drops`: what it does not match is left out. */
export const splitBy = (pattern: string, drops = false): Json => ({
  type: 'Sequence',
  pretokenizers: [drops ? { ...split(pattern), behavior: 'Removed', invert: true } : split(pattern), bytesOnly],
})

/** White space is asked for by a Split or not at all: there the library means Unicode's. */
export const isSplit = ({ pre_tokenizer }: Json): boolean => JSON.stringify(pre_tokenizer).includes('"Split"')

const words = CORPUS.replaceAll(/\s/g, ' ')
  .split(/(?= )/)
  .map((word) => word.replaceAll(' ', '▁'))
  // Ideographs and pictures stay unknown.
  .map((word) => [...word].filter((char) => char < '\u3000').join(''))
const wordChars = [...new Set([...words.join('')])]
const trainedWords = train(words, wordChars, 60)

const unigram = (rest: Json = {}): Json => {
  const tokens = trainedWords.tokens
  // Scores with few bits: sums of them are exact in any order.
  const vocab = [['<unk>', 0], ...tokens.map((token, at) => [token, -(token.length === 1 ? 8 : 4) - (at % 64) / 64])]
  return {
    ...plain,
    added_tokens: [added(0, '<unk>')],
    normalizer: null,
    pre_tokenizer: { type: 'Metaspace', replacement: '▁', prepend_scheme: 'always', split: true },
    post_processor: null,
    decoder: { type: 'Metaspace', replacement: '▁', prepend_scheme: 'always', split: true },
    model: { type: 'Unigram', unk_id: 0, vocab },
    ...rest,
  }
}

const hex = Array.from({ length: 256 }, (_, byte) => `<0x${byte.toString(16).toUpperCase().padStart(2, '0')}>`)

/** As Llama 2: no pre-tokenizer, the normalizer marks words. */
export const fallback = (rest: Json = {}): Json => ({
  ...plain,
  added_tokens: [added(0, '<unk>'), added(1, '<s>'), added(2, '</s>')],
  normalizer: {
    type: 'Sequence',
    normalizers: [
      { type: 'Prepend', prepend: '▁' },
      { type: 'Replace', pattern: { String: ' ' }, content: '▁' },
    ],
  },
  pre_tokenizer: null,
  post_processor: {
    type: 'TemplateProcessing',
    single: [{ SpecialToken: { id: '<s>', type_id: 0 } }, { Sequence: { id: 'A', type_id: 0 } }],
    pair: [],
    special_tokens: { '<s>': { id: '<s>', ids: [1], tokens: ['<s>'] } },
  },
  decoder: {
    type: 'Sequence',
    decoders: [
      { type: 'Replace', pattern: { String: '▁' }, content: ' ' },
      { type: 'ByteFallback' },
      { type: 'Fuse' },
      { type: 'Strip', content: ' ', start: 1, stop: 0 },
    ],
  },
  model: {
    type: 'BPE',
    dropout: null,
    unk_token: '<unk>',
    fuse_unk: true,
    byte_fallback: true,
    vocab: ids(['<unk>', '<s>', '</s>', ...hex, ...trainedWords.tokens]),
    merges: trainedWords.merges,
  },
  ...rest,
})

const blanks = [4, 3, 2].map((length, at) => added(top + at, ' '.repeat(length), { special: false, normalized: true }))

/** As Gemma: the normalizer leaves no space for its Split to find. */
export const marked = (rest: Json = {}): Json =>
  fallback({
    normalizer: { type: 'Replace', pattern: { String: ' ' }, content: '▁' },
    pre_tokenizer: { type: 'Split', pattern: { String: ' ' }, behavior: 'MergedWithPrevious', invert: false },
    added_tokens: [
      ...(fallback().added_tokens as Json[]),
      // Not special, found in the raw text.
      ...['\n', '\n\n', '\n\n\n', '<sp', '</sup>'].map((content, at) => added(1000 + at, content, { special: false })),
    ],
    ...rest,
  })

/**
 * Every kind. Where white space is asked for outside a Split, the library takes JavaScript's (U+FEFF, but not U+0085)
 * and the reference, as we do, Unicode's.
 */
export const KINDS: readonly (readonly [name: string, json: Json])[] = [
  ['byte-level BPE', byteLevel()],
  ['byte-level BPE with a space put before', byteLevel({ pre_tokenizer: { ...level, add_prefix_space: true } })],
  [
    'byte-level BPE with added tokens',
    byteLevel({
      added_tokens: [added(top, '</s>'), added(top + 1, '<s>'), added(top + 2, '</s></s>'), added(top + 3, 'thee')],
    }),
  ],
  [
    'byte-level BPE with added tokens that strip white space',
    byteLevel({ added_tokens: [added(top, '</s>', { lstrip: true }), added(top + 1, '<s>', { rstrip: true })] }),
  ],
  [
    'the pattern of Llama 3',
    byteLevel({ pre_tokenizer: { type: 'Sequence', pretokenizers: [split(LLAMA_3), bytesOnly] } }),
  ],
  [
    'patterns one after the other, with stretches that the first leaves alone',
    byteLevel({
      pre_tokenizer: {
        type: 'Sequence',
        pretokenizers: [split('\\p{N}{1,3}'), split('[ぁ-ゖァ-ー一-龯]+'), split(LLAMA_3), bytesOnly],
      },
    }),
  ],
  ['byte-level BPE behind NFC', byteLevel({ normalizer: { type: 'NFC' } })],
  [
    'byte-level BPE behind NFKC, with runs of blanks as added tokens',
    byteLevel({ normalizer: { type: 'NFKC' }, added_tokens: blanks }),
  ],
  ['Unigram over Metaspace', unigram()],
  ['Unigram over Metaspace behind NFKC', unigram({ normalizer: { type: 'NFKC' } })],
  [
    'Unigram over words and Metaspace',
    unigram({
      pre_tokenizer: {
        type: 'Sequence',
        pretokenizers: [{ type: 'WhitespaceSplit' }, { type: 'Metaspace', replacement: '▁', prepend_scheme: 'always' }],
      },
    }),
  ],
  ['BPE over marked words with byte fallback', fallback()],
  ['BPE over marked words with byte fallback and added tokens that are not special', marked()],
  [
    'BPE over a Metaspace that does not split, with byte fallback',
    fallback({
      normalizer: null,
      pre_tokenizer: { type: 'Metaspace', replacement: '▁', prepend_scheme: 'first', split: false },
    }),
  ],
]

/** Opens a tokenizer.json, with `beside` it other files of a package. */
export const open = async (
  json: unknown,
  beside: Readonly<Record<string, unknown>> = {},
  options: { readonly vocabSize?: number; readonly config?: Json; readonly warn?: (message: string) => void } = {},
): Promise<Tokenizer> => {
  const dir = mkdtempSync(join(tmpdir(), 'continuo-tokenizer-'))
  try {
    const files = { 'tokenizer.json': json, ...beside }
    for (const [name, content] of Object.entries(files))
      writeFileSync(join(dir, name), typeof content === 'string' ? content : JSON.stringify(content))
    return (await openTokenizer(dir, { vocabSize: 2000, config: {}, warn: () => {}, ...options })).tokenizer
  } finally {
    rmSync(dir, { recursive: true })
  }
}

/** The library on the whole text. */
export const wholeBy = (json: Json): ((text: string) => number[]) => {
  const library = new Library(json, {})
  return (text) => (text === '' ? [] : library.encode(text).ids)
}

/** Where the library's own notion of white space does not matter. */
export const agreed = (source: string): boolean => !/[\u0085\ufeff]/u.test(source)

/** Whatever two neighbours could do to each other. */
const hard = fc.constantFrom(
  ...[
    'the',
    ' the',
    'token',
    "'",
    "'s",
    "'re",
    "'LL",
    ' ',
    '  ',
    '    ',
    '\n',
    '\r\n',
    '\t',
    '\u00a0',
    '!',
    '...',
    ' —',
    '1',
    '23',
    '4567',
  ],
  ...[
    'e',
    '\u0301',
    '\u0323',
    'é',
    'ﬁ',
    'Å',
    '\u1112',
    '\u1161',
    '\u11ab',
    '한',
    'が',
    'か\u3099',
    '、世界。',
    '記憶',
    '½',
    '²',
    'Ⅷ',
    '\u0085',
  ],
  ...[
    '👩‍👩‍👧‍👦',
    '🌊',
    '\ud83c',
    '\udf0a',
    '\u200d',
    '\ufe0f',
    '\ufeff',
    '\ufffd',
    '\u0000',
    '▁',
    '<',
    '</',
    '</s',
    '</s>',
    '<s>',
    '>',
    '<unk>',
    '<0x0A>',
  ],
)

export const text = fc
  .array(fc.oneof({ weight: 5, arbitrary: hard }, { weight: 1, arbitrary: fc.string({ unit: 'binary' }) }), {
    maxLength: 24,
  })
  .map((parts) => parts.join(''))
export const cuts = fc.array(fc.nat(12), { maxLength: 30 })

/** `source` in pieces of the given lengths, the last one whatever is left. */
export const inPieces = <T extends { readonly length: number; slice(from: number, to?: number): T }>(
  source: T,
  lengths: readonly number[],
): T[] => {
  const pieces: T[] = []
  let at = 0
  for (const length of lengths) {
    pieces.push(source.slice(at, at + length))
    at += length
  }
  return [...pieces, source.slice(at)]
}

type Reader = Pick<Tokenizer, 'push' | 'pushBytes' | 'flush'>

export const readText = (tokenizer: Reader, pieces: readonly (string | Uint8Array)[], held = ''): number[] => {
  const all: number[] = []
  let before = held
  for (const piece of pieces) {
    const pushed = typeof piece === 'string' ? tokenizer.push(before, piece) : tokenizer.pushBytes(before, piece)
    all.push(...pushed.ids)
    // Through JSON, as the cursor does.
    before = JSON.parse(JSON.stringify(pushed.held)) as string
  }
  all.push(...tokenizer.flush(before))
  return all
}
