/**
 * Every model family gives the CPU's bits on a CUDA device: whole, cut, in company, and with its state carried to and
 * fro.
 */
import { describe, expect, it } from 'vitest'
import { openBoth } from './helpers.ts'
import { packages } from './packages.ts'
import { inPieces, readingsOf, whole } from './readings.ts'

describe.each(packages)('$name', ({ dir, options, lengths, count }) => {
  it('computes on a CUDA device what it computes on the CPU, to the last bit', async () => {
    const pair = await openBoth(await dir(), options)
    expect([pair.cpu.device, pair.cuda.device]).toEqual(['cpu', 'cuda'])
    const readings = readingsOf(pair.cpu, 1, lengths, count)
    const alone = await whole(pair.cpu, readings, false)
    const together = await whole(pair.cuda, readings, true)
    expect(together).toEqual(alone)
    expect(new Set(alone.told.map(({ chain }) => chain)).size).toBe(lengths.length)

    for (const seed of [1, 2]) expect(await inPieces(pair, readings, seed)).toEqual(alone.told)
  })
})
