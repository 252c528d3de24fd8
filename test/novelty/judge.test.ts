import { describe, expect, test } from 'vitest'
import { createReader, createWriter } from '../../src/novelty/bytes.ts'
import { createJudge, MARK, type Novelty } from '../../src/novelty/judge.ts'
import { standsOut } from '../../src/novelty/stands-out.ts'

const judgeAll = (lines: readonly string[], bitsOf: (line: string) => number = () => 0.1): Novelty[] => {
  const { judge } = createJudge()
  return lines.map((line, at) => {
    const bytes = Buffer.from(line)
    return judge(bytes, new Float64Array(bytes.length).fill(bitsOf(line)), at)
  })
}
const steady = (count: number): string[] =>
  Array.from({ length: count }, (_, i) => `worker ${i % 7} took ${90 + (i % 20)} ms`)

describe('a line', () => {
  test('has a pattern, and is counted among those of its pattern', () => {
    const judged = judgeAll(['user ann2 came  in', 'user bob9 came in', 'user ann came in'])
    expect(judged.map(({ pattern, seen, first, last }) => [pattern(), seen, first, last])).toEqual([
      [`user ${MARK} came in`, 0, null, null],
      [`user ${MARK} came in`, 1, 0, 0],
      ['user ann came in', 0, null, null],
    ])
  })

  test('is not ranked before a hundred others', () => {
    const judged = judgeAll(steady(101))
    expect(judged.slice(0, 100).every(({ structure, values }) => structure.rank === null && values.rank === null)).toBe(
      true,
    )
    expect(judged[100]!.structure.rank).not.toBeNull()
  })

  test('of a new kind stands out by its structure alone', () => {
    const lines = [...steady(400), 'the ledger is out of balance']
    const { structure, values } = judgeAll(lines, (line) => (line.startsWith('the') ? 5 : 0.1)).at(-1)!
    expect(structure.rank).toBe(1)
    expect(structure.score).toBeGreaterThan(30)
    expect(values.score).toBe(0)
  })

  test('that costs much in words with digits alone does not stand out by its structure', () => {
    const { judge } = createJudge()
    const scores = steady(300).map((line, i) => {
      const bytes = Buffer.from(line)
      const bits = Float64Array.from(bytes, (byte) => (byte >= 0x30 && byte <= 0x39 && i === 299 ? 9 : 0.1))
      return judge(bytes, bits, i).structure
    })
    expect(scores.at(-1)!.score).toBe(scores.at(-2)!.score)
  })

  test.each([
    ['a thousand times larger', 'worker 3 took 95000 ms', 1, 3],
    ['far smaller', 'worker 3 took 0 ms', 1, 3],
    ['of the usual size', 'worker 3 took 101 ms', 0, 0],
  ])('with a number %s', (_, line, rank, least) => {
    const { values } = judgeAll([...steady(400), line]).at(-1)!
    expect(values.score).toBeGreaterThanOrEqual(least)
    if (least === 0) expect(values.score).toBe(0)
    expect(values.rank).toBeGreaterThanOrEqual(rank === 1 ? 0.99 : 0)
  })

  test('of a known kind but for one word stands out by that word where it was always the same, and not where it always differs', () => {
    const names = Array.from({ length: 450 }, (_, i) =>
      String.fromCharCode(97 + (i % 26), 97 + (Math.floor(i / 26) % 26)),
    )
    const lines = names.map((name) => `user ${name}x came in`)
    const judged = judgeAll([...lines, 'user zzx went in', 'user qqx came in'])
    const [went, came] = [judged.at(-2)!, judged.at(-1)!]
    expect(went.values.score).toBeLessThan(3)
    expect(came.values.score).toBeLessThan(3)
    const known = judgeAll([...steady(400), 'worker 3 lost 95 ms', 'worker 3 lost 96 ms'])
    expect(standsOut(known.at(-2)!, 0.005)).toContain('values')
    expect(known.at(-1)!.values.score).toBe(0)
  })

  test.each([
    ['before a number', (i: number) => `sent to node-${i}:9000`, 'sent to harbour-7:9000', true],
    ['in a path', (i: number) => `wrote /srv/data/part${i}.log in time`, 'wrote /srv/attic/part7.log in time', true],
    // Of two letters alone, as parts of numbers in base 16 are.
    ['that is short', (i: number) => `at 0x${i}ab`, 'at 0x17cd', false],
    ['where a run was once more', (i: number) => `sent to node-${i}:9000`, 'sent to node-17:9000', false],
    // Each of its lines has another run, so one more is no news.
    [
      'where runs vary',
      (i: number) => `user ${String.fromCharCode(97 + (i % 26), 97 + Math.floor(i / 26), 120)}${i} came in`,
      'user qxz7 came in',
      false,
    ],
  ])('with a run of letters %s in a word with digits stands out by it where it is new', (_, line, odd, found) => {
    const judged = judgeAll([...steady(300), ...Array.from({ length: 200 }, (_, i) => line(i)), odd, odd])
    const [first, again] = [judged.at(-2)!, judged.at(-1)!]
    expect(standsOut(first, 0.005).includes('values')).toBe(found)
    if (found) expect(first.values.score).toBeGreaterThan(7)
    expect(again.values.score).toBeLessThan(3)
  })

  test('that is judged behind what was written down is judged alike', () => {
    const lines = Array.from({ length: 300 }, (_, i) => `wrote /srv/data${i % 3}/part${i}.log to node-${i}:9000`)
    const more = ['wrote /srv/attic1/part7.log to node-3:9000', 'wrote /srv/data1/part7.log to harbour-3:9000']
    const whole = judgeAll([...lines, ...more]).slice(300)
    const first = createJudge()
    for (const [at, line] of lines.entries())
      first.judge(Buffer.from(line), new Float64Array(line.length).fill(0.1), at)
    const written = createWriter()
    first.write(written)
    const { judge } = createJudge(createReader(written.done()))
    const behind = more.map((line, i) => judge(Buffer.from(line), new Float64Array(line.length).fill(0.1), 300 + i))
    expect(behind.map(({ values }) => values)).toEqual(whole.map(({ values }) => values))
    expect(whole.every(({ values }) => values.score > 7)).toBe(true)
  })

  test('whose words are known, and their order is not, stands out by its structure', () => {
    const lines = Array.from(
      { length: 400 },
      (_, i) => `job ${i} of queue ${['north', 'south'][i % 2]} was done in time`,
    )
    const judged = judgeAll([...lines, `was done in time job 17 of queue north`], () => 0.5)
    expect(standsOut(judged.at(-1)!, 0.005)).toEqual(['structure'])
    expect(judged.at(-1)!.structure.score).toBeGreaterThan(4 * judged.at(-2)!.structure.score)
  })

  test.each([
    ['the same line over and over', () => 'disk full', true],
    ['the same line but for its time', (i: number) => `12:00:${i + 10} 1789 disk full`, true],
    ['lines of one kind with other numbers', (i: number) => `the disk of host ${i} is full`, false],
  ])('is of a burst, or not: %s', (_, line, burst) => {
    const judged = judgeAll([...steady(400), ...Array.from({ length: 40 }, (_, i) => line(i))]).slice(400)
    expect(judged.slice(0, 12).map(({ rate }) => rate.score)).toEqual(
      burst ? [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 9, 9] : new Array(12).fill(0),
    )
    const tenth = standsOut(judged[9]!, 0.005)
    expect(tenth.includes('rate')).toBe(burst)
  })

  test('that the stream repeats all the time does not stand out by its rate', () => {
    const judged = judgeAll(new Array(400).fill('still here'))
    expect(judged.at(-1)!.rate.score).toBe(9)
    expect(judged.slice(200).some((line) => standsOut(line, 0.005).includes('rate'))).toBe(false)
  })

  test('says which of its words cost most', () => {
    const { judge } = createJudge()
    const line = Buffer.from('link eth7 flapped twice')
    const bits = Float64Array.from(line, (_, i) => (i < 4 ? 0 : i < 9 ? 3 : i < 17 ? 1 : 0.1))
    expect(judge(line, bits, 0).words()).toEqual([
      { word: 'eth7', bits: 12 },
      { word: 'flapped', bits: 7 },
    ])
  })
})

test('numbers of any length, and lines of any bytes, are judged', () => {
  const lines = ['9'.repeat(400), `a ${'1 '.repeat(300)}`, '\u0000\uffff 7', '', ' ', '0 00 000']
  for (const { values, structure } of judgeAll([
    ...lines,
    ...lines,
    ...lines,
    ...lines,
    ...lines,
    ...lines,
    ...lines,
  ])) {
    expect(Number.isFinite(values.score)).toBe(true)
    expect(Number.isFinite(structure.score)).toBe(true)
  }
})

test('memory is bounded: patterns that were longest unused are forgotten', () => {
  const { judge } = createJudge()
  const ask = (line: string): number => judge(Buffer.from(line), new Float64Array(line.length), 0).seen
  const letters = (i: number): string => [...String(i)].map((digit) => 'abcdefghij'[Number(digit)]).join('')
  ask('first of all')
  for (let i = 0; i < 1000; i += 1) ask(`pattern ${letters(i)}`)
  expect(ask('first of all')).toBe(1)
  for (let i = 0; i < 20_000; i += 1) ask(`other ${letters(i)}`)
  expect(ask('first of all')).toBe(0)
})
