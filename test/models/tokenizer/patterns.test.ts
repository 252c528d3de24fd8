/**
 * Patterns that were made to take for ever are refused by name, or matched in time that grows with the text; and match
 * as ever.
 */
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { codeOf, messageOf } from '../../../src/errors.ts'
import { compilePattern, UnsupportedPattern } from '../../../src/models/tokenizer/regex.ts'
import { tokenizeEvent } from '../../../src/operators/pipeline/tokenize.ts'
import { byteLevel, type Json, open, readText, splitBy, wholeBy } from './fixtures.ts'

const opened = (pattern: string) => open(byteLevel({ pre_tokenizer: splitBy(pattern) }))

describe('is refused by name', () => {
  const level = { type: 'ByteLevel', add_prefix_space: false, trim_offsets: true, use_regex: false }
  const twice = { type: 'Replace', pattern: { String: ' ' }, content: '  ' }
  const { model } = byteLevel() as { model: Json }
  const { vocab } = model as { vocab: Json }
  test.each<[string, Json, RegExp]>([
    [
      'copies of copies',
      { pre_tokenizer: splitBy('(?:(?:(?:ab){64}){64}){64}|.') },
      /which has 528452 parts .* at most 1024/,
    ],
    ['a thousand million copies', { pre_tokenizer: splitBy('a{1,999999999}b|.') }, /at most 1024 are taken/],
    ['20,000 groups', { pre_tokenizer: splitBy(`${'(?:'.repeat(20_000)}a`) }, /a pattern of 60001 characters/],
    ['200 groups', { pre_tokenizer: splitBy(`${'(?:'.repeat(200)}a${')'.repeat(200)}`) }, /groups inside each other/],
    [
      'a normalizer that doubles spaces 40 times',
      { normalizer: { type: 'Sequence', normalizers: Array(40).fill(twice) } },
      /40 normalizers/,
    ],
    [
      'a normalizer that doubles spaces 7 times',
      { normalizer: { type: 'Sequence', normalizers: Array(7).fill(twice) } },
      /128 times as long/,
    ],
    [
      'bytes of bytes of bytes',
      { pre_tokenizer: { type: 'Sequence', pretokenizers: [{ ...level, use_regex: true }, level, level] } },
      /27 times as long/,
    ],
    [
      '40 pre-tokenizers',
      { pre_tokenizer: { type: 'Sequence', pretokenizers: Array(40).fill({ type: 'Digits' }) } },
      /40 pre_tokenizers/,
    ],
    [
      'a decoder that doubles its text 3 times',
      { decoder: { type: 'Sequence', decoders: Array(3).fill(twice) } },
      /8 times as long/,
    ],
    [
      'a token of 10,000 characters',
      { model: { ...model, vocab: { ...vocab, ['x'.repeat(10_000)]: 1500 } } },
      /of 10000 characters/,
    ],
    ['an added token of 300', { added_tokens: [{ id: 900, content: 'x'.repeat(300) }] }, /added_tokens\.0\.content/],
    [
      '100 tokens that begin a context',
      {
        post_processor: {
          type: 'TemplateProcessing',
          single: [...Array(100).fill({ SpecialToken: { id: 'a' } }), { Sequence: { id: 'A' } }],
        },
      },
      /100 tokens before a text/,
    ],
    [
      '100 pieces that begin one another',
      {
        model: { type: 'Unigram', unk_id: 0, vocab: Array.from({ length: 100 }, (_, at) => ['a'.repeat(at + 1), -1]) },
      },
      /33 pieces that begin one another/,
    ],
  ])('%s', async (_, rest, words) => {
    const failed = await open(byteLevel(rest)).then(
      () => null,
      (error: unknown) => error,
    )
    expect(messageOf(failed)).toMatch(words)
    expect(codeOf(failed)).toBe('INVALID')
  })
})

test.each([
  ['alternatives that are the same', '(?:a|a){1,40}b|[^c]'],
  ['runs behind runs', '[a-z]*[a-z]*[a-z]*[a-z]*[a-z]*1|.|\\s'],
  ['a lookahead with many ways to fail', 'a(?=(?:a|aa){1,30}1)|.|\\s'],
  ['a group for each character', '(?:a|b|c| )+1|.|\\s'],
])('%s cost what any pattern costs', async (_, pattern) => {
  const tokenizer = await opened(pattern)
  const ids = readText(tokenizer, ['a'.repeat(4000)])
  expect(ids.length).toBeGreaterThan(0)
  const plain = await opened('[a-z]+1|[^c]')
  const time = (of: typeof tokenizer): number => {
    const began = performance.now()
    for (let round = 0; round < 5; round += 1) readText(of, ['a'.repeat(4000)])
    return performance.now() - began
  }
  // Backtracking would take 2⁴⁰ steps, 4000⁵ for the runs, or the whole stack.
  expect(time(tokenizer) / time(plain)).toBeLessThan(500)
})

test('a text whose every character makes a pattern look 4,096 ahead becomes a dead letter, whole or in a session', async () => {
  const tokenizer = await opened('[a-z]*1|.|\\s')
  const text = 'a'.repeat(40_000)
  expect(() => tokenizer.push('', text)).toThrow(/look at 4096 characters again and again/)
  const record = { topic: 'chunks', partition: 0, offset: 3, timestamp: 0, key: null, value: null, headers: [] }
  const valid = { kind: 'valid', record, session: 's', event: { type: 'text', text }, hash: '' } as const
  expect(tokenizeEvent(valid, undefined, tokenizer, { positions: null })).toMatchObject({
    kind: 'rejected',
    reason: expect.stringContaining('Send the text in smaller pieces'),
  })
  const published = await open(byteLevel())
  expect(published.push('', `${'a'.repeat(400_000)}\n${' '.repeat(400_000)}`).ids.length).toBeGreaterThan(0)
})

/** Patterns of what is supported, nested and repeated; many are refused. */
const { pattern } = fc.letrec<{ pattern: string; sequence: string; part: string; atom: string }>((tie) => ({
  pattern: fc.array(tie('sequence'), { minLength: 1, maxLength: 3, depthIdentifier: 'p' }).map((all) => all.join('|')),
  sequence: fc.array(tie('part'), { minLength: 1, maxLength: 4, depthIdentifier: 'p' }).map((all) => all.join('')),
  part: fc
    .tuple(tie('atom'), fc.constantFrom('', '', '', '?', '*', '+', '{2}', '{1,3}', '{0,2}', '{2,}', '++', '*+', '?+'))
    .map((both) => both.join('')),
  atom: fc.oneof(
    { depthIdentifier: 'p', maxDepth: 3 },
    fc.constantFrom('a', 'b', 'c', '[ab]', '[^a]', '.', '🌊', 'a', 'b', '\\s', '$'),
    fc
      .tuple(fc.constantFrom('(?:', '(?:', '(?:', '(?=', '(?!'), tie('pattern'))
      .map(([kind, inner]) => `${kind}${inner})`),
  ),
}))
const letters = fc
  .array(fc.constantFrom('a', 'a', 'b', 'c', ' ', '\n', '🌊'), { maxLength: 12 })
  .map((all) => all.join(''))

const compiled = (source: string) => {
  try {
    return compilePattern(source)
  } catch (error) {
    if (error instanceof UnsupportedPattern) return null
    throw error
  }
}

/**
 * The same for the platform: a dot is anything but a line feed, and `$` the end of a line, as in Oniguruma. The
 * platform has no possessive quantifiers; what a lookahead has found it does not try otherwise.
 */
const forPlatform = (source: string): RegExp => {
  let count = 0
  const name = (): string => `p${count++}`
  const atomic = source.replace(/(\[[^\]]*\]|\\s|[abc.]|🌊)([?*+])\+/gu, (_, char: string, quantifier: string) => {
    const group = name()
    return `(?=(?<${group}>${char}${quantifier}))\\k<${group}>`
  })
  return new RegExp(atomic.replaceAll('$', '(?:(?=\\n)|$)').replaceAll(/(?<!\[\^)\./g, '[^\\n]'), 'uy')
}

test('a match is the one that the platform finds, wherever it begins and whatever was matched before', {
  tags: 'slow',
}, () => {
  let taken = 0
  fc.assert(
    fc.property(pattern, fc.array(letters, { minLength: 1, maxLength: 4 }), fc.boolean(), (source, texts, isOpen) => {
      const own = compiled(source)
      if (own === null) return
      taken += 1
      const platform = forPlatform(source)
      for (const text of texts) {
        for (let at = 0; at < text.length; at += text.codePointAt(at)! > 0xffff ? 2 : 1) {
          platform.lastIndex = at
          const found = platform.exec(text)
          expect(own.match(text, at, text.length, isOpen)).toBe(found === null ? -1 : at + found[0].length)
        }
      }
    }),
    { numRuns: 6000 },
  )
  expect(taken).toBeGreaterThan(150)
})

test('a match that did not look beyond the end is the same whatever follows', { tags: 'slow' }, () => {
  fc.assert(
    fc.property(pattern, letters, letters, (source, text, more) => {
      const own = compiled(source)
      if (own === null) return
      for (let at = 0; at < text.length; at += text.codePointAt(at)! > 0xffff ? 2 : 1) {
        const found = own.match(text, at, text.length, true)
        if (own.hitEnd) continue
        expect(own.match(text + more, at, text.length + more.length, true)).toBe(found)
      }
    }),
    { numRuns: 6000 },
  )
})

test('the pattern of o200k gives the ids of the library', async () => {
  const json = byteLevel({
    pre_tokenizer: splitBy(
      "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
    ),
  })
  const tokenizer = await open(json)
  const text = "The HARBOUR froze; don't I'LL say 12345\r\n\n  x — naïve Ünïcödé 記憶\t!?/\n \n "
  expect(readText(tokenizer, [...text])).toEqual(wholeBy(json)(text))
})
