/** Folders with vocab.json and merges.txt in place of a tokenizer.json. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import fc from 'fast-check'
import { describe, expect, onTestFinished, test } from 'vitest'
import { codeOf, messageOf } from '../../../src/errors.ts'
import { readText as readTextOf } from '../../../src/models/files/package-text.ts'
import { openVocabMerges } from '../../../src/models/tokenizer/index.ts'
import { byteLevel, cuts, inPieces, readText, text, wholeBy } from './fixtures.ts'

const { vocab, merges } = byteLevel().model as { vocab: Record<string, number>; merges: string[] }
const top = Object.keys(vocab).length
const end = { ...vocab, '<|endoftext|>': top }

const folder = (files: Readonly<Record<string, unknown>> = {}): string => {
  const dir = mkdtempSync(join(tmpdir(), 'continuo-merges-'))
  onTestFinished(() => rmSync(dir, { recursive: true }))
  const all = { 'vocab.json': end, 'merges.txt': `#version: 0.2\n${merges.join('\n')}\n`, ...files }
  for (const [name, content] of Object.entries(all))
    writeFileSync(join(dir, name), typeof content === 'string' ? content : JSON.stringify(content))
  return dir
}
const read = (dir: string) =>
  readTextOf({ dir, path: dir, config: {}, metadata: null, endTokens: null }, 1000, () => {})
const opened = (files: Readonly<Record<string, unknown>> = {}) =>
  openVocabMerges(folder(files), { vocabSize: 1000, config: {}, warn: () => {} })

test('any cut of a text gives what a tokenizer.json of the same tokens gives for the whole', async () => {
  const { tokenizer, source } = await opened()
  const whole = wholeBy(byteLevel())
  fc.assert(
    fc.property(text, cuts, (source, lengths) => {
      fc.pre(!/[\u0085\ufeff]/u.test(source))
      expect(readText(tokenizer, inPieces(source, lengths))).toEqual(whole(source.toWellFormed()))
    }),
    { numRuns: 500 },
  )
  expect(source).toBe('vocab.json and merges.txt')
  expect(tokenizer.eos).toBe(top)
  expect(readText(tokenizer, ['the<|endoftext|>the'])).toEqual([...whole('the'), top, ...whole('the')])
  expect(tokenizer.bytesOf(top)).toHaveLength(0)
})

test("is what a package without tokenizer.json and without RWKV's vocabulary is read by", async () => {
  expect(await read(folder())).toMatchObject({
    source: 'vocab.json and merges.txt',
    fingerprint: expect.stringMatching(/^[0-9a-f]{64} \d+$/),
  })
  const beside = await read(folder({ 'tokenizer.json': byteLevel() }))
  expect(beside.source).toBe('tokenizer.json')
})

test('the class says how text is split, and other files which tokens are added', async () => {
  const qwen = {
    tokenizer_class: 'Qwen2TokenizerFast',
    eos_token: '<|im_end|>',
    added_tokens_decoder: { [top + 1]: { content: '<|im_end|>', special: true } },
  }
  const { tokenizer, fingerprint } = await opened({
    'tokenizer_config.json': qwen,
    'added_tokens.json': { '<tool>': top + 2 },
  })
  expect(tokenizer.eos).toBe(top + 1)
  expect(readText(tokenizer, ['1', '2<tool>'])).toEqual([vocab['1'], vocab['2'], top + 2])
  expect(Buffer.from(tokenizer.bytesOf(top + 2)).toString()).toBe('<tool>')
  // NFC, and letters behind any one character.
  expect(readText(tokenizer, ['e\u0301'])).toEqual(readText(tokenizer, ['é']))
  expect(fingerprint).not.toBe((await opened({ 'tokenizer_config.json': qwen })).fingerprint)
})

describe('is refused, in words, for', () => {
  test.each<[string, Readonly<Record<string, unknown>>, RegExp]>([
    [
      'another class',
      { 'tokenizer_config.json': { tokenizer_class: 'BertTokenizerFast' } },
      /class BertTokenizer, expected one of: GPT2Tokenizer, Qwen2Tokenizer/,
    ],
    ['a class of every object', { 'tokenizer_config.json': { tokenizer_class: 'constructor' } }, /class constructor/],
    ['a vocabulary that is a list', { 'vocab.json': '[]' }, /malformed model.vocab/],
    ['a merge of unknown tokens', { 'merges.txt': 'the zzzz\n' }, /a merge \(number 0\)/],
    ['a merge of three', { 'merges.txt': 't h e\n' }, /as merge 0/],
    [
      'added tokens without contents',
      { 'tokenizer_config.json': { added_tokens_decoder: { 5: {} } } },
      /malformed added_tokens_decoder/,
    ],
    ['an added token with the id of another', { 'added_tokens.json': { zzzz: 5 } }, /the id 5 twice/],
  ])('%s', async (_, files, words) => {
    const failed = await opened(files).then(
      () => null,
      (error: unknown) => error,
    )
    expect(messageOf(failed)).toMatch(words)
    expect(codeOf(failed)).toBe('INVALID')
  })
})
