import fc from 'fast-check'
import { expect, test } from 'vitest'
import { createRanks } from '../../src/novelty/ranks.ts'

test('a number is ranked among the last ones before it', () => {
  fc.assert(
    fc.property(
      fc.array(fc.integer({ min: -5, max: 5 }), { maxLength: 60 }),
      fc.integer({ min: 1, max: 9 }),
      fc.integer({ min: 0, max: 9 }),
      (numbers, window, least) => {
        const ranks = createRanks(window, least)
        for (const [i, number] of numbers.entries()) {
          const before = numbers.slice(Math.max(0, i - window), i)
          const smaller = before.filter((other) => other < number).length
          const expected = before.length < Math.max(least, 1) ? null : smaller / before.length
          expect(ranks.rank(number)).toBe(expected)
        }
      },
    ),
  )
})
