import { describe, expect, test } from 'vitest'
import { openSearch } from '../../src/grammar/search.ts'

const LINES = [
  '',
  '2026-11-29 08:00:01 lamp: lit',
  '\tat com.example.Lamp.light(Lamp.java:42)',
  'Caused by: java.io.IOException: no oil',
  '  ... 12 more',
  '[08:00] a',
  'ERROR: wick é burnt',
  'late ERROR',
  '{"level":"info"}',
]

describe('a regular expression is found in a line where that of JavaScript is', () => {
  test.each([
    '^\\d{4}-\\d{2}',
    '^\\[?\\d',
    'ERROR',
    'ERROR$',
    '^(?:[A-Z]{2,}|\\{)',
    '^[^\\s.]',
    '^$',
    'é',
    'a|b$',
    '^.{29}$',
  ])('%s', (pattern) => {
    const [found, native] = [openSearch(pattern, 'join'), new RegExp(pattern, 'u')]
    expect(LINES.map((line) => found(Buffer.from(line)))).toEqual(LINES.map((line) => native.test(line)))
  })
})

test('bytes that are no UTF-8 are characters like others', () => {
  const found = openSearch('^\\d\\d', 'join')
  expect(found(Buffer.from('12 caf\xe9', 'latin1'))).toBe(true)
  expect(found(Buffer.from('\xe9 12', 'latin1'))).toBe(false)
  expect(openSearch('12$', 'join')(Buffer.from('\xe9 12', 'latin1'))).toBe(true)
})

test('what takes too much work is found nowhere, and is bounded', () => {
  const found = openSearch('(?:(?:a|b){50}){50}c', 'join')
  expect(found(Buffer.from(`${'ab'.repeat(2000)}c`))).toBe(false)
  expect(openSearch('(?:(?:a|b){3}){3}c', 'join')(Buffer.from(`${'ab'.repeat(2000)}c`))).toBe(true)
})

test('its automaton is bounded, and forgetting it changes nothing', () => {
  const pattern = '(?:a|b)*a(?:a|b){20}c'
  const found = openSearch(pattern, 'join')
  const line = Array.from({ length: 4000 }, (_, i) => (Math.imul(i, 0x9e3779b1) >>> 30 > 1 ? 'a' : 'b')).join('')
  expect(found(Buffer.from(line))).toBe(false)
  const place = line.slice(0, 3000).lastIndexOf('a')
  expect(found(Buffer.from(`${line.slice(0, place + 21)}c`))).toBe(true)
})

test.each([
  ['(', 'join cannot be used: it is no regular expression'],
  ['(?=a)', 'join cannot be used: it looks around itself'],
  ['\\p{L}', 'join cannot be used: \\p{L} depends on a version of Unicode'],
])('%s is refused with a sentence', (pattern, why) => {
  expect(() => openSearch(pattern, 'join')).toThrow(why)
})
