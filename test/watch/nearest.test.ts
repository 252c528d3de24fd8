import { expect, test } from 'vitest'
import { createNearest } from '../../src/watch/nearest.ts'

test('the earlier line with most words in common is the nearest, of equal ones the last', () => {
  const { add, find } = createNearest(10)
  expect(find('anything')).toBeNull()
  add(1, 'gate north: card 17 accepted, opened')
  add(2, 'pump 2: pressure 3.1 bar')
  add(3, 'gate north: card 99 accepted, opened')
  expect(find('gate north: card 5 refused, expired')).toEqual({ line: 3, text: 'gate north: card 99 accepted, opened' })
  expect(find('pump 9: stopped')?.line).toBe(2)
  expect(find('segfault')).toBeNull()
  expect(find('')).toBeNull()
})

test('of a word that stands twice in both lines both count, of one that stands twice in one of them one does', () => {
  const { add, find } = createNearest(10)
  add(1, 'a a b c')
  add(2, 'a x y z')
  expect(find('a a q r')?.line).toBe(1)
  expect(find('a s t u')?.line).toBe(2)
})

test('so many lines are kept as was said, the last ones', () => {
  const { add, find } = createNearest(3)
  for (const [i, word] of ['one', 'two', 'three', 'four'].entries()) add(i, word)
  expect(find('one')).toBeNull()
  expect(find('two')).toEqual({ line: 1, text: 'two' })
  expect(find('four')).toEqual({ line: 3, text: 'four' })
})
