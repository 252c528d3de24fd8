/**
 * Texts that come in pieces: the tokens are those of the whole text, and what is held of it is bounded.
 *
 * @module-tag slow
 */
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { MOST_HELD } from '../../../src/models/tokenizer/limits.ts'
import {
  agreed,
  byteLevel,
  cuts,
  fallback,
  inPieces,
  isSplit,
  KINDS,
  marked,
  open,
  readText,
  splitBy,
  text,
  wholeBy,
} from './fixtures.ts'

describe.each(KINDS)('%s', (_, json) => {
  const whole = wholeBy(json)

  test('any cut of a text gives the ids that the library gives for the whole', async () => {
    const tokenizer = await open(json)
    fc.assert(
      fc.property(text, cuts, (source, lengths) => {
        fc.pre(agreed(source) || isSplit(json))
        expect(readText(tokenizer, inPieces(source, lengths))).toEqual(whole(source.toWellFormed()))
      }),
      { numRuns: 1500 },
    )
  })

  test('so do bytes, cut inside characters; and bytes that are no text read as the platform decodes them', async () => {
    const tokenizer = await open(json)
    const raw = fc.oneof(
      text.map((source) => Buffer.from(source)),
      fc
        .array(
          fc.constantFrom(
            0x61,
            0x20,
            0x80,
            0xbf,
            0xc0,
            0xc3,
            0xa9,
            0xe2,
            0x82,
            0xac,
            0xed,
            0xa0,
            0xf0,
            0x9f,
            0x8c,
            0x8a,
            0xf4,
            0x90,
            0xff,
          ),
        )
        .map((bytes) => Buffer.from(bytes)),
    )
    fc.assert(
      fc.property(raw, cuts, (bytes, lengths) => {
        const decoded = new TextDecoder('utf-8', { ignoreBOM: true }).decode(bytes)
        fc.pre(agreed(decoded) || isSplit(json))
        expect(readText(tokenizer, inPieces<Uint8Array>(bytes, lengths))).toEqual(whole(decoded))
      }),
      { numRuns: 500 },
    )
  })

  test('what is held is bounded, and long pieces are cut where they are cut without chunks', async () => {
    const tokenizer = await open(json)
    for (const unit of ['a', ' ', '\n', '!', '7', 'e\u0301\u0323', '\u0301', '👩‍👧', '</s', '▁']) {
      const source = `x${unit.repeat(Math.ceil((2.5 * MOST_HELD) / unit.length))} end`
      const once = readText(tokenizer, [source])
      let held = ''
      let most = 0
      const ids: number[] = []
      for (const piece of inPieces(
        source,
        Array.from({ length: 400 }, (_, at) => 1 + ((at * 7) % 53)),
      )) {
        const pushed = tokenizer.push(held, piece)
        held = pushed.held
        most = Math.max(most, held.length)
        ids.push(...pushed.ids)
      }
      ids.push(...tokenizer.flush(held))
      expect(ids, JSON.stringify(unit)).toEqual(once)
      expect(most).toBeLessThan(3 * MOST_HELD)
    }
  })
})

test('a pre-token without an end is cut after so many units, counted from its beginning', async () => {
  const tokenizer = await open(byteLevel())
  const whole = wholeBy(byteLevel())
  const run = 'a'.repeat(MOST_HELD + 10)
  expect(readText(tokenizer, [`, ${run}`])).toEqual([
    ...whole(','),
    ...whole(` ${'a'.repeat(MOST_HELD - 1)}`),
    ...whole('a'.repeat(11)),
  ])
})

test('half a pair, half a character and half an added token are held as text that JSON carries', async () => {
  const tokenizer = await open(fallback())
  const held = (...pieces: (string | Uint8Array)[]): string =>
    pieces.reduce<string>((before, piece) => {
      const pushed = typeof piece === 'string' ? tokenizer.push(before, piece) : tokenizer.pushBytes(before, piece)
      return pushed.held
    }, '')
  const plain = await open(byteLevel())
  expect(plain.push('', 'two words').held).toBe(' words')
  expect(plain.push('', 'two\ud83d').held).toBe('two\ud83d')
  expect(plain.pushBytes('', Uint8Array.of(0x61, 0xe2, 0x82)).held).toBe('a\udce2\udc82')
  expect(held('a </')).toMatch(/\udc03<\/$/u)
  expect(held('', new Uint8Array(0))).toBe('')
})

test('a context begins once: texts after the first get no tokens before them', async () => {
  const tokenizer = await open(fallback())
  const whole = wholeBy(fallback())
  expect(readText(tokenizer, ['the'])).toEqual(whole('the'))
  expect(whole('the')[0]).toBe(1)
  expect(readText(tokenizer, ['the', ' the'], tokenizer.begun)).toEqual(whole('the the').slice(1))
  expect([...tokenizer.flush('')]).toEqual([])
  expect([...tokenizer.flush(tokenizer.begun)]).toEqual([])
  expect((await open(byteLevel())).begun).toBe('')
})

test('reading a long text in small pieces costs in proportion to its length', async () => {
  const tokenizer = await open(byteLevel())
  const sentence = 'the quick brown fox; 123 times — naïve café! '
  const time = (source: string): number => {
    const started = process.cpuUsage()
    readText(
      tokenizer,
      inPieces(
        source,
        Array.from({ length: Math.floor(source.length / 3) }, () => 3),
      ),
    )
    return process.cpuUsage(started).user
  }
  time(sentence.repeat(400))
  const [short, long] = [time(sentence.repeat(400)), time(sentence.repeat(6400))]
  // 16 times the text; a quadratic cost would be 256 times the processor's time.
  expect(long / short).toBeLessThan(80)
})

test('white space is what Unicode says, as in the pattern written out', async () => {
  const pattern = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
  const tokenizer = await open(byteLevel())
  const whole = wholeBy(byteLevel({ pre_tokenizer: splitBy(pattern) }))
  fc.assert(
    fc.property(text, cuts, (source, lengths) => {
      expect(readText(tokenizer, inPieces(source, lengths))).toEqual(whole(source.toWellFormed()))
    }),
    { numRuns: 1500 },
  )
})

test.each([
  [{ type: 'Whitespace' }, '\\w+|[^\\w\\s]+', true],
  [{ type: 'WhitespaceSplit' }, '\\S+', true],
  [{ type: 'Digits', individual_digits: true }, '\\p{N}', false],
  [{ type: 'Digits', individual_digits: false }, '\\p{N}+', false],
  [{ type: 'Punctuation', behavior: 'Isolated' }, '[\\p{P}$+<=>^`|~]', false],
  [{ type: 'Punctuation', behavior: 'Contiguous' }, '[\\p{P}$+<=>^`|~]+', false],
])('%j splits as the reference does', async (pre, pattern, drops) => {
  const bytes = { type: 'ByteLevel', add_prefix_space: false, use_regex: false }
  const tokenizer = await open(byteLevel({ pre_tokenizer: { type: 'Sequence', pretokenizers: [pre, bytes] } }))
  const whole = wholeBy(byteLevel({ pre_tokenizer: splitBy(pattern, drops) }))
  // Join controls and the numbers among the word characters are where two editions of \w differ.
  const plain = text.map((source) => source.replaceAll(/\u200c|\u200d|[²³¹¼-¾]/gu, '').toWellFormed())
  fc.assert(
    fc.property(plain, cuts, (source, lengths) => {
      expect(readText(tokenizer, inPieces(source, lengths))).toEqual(whole(source))
    }),
    { numRuns: 500 },
  )
})

test('a run of letters without a boundary is one piece up to 4,096 units, in every published kind of pre-tokens', async () => {
  // Chinese and Thai run to the next punctuation, a marked word to the next space; only beyond the bound may ids
  // differ.
  for (const json of [KINDS.find(([name]) => name === 'the pattern of Llama 3')![1], marked()]) {
    const tokenizer = await open(json)
    const whole = wholeBy(json)
    const run = '記憶は流れる'.repeat(800).slice(0, MOST_HELD - 1)
    expect(tokenizer.push('', run).ids.length).toBeLessThanOrEqual(1)
    expect(readText(tokenizer, [...`${run}.`])).toEqual(whole(`${run}.`))
    const { ids, held } = tokenizer.push('', `${run}記憶`)
    expect(ids.length).toBeGreaterThan(1000)
    expect(held.length).toBeLessThan(10)
  }
})

test("under (?i: letters are folded as Unicode does it: 'ſ is a contraction, as 's is", async () => {
  const pre_tokenizer = splitBy("(?i:'s|k)|\\p{L}+|[^\\p{L}]")
  const tokenizer = await open(byteLevel({ pre_tokenizer }))
  const apart = (...pieces: string[]): number[] => pieces.flatMap((piece) => readText(tokenizer, [piece]))
  expect(readText(tokenizer, ["the'ſtream"])).toEqual(apart('the', "'ſ", 'tream'))
  expect(readText(tokenizer, ["the'Stream"])).toEqual(apart('the', "'S", 'tream'))
  expect(readText(tokenizer, ["the'ßtream"])).toEqual(apart('the', "'", 'ßtream'))
  expect(readText(tokenizer, ['.\u212athe'])).toEqual(apart('.', '\u212a', 'the'))
  expect(readText(tokenizer, ["the'", 'ſ', 'tream'])).toEqual(apart('the', "'ſ", 'tream'))
})

describe('a Split at a space behind a normalizer that marks words', () => {
  test('is refused where a piece keeps words from being encoded one by one', async () => {
    const { model } = marked() as { model: { vocab: Record<string, number>; merges: string[] } }
    const vocab = { ...model.vocab, 'e▁': 1900, 'e▁t': 1901 }
    const crossing = marked({ model: { ...model, vocab, merges: ['e ▁', 'e▁ t', ...model.merges] } })
    await expect(open(crossing)).rejects.toThrow(/"e▁" keeps words from being encoded one by one/)
  })

  test('is refused where a normalizer behind could make new spaces', async () => {
    const normalizers = [marked().normalizer, { type: 'NFKC' }]
    await expect(open(marked({ normalizer: { type: 'Sequence', normalizers } }))).rejects.toThrow(
      /Split with behavior MergedWithPrevious/,
    )
  })
})
