import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { buildGraph } from '../../src/engine/builder.ts'
import { stateLayout } from '../../src/engine/layout.ts'
import type { MemoryDeclaration } from '../../src/memory.ts'
import { activeLevels, advance, begin, reset } from '../../src/state/conductor.ts'
import { DIVERGING, diverging, health, largestNorms } from '../../src/state/health.ts'

describe('the conductor', () => {
  test('lets a level fire once in every period of its own, all of them at pulse 0, on a clock that no reset turns back', () => {
    const periods = fc.array(fc.integer({ min: 1, max: 600 }), { maxLength: 6 })
    fc.assert(
      fc.property(periods, fc.nat(1e9), fc.nat(2000), (levels, from, steps) => {
        let conductor = advance(begin(), from)
        const fired = levels.map(() => 0)
        for (let step = 0; step < steps; step += 1) {
          if (step % 7 === 3) conductor = reset(conductor)
          for (const level of activeLevels(conductor, levels)) fired[level]! += 1
          conductor = advance(conductor, 1)
        }
        const multiplesBelow = (end: number, period: number): number => Math.ceil(end / period)
        const expected = levels.map((period) => multiplesBelow(from + steps, period) - multiplesBelow(from, period))
        expect(fired).toEqual(expected)
      }),
      { numRuns: 50 },
    )
    expect(activeLevels(begin('test'), [1, 8, 64])).toEqual([0, 1, 2])
    expect(activeLevels(advance(begin(), 16), [64, 8, 1])).toEqual([1, 2])
    expect(activeLevels(begin(), [])).toEqual([])
  })
})

describe('health', () => {
  /** Layers 2, levels 3 (periods 1, 4, 16), error buffers of two of them. */
  const layout = (() => {
    const g = buildGraph()
    g.counter('seen')
    g.table('bias', [5])
    g.table('M', [2, 3, 2, 4])
    g.table('G', [2, 2, 2, 4])
    g.table('S', [2, 4])
    return stateLayout(g.finish())
  })()
  const memory: MemoryDeclaration = {
    window: null,
    tables: [
      { name: 'M', role: 'memory', levels: [0, 1, 2] },
      { name: 'G', role: 'buffer', levels: [1, 2] },
    ],
  }
  const stateOf = (value: (at: number) => number, misaligned = 0): Uint8Array => {
    const floats = 5 + 48 + 32 + 8
    const state = new Uint8Array(new ArrayBuffer(8 + 4 * floats + misaligned), misaligned)
    const view = new DataView(state.buffer, misaligned)
    for (let at = 0; at < floats; at += 1) view.setFloat32(8 + 4 * at, value(at), true)
    return state
  }

  test('is the Frobenius norm and the largest size of every layer and level, wherever the bytes stand', async () => {
    for (const misaligned of [0, 1]) {
      const parts = await health(
        { layout, memory },
        stateOf((at) => (at % 2 === 0 ? at : -at), misaligned),
      )
      const expected = (name: string, layer: number, level: number | null, from: number, count: number) => {
        const values = Array.from({ length: count }, (_, at) => from + at)
        return { name, layer, level, norm: expect.closeTo(Math.hypot(...values), 9), max: from + count - 1 }
      }
      expect(parts).toEqual([
        expected('bias', 0, null, 0, 5),
        ...[0, 1, 2, 3, 4, 5].map((at) => expected('M', Math.floor(at / 3), at % 3, 5 + 8 * at, 8)),
        ...[0, 1, 2, 3].map((at) => expected('G', Math.floor(at / 2), 1 + (at % 2), 53 + 8 * at, 8)),
        expected('S', 0, null, 85, 4),
        expected('S', 1, null, 89, 4),
      ])
      expect([...largestNorms(parts).keys()]).toEqual(['bias', 'M', 'G', 'S'])
      expect(largestNorms(parts).get('M')).toBe(parts.find(({ layer, level }) => layer === 1 && level === 2)!.norm)
      expect(diverging('s', 1, parts)).toEqual([])
    }
  })

  test('names what diverges while all its numbers are still finite, and keeps what is no number', async () => {
    const large = Math.fround(DIVERGING)
    const parts = await health(
      { layout, memory },
      stateOf((at) => (at === 30 ? large : at === 31 ? large : 0)),
    )
    const sentences = diverging('book', 812, parts)
    expect(sentences).toHaveLength(1)
    expect(sentences[0]).toMatch(
      /^Session "book" diverges: at pulse 812 the norm of M, layer 1, level 0, is 1\.41e\+30\./,
    )
    const broken = await health(
      { layout, memory },
      stateOf((at) => (at === 6 ? Number.NaN : 1)),
    )
    expect(largestNorms(broken).get('M')).toBeNaN()
    expect(broken.find(({ name, layer, level }) => name === 'M' && layer === 0 && level === 0)!.max).toBeNaN()
    expect(diverging('book', 1, broken)).toHaveLength(1)
  })
})
