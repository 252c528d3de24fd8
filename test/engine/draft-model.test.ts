/**
 * A smaller model that guesses tokens changes nothing, whatever it is: sessions have the same tokens, log
 * probabilities, chains and states as without it. And it guesses what the session would draw: a package that guesses
 * for itself is right.
 *
 * @module-tag slow
 */
import { describe, expect, test } from 'vitest'
import { openGraph } from '../../src/engine/engine.ts'
import type { Overflow } from '../../src/engine/options.ts'
import { type FamilyKey, openFamily, slowWith } from '../families.ts'
import { errorOf, open } from './helpers.ts'
import { random, randomRwkv7, safetensors, temporaryFolder, writePackage } from './packages.ts'
import { live, PIECES } from './speculating.ts'

const SIZES = { L: 1, H: 2, N: 32, F: 96, V: 256, D: { w: 8, a: 8, v: 8, g: 8 } }
const small = (V = 256): string =>
  writePackage({ model_type: 'rwkv7' }, safetensors(randomRwkv7(4, { ...SIZES, V }), 'BF16'))

/** Its logits overflow. */
const infinite = (): string => {
  const tensors = randomRwkv7(4, SIZES)
  tensors.get('head.weight')!.data.fill(3e38)
  return writePackage({ model_type: 'rwkv7' }, safetensors(tensors, 'BF16'))
}

const family = (key: FamilyKey) => openFamily(key, temporaryFolder())
const dirOf = async (key: FamilyKey): Promise<string> => (await family(key)).dir

const on = { threads: 2, device: 'cpu' } as const
const always = { tokens: 8, adapt: false } as const

/** What becomes of the sessions without guesses. */
const expectedOf = async (dir: string, overflow: Overflow = 'refuse') => {
  const model = await open(dir, { ...on, overflow, speculate: { tokens: 0 } })
  const outcome = await live(model, PIECES)
  const { fingerprint } = model
  model.close()
  return { outcome, fingerprint }
}

describe('a package that guesses for itself is right', () => {
  const shares: readonly [FamilyKey, number][] = [
    ['rwkv7', 0.95],
    ['titans', 0.95],
    // At the end of its 128 positions a context begins anew with the last half of them.
    ['gpt2-refuse', 0.6],
    ['qwen3', 0.95],
    ['qwen35', 0.95],
    ['qwen3moe', 0.95],
  ]
  for (const [key, share] of shares)
    test(key, { tags: slowWith(key) }, async () => {
      const { dir, overflow } = await family(key)
      const { outcome, fingerprint } = await expectedOf(dir, overflow)
      const model = await open(dir, { ...on, overflow, speculate: always, draftModel: dir })
      expect(model.fingerprint).toBe(fingerprint)
      expect(await live(model, PIECES)).toEqual(outcome)
      const { drafted, kept, steps, tokens } = model.stats
      // The last guesses of each session are never drawn.
      expect(kept / drafted).toBeGreaterThan(share)
      // A step reads or generates; those that generate have several tokens of a session.
      expect(steps).toBeLessThan(tokens / 4)
    })
})

describe('a model that guesses for another changes nothing', () => {
  // Other families; fewer positions than the sessions have tokens; and the other way round.
  const pairs: readonly [FamilyKey, string, () => string | Promise<string>][] = [
    ['rwkv7', 'a smaller RWKV-7', small],
    ['qwen3', 'GPT-2 with 128 positions', () => dirOf('gpt2-refuse')],
    ['titans', 'a hybrid', () => dirOf('qwen35')],
    ['gpt2-window', 'a decoder', () => dirOf('qwen3')],
    ['memory', 'RWKV-7', small],
  ]
  for (const [key, guessing, draft] of pairs)
    test(`${key} with ${guessing}`, { tags: slowWith(key) }, async () => {
      const { dir, overflow } = await family(key)
      const { outcome, fingerprint } = await expectedOf(dir, overflow)
      const model = await open(dir, { ...on, overflow, speculate: always, draftModel: await draft() })
      expect(model.fingerprint).toBe(fingerprint)
      expect(await live(model, PIECES)).toEqual(outcome)
      expect(model.stats.drafted).toBeGreaterThan(0)
      // Other numbers in the middle, by need or always, and others that read.
      const next = random(7)
      const change = (): void => model.speculate({ tokens: Math.floor(next() * 20), adapt: next() < 0.5 })
      expect(await live(model, PIECES, change, 2)).toEqual(outcome)
    })

  test.each([
    ['for some of four sessions', 25_000, true],
    ['for none', 1, false],
  ] as const)('room for its contexts: %s', async (_, draftBytes, guesses) => {
    const dir = small()
    const { outcome } = await expectedOf(dir)
    const model = await open(dir, { ...on, speculate: always, draftModel: dir, draftBytes })
    expect(await live(model, PIECES)).toEqual(outcome)
    expect(model.stats.drafted > 0).toBe(guesses)
  })

  test('numbers that are not finite end its guesses', async () => {
    const dir = await dirOf('qwen3')
    const { outcome } = await expectedOf(dir)
    const model = await open(dir, { ...on, speculate: always, draftModel: infinite() })
    expect(await live(model, PIECES)).toEqual(outcome)
    expect(model.stats.drafted).toBe(0)
  })
})

describe('a draft model that cannot be', () => {
  test('has other tokens', async () => {
    const [dir, draft] = [small(), small(40)]
    expect(await errorOf(() => open(dir, { ...on, draftModel: draft }))).toMatchObject({
      code: 'INVALID',
      message: `The draft model ${draft} has 40 tokens and its own tokenizer, expected the tokenizer of ${dir} with its 256 tokens: what one of them draws must be a token of the other. Name a smaller model of the same family, or leave the draft model out.`,
    })
  })

  test('has an external memory', async () => {
    const draft = await dirOf('memory')
    expect(await errorOf(() => open(small(), { ...on, draftModel: draft }))).toMatchObject({
      code: 'INVALID',
      message:
        'The draft model has an external memory (memory.json), expected a plain language model. Name another package, or leave the draft model out.',
    })
  })

  test('has its experts in a store', async () => {
    const draft = await dirOf('perspective')
    expect(await errorOf(() => open(small(), { ...on, draftModel: draft }))).toMatchObject({ code: 'INVALID' })
  })

  test('has a number of bytes that cannot be', async () => {
    const dir = small()
    expect(await errorOf(() => open(dir, { ...on, draftModel: dir, draftBytes: -1 }))).toMatchObject({
      code: 'INVALID',
      message: 'draftBytes is -1, expected a whole number from 0 to 1099511627776.',
    })
  })

  test('has a graph of one’s own to guess for', async () => {
    const graph = { declarations: [], indices: [], blocks: [] } as never
    expect(await errorOf(() => openGraph(graph, '-', { draftModel: small() }))).toMatchObject({
      code: 'INVALID',
      message: "draftModel was given, but a graph of one's own has no tokenizer to compare with. Leave it out.",
    })
  })

  test('is not there', async () => {
    const dir = small()
    expect(await errorOf(() => open(dir, { ...on, draftModel: `${dir}-none` }))).toMatchObject({ code: 'INVALID' })
  })
})
