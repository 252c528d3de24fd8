import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { createHistory, historyIn, withHistory, withoutHistory } from '../../src/state/history.ts'
import { MAX_PENALTY_LAST } from '../../topics/chunks.ts'
import { head } from './heads.ts'

/** The rule on a plain list of all that the context was fed. */
const naive = () => {
  let fed: number[] = []
  let kept = 0
  return {
    fed(ids: readonly number[], own: number) {
      fed.push(...ids)
      kept = Math.min(kept + ids.length, MAX_PENALTY_LAST + own)
    },
    end() {
      kept = Math.min(kept, MAX_PENALTY_LAST)
    },
    clear() {
      fed = []
      kept = 0
    },
    last: (count: number) => (Math.min(count, kept) === 0 ? [] : fed.slice(-Math.min(count, kept))),
  }
}

const at = (globalStep: number, origin: number) => ({
  ...head(globalStep),
  conductor: { globalStep, phase: 'stream' as const, origin },
})

const step = fc.oneof(
  { weight: 6, arbitrary: fc.record({ read: fc.array(fc.nat(300), { maxLength: 700 }) }) },
  { weight: 3, arbitrary: fc.record({ runs: fc.array(fc.array(fc.nat(300), { maxLength: 16 }), { maxLength: 90 }) }) },
  { weight: 1, arbitrary: fc.constant({ clear: true }) },
)

describe('a history', () => {
  test('has the last ids, all of a request that follows its own, and how often each was there', () => {
    fc.assert(
      fc.property(fc.array(step, { maxLength: 12 }), fc.nat(MAX_PENALTY_LAST), (steps, back) => {
        let history = createHistory()
        const model = naive()
        const same = (): void => expect([...history.last(1e9)]).toEqual(model.last(1e9))
        for (const each of steps) {
          if ('clear' in each) {
            history.clear()
            model.clear()
          } else if ('read' in each) {
            history.fed(each.read, 0)
            model.fed(each.read, 0)
          } else {
            let own = 0
            for (const [at, run] of each.runs.entries()) {
              const counts = history.tally(back + own)
              const expected = new Map<number, number>()
              for (const id of model.last(back + own)) expected.set(id, (expected.get(id) ?? 0) + 1)
              expect(new Map([...counts].sort())).toEqual(new Map([...expected].sort()))
              own += run.length
              history.fed(run, own)
              model.fed(run, own)
              same()
              // As after a crash between two runs.
              if (at % 7 === 3) history = history.copy()
            }
            history.end()
            model.end()
          }
          same()
        }
      }),
      { numRuns: 60 },
    )
  })

  test('comes back from a snapshot as it was, and leaves heads as they were', () => {
    const base = at(2000, 100)
    const history = createHistory(Int32Array.from({ length: 1500 }, (_, at) => at % 256))
    const inside = withHistory(base, history.kept())
    expect(historyIn(inside, 256).kept().recent).toBe(history.kept().recent)
    expect(withoutHistory(inside)).toEqual(base)
    expect(withHistory(base, createHistory().kept())).toBe(base)
    expect(historyIn(base, 256).kept().recent).toBe('')
  })

  test('is refused where no context can have been fed so', () => {
    const base = at(10, 7)
    const told = (ids: readonly number[]) => withHistory(base, createHistory(Int32Array.from(ids)).kept())
    expect(() => historyIn(told([1, 2, 3, 4]), 256)).toThrow(/names 4 ids .* at most 3/)
    expect(() => historyIn(told([1, 256]), 256)).toThrow(/id 256, expected 0 to 255/)
    expect(() => historyIn(told([-1]), 256)).toThrow(/id -1/)
    expect(() => historyIn({ ...base, recent: 'AAAA' }, 256)).toThrow(/0.75 ids/)
  })
})
