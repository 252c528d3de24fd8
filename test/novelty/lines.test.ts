/**
 * The judge of a session's lines: what it remembers goes on where it was written down, and no other bytes are believed.
 */
import { describe, expect, test } from 'vitest'
import { Unreadable } from '../../src/novelty/bytes.ts'
import { createLineJudge, type LineJudge } from '../../src/novelty/lines.ts'
import { type LineNovelty, lineNovelty } from '../../topics/novelty.ts'
import { random } from '../engine/packages.ts'

const next = random(7)
const whole = (most: number): number => Math.floor(next() * most)
const WORDS = ['tide', 'gauge', 'lamp', 'berth', 'é', '\u0007', '"', '…', 'crane']
const line = (i: number): string =>
  Array.from({ length: 1 + whole(9) }, () =>
    next() < 0.4 ? String(whole(10 ** (1 + (i % 12)))) : WORDS[whole(WORDS.length)],
  ).join(' ')
const text = Buffer.from(Array.from({ length: 700 }, (_, i) => `${line(i)}${i % 5 === 0 ? '\r\n' : '\n'}`).join(''))
const nats = Float32Array.from(text, (_, at) => (at === 0 ? Number.NaN : -Math.log(1 - next() ** 4)))

/** The lines that a token ends. */
const token = (judge: LineJudge, bytes: Uint8Array, nats: number, pulse: number): readonly LineNovelty[] => {
  const told: LineNovelty[] = []
  judge.token(bytes, nats, pulse, told)
  return told
}
const read = (judge: LineJudge, from: number, to: number): readonly LineNovelty[] => {
  const told: LineNovelty[] = []
  for (let at = from; at < to; at += 1) judge.token(text.subarray(at, at + 1), nats[at]!, at, told)
  return told
}

describe('what a session remembers of its lines', () => {
  test('goes on wherever it was written down, in the middle of a line too, and a copy goes on by itself', () => {
    const judge = createLineJudge()
    const all = read(judge, 0, text.length)
    expect(all.length).toBe(700)
    for (const one of all) expect(lineNovelty.safeParse(one).success).toBe(true)
    expect(all.some(({ text }) => text !== undefined)).toBe(true)
    for (const cut of [0, 1, 77, 5000, text.length - 3, text.length]) {
      const first = createLineJudge()
      const told = read(first, 0, cut)
      const copy = first.copy()
      const later = createLineJudge(first.state())
      const rest = read(later, cut, text.length)
      expect([...told, ...rest]).toEqual(all)
      expect(Buffer.from(later.state()).equals(judge.state())).toBe(true)
      // The copy has seen none of it.
      expect(Buffer.from(copy.state()).equals(first.state())).toBe(true)
      expect(read(copy, cut, text.length)).toEqual(rest)
    }
  })

  test('is bounded whatever is read', { tags: 'slow' }, () => {
    const judge = createLineJudge()
    for (let i = 0; i < 30_000; i += 1)
      token(judge, Buffer.from(`${i} ${whole(2 ** 40).toString(36)} ${whole(2 ** 40).toString(36)}\n`), 1, i)
    token(judge, Buffer.alloc(1 << 20, 'x'), 1, 30_000)
    expect(judge.state().length).toBeLessThan(500_000)
    const [last] = judge.end(30_001)
    expect(last).toMatchObject({ bytes: 1 << 20, fromPulse: 30_000, toPulse: 30_001 })
    expect(judge.end(30_001)).toEqual([])
  })

  test('of bytes that cost as much as anything can is told in numbers', () => {
    const judge = createLineJudge()
    const told = Array.from({ length: 130 }, (_, i) =>
      token(judge, Buffer.from(`what ${'abc'.repeat(i % 9)}\n`), 6.8e38, i),
    ).flat()
    for (const one of told) expect(lineNovelty.safeParse(one).error).toBeUndefined()
  })

  test('records of several lines are told when the next one has begun, wherever the text was cut', () => {
    const begins = (bytes: Uint8Array): boolean => bytes[0] === 0x3e
    const stack = Buffer.from(
      Array.from(
        { length: 450 },
        (_, i) => `${i % 3 === 0 ? '> ' : '  at '}${line(i)}${i % 5 === 0 ? '\r\n' : '\n'}`,
      ).join(''),
    )
    const all = (state: (judge: LineJudge, at: number) => LineJudge): readonly LineNovelty[] => {
      let judge = createLineJudge()
      const told: LineNovelty[] = []
      for (let at = 0; at < stack.length; at += 1) {
        judge.token(stack.subarray(at, at + 1), 0.5, at, told, begins)
        judge = state(judge, at)
      }
      return [...told, ...judge.end(stack.length, begins)]
    }
    const told = all((judge) => judge)
    const records = stack.toString().split(/^(?=> )/m)
    expect(told.map(({ bytes }) => bytes)).toEqual(records.map((record) => Buffer.byteLength(record) - 1))
    const place = [0]
    for (const record of records) place.push(place.at(-1)! + Buffer.byteLength(record))
    expect(told.map(({ fromPulse, toPulse }) => [fromPulse, toPulse])).toEqual(
      records.map((_, i) => [place[i], place[i + 1]]),
    )
    for (const one of told) {
      expect(lineNovelty.safeParse(one).error).toBeUndefined()
      expect(one.bits).toBeCloseTo((one.bytes * 0.5) / Math.LN2, 2)
    }
    expect(told.some(({ text }) => text?.includes('\n  at '))).toBe(true)
    expect(all((judge, at) => (at % 97 === 0 ? createLineJudge(judge.state()) : judge))).toEqual(told)
  })

  test('a record that nothing ends is told of before it is very long', () => {
    const judge = createLineJudge()
    const told: LineNovelty[] = []
    const long = Buffer.from(`${'x'.repeat(65_535)}\n`)
    for (let i = 0; i < 40; i += 1) judge.token(long, 1, i, told, () => false)
    expect(told.map(({ bytes }) => bytes)).toEqual([65_536 * 16 - 1, 65_536 * 16 - 1])
  })

  test('records that are joined no longer end with the next line', () => {
    const judge = createLineJudge()
    const told: LineNovelty[] = []
    judge.token(Buffer.from('a\n'), 1, 0, told, () => true)
    expect(told).toEqual([])
    judge.token(Buffer.from('b\n'), 1, 1, told)
    judge.token(Buffer.from('c\n'), 1, 2, told)
    expect(told.map(({ bytes, line }) => [line, bytes])).toEqual([
      [1, 3],
      [2, 1],
    ])
  })

  test('a token that ends several lines ends one', () => {
    const judge = createLineJudge()
    const told = token(judge, Buffer.from('a\nb\n\nc'), 1, 0)
    expect(told.map(({ bytes }) => bytes)).toEqual([1])
    expect(token(judge, Buffer.from('\n'), 1, 1).map(({ bytes, fromPulse }) => [bytes, fromPulse])).toEqual([[4, 0]])
  })

  test('is refused where it is cut, and whatever else is in it, what follows is numbers', { tags: 'slow' }, () => {
    const judge = createLineJudge()
    read(judge, 0, 9000)
    const state = judge.state()
    for (const length of [0, 3, 4, 40, 1000, state.length - 1])
      expect(() => createLineJudge(state.subarray(0, length))).toThrow(Unreadable)
    expect(() => createLineJudge(Buffer.concat([state, Buffer.of(0)]))).toThrow('has 1 bytes too many')
    let opened = 0
    for (let n = 0; n < 300; n += 1) {
      const other = state.slice()
      // Numbers that are large, negative or none, and single bits.
      if (n % 2 === 0) other[whole(other.length)]! ^= 1 << whole(8)
      else
        new DataView(other.buffer).setUint32(
          4 * whole(other.length / 4),
          [0xffffffff, 0x7f800000, 0xff7fffff, 0][n % 4]!,
          true,
        )
      try {
        const forged = createLineJudge(other)
        opened += 1
        for (const one of read(forged, 9000, 9600)) expect(lineNovelty.safeParse(one).error).toBeUndefined()
        createLineJudge(forged.state())
      } catch (error) {
        expect(error).toBeInstanceOf(Unreadable)
      }
    }
    expect(opened).toBeGreaterThan(50)
  })
})
