/** Graphs at random mean on a CUDA device what they mean on the CPU, however they are cut there and planned. */
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { openGraph } from '../../src/engine/engine.ts'
import { planGraph } from '../../src/engine/plan.ts'
import { cutsOf, graphOf, hasSegments, outcome, rowsOf, weightsPath } from '../engine/random-graphs.ts'
import { emulated } from './helpers.ts'

describe('random graphs', () => {
  it('leave the same values and the same state on both devices', async () => {
    const path = weightsPath()
    const seen = { row_serial: 0, row_local: 0, row_parallel: 0, refused: 0, done: 0 }
    const numRuns = emulated ? 200 : 300
    await fc.assert(
      fc.asyncProperty(fc.integer({ min: 0, max: 1e9 }), rowsOf, cutsOf, async (seed, rows, cuts) => {
        const graph = graphOf(seed)
        for (const { order } of planGraph(graph)[0]!.stages) seen[order] += 1
        const [cpu, cuda] = await Promise.all([
          openGraph(graph, path, { threads: 1, device: 'cpu' }),
          openGraph(graph, path, { threads: 1, device: 'cuda' }),
        ])
        const segments = hasSegments(graph)
        const want = await outcome(cpu, rows, [1], false, segments)
        seen[want === 'refused' ? 'refused' : 'done'] += 1
        expect(await outcome(cuda, rows, cuts, true, segments)).toBe(want)
        expect(await outcome(cuda, rows, [rows.length], false, segments)).toBe(want)
        cpu.close()
        cuda.close()
      }),
      { numRuns },
    )
    // The property says something only if all ways of running were met, and most graphs ran to their end.
    expect(Math.min(seen.row_serial, seen.row_local, seen.row_parallel)).toBeGreaterThan(numRuns / 6)
    expect(seen.done).toBeGreaterThan(2 * seen.refused)
  })
})
