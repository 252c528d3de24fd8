/**
 * The longest token at each place, on a stream: against a search over the whole text, and RWKV's vocabulary as it is
 * published.
 */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import fc from 'fast-check'
import { describe, expect, onTestFinished, test } from 'vitest'
import { codeOf, messageOf } from '../../../src/errors.ts'
import { openTrie, type Tokenizer } from '../../../src/models/tokenizer/index.ts'
import { parseVocabulary, vocabularyIn } from '../../../src/models/tokenizer/rwkv.ts'
import { trieTokenizer } from '../../../src/models/tokenizer/trie.ts'
import { hasShared, sharedModel } from '../../engine/paths.ts'
import { cuts, inPieces, readText, text } from './fixtures.ts'

const EVERY_BYTE = Array.from({ length: 256 }, (_, byte) => Uint8Array.of(byte))
const LONGER = [
  'th',
  'the',
  ' the',
  ' them',
  '   ',
  '\n\n',
  'toke',
  'tokens',
  'é',
  '世界',
  '世界。記憶',
  '🌊',
  '123',
  '4567',
].map((token): Uint8Array => Buffer.from(token))
// Tokens that end inside a character, as the published vocabulary has them.
const HALVES = [Buffer.from('東').subarray(0, 2), Buffer.from('a🌊').subarray(0, 3), Uint8Array.of(0xff, 0xfe, 0xfd)]
const tokens = new Map([...EVERY_BYTE, ...LONGER, ...HALVES].map((bytes, at) => [at + 1, bytes] as const))
const longest = Math.max(...[...tokens.values()].map(({ length }) => length))

/** By definition: at each place the longest token. */
const greedy = (vocabulary: ReadonlyMap<number, Uint8Array>, bytes: Uint8Array): number[] => {
  const ids = new Map([...vocabulary].map(([id, token]) => [Buffer.from(token).toString('latin1'), id]))
  const all = Buffer.from(bytes).toString('latin1')
  const found: number[] = []
  for (let at = 0; at < all.length; ) {
    let length = Math.min(longest, all.length - at)
    while (!ids.has(all.slice(at, at + length))) length -= 1
    found.push(ids.get(all.slice(at, at + length))!)
    at += length
  }
  return found
}

const written = (content: string | Uint8Array): string => {
  const dir = mkdtempSync(join(tmpdir(), 'continuo-trie-'))
  onTestFinished(() => rmSync(dir, { recursive: true }))
  const path = join(dir, 'rwkv_vocab_test.txt')
  writeFileSync(path, content)
  return path
}

const PLAIN = EVERY_BYTE.map((_, byte) => `${byte + 1} b'\\x${byte.toString(16).padStart(2, '0')}' 1\n`).join('')

describe('the longest token at each place', () => {
  const tokenizer = trieTokenizer(tokens, { eos: 0 })

  test('any cut of a text gives the ids of the whole', { tags: 'slow' }, () => {
    fc.assert(
      fc.property(text, cuts, (source, lengths) => {
        expect(readText(tokenizer, inPieces(source, lengths))).toEqual(
          greedy(tokens, Buffer.from(source.toWellFormed())),
        )
      }),
      { numRuns: 2000 },
    )
  })

  test('any cut of any bytes gives the ids of the whole, and its tokens have these bytes', { tags: 'slow' }, () => {
    const some = fc.oneof(
      fc.uint8Array({ maxLength: 3 }),
      fc.constantFrom(...LONGER, ...HALVES),
      text.map((source) => Buffer.from(source)),
    )
    const raw = fc.array(some, { maxLength: 12 }).map((parts) => Buffer.concat(parts))
    fc.assert(
      fc.property(raw, cuts, (bytes, lengths) => {
        const ids = readText(tokenizer, inPieces<Uint8Array>(bytes, lengths))
        expect(ids).toEqual(greedy(tokens, bytes))
        expect(Buffer.concat(ids.map((id) => tokenizer.bytesOf(id)))).toEqual(bytes)
      }),
      { numRuns: 2000 },
    )
  })

  test('text and bytes may follow each other; half a pair that bytes follow is U+FFFD', () => {
    expect(readText(tokenizer, ['to', Buffer.from('ke'), 'ns'])).toEqual(greedy(tokens, Buffer.from('tokens')))
    expect(readText(tokenizer, ['a\ud83c', Buffer.from('b')])).toEqual(greedy(tokens, Buffer.from('a\ufffdb')))
    expect(readText(tokenizer, ['a\ud83c', '\udf0a'])).toEqual(greedy(tokens, Buffer.from('a🌊')))
    expect(readText(tokenizer, [new Uint8Array(0), 'a\ud83c', new Uint8Array(0), '\udf0a'])).toEqual(
      greedy(tokens, Buffer.from('a🌊')),
    )
  })

  test('what is held is less than the longest token, and nothing where no token goes on', () => {
    fc.assert(
      fc.property(text, (source) => {
        const { held } = tokenizer.push('', source)
        const half = /[\ud800-\udbff]$/u.test(held) ? 1 : 0
        const escaped = held.match(/[\udc80-\udcff]/gu)?.length ?? 0
        const bytes = Buffer.byteLength(held.slice(0, held.length - half)) - 3 * escaped + escaped
        expect(bytes).toBeLessThan(longest)
      }),
    )
    expect(tokenizer.push('', 'x! tokens').held).toBe('')
    expect(tokenizer.push('', 'x! token').held).toBe('token')
    expect(tokenizer.push('', '世界。記').held).toBe('世界。記')
    expect(tokenizer.pushBytes('', Buffer.from('世').subarray(0, 2)).held).toBe('\udce4\udcb8')
  })

  test('reads any string as held text', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'binary' }), fc.string(), (held, more) => {
        const { ids, held: rest } = tokenizer.push(held, `${more}.`)
        for (const id of [...ids, ...tokenizer.flush(rest)]) expect(tokens.has(id)).toBe(true)
      }),
    )
  })

  test('control tokens are found first, in any pieces, and have no text', () => {
    const guarded = trieTokenizer(tokens, {
      eos: 900,
      control: [
        { id: 900, content: '<s>' },
        { id: 901, content: '<sé>' },
      ],
    })
    const source = 'the<s> them<sé><s'
    const expected = [
      ...greedy(tokens, Buffer.from('the')),
      900,
      ...greedy(tokens, Buffer.from(' them')),
      901,
      ...greedy(tokens, Buffer.from('<s')),
    ]
    fc.assert(
      fc.property(cuts, (lengths) => {
        expect(readText(guarded, inPieces(source, lengths))).toEqual(expected)
        expect(readText(guarded, inPieces<Uint8Array>(Buffer.from(source), lengths))).toEqual(expected)
      }),
    )
    expect(guarded.vocabSize).toBe(902)
    expect(guarded.bytesOf(900)).toHaveLength(0)
  })
})

describe('rwkv_vocab_*.txt', () => {
  test('has str and bytes literals of Python, with every escape', async () => {
    const lines = [
      `257 'a b' 3`,
      `258 "it's" 4`,
      `259 '\\\\\\'\\"' 3`,
      `260 '\\n\\t\\r' 3`,
      `261 '\\xe9' 2`,
      `262 b'\\xe9x' 2`,
      `263 '\\u4e16' 3`,
      `264 '\\U0001f30a' 4`,
      `265 '世界' 6`,
      `266 ' ' 1`,
      `267 b"'a" 2`,
      `300 '  ' 2`,
    ]
    const tokens = parseVocabulary(lines.join('\r\n'), 301)
    const told = [...tokens].map(([id, bytes]) => [id, Buffer.from(bytes).toString('latin1')])
    expect(told).toEqual([
      [257, 'a b'],
      [258, "it's"],
      [259, `\\'"`],
      [260, '\n\t\r'],
      [261, 'Ã©'],
      [262, '\xe9x'],
      [263, Buffer.from('世').toString('latin1')],
      [264, Buffer.from('🌊').toString('latin1')],
      [265, Buffer.from('世界').toString('latin1')],
      [266, ' '],
      [267, "'a"],
      [300, '  '],
    ])
    const { tokenizer, fingerprint } = await openTrie(written(`${PLAIN}257 'the' 3\n`), { vocabSize: 400 })
    expect(tokenizer).toMatchObject({ vocabSize: 258, eos: 0, begun: '' })
    expect(fingerprint).toMatch(/^[0-9a-f]{64} 0$/)
    expect(tokenizer.bytesOf(0)).toHaveLength(0)
    expect(tokenizer.bytesOf(399)).toHaveLength(0)
  })

  test.each<[string, string | Uint8Array, RegExp]>([
    ['no literal', `${PLAIN}257 the 3\n`, /in line 257 "the" as a token; expected a literal of Python/],
    ['no length', `${PLAIN}257 'the'\n`, /in line 257 "257 'the'"; expected ID LITERAL LENGTH/],
    ['a wrong length', `${PLAIN}257 'thé' 3\n`, /in line 257 'thé' with the length 3, but it has 4 bytes/],
    ['an id that is none', `${PLAIN}-1 'the' 3\n`, /in line 257 .*expected ID LITERAL LENGTH/],
    ['the id 0', `0 '' 0\n${PLAIN}`, /in line 1 the id 0/],
    ['an id beyond the model', `${PLAIN}400 'the' 3\n`, /in line 257 the id 400, but the model has only 400 ids/],
    ['an id twice', `${PLAIN}7 'the' 3\n`, /in line 257 the id 7 a second time/],
    ['a token twice', `${PLAIN}257 'the' 3\n258 b'the' 3\n`, /the token "the" twice/],
    ['an empty token', `${PLAIN}257 '' 0\n`, /an empty token with the id 257/],
    ['an empty line', `${PLAIN}\n257 'the' 3\n`, /in line 257 ""/],
    ['an unknown escape', `${PLAIN}257 '\\a' 1\n`, /the escape "\\\\a"/],
    ['half an escape', `${PLAIN}257 '\\x4' 1\n`, /the escape "\\\\x4", which is no character/],
    ['half a character', `${PLAIN}257 '\\ud83c' 3\n`, /which is no character/],
    ['an escape of characters in bytes', `${PLAIN}257 b'\\u4e16' 3\n`, /the escape "\\\\u"/],
    ['a character in bytes', `${PLAIN}257 b'世' 3\n`, /in bytes that is not ASCII/],
    ['a quote inside', `${PLAIN}257 'it's' 4\n`, /a quote inside/],
    ['a member of every object', `${PLAIN}257 '\\constructor' 4\n`, /the escape "\\\\c"/],
    ['a byte without a token', PLAIN.replace(/^10 .*\n/m, ''), /no token for the byte 0x09/],
    ['a token of 2,000 bytes', `${PLAIN}257 '${'a'.repeat(2000)}' 2000\n`, /of 2000 bytes; at most 1024/],
    ['bytes that are no UTF-8', Buffer.concat([Buffer.from(PLAIN), Uint8Array.of(0xff)]), /is not UTF-8/],
    ['17 MiB', 'x'.repeat(17 << 20), /has 17825792 bytes, expected at most 16777216/],
  ])('is refused for %s, in words', async (_, content, words) => {
    const path = written(content)
    const failed = await openTrie(path, { vocabSize: 400 }).then(
      () => null,
      (error: unknown) => error,
    )
    expect(messageOf(failed)).toMatch(words)
    expect(messageOf(failed)).toContain(path)
    expect(codeOf(failed)).toBe('INVALID')
  })

  test('is found in a folder by its name, and two of them are refused', async () => {
    const path = written(PLAIN)
    const dir = join(path, '..')
    expect(await vocabularyIn(dir)).toBe(path)
    writeFileSync(join(dir, 'rwkv_vocab_v20230424.txt'), PLAIN)
    await expect(vocabularyIn(dir)).rejects.toThrow(
      /has 2 vocabularies \(rwkv_vocab_test.txt, rwkv_vocab_v20230424.txt\)/,
    )
  })

  test('files changed anywhere are read or refused by name, never otherwise', async () => {
    const lines = `${PLAIN}257 ' the' 4\n258 "it's" 4\n259 '\\u4e16\\n' 4\n260 b'\\xe4\\xb8' 2\n`
    await fc.assert(
      fc.asyncProperty(
        fc.nat(lines.length - 1),
        fc.constantFrom('', "'", '"', '\\', ' ', '\n', 'b', 'x', '0', '9', '\ud800', 'é'),
        fc.nat(3),
        async (at, by, cut) => {
          try {
            const all = parseVocabulary(lines.slice(0, at) + by + lines.slice(at + cut), 400)
            const ids = readText(trieTokenizer(all, { eos: 0 }), ['the ', '世', '\n'])
            expect(ids.every((id) => all.has(id))).toBe(true)
          } catch (error) {
            expect((error as Error).constructor.name).toBe('Unstreamable')
          }
        },
      ),
      { numRuns: 1000 },
    )
  })
})

test('a million changed vocabularies are read or refused by name', { tags: 'slow' }, () => {
  const base = Buffer.from(
    `1 b'\\x00' 1\n257 ' the' 4\n258 "it's" 4\n259 '\\u4e16\\n' 4\n260 b'\\xe4\\xb8' 2\n261 '世界\\U0001f30a' 10\n`,
  )
  let state = 1
  const next = (below: number): number => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0
    return Math.floor((state / 2 ** 32) * below)
  }
  let refused = 0
  for (let round = 0; round < 1_000_000; round += 1) {
    const bytes = Buffer.from(base)
    for (let changes = 1 + next(3); changes > 0; changes -= 1) bytes[next(bytes.length)] = next(256)
    const cut = next(8) === 0 ? next(bytes.length) : bytes.length
    try {
      const tokens = parseVocabulary(bytes.subarray(0, cut).toString('latin1'), 400)
      expect(tokens.size).toBeLessThanOrEqual(8)
    } catch (error) {
      if ((error as Error).constructor.name !== 'Unstreamable') throw error
      refused += 1
    }
  }
  expect(refused).toBeGreaterThan(500_000)
})

describe.skipIf(!hasShared)('rwkv7-pth-tiny', () => {
  const dir = sharedModel('rwkv7-pth-tiny')
  const open = async (): Promise<Tokenizer> =>
    (await openTrie((await vocabularyIn(dir))!, { vocabSize: 400 })).tokenizer

  test('encodes as expected, in any pieces', async () => {
    const tokenizer = await open()
    const { encodings, input_ids } = JSON.parse(readFileSync(join(dir, 'expected.json'), 'utf8')) as {
      readonly encodings: readonly { readonly text: string; readonly ids: readonly number[] }[]
      readonly input_ids: readonly number[]
    }
    expect(encodings.length).toBeGreaterThan(5)
    for (const { text, ids } of encodings) {
      expect(readText(tokenizer, [text])).toEqual(ids)
      expect(readText(tokenizer, [...text])).toEqual(ids)
      expect(readText(tokenizer, inPieces<Uint8Array>(Buffer.from(text), Array(800).fill(1)))).toEqual(ids)
      expect(Buffer.concat(ids.map((id) => tokenizer.bytesOf(id))).toString()).toBe(text)
    }
    expect(readText(tokenizer, [encodings.at(-1)!.text]).slice(0, 120)).toEqual(input_ids)
  })
})
