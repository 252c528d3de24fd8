/**
 * Guesses of tokens change nothing: for every family, sessions that generate with guesses, without, and with other
 * numbers of them in the middle have the same tokens, log probabilities, chains and states, together and beside others
 * that read.
 *
 * @module-tag slow
 */
import { describe, expect, test } from 'vitest'
import type { Speculation } from '../../src/engine/options.ts'
import { FAMILIES, openFamily, slowWith } from '../families.ts'
import { errorOf, open } from './helpers.ts'
import { random, temporaryFolder } from './packages.ts'
import { live, PIECES } from './speculating.ts'

describe('guesses change nothing', () => {
  for (const { key, name } of FAMILIES)
    test(name, { tags: slowWith(key) }, async () => {
      const { dir, overflow } = await openFamily(key, temporaryFolder())
      const model = await open(dir, { threads: 2, overflow, device: 'cpu', speculate: { tokens: 0 } })
      const expected = await live(model, PIECES)
      expect(model.stats.drafted).toBe(0)

      for (const tokens of [1, 8]) {
        model.speculate({ tokens, adapt: false })
        expect(await live(model, PIECES), `${tokens} guesses`).toEqual(expected)
      }
      const { drafted, kept } = model.stats
      // Perspectives look at more than one row of logits, and runs whose experts are on disk leave steps.
      const guesses = model.perspectives === null && model.experts === null
      expect(drafted > 0).toBe(guesses)
      // Some were right and some were wrong.
      if (guesses) expect({ drafted, kept }).toSatisfy(() => kept > 0 && kept < drafted)

      // Other numbers in the middle, and others that read.
      const next = random(7)
      const change = (): void => model.speculate({ tokens: Math.floor(next() * 20), adapt: next() < 0.3 })
      expect(await live(model, PIECES, change, 2)).toEqual(expected)
      // The same tokens in other pieces.
      model.speculate({ tokens: 11, adapt: false })
      expect(await live(model, [100, 7, 1, 1, 91])).toEqual(expected)
    })

  test('a number of guesses that cannot be is a sentence', async () => {
    const { dir } = await openFamily('gpt2-refuse', temporaryFolder())
    const model = await open(dir)
    for (const tokens of [-1, 65, 1.5, Number.NaN]) {
      const wrong: Speculation = { tokens }
      expect(await errorOf(() => model.speculate(wrong))).toMatchObject({
        code: 'INVALID',
        message: `speculate.tokens is ${tokens}, expected a whole number from 0 to 64.`,
      })
    }
    await expect(open(dir, { speculate: { tokens: 99 } })).rejects.toMatchObject({ code: 'INVALID' })
  })
})
