/**
 * What a graph means is one row after the other with memory of its own for every value; however rows are cut into
 * steps, memory is planned and threads share the work, the result is that.
 */

import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { openGraph } from '../../src/engine/engine.ts'
import { planGraph } from '../../src/engine/plan.ts'
import { inBothTiers } from '../rounds.ts'
import { cutsOf, graphOf, hasSegments, outcome, rowsOf, weightsPath } from './random-graphs.ts'

describe('random graphs', () => {
  for (const { rounds, says, options } of inBothTiers(300))
    it(`mean the same however they are run, ${says}`, { ...options, timeout: 300_000 }, async () => {
      const path = weightsPath()
      const seen = { row_serial: 0, row_local: 0, row_parallel: 0, refused: 0, done: 0 }
      await fc.assert(
        fc.asyncProperty(fc.integer({ min: 0, max: 1e9 }), rowsOf, cutsOf, async (seed, rows, cuts) => {
          const graph = graphOf(seed)
          for (const { order } of planGraph(graph)[0]!.stages) seen[order] += 1
          const [one, two] = await Promise.all([
            openGraph(graph, path, { threads: 1 }),
            openGraph(graph, path, { threads: 2 }),
          ])
          const segments = hasSegments(graph)
          const want = await outcome(one, rows, [1], false, segments)
          seen[want === 'refused' ? 'refused' : 'done'] += 1
          expect(await outcome(two, rows, cuts, true, segments)).toBe(want)
          expect(await outcome(one, rows, [rows.length], true, segments)).toBe(want)
          expect(await outcome(two, rows, cuts, false, segments)).toBe(want)
          one.close()
          two.close()
        }),
        { numRuns: rounds },
      )
      // The property says something only if all ways of running were met, and most graphs ran to their end.
      expect(Math.min(seen.row_serial, seen.row_local, seen.row_parallel)).toBeGreaterThan(rounds / 6)
      expect(seen.done).toBeGreaterThan(2 * seen.refused)
    })
})
