/**
 * One arithmetic for Titans, all of it at once: instruction sets × threads × chunks × batches.
 *
 * @module-tag slow
 */
import { describe, expect, it } from 'vitest'
import { judge, runExactness } from '../../../src/cli/bench/exactness.ts'
import { KIND_NAMES, KINDS, kindTensors, writeTitans } from './titans-packages.ts'

describe('exactness of Titans', () => {
  it('instruction sets, threads, chunks and batches give one chain, one set of surprisals, tokens and logits', async () => {
    const dirs = KIND_NAMES.map((kind) => writeTitans(KINDS[kind], kindTensors(kind)))
    const matrix = { threads: [1, 2, 3], chunks: [1, 7, 150], batches: [1, 4], tokens: 170 }
    const { cases, ran } = await runExactness({ dirs: dirs, matrix })
    expect(ran).toContain('generic')
    expect(cases).toHaveLength(ran.length * KIND_NAMES.length * 18)
    const verdict = judge(cases)
    expect(verdict.differing).toEqual([])
    expect(new Set(Object.values(verdict.chains)).size).toBe(KIND_NAMES.length)
  })
})
