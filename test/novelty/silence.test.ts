import { describe, expect, test } from 'vitest'
import { createReader, createWriter, Unreadable } from '../../src/novelty/bytes.ts'
import { createJudge, MARK, type Novelty, type NoveltyJudge } from '../../src/novelty/judge.ts'
import { createSilences } from '../../src/novelty/silence.ts'
import { standsOut } from '../../src/novelty/stands-out.ts'

const judgeAll = (lines: readonly string[], judge: NoveltyJudge = createJudge(), from = 0): Novelty[] =>
  lines.map((line, at) => {
    const bytes = Buffer.from(line)
    return judge.judge(bytes, new Float64Array(bytes.length).fill(0.1), from + at)
  })

const others = (count: number): string[] => Array.from({ length: count }, (_, i) => `worker ${i % 7} took ${90 + i} ms`)

/** `count` lines, one of `every` a heartbeat, in turn a line sooner, up to line `end`. */
const withHeartbeat = (count: number, every: number, end: number): string[] => {
  const lines = others(count)
  for (let n = 1; n * every < end; n += 1) lines[n * every - (n % 2)] = `heartbeat ${n} of node`
  return lines
}

const toldOf = (judged: readonly Novelty[]) =>
  judged.flatMap(({ silence }, at) => (silence.score > 0 ? [{ at, kinds: silence.kinds }] : []))

describe('a kind of line that came again and again, and then does not', () => {
  test.each([10, 20, 60])('of one in %i lines is missed within four times as many, once', (every) => {
    const judged = judgeAll(withHeartbeat(3000, every, 2000))
    const told = toldOf(judged)
    expect(told).toHaveLength(1)
    const { at, kinds } = told[0]!
    expect(at).toBeGreaterThan(2000)
    expect(at).toBeLessThan(2000 + 4 * every)
    expect(kinds).toHaveLength(1)
    const { pattern, lines, last } = kinds[0]!
    expect(pattern).toBe(`heartbeat ${MARK} of node`)
    expect(at - lines).toBe(last)
    expect(Math.abs(kinds[0]!.every - every)).toBeLessThanOrEqual(2)
    expect(standsOut(judged[at]!, 0.005)).toContain('silence')
    expect(judged.filter((line) => standsOut(line, 0.005).includes('silence'))).toHaveLength(1)
  })

  test('is missed again when it came back and stops again', () => {
    const lines = [...withHeartbeat(1000, 10, 800), ...withHeartbeat(1000, 10, 500)]
    expect(toldOf(judgeAll(lines)).map(({ at }) => Math.floor(at / 1000))).toEqual([0, 1])
  })

  test.each([
    ['came too seldom', withHeartbeat(1400, 100, 1000)],
    ['came in one burst', [...others(500), ...new Array(200).fill('the disk is full'), ...others(1500)]],
    ['comes now and then', others(4000).map((line, i) => (Math.sqrt(i) % 1 === 0 ? 'a square' : line))],
    ['goes on', withHeartbeat(3000, 10, 3000)],
  ])('is not one that %s', (_, lines) => {
    expect(toldOf(judgeAll(lines))).toEqual([])
  })

  test('is told with others that stop with it, three at most', () => {
    const beats = (i: number): string => `${'abcdefgh'[i % 8]!.repeat(3)} is alive`
    const lines = others(1200).map((line, i) => (i < 800 && i % 2 === 0 ? beats(i / 2) : line))
    const told = toldOf(judgeAll(lines)).flatMap(({ kinds }) => kinds)
    expect(told.length).toBeGreaterThan(3)
    expect(new Set(told.map(({ pattern }) => pattern)).size).toBe(told.length)
  })
})

test('a judge that was written down and read again goes on as the one that was not', () => {
  const lines = [...withHeartbeat(900, 10, 700), ...withHeartbeat(700, 10, 400)]
  const whole = judgeAll(lines).map(({ silence }) => silence)
  expect(whole.filter(({ score }) => score > 0).length).toBeGreaterThan(1)
  for (const each of [7, 333]) {
    let judge = createJudge()
    const cut = Array.from({ length: Math.ceil(lines.length / each) }, (_, i) => {
      const to = createWriter()
      judge.write(to)
      judge = createJudge(createReader(to.done()))
      return judgeAll(lines.slice(i * each, (i + 1) * each), judge, i * each)
    })
    expect(cut.flat().map(({ silence }) => silence)).toEqual(whole)
  }
})

test('what is remembered is bounded, whatever comes', () => {
  const silences = createSilences()
  const read = (word: string): number => {
    for (let i = 0; i < 40_000; i += 1) {
      const text = `${word} ${i % 2000} ${'x'.repeat(200)}`
      silences.line(i % 2000, word.length, Math.floor(i / 2000), i, () => text)
    }
    const to = createWriter()
    silences.write(to)
    return to.done().length
  }
  const size = read('a')
  expect(size).toBeLessThan(512 * 200)
  expect(read('bb')).toBeLessThanOrEqual(size + 2000)
})

test('bytes that are no such state are refused', () => {
  const judge = createJudge()
  judgeAll(withHeartbeat(600, 10, 600), judge)
  const to = createWriter()
  judge.write(to)
  const state = to.done()
  for (const cut of [1, 9, 60]) expect(() => createJudge(createReader(state.subarray(0, -cut)))).toThrow(Unreadable)
})
