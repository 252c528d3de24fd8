/** Thoughts are read out of an answer as they were written, however it comes in pieces. */
import fc from 'fast-check'
import { expect, test } from 'vitest'
import { readThoughts, type Start, startBehind } from '../../../src/models/chat/thoughts.ts'

const readIn = (start: Start, all: string, cuts: readonly number[]) => {
  const places = [0, ...cuts.map((cut) => cut % (all.length + 1)).sort((a, b) => a - b), all.length]
  const reader = readThoughts(start)
  const pieces = [...places.slice(1).map((to, at) => reader.push(all.slice(places[at], to))), reader.end()]
  return [pieces.map(({ thought }) => thought).join(''), pieces.map(({ text }) => text).join('')]
}

test.each<[Start, string, string, string]>([
  ['before', '<think>\nA.\n\nB.\n</think>\n\nC.', 'A.\n\nB.', 'C.'],
  ['before', '\n <think>A</think>B</think>C<think>', 'A', 'B</think>C<think>'],
  ['before', '<think>\n\n</think>\n\nC', '', 'C'],
  ['before', 'C <think>A</think>', '', 'C <think>A</think>'],
  ['before', ' <thing>', '', ' <thing>'],
  ['before', '<thi', '', '<thi'],
  ['before', '', '', ''],
  ['inside', 'A </thin </think> C', 'A </thin', ' C'],
  ['inside', 'A \n </thi', 'A \n </thi', ''],
  ['inside', '\n</think>\nC', '', 'C'],
  ['opening', '>\nA</think>\nC', 'A', 'C'],
  ['closing', '>\n\nC <think>', '', 'C <think>'],
  ['plain', '<think>A</think>', '', '<think>A</think>'],
])('%s: %j', (start, all, thought, text) => {
  expect(readIn(start, all, [])).toEqual([thought, text])
  fc.assert(
    fc.property(fc.array(fc.nat()), (cuts) => {
      expect(readIn(start, all, cuts)).toEqual([thought, text])
    }),
    { numRuns: 200 },
  )
})

test('any answer is read in pieces as it is whole', () => {
  const part = fc.constantFrom('<think>', '</think>', '<', '/', '</', 'think', '>', '\n', ' ', 'a', '\r\n')
  const starts = fc.constantFrom<Start>('before', 'inside', 'opening', 'closing', 'plain')
  fc.assert(
    fc.property(starts, fc.array(part), fc.array(fc.nat()), (start, parts, cuts) => {
      const all = parts.join('')
      expect(readIn(start, all, cuts)).toEqual(readIn(start, all, []))
    }),
    { numRuns: 3000 },
  )
})

test.each<[string, boolean, Start]>([
  ['<|assistant|>', false, 'before'],
  ['<|assistant|>Well', true, 'plain'],
  ['<|assistant|><think>\n', false, 'inside'],
  ['<|assistant|><think>\n', true, 'inside'],
  ['<think>\n\n</think>\n\n', false, 'before'],
  ['Assistant: <think', false, 'opening'],
  ['Assistant: <think>\n</think', false, 'closing'],
])('behind %j an answer begins', (prompt, goesOn, start) => {
  expect(startBehind(prompt, goesOn)).toBe(start)
})
