/** Tokenizers in the metadata of GGUF files: against the ids that llama.cpp gave, and on a stream. */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import type { GgufMetadata } from '../../../src/engine/native.ts'
import { codeOf, messageOf } from '../../../src/errors.ts'
import { openGgufTokenizer } from '../../../src/models/tokenizer/index.ts'
import { hasShared, sharedModel } from '../../engine/paths.ts'
import { byteLevel, cuts, inPieces, readText, text, wholeBy } from './fixtures.ts'

/** The entries of a GGUF file, read without the engine. */
const metadataOf = (path: string): Map<string, unknown> => {
  const file = readFileSync(path)
  let at = 8
  const take = (bytes: number): number => {
    at += bytes
    return at - bytes
  }
  const u32 = (): number => file.readUInt32LE(take(4))
  const u64 = (): number => Number(file.readBigUInt64LE(take(8)))
  const string = (): string => {
    const length = u64()
    return file.toString('utf8', take(length), at)
  }
  const value = (kind: number): unknown => {
    if (kind === 8) return string()
    if (kind === 9) {
      const of = u32()
      return Array.from({ length: u64() }, () => value(of))
    }
    if (kind === 4) return u32()
    if (kind === 5) return file.readInt32LE(take(4))
    if (kind === 6) return file.readFloatLE(take(4))
    if (kind === 7) return file[take(1)] !== 0
    throw new Error(`kind ${kind}`)
  }
  u64()
  const count = u64()
  return new Map(Array.from({ length: count }, () => [string(), value(u32())] as const))
}

const GGUFS = [
  ['llama-q8_0.gguf', 300, 2],
  ['llama-q4_k.gguf', 480, 2],
  ['rwkv7-f16.gguf', 448, 0],
] as const
// What is skipped is called all the same, and would read the files.
describe.each(hasShared ? GGUFS : [])('gguf-tiny/%s', (name, vocabSize, eos) => {
  const path = join(sharedModel('gguf-tiny'), name)
  const { encodings } = (
    JSON.parse(readFileSync(join(sharedModel('gguf-tiny'), 'expected.json'), 'utf8')) as {
      files: Record<string, { encodings: { text: string; ids: number[] }[] }>
    }
  ).files[name]!
  const { tokenizer } = openGgufTokenizer(metadataOf(path), { vocabSize, path })!
  const begins = readText(tokenizer, ['x'])[0] === 1 ? [1] : []

  test('gives the ids of llama.cpp, in any pieces, and its texts back', () => {
    expect(encodings.length).toBeGreaterThan(5)
    expect(begins).toEqual(name === 'llama-q4_k.gguf' ? [1] : [])
    for (const { text, ids } of encodings) {
      expect(readText(tokenizer, [text]), text).toEqual([...begins, ...ids])
      expect(readText(tokenizer, [...text]), text).toEqual([...begins, ...ids])
    }
    fc.assert(
      fc.property(fc.constantFrom(...encodings), cuts, ({ text, ids }, lengths) => {
        expect(readText(tokenizer, inPieces(text, lengths))).toEqual([...begins, ...ids])
      }),
    )
    const { text, ids } = encodings[2]!
    const told = Buffer.concat(ids.map((id) => tokenizer.bytesOf(id))).toString()
    expect(told).toBe(name === 'llama-q4_k.gguf' ? ` ${text}` : text)
  })

  test('names what ends a text; an id without a token has no text', () => {
    expect(tokenizer.eos).toBe(eos)
    for (const id of [vocabSize, 2 ** 31 - 1]) expect(tokenizer.bytesOf(id)).toHaveLength(0)
  })
})

const trained = byteLevel().model as { vocab: Record<string, number>; merges: string[] }
// An object has its members that look like numbers first.
const byId = Object.keys(trained.vocab).sort((a, b) => trained.vocab[a]! - trained.vocab[b]!)
const gpt2 = (rest: Readonly<Record<string, unknown>> = {}): Map<string, unknown> => {
  const tokens = [...byId, '<s>', '</s>', '<|eot|>', '<user>', 'unused']
  const types = tokens.map((_, at) =>
    at < tokens.length - 5 ? 1 : at < tokens.length - 2 ? 3 : at < tokens.length - 1 ? 4 : 5,
  )
  const top = tokens.length - 5
  const entries = {
    model: 'gpt2',
    pre: 'gpt-2',
    tokens,
    token_type: Int32Array.from(types),
    merges: trained.merges,
    bos_token_id: top,
    eos_token_id: top + 1,
    eot_token_id: BigInt(top + 2),
    ...rest,
  }
  return new Map(Object.entries(entries).map(([key, value]) => [`tokenizer.ggml.${key}`, value]))
}
const top = Object.keys(trained.vocab).length
const opened = (metadata: GgufMetadata) => openGgufTokenizer(metadata, { vocabSize: 2000, path: 'model.gguf' })!

/** Pieces with scores; every byte; "▁" before words. */
const pieces = (scored: Readonly<Record<string, number>>, rest: Readonly<Record<string, unknown>> = {}) => {
  const bytes = Array.from({ length: 256 }, (_, byte) => `<0x${byte.toString(16).toUpperCase().padStart(2, '0')}>`)
  const tokens = ['<unk>', '<s>', '</s>', ...bytes, ...Object.keys(scored)]
  const entries = {
    model: 'llama',
    tokens,
    scores: Float32Array.from([0, 0, 0, ...bytes.map(() => 0), ...Object.values(scored)]),
    token_type: [2, 3, 3, ...bytes.map(() => 6), ...Object.keys(scored).map(() => 1)],
    bos_token_id: 1,
    eos_token_id: 2,
    unknown_token_id: 0,
    add_bos_token: false,
    add_space_prefix: false,
    ...rest,
  }
  return new Map(Object.entries(entries).map(([key, value]) => [`tokenizer.ggml.${key}`, value]))
}

/** By definition: the best pair of all, again and again. */
const joined = (word: string, scored: Readonly<Record<string, number>>): string[] => {
  const symbols = [...word]
  for (;;) {
    let best = -1
    for (let at = 1; at < symbols.length; at += 1) {
      const score = scored[symbols[at - 1]! + symbols[at]!]
      if (score === undefined) continue
      if (best < 0 || score > scored[symbols[best - 1]! + symbols[best]!]!) best = at
    }
    if (best < 0) return symbols
    symbols.splice(best - 1, 2, symbols[best - 1]! + symbols[best]!)
  }
}

describe('gpt2', () => {
  const { tokenizer } = opened(gpt2())
  const whole = wholeBy(byteLevel())

  test('any cut of a text gives what a tokenizer.json of the same tokens gives for the whole', () => {
    const plain = text.filter((source) => !/<(s|\/s|user|\|)/.test(source))
    fc.assert(
      fc.property(plain, cuts, (source, lengths) => {
        fc.pre(!/[\u0085\ufeff]/u.test(source))
        expect(readText(tokenizer, inPieces(source, lengths))).toEqual(whole(source.toWellFormed()))
      }),
      { numRuns: 500 },
    )
  })

  test('finds control and user-defined tokens in the text; user-defined ones have their text, unused ones are none', () => {
    expect(readText(tokenizer, ['the<s>the', '<us', 'er>'])).toEqual([...whole('the'), top, ...whole('the'), top + 3])
    expect(Buffer.from(tokenizer.bytesOf(top + 3)).toString()).toBe('<user>')
    expect(tokenizer.bytesOf(top)).toHaveLength(0)
    expect(tokenizer.bytesOf(top + 4)).toHaveLength(0)
    expect(readText(tokenizer, ['unused'])).toEqual(whole('unused'))
  })

  test('ends a text with eos, if there is one, and begins a context with bos where the file or its kind says so', () => {
    expect(tokenizer.eos).toBe(top + 1)
    for (const none of [undefined, -1, 2 ** 32 - 1])
      expect(opened(gpt2({ eos_token_id: none })).tokenizer.eos).toBeNull()
    expect(readText(tokenizer, ['the'])).toEqual(whole('the'))
    const begun = (rest: Readonly<Record<string, unknown>>) => readText(opened(gpt2(rest)).tokenizer, ['the'])[0]
    expect(begun({ add_bos_token: true })).toBe(top)
    expect(begun({ pre: 'llama-bpe' })).toBe(top)
    expect(begun({ pre: 'llama-bpe', add_bos_token: false })).not.toBe(top)
  })

  test('another token, another fingerprint', () => {
    const fingerprint = (rest: Readonly<Record<string, unknown>>) => opened(gpt2(rest)).fingerprint
    expect(fingerprint({})).toBe(
      fingerprint({ token_type: [...(gpt2().get('tokenizer.ggml.token_type') as Int32Array)] }),
    )
    expect(fingerprint({})).not.toBe(fingerprint({ pre: 'qwen2' }))
    expect(fingerprint({})).not.toBe(fingerprint({ eos_token_id: top + 2 }))
  })
})

describe('llama: SentencePiece', () => {
  const letters = Object.fromEntries([...'abcd▁'].map((char) => [char, -50]))

  test('joins the pair of the highest score, the leftmost of equals, as a search for it does', { tags: 'slow' }, () => {
    const score = fc.integer({ min: -4, max: 0 })
    const piece = fc.string({ unit: fc.constantFrom('a', 'b', 'c', 'd'), minLength: 2, maxLength: 4 })
    const word = fc.string({ unit: fc.constantFrom('a', 'b', 'c', 'd'), minLength: 1, maxLength: 12 })
    fc.assert(
      fc.property(fc.dictionary(piece, score, { maxKeys: 14, noNullPrototype: true }), word, (some, source) => {
        const scored = { ...letters, ...some }
        const metadata = pieces(scored)
        const ids = readText(opened(metadata).tokenizer, [source])
        const tokens = metadata.get('tokenizer.ggml.tokens') as string[]
        expect(ids.map((id) => tokens[id])).toEqual(joined(source, scored))
      }),
      { numRuns: 500 },
    )
  })

  test('marks words, puts a mark before a text and behind a control token, and writes what it lacks as bytes', () => {
    const scored = { ...letters, '▁a': -1, ab: -2, '▁▁': -3 }
    const metadata = pieces(scored, { add_space_prefix: true, add_bos_token: true })
    const { tokenizer } = opened(metadata)
    const tokens = metadata.get('tokenizer.ggml.tokens') as string[]
    const told = (source: string): string[] => readText(tokenizer, [...source]).map((id) => tokens[id]!)
    expect(told('ab a')).toEqual(['<s>', '▁a', 'b', '▁a'])
    expect(told('a</s>a')).toEqual(['<s>', '▁a', '</s>', '▁a'])
    expect(told('a  a')).toEqual(['<s>', '▁a', '▁', '▁a'])
    expect(told('é')).toEqual(['<s>', '▁', '<0xC3>', '<0xA9>'])
    expect(Buffer.concat(readText(tokenizer, ['ab é']).map((id) => tokenizer.bytesOf(id))).toString()).toBe(' ab é')
  })

  test('any cut gives the ids of the whole; what is held is a word', () => {
    const scored = { ...letters, '▁a': -1, ab: -2, '▁ab': -2.5, '▁▁': -3, '▁▁▁': -3 }
    const { tokenizer } = opened(pieces(scored, { add_space_prefix: true }))
    const source = fc.string({ unit: fc.constantFrom('a', 'b', ' ', 'é', '🌊', '</s>', '</'), maxLength: 30 })
    fc.assert(
      fc.property(source, cuts, (whole, lengths) => {
        expect(readText(tokenizer, inPieces(whole, lengths))).toEqual(readText(tokenizer, [whole]))
      }),
      { numRuns: 500 },
    )
    expect(tokenizer.push('', 'ab abab abb').held.length).toBeLessThan(8)
  })
})

test('a file that names no pre-tokens is read as llama.cpp reads it, with a warning', () => {
  for (const pre of [undefined, 'default']) {
    const said: string[] = []
    const found = openGgufTokenizer(gpt2({ pre }), {
      vocabSize: 2000,
      path: 'model.gguf',
      warn: (message) => said.push(message),
    })!
    expect(said).toEqual([expect.stringMatching(/^model\.gguf does not say how .*tokenizer\.ggml\.pre/)])
    expect(readText(found.tokenizer, ['a 1234']).length).toBeGreaterThan(2)
  }
})

describe('what is refused, in words', () => {
  test.each<[string, GgufMetadata, RegExp]>([
    [
      'WordPiece',
      new Map([['tokenizer.ggml.model', 'bert']]),
      /kind "bert" \(WordPiece\), expected one of: gpt2, llama, rwkv/,
    ],
    ['Unigram', new Map([['tokenizer.ggml.model', 't5']]), /kind "t5" \(Unigram\)/],
    [
      'a kind that is a member of every object',
      new Map([['tokenizer.ggml.model', 'constructor']]),
      /kind "constructor"/,
    ],
    ['unknown pre-tokens', gpt2({ pre: 'kimi-k2' }), /the pre-tokenizer "kimi-k2" .*known are gpt-2/],
    ['pre-tokens that are no name', gpt2({ pre: 3 }), /tokenizer.ggml.pre of type number; expected a string/],
    ['no tokens', gpt2({ tokens: undefined }), /tokenizer.ggml.tokens missing; expected an array of strings/],
    ['tokens that are numbers', gpt2({ tokens: [1, 2] }), /expected an array of strings/],
    [
      'more tokens than the model has',
      gpt2({ tokens: Array(2001).fill('a') }),
      /of 2001 values; at most 2000 are taken/,
    ],
    ['types of another number', gpt2({ token_type: [1] }), /tokenizer.ggml.token_type .* one for each token/],
    ['an unknown type', gpt2({ token_type: [...Array(top).fill(1), 3, 3, 3, 4, 9] }), /the token type 9 for id/],
    [
      'a token twice',
      gpt2({
        tokens: [...byId, 'the', 'the', 'a', 'b', 'c'],
        token_type: Array(top + 5).fill(1),
      }),
      /the token "the" twice/,
    ],
    ['an end beyond the tokens', gpt2({ eos_token_id: top + 5 }), /tokenizer.ggml.eos_token_id .* less than/],
    ['a token behind a text', gpt2({ add_eos_token: true }), /puts a token behind a text/],
    ['a merge of unknown tokens', gpt2({ merges: ['zzz q'] }), /a merge \(number 0\)/],
    ['no scores', pieces({ a: 0 }, { scores: undefined }), /no tokenizer.ggml.scores/],
    [
      'scores that are no numbers',
      pieces({ a: 0 }, { scores: Float32Array.from({ length: 260 }, () => Number.NaN) }),
      /expected 260 numbers/,
    ],
    ['pieces across words', pieces({ 'a▁b': 0, '▁': 0 }), /"a▁b" keeps words from being encoded one by one/],
    ['a byte that is none', pieces({ a: 0 }, { token_type: [2, 3, 3, ...Array(256).fill(6), 6] }), /"a" as a byte/],
    [
      'bytes without tokens',
      new Map<string, unknown>([
        ['tokenizer.ggml.model', 'rwkv'],
        ['tokenizer.ggml.tokens', ['<s>', 'a']],
        ['tokenizer.ggml.token_type', [3, 1]],
      ]),
      /no token for the byte 0x00/,
    ],
  ])('%s', (_, metadata, words) => {
    let failed: unknown
    try {
      opened(metadata)
    } catch (error) {
      failed = error
    }
    expect(messageOf(failed)).toMatch(words)
    expect(messageOf(failed)).toContain('model.gguf')
    expect(codeOf(failed)).toBe('INVALID')
  })

  test('a control token without characters is nowhere in a text', () => {
    const bytes = Array.from({ length: 256 }, (_, byte) => `\\x${byte.toString(16).padStart(2, '0')}`)
    const metadata = new Map<string, unknown>([
      ['tokenizer.ggml.model', 'rwkv'],
      ['tokenizer.ggml.tokens', ['', ...bytes]],
      ['tokenizer.ggml.token_type', [3, ...Array(256).fill(1)]],
    ])
    expect(readText(opened(metadata as never)!.tokenizer, ['ab'])).toEqual([0x61 + 1, 0x62 + 1])
  })

  test('a file without a tokenizer is one of ids', () => {
    expect(opened(new Map())).toBeNull()
    expect(opened(new Map([['tokenizer.ggml.model', 'no_vocab']]))).toBeNull()
  })
})

test('metadata changed anywhere are read or refused by name, never otherwise', () => {
  const rwkv = new Map<string, unknown>([
    ['tokenizer.ggml.model', 'rwkv'],
    [
      'tokenizer.ggml.tokens',
      ['<s>', ...Array.from({ length: 256 }, (_, byte) => `\\x${byte.toString(16).padStart(2, '0')}`)],
    ],
    ['tokenizer.ggml.token_type', [3, ...Array(256).fill(1)]],
  ])
  const bases = [gpt2(), pieces({ a: -1, b: -2, ab: -3, '▁': -4 }), rwkv]
  const strange = fc.oneof(
    fc.constantFrom<unknown>(
      undefined,
      null,
      '',
      'a',
      -1,
      0,
      0.5,
      2 ** 40,
      1n,
      true,
      [],
      [[]],
      {},
      Number.NaN,
      new Float64Array(3),
    ),
    fc.array(fc.oneof(fc.string(), fc.integer(), fc.constant(null)), { maxLength: 5 }),
  )
  const change = fc.tuple(fc.nat(20), fc.option(fc.nat(300), { freq: 3 }), strange)
  fc.assert(
    fc.property(fc.constantFrom(...bases), fc.array(change, { minLength: 1, maxLength: 3 }), (base, changes) => {
      const metadata = new Map(base)
      for (const [key, at, by] of changes) {
        const name = [...base.keys()][key % base.size]!
        const value = metadata.get(name)
        if (at !== null && Array.isArray(value) && value.length > 0)
          metadata.set(name, value.with(at % value.length, by))
        else metadata.set(name, by)
      }
      try {
        const found = opened(metadata)
        if (found === null) return
        for (const id of readText(found.tokenizer, ['ab the<s>', '世'])) expect(id >= 0 && id < 2000).toBe(true)
      } catch (error) {
        if (codeOf(error) !== 'INVALID') throw error
      }
    }),
    { numRuns: 1500 },
  )
})
