/**
 * A short run of the fuzzers: the corpus, and a few new cases of each kind. test/fuzz/run.ts makes long ones.
 *
 * @module-tag slow
 */
import { join } from 'node:path'
import { expect, test, vi } from 'vitest'
import { kindNames } from './corpus.ts'
import { fuzz } from './runner.ts'

// A process of its own for each kind, and of some again behind each finding: on a busy machine that takes its time.
vi.setConfig({ testTimeout: 900_000 })

const limits = { seconds: 30, bytes: 1.5e9, keeps: false }

test.each(kindNames())('%s: the corpus and some new cases end as results or refusals with a sentence', async (kind) => {
  const { findings, ends, replayed, made } = await fuzz({ ...limits, kind, count: 10, seed: 5 })
  expect(findings).toEqual([])
  expect([...ends.values()].reduce((sum, times) => sum + times, 0)).toBe(replayed + made)
})

test('an error of another sort, a signal, endless work, too much memory and a refusal without a sentence are findings', async () => {
  const kind = join(import.meta.dirname, 'broken.ts')
  // Memory that the system hands out slowly is time of the processor too: it has taken the bytes long before the
  // seconds.
  const { findings, ends } = await fuzz({ ...limits, kind, count: 8, seed: 0, seconds: 5, bytes: 2e8 })
  expect(findings.map(({ base, what }) => `${base}: ${what}`)).toEqual([
    expect.stringMatching(/^plain-error: SyntaxError/),
    expect.stringMatching(/^killed: ended its process: SIGSEGV/),
    expect.stringMatching(/^endless: worked for more than 5 s/),
    expect.stringMatching(/^memory: took \d+ MB/),
    expect.stringMatching(/^internal: ContinuoError: A sentence/),
    expect.stringMatching(/^no-sentence: INVALID, but no sentence: undefined/),
  ])
  expect([...ends]).toEqual([
    ['fine', 1],
    ['INVALID', 1],
  ])
})
