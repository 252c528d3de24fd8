/** Packages as they come: which token ends a text, what is refused, and files that were made to break a reader. */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { codeOf, messageOf } from '../../../src/errors.ts'
import { openTokenizer } from '../../../src/models/tokenizer/index.ts'
import { decodeUtf8 } from '../../../src/operators/advance/utf8.ts'
import { hasShared, sharedModel } from '../../engine/paths.ts'
import { byteLevel, fallback, inPieces, type Json, KINDS, open, readText } from './fixtures.ts'

interface Expected {
  readonly encodings: readonly { readonly text: string; readonly ids: readonly number[] }[]
  readonly streaming: readonly {
    readonly ids: readonly number[]
    readonly pieces: readonly string[]
    readonly held_back: string
  }[]
}

describe.skipIf(!hasShared)('the shared packages', () => {
  test('gpt2-tiny encodes as expected in any pieces, and ends with the </s> of its tokenizer.json', async () => {
    const dir = sharedModel('gpt2-tiny')
    const config = JSON.parse(readFileSync(join(dir, 'config.json'), 'utf8')) as Json
    const { encodings, streaming } = JSON.parse(readFileSync(join(dir, 'expected.json'), 'utf8')) as Expected
    const warnings: string[] = []
    const { tokenizer } = await openTokenizer(dir, {
      vocabSize: 300,
      config,
      warn: (message) => warnings.push(message),
    })
    expect(tokenizer.vocabSize).toBe(300)
    expect(tokenizer.eos).toBe(2)
    expect(warnings).toEqual([expect.stringMatching(/eos_token_id 3.*"<\/s>" has the id 2/)])
    for (const { text, ids } of encodings) {
      expect(readText(tokenizer, [text])).toEqual(ids)
      expect(readText(tokenizer, [...text])).toEqual(ids)
      expect(readText(tokenizer, inPieces<Uint8Array>(Buffer.from(text), Array(200).fill(1)))).toEqual(ids)
    }
    for (const { ids, pieces, held_back } of streaming) {
      let unfinished: Uint8Array = new Uint8Array(0)
      const told = ids.map((id) => {
        const decoded = decodeUtf8(unfinished, tokenizer.bytesOf(id))
        unfinished = decoded.unfinished
        return decoded.text
      })
      expect(told).toEqual(pieces)
      expect(Buffer.from(unfinished).toString('hex')).toBe(held_back)
    }
  })

  test.each([
    'mac',
    'mag',
    'mal',
  ])('titans-tiny-%s has a byte for a token, and takes bytes that are no text', async (name) => {
    const { tokenizer } = await openTokenizer(sharedModel(`titans-tiny-${name}`), {
      vocabSize: 256,
      config: {},
      warn: () => {},
    })
    const bytes = Uint8Array.from({ length: 256 }, (_, byte) => byte)
    expect([...tokenizer.pushBytes('', bytes).ids]).toEqual([...bytes])
    expect(tokenizer.eos).toBeNull()
  })
})

const special = (id: number, content: string, rest: Json = {}): Json => ({
  id,
  content,
  special: true,
  normalized: false,
  ...rest,
})
const top = Object.keys((byteLevel().model as { vocab: Json }).vocab).length

describe('the token that ends a text', () => {
  const two = byteLevel({
    added_tokens: [special(top, '<eos>'), special(top + 1, '<|endoftext|>'), special(top + 2, '<end>')],
  })

  test('is the one a file beside names, as a string or an object', async () => {
    expect((await open(two, { 'tokenizer_config.json': { eos_token: '<end>' } })).eos).toBe(top + 2)
    expect((await open(two, { 'tokenizer_config.json': { eos_token: { content: '<end>' } } })).eos).toBe(top + 2)
    const map = { 'special_tokens_map.json': { eos_token: '<eos>' } }
    expect((await open(two, map)).eos).toBe(top)
    expect((await open(two, { ...map, 'tokenizer_config.json': { eos_token: '<end>' } })).eos).toBe(top + 2)
    expect((await open(two, { ...map, 'tokenizer_config.json': { eos_token: null } })).eos).toBe(top)
  })

  test('is otherwise the first of the usual names that is a special token; or there is none', async () => {
    expect((await open(two)).eos).toBe(top + 1)
    expect((await open(byteLevel({ added_tokens: [special(top, '</s>', { special: false })] }))).eos).toBeNull()
  })

  test('is an error where tokenizer.json lacks what is named', async () => {
    await expect(open(two, { 'tokenizer_config.json': { eos_token: '<stop>' } })).rejects.toThrow(
      /names "<stop>" as eos_token, but tokenizer.json has no such/,
    )
    await expect(open(two, { 'tokenizer_config.json': { eos_token: 7 } })).rejects.toThrow(/malformed eos_token/)
    await expect(open(two, { 'special_tokens_map.json': '{' })).rejects.toThrow(/special_tokens_map.json is not JSON/)
  })

  test('is never that of config.json, which is warned of once where it differs', async () => {
    const warnings: string[] = []
    const warn = (message: string): void => void warnings.push(message)
    expect((await open(two, {}, { config: { eos_token_id: 5 }, warn })).eos).toBe(top + 1)
    expect((await open(two, {}, { config: { eos_token_id: [5, top + 1] }, warn })).eos).toBe(top + 1)
    expect((await open(byteLevel(), {}, { config: { eos_token_id: 5 }, warn })).eos).toBeNull()
    expect(warnings).toEqual([
      expect.stringContaining(`eos_token_id 5, but in tokenizer.json "<|endoftext|>" has the id ${top + 1}`),
    ])
  })
})

test('tokens become bytes: special ones none, marks spaces, <0x0A> a line end, other added ones their text', async () => {
  const json = fallback()
  const tokenizer = await open({
    ...json,
    added_tokens: [...(json.added_tokens as Json[]), special(1500, '<tool> é', { special: false })],
  })
  const told = (text: string): string =>
    Buffer.concat(readText(tokenizer, [text]).map((id) => tokenizer.bytesOf(id))).toString()
  expect(told('the memory\nof 記憶 🌊</s><tool> é')).toBe(' the memory\nof 記憶 🌊<tool> é')
  expect([...tokenizer.bytesOf(1999)]).toEqual([])
})

const model = byteLevel().model as Json
const vocab = model.vocab as Record<string, number>
const withModel = (rest: Json): Json => byteLevel({ model: { ...model, ...rest } })

describe('what is refused, in words', () => {
  test.each<[string, unknown, RegExp]>([
    ['no JSON', '{"model":', /tokenizer.json is not JSON/],
    ['no object', 'null', /malformed/],
    ['no model', {}, /malformed model/],
    ['an unknown model', withModel({ type: 'WordPiece' }), /model of type WordPiece; BPE and Unigram/],
    ['a vocabulary of another type', withModel({ vocab: [1] }), /malformed model\.vocab/],
    ['an id that is no number', withModel({ vocab: { ...vocab, zz: 'x' } }), /"zz" with the id "x"/],
    ['a huge id', withModel({ vocab: { ...vocab, zz: 2 ** 40 } }), /"zz" with the id 1099511627776/],
    [
      'an id beyond the model',
      withModel({ vocab: { ...vocab, zz: 2000 } }),
      /"zz" with the id 2000, but the model has only 2000/,
    ],
    ['an id twice', withModel({ vocab: { ...vocab, zz: 3 } }), /the id 3 twice, for ".*" and "zz"/],
    ['a merge of unknown tokens', withModel({ merges: ['q zz'] }), /merge \(number 0\) that names "zz"/],
    ['a merge that gives an unknown token', withModel({ merges: ['q j'] }), /merge \(number 0\) that names "qj"/],
    ['a merge of three', withModel({ merges: ['a b c'] }), /"a b c" as merge 0/],
    ['dropout', withModel({ dropout: 0.1 }), /dropout/],
    ['a suffix of words', withModel({ end_of_word_suffix: '</w>' }), /end_of_word_suffix/],
    ['an unknown token that is none', withModel({ unk_token: '<unk>' }), /"<unk>" as unk_token/],
    ['an added token with the id of another', byteLevel({ added_tokens: [special(5, 'zz')] }), /the id 5 twice/],
    ['an added token with another id', byteLevel({ added_tokens: [special(900, 'a')] }), /two ids for "a"/],
    [
      'an added token of no text',
      byteLevel({ added_tokens: [special(900, '')] }),
      /malformed added_tokens\.0\.content/,
    ],
    [
      'a single word',
      byteLevel({ added_tokens: [special(900, 'zz', { single_word: true })] }),
      /"zz" with single_word/,
    ],
    ['an unknown normalizer', byteLevel({ normalizer: { type: 'Lowercase' } }), /normalizer of type Lowercase/],
    [
      'an unknown pre-tokenizer',
      byteLevel({ pre_tokenizer: { type: 'BertPreTokenizer' } }),
      /pre_tokenizer of type BertPreTokenizer/,
    ],
    ['no pre-tokenizer', byteLevel({ pre_tokenizer: null }), /no pre_tokenizer that splits text/],
    [
      'bytes without pre-tokens',
      byteLevel({ pre_tokenizer: { type: 'ByteLevel', use_regex: false } }),
      /no pre_tokenizer that splits/,
    ],
    [
      'a pattern that looks behind',
      byteLevel({ pre_tokenizer: { type: 'Split', pattern: { Regex: '(?<=a)b' }, behavior: 'Isolated' } }),
      /this kind of group at character/,
    ],
    [
      'a pattern that may be empty',
      byteLevel({ pre_tokenizer: { type: 'Split', pattern: { Regex: 'a*' }, behavior: 'Isolated' } }),
      /may match nothing/,
    ],
    [
      'a pattern that takes for ever',
      byteLevel({ pre_tokenizer: { type: 'Split', pattern: { Regex: '(?:a+)+b' }, behavior: 'Isolated' } }),
      /nested repetition/,
    ],
    [
      'pieces merged',
      byteLevel({ pre_tokenizer: { type: 'Split', pattern: { String: ' ' }, behavior: 'MergedWithNext' } }),
      /Split with behavior MergedWithNext/,
    ],
    [
      'a token at the end',
      byteLevel({
        added_tokens: [special(900, '</s>')],
        post_processor: {
          type: 'TemplateProcessing',
          single: [{ Sequence: { id: 'A' } }, { SpecialToken: { id: '</s>' } }],
        },
      }),
      /behind a text/,
    ],
    [
      'an unknown beginning',
      byteLevel({
        post_processor: {
          type: 'TemplateProcessing',
          single: [{ SpecialToken: { id: '<s>' } }, { Sequence: { id: 'A' } }],
        },
      }),
      /names "<s>", which no token has/,
    ],
    ['an unknown decoder', byteLevel({ decoder: { type: 'CTC' } }), /decoder of type CTC/],
    [
      'words that run together',
      {
        ...fallback(),
        model: {
          ...(fallback().model as Json),
          vocab: { ...((fallback().model as Json).vocab as Json), 'e▁': 1900 },
          merges: ['e ▁'],
        },
      },
      /no pre_tokenizer, and "e▁" keeps words/,
    ],
  ])('%s', async (_, json, words) => {
    const failed = await open(json).then(
      () => null,
      (error: unknown) => error,
    )
    expect(messageOf(failed)).toMatch(words)
    expect(codeOf(failed)).toBe('INVALID')
    expect(messageOf(failed)).toContain('tokenizer.json')
  })

  test('a file with anything replaced, removed or cut off opens, or is refused as INVALID', {
    tags: 'slow',
  }, async () => {
    const paths = (json: unknown, path: readonly (string | number)[] = []): (string | number)[][] =>
      typeof json !== 'object' || json === null || path.length > 5
        ? [[...path]]
        : [
            [...path],
            ...Object.entries(json)
              .slice(0, 12)
              .flatMap(([key, each]) => paths(each, [...path, key])),
          ]
    const replaced = (json: unknown, [key, ...rest]: readonly (string | number)[], by: unknown): unknown => {
      if (key === undefined) return by
      const copy = (Array.isArray(json) ? [...json] : { ...(json as object) }) as Record<string | number, unknown>
      copy[key] = replaced(copy[key], rest, by)
      return copy
    }
    const kind = fc.constantFrom(...KINDS.map(([, json]) => json))
    const strange = fc.oneof(
      fc.constantFrom<unknown>(
        undefined,
        null,
        -1,
        0.5,
        2 ** 53,
        1e308,
        '',
        '\ud800',
        [],
        {},
        [[]],
        true,
        'Sequence',
        { type: 'Sequence' },
        '(',
        '[',
        '\\p{',
        'a{9}',
        '__proto__',
      ),
      fc.jsonValue(),
    )
    const attempt = kind.chain((json) => fc.tuple(fc.constant(json), fc.constantFrom(...paths(json)), strange))
    await fc.assert(
      fc.asyncProperty(attempt, fc.option(fc.nat(20_000), { freq: 8 }), async ([json, path, by], cut) => {
        const whole = JSON.stringify(replaced(json, path, by)) ?? ''
        try {
          const tokenizer = await open(cut === null ? whole : whole.slice(0, cut))
          const ids = readText(tokenizer, ['the ', 'memory, ', '\u0301</s> 記憶\n'])
          expect(ids.every((id) => Number.isInteger(id) && id >= 0 && id < tokenizer.vocabSize)).toBe(true)
        } catch (error) {
          if (codeOf(error) !== 'INVALID') throw error
          expect(messageOf(error)).toContain('tokenizer.json')
        }
      }),
      { numRuns: 1500 },
    )
  })
})
