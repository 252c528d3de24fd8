import { expect, test } from 'vitest'
import { blockText, pageText, repairHint } from '../../src/state/block-names.ts'

test.each([
  [{ tables: ['keyCache', 'valueCache'] }, 2, 'positions 512 to 767 of the cache'],
  [{ tables: ['cold'], block: 16 }, 3, 'archived blocks 48 to 63'],
  [{ tables: ['cold'], block: 1 }, 7, 'archived block 7'],
  [{ tables: ['index'] }, 0, 'rows 0 to 255 of the index'],
  [{ tables: ['graph.member'] }, 1, 'members 256 to 511 of the topics'],
  // The third lap of a window of 300 places, whose second block is short.
  [{ tables: ['window.k', 'window.v'], places: 300 }, 7, 'places 256 to 299 of the window'],
])('a block of %j by its run %i is %s', (growth, run, text) => {
  expect(blockText(growth, run)).toBe(text)
})

test('a page and the way to mend are said in words, with the session as a shell takes it', () => {
  expect(pageText({ tables: ['cold'], block: 16 }, 1)).toBe('page 1 of the names of archived blocks')
  expect(repairHint('a-1')).toBe('continuo repair --session a-1 computes it again')
  expect(repairHint('two words')).toBe('continuo repair --session "two words" computes it again')
})
