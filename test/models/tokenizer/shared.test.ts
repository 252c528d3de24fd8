/**
 * Small tokenizers of published kinds, with the ids and texts that the Rust library (tokenizers 0.23.2) gave for them.
 */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import fc from 'fast-check'
import { beforeAll, describe, expect, test } from 'vitest'
import { openTokenizer, type Tokenizer } from '../../../src/models/tokenizer/index.ts'
import { hasShared, sharedModel } from '../../engine/paths.ts'
import { cuts, inPieces, readText } from './fixtures.ts'

interface Case {
  readonly text: string
  readonly ids: readonly number[]
  readonly decoded: string
}

describe.skipIf(!hasShared).each(['llama3', 'qwen2', 'qwen35', 'smollm2', 'gemma'])('%s', (name) => {
  const dir = join(sharedModel('tokenizers-tiny'), name)
  const cases = (): readonly Case[] =>
    (JSON.parse(readFileSync(join(dir, 'expected.json'), 'utf8')) as { cases: Case[] }).cases
  let tokenizer: Tokenizer
  beforeAll(async () => {
    tokenizer = (await openTokenizer(dir, { vocabSize: 4096, config: {}, warn: () => {} })).tokenizer
  })

  test('gives the ids of the Rust library: whole, character by character, byte by byte', () => {
    expect(cases().length).toBeGreaterThan(40)
    for (const { text, ids } of cases()) {
      // A text without characters begins nothing on a stream.
      const expected = text === '' ? [] : ids
      expect(readText(tokenizer, [text]), text).toEqual(expected)
      expect(readText(tokenizer, [...text]), text).toEqual(expected)
      expect(readText(tokenizer, inPieces<Uint8Array>(Buffer.from(text), Array(400).fill(1))), text).toEqual(expected)
    }
  })

  test('gives its ids in any pieces', () => {
    fc.assert(
      fc.property(fc.constantFrom(...cases().filter(({ text }) => text !== '')), cuts, ({ text, ids }, lengths) => {
        expect(readText(tokenizer, inPieces(text, lengths))).toEqual(ids)
      }),
      { numRuns: 1000 },
    )
  })

  test('gives its texts back', () => {
    for (const { ids, decoded } of cases())
      expect(Buffer.concat(ids.map((id) => tokenizer.bytesOf(id))).toString()).toBe(decoded)
  })

  test('has no text for ids without a token', () => {
    for (const id of [tokenizer.vocabSize, 4095, 2 ** 31 - 1]) expect(tokenizer.bytesOf(id)).toHaveLength(0)
  })
})
