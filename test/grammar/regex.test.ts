import * as fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { fault, reading, regex } from './helpers.ts'

const patterns = fc
  .letrec<{ part: string }>((tie) => ({
    part: fc.oneof(
      { maxDepth: 4 },
      fc.constantFrom(
        'a',
        'b',
        'é',
        '\\.',
        '.',
        '\\d',
        '\\D',
        '\\w',
        '\\s',
        '\\S',
        '[ab]',
        '[^a]',
        '[a-\\d]',
        '[\\w.]',
        '\\u{1F600}',
        '\\x61',
        '',
      ),
      fc
        .tuple(tie('part'), fc.constantFrom('*', '+', '?', '{2}', '{1,}', '{0,2}', '*?'))
        .map(([part, count]) => `(?:${part})${count}`),
      fc.array(tie('part'), { minLength: 1, maxLength: 3 }).map((all) => all.join('')),
      fc.array(tie('part'), { minLength: 2, maxLength: 3 }).map((all) => `(${all.join('|')})`),
    ),
  }))
  .part.map((pattern) => pattern.replaceAll('[a-\\d]', '[a-c\\d]'))

describe('a regular expression', () => {
  test('matches what the platform matches from beginning to end', () => {
    const seen = { ended: 0, open: 0, null: 0 }
    const samples = fc.array(
      fc.string({ unit: fc.constantFrom('a', 'b', 'é', '1', '.', ' ', '\n', '😀'), maxLength: 5 }),
      { minLength: 5, maxLength: 5 },
    )
    fc.assert(
      fc.property(patterns, samples, (pattern, texts) => {
        const judge = new RegExp(`^(?:${pattern})$`, 'u')
        for (const text of texts) {
          const found = reading(regex(pattern), text)
          seen[`${found}`] += 1
          expect([text, found === 'ended']).toEqual([text, judge.test(text)])
        }
      }),
      { numRuns: 300 },
    )
    expect(Math.min(...Object.values(seen))).toBeGreaterThan(20)
  })

  test('may have its ends marked', () => {
    for (const pattern of ['^a|b$', '^a$|^b$', 'a|b']) {
      expect(reading(regex(pattern), 'a')).toBe('ended')
      expect(reading(regex(pattern), 'ab')).toBeNull()
    }
  })

  test.each<[string, RegExp]>([
    ['(', /is no regular expression of ECMAScript/],
    ['(?<=a)b', /looks around itself/],
    ['\\bx', /looks around itself/],
    ['(a)\\1', /refers back to a group/],
    ['a^b', /"\^" stands elsewhere than at an end/],
    ['\\p{Letter}', /depends on a version of Unicode/],
    ['(?i:a)', /changes flags inside a group/],
    ['a{70000}', /more than 65536 nodes/],
    ['a'.repeat(5000), /it has 5000 characters, expected at most 4096/],
    ['('.repeat(100) + ')'.repeat(100), /nested deeper than 64 levels/],
    ['[]', /No answer fits/],
  ])('is refused with a sentence: %#', (pattern, sentence) => {
    expect(fault(regex(pattern))).toMatch(sentence)
  })
})
