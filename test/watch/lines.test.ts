import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { beginsOf, createLines, MOST_RECORD_BYTES } from '../../src/watch/lines.ts'

const read = (pieces: readonly Uint8Array[], begins?: RegExp): string[] => {
  const lines = createLines(begins)
  const records = [...pieces.flatMap((piece) => lines.push(piece)), ...lines.flush()]
  return records.map((record) => Buffer.from(record).toString('latin1'))
}

test('the records do not depend on how the stream was cut', () => {
  const part = fc.constantFrom('a', 'bc\n', '\n', '\r\n', '  at x\n', 'E: ')
  fc.assert(
    fc.property(fc.array(part), fc.array(fc.nat(40)), fc.boolean(), (parts, cuts, joins) => {
      const text = Buffer.from(parts.join(''))
      const places = [0, ...cuts.filter((cut) => cut < text.length).sort((a, b) => a - b), text.length]
      const pieces = places.slice(1).map((to, i) => text.subarray(places[i], to))
      const begins = joins ? /^\S/u : undefined
      expect(read(pieces, begins)).toEqual(read([text], begins))
    }),
  )
})

describe('lines', () => {
  test('are without their ends; what has none at the end is one too', () => {
    expect(read([Buffer.from('one\r\n\ntwo\nthree')])).toEqual(['one', '', 'two', 'three'])
  })
  test('that do not begin a record are joined to the one before', () => {
    const text = 'Error: x\n  at a\n  at b\nnext\n  more'
    expect(read([Buffer.from(text)], /^\S/u)).toEqual(['Error: x\n  at a\n  at b', 'next\n  more'])
  })
  test('that are too long are cut, and joined ones end', () => {
    const long = Buffer.alloc(MOST_RECORD_BYTES + 5, 'x')
    expect(read([long]).map(({ length }) => length)).toEqual([MOST_RECORD_BYTES, 5])
    const rows = Buffer.from(`a\n${`${'b'.repeat(1000)}\n`.repeat(2000)}`)
    const joined = read([rows], /^a/u)
    expect(joined.length).toBeGreaterThan(1)
    for (const { length } of joined) expect(length).toBeLessThanOrEqual(MOST_RECORD_BYTES)
    expect(joined.join('\n')).toBe(rows.toString('latin1').slice(0, -1))
  })
})

test('a regular expression that is none is refused', () => {
  expect(() => beginsOf('(')).toThrow('--join is "(", expected a regular expression: ')
})
