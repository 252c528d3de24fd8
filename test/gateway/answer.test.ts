import fc from 'fast-check'
import { expect, test } from 'vitest'
import { openAnswer } from '../../src/gateway/answer/pieces.ts'
import { byteTokenizer } from '../../src/models/tokenizer/index.ts'
import type { Generated } from '../../topics/tokens.ts'

const run = (text: string, finish: Generated['finish'], ids: readonly number[] = []): Generated => ({
  type: 'generated',
  version: 1,
  session: 's',
  requestId: 'r',
  index: 0,
  ids: [...ids],
  text,
  logprobs: ids.map(() => -1),
  fromPulse: 0,
  toPulse: ids.length,
  finish,
  cause: { topic: 't', partition: 0, offset: 0, id: null },
})

const letter = fc.constantFrom('a', 'b', 'c')
const word = (minLength: number, maxLength: number) =>
  fc.array(letter, { minLength, maxLength }).map((letters) => letters.join(''))

/** The topic's text ends with the stop text that ends first; of those that end there, the longest is left out. */
const cutAt = (whole: string, stops: readonly string[]): { text: string; shown: string } | null => {
  for (let end = 1; end <= whole.length; end += 1) {
    const ending = stops.filter((stop) => whole.slice(0, end).endsWith(stop)).sort((a, b) => b.length - a.length)
    if (ending.length > 0) return { text: whole.slice(0, end), shown: whole.slice(0, end - ending[0]!.length) }
  }
  return null
}

test('the text that clients see has all but the stop text, however the runs are cut', () => {
  fc.assert(
    fc.property(
      word(0, 24),
      fc.array(word(1, 4), { maxLength: 3 }),
      fc.array(fc.nat(24), { maxLength: 5 }),
      (whole, stops, cuts) => {
        const cut = cutAt(whole, stops)
        const text = cut?.text ?? whole
        const places = [0, ...cuts.map((at) => Math.min(at, text.length)).sort((a, b) => a - b), text.length]
        const answer = openAnswer(stops, null)
        const shown = places.slice(1).map((to, at) => {
          const last = at === places.length - 2
          return answer.push(run(text.slice(places[at], to), last ? (cut === null ? 'length' : 'stop') : null))
        })
        expect(shown.map((piece) => piece.text).join('')).toBe(cut?.shown ?? whole)
        expect(shown.at(-1)!.finish).toBe(cut === null ? 'length' : 'stop')
        expect(shown.map(({ stop }) => stop ?? '').join('')).toBe(cut?.text.slice(cut.shown.length) ?? '')
      },
    ),
    { numRuns: 2000 },
  )
})

test('a token that is no text of its own is shown as bytes, and counted', () => {
  const answer = openAnswer([], byteTokenizer())
  const { tokens } = answer.push(run('é', null, [0xc3, 0xa9]))
  expect(tokens.map(({ text }) => text)).toEqual(['bytes:\\xc3', 'bytes:\\xa9'])
  answer.push(run('a', 'eos', [0x61]))
  expect(answer.completionTokens).toBe(3)
})

test.each([
  ['length', 'length'],
  ['context', 'length'],
  ['eos', 'stop'],
  ['stop', 'stop'],
] as const)('%s is told as %s', (finish, told) => {
  expect(openAnswer([], null).push(run('', finish)).finish).toBe(told)
})
