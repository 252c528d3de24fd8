/** Every model family gives the CPU's bits on a CUDA device: whole, cut, in company, and with its state carried to and fro. */
import { describe, expect, it } from 'vitest'
import { openModel } from '../../src/models/open.ts'
import { hasShared, sharedModel } from '../engine/paths.ts'
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

describe.skipIf(!hasShared)('experts of a store', () => {
  it('are no work for a CUDA device yet: it refuses the model by name, and "auto" takes the CPU', async () => {
    const dir = sharedModel('perspective-tiny')
    const options = { keepPacked: false, experts: { frequencies: false } }
    await expect(openModel(dir, { ...options, device: 'cuda' })).rejects.toThrow(
      /the device "cuda" does not have this operation. Open the model on another device/,
    )
    const model = await openModel(dir, { ...options, device: 'auto' })
    expect(model.device).toBe('cpu')
    model.close()
  })
})
