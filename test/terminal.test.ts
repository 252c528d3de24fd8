import { styleText } from 'node:util'
import fc from 'fast-check'
import { expect, test } from 'vitest'
import { escaped, escapedAround, escapedJson, inCell } from '../src/terminal.ts'

const unsafe = fc.constantFrom(
  ...[
    '\u001b',
    '\u0007',
    '\u0000',
    '\r',
    '\u009b',
    '\u007f',
    '\u202e',
    '\u2066',
    '\u200f',
    '\u2028',
    '\ud800',
    '\udfff',
  ],
)
const safe = fc.constantFrom('a', ' ', 'ä', '漢', '🙂', '\n', '\t', '[31m', ']0;')
const mixed = fc.array(fc.oneof(unsafe, safe)).map((parts) => parts.join(''))

/** Whether a terminal would obey a character, told another way: by its Unicode category. */
const isObeyed = (text: string): boolean =>
  [...text].some((char) => /^[\p{Cc}\p{Cs}\p{Zl}\p{Zp}\p{Bidi_Control}]$/u.test(char) && char !== '\n' && char !== '\t')

test('nothing that a terminal obeys is left, and all else stays', () => {
  fc.assert(
    fc.property(mixed, (text) => {
      const shown = escaped(text)
      expect(isObeyed(shown)).toBe(false)
      expect(escaped(shown)).toBe(shown)
      if (!isObeyed(text)) expect(shown).toBe(text)
    }),
  )
})

test('every character alone is told right', { tags: 'slow' }, () => {
  for (let code = 0; code <= 0xffff; code += 1) {
    const char = String.fromCharCode(code)
    expect([code, escaped(char) === '\ufffd' && code !== 0xfffd]).toEqual([code, isObeyed(char)])
  }
})

test('our own styles stay, other sequences do not', () => {
  const styled = `${styleText('bold', 'head')} ${styleText('yellow', 'word')}`
  expect(escapedAround(styled)).toBe(styled)
  expect(escapedAround(`${styled}\u001b[2J\u001b[8mhidden\u001b]0;title\u0007`)).toBe(
    `${styled}\ufffd[2J\ufffd[8mhidden\ufffd]0;title\ufffd`,
  )
})

test('JSON says the same', () => {
  fc.assert(
    fc.property(mixed, (text) => {
      const json = escapedJson(JSON.stringify({ [text]: text }))
      expect(isObeyed(json)).toBe(false)
      expect(JSON.parse(json)).toEqual({ [text]: text })
    }),
  )
})

test('a cell is one row, and no wider than it may be', () => {
  expect(inCell('one\ntwo\tthree', 80)).toBe('one\ufffdtwo\ufffdthree')
  expect(inCell('abcdefghij', 10)).toBe('abcdefghij')
  expect(inCell('abcdefghijk', 10)).toBe('abcd…hijk')
  expect(inCell('x'.repeat(5000), 80).length).toBeLessThanOrEqual(80)
})
