import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { byteTokenizer } from '../../src/models/tokenizer/index.ts'

const tokenizer = byteTokenizer()

/** Text with plenty of surrogate halves, paired and alone. */
const text = fc
  .array(fc.oneof(fc.constantFrom('\ud83d', '\ude00', '😀', 'é', 'a'), fc.string()))
  .map((parts) => parts.join(''))
const whole = (source: string): number[] => [...Buffer.from(source, 'utf8')]

describe('byte tokenizer', () => {
  it('any cut of a text gives the UTF-8 of the whole', () => {
    fc.assert(
      fc.property(text, fc.array(fc.nat(40)), (source, lengths) => {
        const ids: number[] = []
        let held = ''
        let at = 0
        for (const length of [...lengths, source.length]) {
          const pushed = tokenizer.push(held, source.slice(at, at + length))
          ids.push(...pushed.ids)
          held = pushed.held
          at += length
        }
        ids.push(...tokenizer.flush(held))
        expect(ids).toEqual(whole(source))
      }),
    )
  })

  it('half a character waits for its partner', () => {
    const first = tokenizer.push('', 'a\ud83d')
    expect([...first.ids]).toEqual([97])
    expect(first.held).toBe('\ud83d')
    expect([...tokenizer.push(first.held, '').ids]).toEqual([])
    expect([...tokenizer.push(first.held, '\ude00').ids]).toEqual([0xf0, 0x9f, 0x98, 0x80])
  })

  it('halves without a partner become EF BF BD', () => {
    expect([...tokenizer.push('', '\ude00x').ids]).toEqual([0xef, 0xbf, 0xbd, 120])
    expect([...tokenizer.push('\ud83d', 'x').ids]).toEqual([0xef, 0xbf, 0xbd, 120])
    expect([...tokenizer.flush('\ud83d')]).toEqual([0xef, 0xbf, 0xbd])
    expect([...tokenizer.flush('')]).toEqual([])
  })

  it('raw bytes pass as they are, after what was held; no bytes break nothing', () => {
    expect([...tokenizer.pushBytes('', Uint8Array.of(0, 255, 0xed, 0xa0)).ids]).toEqual([0, 255, 0xed, 0xa0])
    expect(tokenizer.pushBytes('\ud83d', Uint8Array.of(7))).toEqual({
      ids: Int32Array.of(0xef, 0xbf, 0xbd, 7),
      held: '',
    })
    expect(tokenizer.pushBytes('\ud83d', new Uint8Array(0))).toEqual({ ids: new Int32Array(0), held: '\ud83d' })
  })

  it('a token is its byte', () => {
    for (let id = 0; id < 256; id++) expect([...tokenizer.bytesOf(id)]).toEqual([id])
  })
})
