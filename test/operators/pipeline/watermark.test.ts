import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { createWatermark, type Position } from '../../../src/streams/watermark.ts'

describe('watermark', () => {
  test('the position is below every unfinished record and remembers what is finished beyond it', () => {
    const mark = createWatermark({ offset: 0, done: [] })
    for (const offset of [0, 1, 3, 4, 6]) mark.begin(offset)
    mark.finish(0)
    mark.finish(3)
    mark.finish(4)
    // No record has the offsets 2 and 5.
    expect(mark.position()).toEqual({ offset: 1, done: [[2, 6]] })
    expect(mark.load).toEqual({ records: 2, ranges: 1 })
    mark.finish(1)
    expect(mark.position()).toEqual({ offset: 6, done: [] })
    mark.finish(6)
    mark.reach(9)
    expect(mark.position()).toEqual({ offset: 9, done: [] })
  })

  test('finished ranges of the former owner survive until they are passed', () => {
    const mark = createWatermark({
      offset: 5,
      done: [
        [7, 9],
        [12, 13],
      ],
    })
    mark.begin(5)
    expect(mark.position()).toEqual({
      offset: 5,
      done: [
        [7, 9],
        [12, 13],
      ],
    })
    expect(mark.wasDone(8)).toBe(true)
    mark.begin(7)
    mark.begin(8)
    mark.begin(9)
    mark.finish(5)
    expect(mark.position()).toEqual({ offset: 9, done: [[12, 13]] })
  })

  test('a record is neither delivered backwards nor finished twice', () => {
    const mark = createWatermark({ offset: 3, done: [] })
    expect(() => mark.begin(2)).toThrow(RangeError)
    mark.begin(3)
    mark.finish(3)
    expect(() => mark.finish(3)).toThrow(RangeError)
  })

  test('after any crash every record is handled exactly once', () => {
    const run = fc.record({
      gaps: fc.array(fc.integer({ min: 1, max: 3 }), { minLength: 1, maxLength: 60 }),
      choices: fc.array(fc.tuple(fc.nat(), fc.constantFrom('begin', 'finish', 'crash')), { maxLength: 300 }),
    })
    fc.assert(
      fc.property(run, ({ gaps, choices }) => {
        let sum = 0
        const offsets = gaps.map((gap) => (sum += gap))
        const handled = new Map<number, number>()
        // What a crash leaves: the last position, and what was finished when it was taken.
        let position: Position = { offset: 0, done: [] }
        let committed = new Set<number>()
        let mark = createWatermark(position)
        let at = 0
        let working: number[] = []
        let finished = new Set<number>()
        for (const [pick, act] of choices) {
          if (act === 'begin' && at < offsets.length) {
            const offset = offsets[at++]!
            if (offset < position.offset) continue
            mark.begin(offset)
            if (!mark.wasDone(offset)) working.push(offset)
          } else if (act === 'finish' && working.length > 0) {
            const [offset] = working.splice(pick % working.length, 1)
            mark.finish(offset!)
            finished.add(offset!)
            position = mark.position()
            committed = new Set([...committed, ...finished])
            finished = new Set()
            handled.set(offset!, (handled.get(offset!) ?? 0) + 1)
          } else if (act === 'crash') {
            mark = createWatermark(position)
            working = []
            at = 0
          }
        }
        for (const offset of offsets) {
          const covered = offset < position.offset || position.done.some(([from, to]) => offset >= from && offset < to)
          expect(covered).toBe(committed.has(offset))
          expect(handled.get(offset) ?? 0).toBe(committed.has(offset) ? 1 : 0)
        }
      }),
    )
  })
})
