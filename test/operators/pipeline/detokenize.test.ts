import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { createDetokenizer, NO_TEXT } from '../../../src/operators/advance/detokenize.ts'

/**
 * Tokens until a stop string ends, a new detokenizer after every `slice` tokens, as a request passes through its runs.
 */
const generate = (tokens: readonly Uint8Array[], stops: readonly string[], slice: number) => {
  let state = NO_TEXT
  let text = ''
  let used = 0
  let stopped = false
  while (used < tokens.length && !stopped) {
    const detokenizer = createDetokenizer(state, stops)
    for (const token of tokens.slice(used, used + slice)) {
      used += 1
      stopped = detokenizer.push(token)
      if (stopped) break
    }
    const told = detokenizer.end()
    text += told.text
    // Through JSON, as the head does.
    state = JSON.parse(JSON.stringify(told.state)) as typeof state
  }
  return { text, used, stopped }
}

const letters = fc.string({ unit: fc.constantFrom('a', 'b', 'é', '🌊'), maxLength: 4 })

describe('detokenize', () => {
  test('the text ends with the stop string that ends first, wherever tokens and runs are cut', () => {
    const stop = fc.string({ unit: fc.constantFrom('a', 'b', 'é', '🌊'), minLength: 1, maxLength: 4 })
    fc.assert(
      fc.property(
        fc.array(letters, { maxLength: 12 }),
        fc.array(stop, { maxLength: 3 }),
        fc.integer({ min: 1, max: 5 }),
        fc.array(fc.nat(6)),
        (parts, stops, slice, cuts) => {
          const whole = parts.join('')
          const bytes = Buffer.from(whole)
          // Tokens are cut anywhere, also inside characters; some are empty, as special tokens are.
          const tokens: Uint8Array[] = []
          let at = 0
          for (const cut of cuts) {
            tokens.push(bytes.subarray(at, at + cut))
            at = Math.min(bytes.length, at + cut)
          }
          tokens.push(bytes.subarray(at))
          const ends = stops.filter((each) => whole.includes(each)).map((each) => whole.indexOf(each) + each.length)
          const end = Math.min(...ends)
          const expected = ends.length === 0 ? whole : whole.slice(0, end)
          const got = generate(tokens, stops, slice)
          expect(got.text).toBe(expected)
          expect(got.stopped).toBe(ends.length > 0)
          if (got.stopped) {
            // Not one token more than it takes.
            const before = Buffer.concat(tokens.slice(0, got.used - 1)).length
            expect(before).toBeLessThan(Buffer.byteLength(expected))
          }
        },
      ),
      { numRuns: 2000 },
    )
  })

  test('a stop string that ends inside a token ends the text there', () => {
    const tokens = ['Hel', 'lo wor', 'ld. And', ' more'].map((token) => Buffer.from(token))
    expect(generate(tokens, ['.'], 16)).toEqual({ text: 'Hello world.', used: 3, stopped: true })
    expect(generate(tokens, ['world', 'lo w'], 1)).toEqual({ text: 'Hello w', used: 2, stopped: true })
    expect(generate(tokens, ['xyz'], 2)).toEqual({ text: 'Hello world. And more', used: 4, stopped: false })
  })
})
