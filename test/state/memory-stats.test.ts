import { describe, expect, test } from 'vitest'
import { buildGraph } from '../../src/engine/builder.ts'
import { stateLayout } from '../../src/engine/layout.ts'
import { type GateStatistics, type MemoryDeclaration, PLAIN_MEMORY } from '../../src/memory.ts'
import { type ModelMemory, memoryStats } from '../../src/state/memory-stats.ts'

/** Two layers; levels with periods 1 and 4, of which the second has a buffer. */
const layout = (() => {
  const g = buildGraph()
  g.table('M', [2, 2, 3])
  g.table('S', [2, 2, 3])
  g.table('G', [2, 1, 3])
  g.table('other', [2, 2, 3])
  return stateLayout(g.finish())
})()
const memory: MemoryDeclaration = {
  window: null,
  tables: [
    { name: 'M', role: 'memory', levels: [0, 1] },
    { name: 'S', role: 'momentum', levels: [0, 1] },
    { name: 'G', role: 'buffer', levels: [1] },
  ],
}
const model: ModelMemory = { layout, levels: [1, 4], positions: null, memory }
/** Each vector of three numbers is (n, 0, 0), n in order from 1: its norm is n. */
const state = new Uint8Array(Float32Array.from({ length: 42 }, (_, at) => (at % 3 === 0 ? at / 3 + 1 : 0)).buffer)
const at = (globalStep: number, origin = 0) => ({ globalStep, origin })
const windowAt = async (
  window: MemoryDeclaration['window'],
  clock: ReturnType<typeof at>,
  positions: number | null = null,
) => (await memoryStats({ ...model, positions, memory: { ...memory, window } }, clock, state, [])).stats.window

describe('the statistics of a memory', () => {
  test('are the largest norms of each level over its layers, in the tables that are declared for them', async () => {
    const { stats, health } = await memoryStats(model, at(6), state, [])
    expect(stats.levels).toEqual([
      { period: 1, memory: 3, momentum: 7, buffer: null, bufferRatio: null, gates: null },
      { period: 4, memory: 4, momentum: 8, buffer: 10, bufferRatio: 9 / 2, gates: null },
    ])
    expect(health.filter(({ name }) => name === 'G').map(({ layer, level, norm }) => [layer, level, norm])).toEqual([
      [0, 1, 9],
      [1, 1, 10],
    ])
    expect(health.filter(({ name }) => name === 'other').map(({ level }) => level)).toEqual([null, null])
    expect(stats.tables).toEqual({ M: [0, 1], S: [0, 1], G: [1] })
  })

  test('average the gates of a level over its layers', async () => {
    const gate = (layer: number, level: number, theta: number): GateStatistics => ({
      ...{ table: 'M', layer, level, theta, eta: 0.5, alpha: 0.1 },
    })
    const { stats } = await memoryStats(model, at(6), state, [gate(0, 1, 0.2), gate(1, 1, 0.4)])
    expect(stats.levels.map(({ gates }) => gates)).toEqual([
      null,
      { theta: expect.closeTo(0.3, 12), eta: 0.5, alpha: 0.1 },
    ])
  })

  test('say how full the window is: one that slides, one of segments by the clock, and all positions', async () => {
    expect(await windowAt({ kind: 'sliding', places: 8 }, at(105, 100))).toEqual({ used: 5, places: 8 })
    expect(await windowAt({ kind: 'sliding', places: 8 }, at(120, 100))).toEqual({ used: 8, places: 8 })
    expect(await windowAt({ kind: 'segment', places: 8 }, at(20, 0))).toEqual({ used: 4, places: 8 })
    expect(await windowAt({ kind: 'segment', places: 8 }, at(22, 20))).toEqual({ used: 2, places: 8 })
    expect(await windowAt(null, at(20, 10), 64)).toEqual({ used: 10, places: 64 })
    expect(await windowAt(null, at(20, 10))).toBeNull()
  })

  test('of a model that declares nothing are norms alone', async () => {
    const { stats, health } = await memoryStats({ ...model, levels: [], memory: PLAIN_MEMORY }, at(6), state, [])
    expect(stats).toEqual({ window: null, levels: [] })
    expect(health.every(({ level }) => level === null)).toBe(true)
  })
})
