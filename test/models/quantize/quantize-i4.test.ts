// @module-tag slow
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { quantizePackage } from '../../../src/models/quantize/quantize.ts'
import type { Rounding } from '../../../src/models/quantize/rounding.ts'
import { feed, generate, open } from '../../engine/helpers.ts'
import { temporaryFolder } from '../../engine/packages.ts'
import { FAMILIES, familyOf, slowWith } from '../../families.ts'
import { newOut, write } from '../helpers.ts'
import { divergence, predictionsOf } from './divergence.ts'

const root = join(import.meta.dirname, '..', '..', '..')
const demo = join(root, 'models', 'demo')
const licence = join(root, 'LICENSE')
const text = readFileSync(join(root, 'docs', 'demo', 'harbour-log.txt'))

/** The beginning of the licence: few tokens, as the random models need no more. */
const few = (): string => {
  const path = join(temporaryFolder(), 'text')
  writeFileSync(path, readFileSync(licence).subarray(0, 700))
  return path
}

const small = FAMILIES.filter(({ key }) => key !== 'rwkv7' && key !== 'rwkv7-q8' && key !== 'ngram')

describe('i4 of every family', () => {
  it('a memory of contexts (ngram): has no matrices, is refused', async () => {
    const dir = await familyOf('ngram').write(join(temporaryFolder(), 'ngram'))
    await expect(quantizePackage({ dir, out: newOut(), to: 'i4', group: 32 })).rejects.toThrow(
      'has no matrices, and nothing else is quantised. Use it as it is.',
    )
  })

  it.each(small.map(({ key, name }) => [name, key] as const))(
    '%s: calibrated on one thread and on three it has the same bytes, opens, and reads the same however it is cut',
    { tags: slowWith('perspective') },
    async (_, key) => {
      const dir = await familyOf(key).write(join(temporaryFolder(), key))
      const calibrate = few()
      const outs = [newOut(), newOut()]
      for (const [i, threads] of [1, 3].entries()) {
        const done = await quantizePackage({ dir, out: outs[i]!, to: 'i4', group: 32, calibrate, threads })
        expect(done).toMatchObject({ format: 'i4', rounding: 'compensated' })
        // Tokens of several bytes are fewer than the text has bytes.
        expect(done.calibrationTokens).toBeGreaterThan(500)
        expect(done.calibrationTokens).toBeLessThanOrEqual(700)
        expect(done.tensors).toBeGreaterThan(0)
      }
      const [one, three] = outs.map((out) => readFileSync(join(out, 'model.safetensors')))
      expect(one!.equals(three!)).toBe(true)

      const chains = new Set<string>()
      for (const [threads, cut] of [
        [1, 90],
        [2, 7],
      ] as const) {
        const model = await open(outs[0]!, { threads })
        const context = model.createContext()
        for (let at = 0; at < 90; at += cut) await feed(model, context, text.subarray(at, Math.min(at + cut, 90)))
        const { generated } = await generate(model, context, 8)
        expect(generated).toHaveLength(8)
        chains.add(context.chain)
      }
      expect(chains.size).toBe(1)
    },
  )
})

describe('the shipped model as i4', () => {
  const opening = Int32Array.from(text.subarray(0, 600))
  const predictions = async (dir: string) => predictionsOf(await open(dir), opening)

  it('is nearer to itself with a search than with the nearest rule, and much nearer with compensation by another text', async () => {
    const whole = await predictions(demo)
    const far = async (rounding: Rounding): Promise<number> => {
      const out = newOut()
      const calibrate = rounding === 'compensated' ? { calibrate: licence, threads: 1 } : {}
      await quantizePackage({ dir: demo, out, to: 'i4', group: 32, rounding, ...calibrate })
      return divergence(whole, await predictions(out))
    }
    const [nearest, search, compensated] = [await far('nearest'), await far('search'), await far('compensated')]
    expect(search).toBeLessThan(0.95 * nearest)
    expect(compensated).toBeLessThan(0.7 * nearest)
  })
})

describe('a package calibrated with a text', () => {
  it('is what the text says: its ids give the same bytes, another text others', async () => {
    const dir = write()
    const ids = Array.from({ length: 600 }, (_, i) => (i * i) % 50)
    const file = (content: readonly number[]): string => {
      const path = join(temporaryFolder(), 'ids.json')
      writeFileSync(path, JSON.stringify(content))
      return path
    }
    const bytes = async (calibrate: string): Promise<Buffer> => {
      const out = newOut()
      await quantizePackage({ dir, out, to: 'i4', group: 64, calibrate, threads: 1 })
      return readFileSync(join(out, 'model.safetensors'))
    }
    const [first, again, other] = [await bytes(file(ids)), await bytes(file(ids)), await bytes(file(ids.toReversed()))]
    expect(again.equals(first)).toBe(true)
    expect(other.equals(first)).toBe(false)
  })
})
