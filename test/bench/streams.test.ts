/**
 * The judge of readers of logs (bench/streams.ts): its measures, its references, its tables and what it plants, against
 * answers worked out by hand.
 */
import { mkdtempSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { bytesOf, firstsOf, type LogLine, parseCsv, readLog, textsOf } from '../../bench/streams/logs.ts'
import { auc, findingOf, found, median, placesOf } from '../../bench/streams/measures.ts'
import { createMaskedSet, createPairs, createTree, masked } from '../../bench/streams/miners.ts'
import { KINDS, plant } from '../../bench/streams/planting.ts'
import { outsideValues, SCORES, scoresOf } from '../../bench/streams/scores.ts'

const line = (content: string, event = content): LogLine => ({ head: '', content, event })

describe('tables', () => {
  test('keep commas, quotes and line ends that stand in quotes', () => {
    expect(parseCsv('a,b\n"x, ""y""\nz",\r\n,"",w\n')).toEqual([
      ['a', 'b'],
      ['x, "y"\nz', ''],
      ['', '', 'w'],
    ])
  })

  test('are what was written, whatever it was', () => {
    const quoted = (field: string) => `"${field.replaceAll('"', '""')}"`
    const field = fc.string({ unit: fc.constantFrom('a', '"', ',', '\n', '\r', ' ') })
    const records = fc.array(fc.array(field, { minLength: 1, maxLength: 4 }), { maxLength: 6 })
    fc.assert(
      fc.property(records, fc.constantFrom('\n', '\r\n'), (given, end) => {
        const text = given.map((record) => record.map(quoted).join(',') + end).join('')
        expect(parseCsv(text)).toEqual(given)
        expect(parseCsv(text.slice(0, -end.length))).toEqual(given)
      }),
    )
  })

  test('that are cut off within quotes, or go on behind them, are refused', () => {
    expect(() => parseCsv('a,"b')).toThrow(/The quote at character 2 has no end/)
    expect(() => parseCsv('a,"b"c\n')).toThrow(/Expected a comma or a line end behind a quote, at character 5/)
  })

  test('give lines with what stands before their messages, and first lines of templates', () => {
    const folder = mkdtempSync(join(process.env.TMPDIR!, 'logs-'))
    const rows = Array.from({ length: 1001 }, (_, i) => `${i + 1},Dec 04,,"up ${i}, ok",E${i % 7},up <*>`)
    const header = 'LineId,Date,Level,Content,EventId,EventTemplate'
    writeFileSync(join(folder, 'own.csv'), `${[header, ...rows].join('\n')}\n`)
    const { lines } = readLog(folder, 'own')
    expect(lines).toHaveLength(1001)
    expect(textsOf(lines.slice(0, 2), true)).toEqual(['Dec 04 up 0, ok', 'Dec 04 up 1, ok'])
    expect(String(bytesOf(textsOf(lines.slice(0, 2), false)))).toBe('up 0, ok\nup 1, ok\n')
    expect(firstsOf(lines).flatMap((first, i) => (first ? [i] : []))).toEqual([0, 1, 2, 3, 4, 5, 6])

    writeFileSync(join(folder, 'short.csv'), `${[header, ...rows.slice(0, 1000)].join('\n')}\n`)
    expect(() => readLog(folder, 'short')).toThrow(/has 1000 lines, expected more than 1000/)
    writeFileSync(join(folder, 'other.csv'), 'a,b\n1,2\n')
    expect(() => readLog(folder, 'other')).toThrow(/expected Content and EventId/)
  })
})

describe('the measures', () => {
  const scored = fc.array(fc.tuple(fc.integer({ min: 0, max: 6 }), fc.boolean()), { minLength: 2, maxLength: 30 })

  test('AUC is the share of pairs in which the line with the label scores higher, equal ones counting half', () => {
    expect(auc([3, 2, 1, 0], [true, true, false, false])).toBe(1)
    expect(auc([3, 2, 1, 0], [false, true, false, true])).toBe(0.25)
    expect(auc([1, 1, 1], [true, false, false])).toBe(0.5)
    expect(auc([1, 2], [false, false])).toBeNaN()
    fc.assert(
      fc.property(scored, (given) => {
        const hits = given.filter(([, label]) => label)
        const misses = given.filter(([, label]) => !label)
        const won = hits.flatMap(([a]) => misses.map(([b]) => (a > b ? 1 : a === b ? 0.5 : 0) as number))
        if (won.length === 0) return
        const expected = won.reduce((a, b) => a + b, 0) / won.length
        expect(auc(...split(given))).toBeCloseTo(expected, 12)
      }),
    )
  })

  test('what is found among the highest is a mean over the orders of equal scores', () => {
    expect(found([5, 4, 3, 2], [true, false, true, false], 2)).toBe(0.5)
    expect(found([5, 4, 3, 2], [true, false, true, false], 3)).toBe(1)
    // The second place is shared by two lines, of which one counts.
    expect(found([5, 4, 4, 2], [true, true, false, false], 2)).toBe(0.75)
    fc.assert(
      fc.property(scored, fc.nat(40), (given, count) => {
        const [scores, labels] = split(given)
        if (!labels.some(Boolean)) return
        const forward = [...given].sort(([a, x], [b, y]) => b - a || Number(y) - Number(x)).slice(0, count)
        const backward = [...given].sort(([a, x], [b, y]) => b - a || Number(x) - Number(y)).slice(0, count)
        const share = (some: typeof given) => some.filter(([, label]) => label).length / labels.filter(Boolean).length
        expect(found(scores, labels, count)).toBeLessThanOrEqual(share(forward) + 1e-12)
        expect(found(scores, labels, count)).toBeGreaterThanOrEqual(share(backward) - 1e-12)
      }),
    )
  })

  test('places go from 0, the highest score, and equal scores share the middle of theirs', () => {
    expect(placesOf([1, 9, 5, 5])).toEqual([0.75, 0, 0.375, 0.375])
    expect(median([3, 1, 2])).toBe(2)
  })

  test('alarms have a precision and a recall', () => {
    const labels = [true, true, true, false, false]
    expect(findingOf([true, true, false, true, false], labels)).toEqual({ precision: 2 / 3, recall: 2 / 3, f1: 2 / 3 })
    expect(findingOf([false, false, false, false, false], labels)).toEqual({ precision: 0, recall: 0, f1: 0 })
  })
})

const split = (given: readonly (readonly [number, boolean])[]) =>
  [given.map(([score]) => score), given.map(([, label]) => label)] as const

describe('what people use', () => {
  test('a mask stands for each word with a digit', () => {
    expect(masked('  child 6725 of\tworker-1 (x=7) ok')).toBe('child <*> of <*> <*> ok')
    const isNew = createMaskedSet()
    expect(['up 1', 'up 2', 'down 1', 'up x'].map(isNew)).toEqual([true, false, true, true])
  })

  test('pairs of words that were never seen are counted with the ends of the line', () => {
    const share = createPairs()
    expect(['up 1', 'up 2', 'up', 'up 3 up'].map(share)).toEqual([1, 0, 1 / 2, 1 / 4])
  })

  test('a template tree joins lines of one length and beginning that are equal in half of their words', () => {
    const isNew = createTree()
    const lines = [
      ['send block a to north', true],
      // Equal in three of five words; then the template is: send block <*> to <*>.
      ['send block b to south', false],
      ['send block c to west', false],
      // Two of five: the template has forgotten a and north.
      ['send block a from north', true],
      ['send block c', true],
      // Another beginning, and a beginning with a digit in it, which is that of all of these.
      ['drop block c from west', true],
      ['send 1 at once', true],
      ['send 22 at once', false],
      // Two of four are enough.
      ['wait for one minute', true],
      ['wait for two hours', false],
      // The second word chooses the leaf, the third does not.
      ['read the big file from disk', true],
      ['read the old file from disk', false],
      ['read a big file from disk', true],
    ] as const
    expect(lines.map(([text]) => isNew(text))).toEqual(lines.map(([, expected]) => expected))
  })

  test('a node of the tree that is full leads what is new there to one child', () => {
    const isNew = createTree({ depth: 4, similarity: 0.5, children: 3 })
    // Two children of their own; then all beginnings are one.
    expect(['a x y z', 'b x y z', 'c x y z', 'd x y z', 'a x y z'].map(isNew)).toEqual([true, true, true, false, false])
  })
})

describe('scores of a line by its bits', () => {
  const bytes = Buffer.from('to 10 x1 a\n')
  const bits = Float64Array.from([1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024])

  test('leave out the bytes of words with a digit, and only these', () => {
    expect([...outsideValues(bits, bytes)]).toEqual([1, 2, 4, 32, 256, 512, 1024])
  })

  test('take eight bytes at most, and each line by itself', () => {
    const [all, eight, outside, eightOutside] = scoresOf(
      [11, 2],
      Buffer.concat([bytes, Buffer.from('b\n')]),
      Float64Array.of(...bits, 7, 1),
    )
    expect(SCORES).toHaveLength(4)
    expect(all).toEqual([2047, 8])
    expect(eight).toEqual([2040, 8])
    expect(outside).toEqual([1831, 8])
    expect(eightOutside).toEqual([1831, 8])
  })
})

describe('planted lines', () => {
  const log = Array.from({ length: 1200 }, (_, i) => line(`task ${i % 9} done in ${(i * 7) % 40} seconds`))

  test('are the same for one seed and others for another', () => {
    expect(plant(log, 3)).toEqual(plant(log, 3))
    expect(plant(log, 3).marks).not.toEqual(plant(log, 4).marks)
  })

  test('stand where they are said to, behind line 800, in a log that is else as it was', () => {
    const { lines, marks } = plant(log, 1)
    const counts = KINDS.map((kind) => marks.filter((mark) => mark.kind === kind).length)
    expect(counts).toEqual([5, 5, 5, 5, 1])
    expect(lines).toHaveLength(1200 + 20 + 40)
    const original = new Set(log.map(({ content }) => content))
    for (const { at, kind } of marks) {
      expect(at).toBeGreaterThanOrEqual(800)
      const { content } = lines[at]!
      expect(original.has(content), content).toBe(kind === 'burst')
      if (kind === 'number') expect(Math.max(...content.match(/\d+/g)!.map(Number))).toBeGreaterThanOrEqual(1000)
      if (kind === 'order') expect(content).toMatch(/^in \d+ seconds task \d+ done$|^done in \d+ seconds task \d+$/)
      if (kind === 'burst')
        expect(new Set(lines.slice(at - 9, at + 31).map((each) => each.content))).toEqual(new Set([content]))
    }
    const planted = new Set(marks.filter(({ kind }) => kind !== 'burst').map(({ at }) => at))
    const burst = marks.find(({ kind }) => kind === 'burst')!.at - 9
    const rest = lines.filter((_, i) => !planted.has(i) && (i < burst || i >= burst + 40))
    expect(rest).toEqual(log)
  })

  test('of a kind that no line can have are left out', () => {
    const kinds = plant(
      Array.from({ length: 1200 }, () => line('...')),
      1,
    ).marks.map(({ kind }) => kind)
    expect(new Set(kinds)).toEqual(new Set(['structure', 'burst']))
  })
})
