/**
 * Every name that tokenizer.ggml.pre may have: texts that are hard to split get the ids of llama.cpp, whole and in any
 * pieces. gguf-pre.json has digests of these ids (`node pre-tokenizers.ts --write` in bench/peers).
 */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { GGUF_PRE } from '../../../src/models/tokenizer/gguf-pre.ts'
import { openGgufTokenizer } from '../../../src/models/tokenizer/index.ts'
import { cuts, inPieces, readText } from './fixtures.ts'
import { asRead, digestOf, isKnownToDiffer, learnJoins, SPLIT_TEXTS, splitMetadata } from './split-texts.ts'

const theirs = JSON.parse(readFileSync(join(import.meta.dirname, 'gguf-pre.json'), 'utf8')) as Record<string, string>
const joins = learnJoins()
const opened = (name: string) => {
  const metadata = splitMetadata(name, joins)
  const vocabSize = (metadata['tokenizer.ggml.tokens'] as readonly string[]).length
  const { tokenizer } = openGgufTokenizer(asRead(metadata), { vocabSize, path: 'model.gguf' })!
  const bos = vocabSize - 2
  return (pieces: readonly string[]): readonly number[] => {
    const ids = readText(tokenizer, pieces)
    return ids[0] === bos ? ids.slice(1) : ids
  }
}

test('llama.cpp was asked about every name', () => expect(Object.keys(theirs)).toEqual([...GGUF_PRE.keys()]))

describe.each([...GGUF_PRE.keys()])('%s', (name) => {
  test('splits as llama.cpp does, whole and in pieces', () => {
    const read = opened(name)
    const digests = theirs[name]!.split(' ')
    const texts = SPLIT_TEXTS.filter((text) => !isKnownToDiffer(name, text))
    expect(texts.length).toBeGreaterThan(SPLIT_TEXTS.length - 4)
    for (const text of texts) {
      expect([text, digestOf(read([text]))]).toEqual([text, digests[SPLIT_TEXTS.indexOf(text)]])
      expect(read([...text])).toEqual(read([text]))
    }
    fc.assert(
      fc.property(fc.shuffledSubarray([...texts], { minLength: 2, maxLength: 4 }), cuts, (some, lengths) => {
        const text = some.join('')
        expect(read(inPieces(text, lengths))).toEqual(read([text]))
      }),
      { numRuns: 20 },
    )
  })
})

test('words of letters with cases and marks are split as the published pattern of o200k splits them', () => {
  const upper = '[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]'
  const lower = '[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]'
  const tail = "(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])?"
  const published = new RegExp(
    `[^\\r\\n\\p{L}\\p{N}]?${upper}*${lower}+${tail}|[^\\r\\n\\p{L}\\p{N}]?${upper}+${lower}*${tail}|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+`,
    'gu',
  )
  const read = opened('gpt-4o')
  for (const text of SPLIT_TEXTS) {
    const pieces = text.match(published) ?? []
    expect(pieces.join('')).toBe(text)
    expect([text, read([text])]).toEqual([text, pieces.flatMap((piece) => read([piece]))])
  }
  expect(read(['camelCase'])).toEqual([...read(['camel']), ...read(['Case'])])
})
