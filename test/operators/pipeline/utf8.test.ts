import fc from 'fast-check'
import { expect, test } from 'vitest'
import { decodeUtf8 } from '../../../src/operators/advance/utf8.ts'

const decodeInPieces = (bytes: Uint8Array, cuts: readonly number[]): string => {
  let text = ''
  let unfinished: Uint8Array = new Uint8Array(0)
  let at = 0
  for (const cut of [...cuts, bytes.length]) {
    const next = Math.max(at, Math.min(cut, bytes.length))
    const decoded = decodeUtf8(unfinished, bytes.subarray(at, next))
    text += decoded.text
    unfinished = decoded.unfinished
    at = next
  }
  return text
}

test('well-formed text comes out as it went in, however it is cut', () => {
  fc.assert(
    fc.property(fc.string({ unit: 'grapheme' }), fc.array(fc.nat(40)), (text, cuts) => {
      const bytes = Buffer.from(text, 'utf8')
      expect(
        decodeInPieces(
          bytes,
          cuts.sort((a, b) => a - b),
        ),
      ).toBe(text.toWellFormed())
    }),
  )
})

test('malformed bytes contribute nothing: the rest is what a strict decoder reads without them', () => {
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 40 }), fc.array(fc.nat(40)), (bytes, cuts) => {
      // The platform's decoder marks what it cannot read by U+FFFD; random bytes almost never spell EF BF BD
      // themselves.
      fc.pre(!Buffer.from(bytes).includes(Buffer.from([0xef, 0xbf, 0xbd])))
      const expected = new TextDecoder('utf-8', { ignoreBOM: true }).decode(bytes).replaceAll('\ufffd', '')
      expect(
        decodeInPieces(
          bytes,
          cuts.sort((a, b) => a - b),
        ),
      ).toBe(expected)
    }),
    { numRuns: 2000 },
  )
})

test('U+FFFD appears where its own bytes stand', () => {
  expect(decodeUtf8(new Uint8Array(0), Uint8Array.of(0xef, 0xbf, 0xbd)).text).toBe('\ufffd')
})

test('a character waits for its last byte', () => {
  const first = decodeUtf8(new Uint8Array(0), Uint8Array.of(0x41, 0xe2, 0x82))
  expect(first).toEqual({ text: 'A', unfinished: Uint8Array.of(0xe2, 0x82) })
  expect(decodeUtf8(first.unfinished, Uint8Array.of(0xac)).text).toBe('€')
})
