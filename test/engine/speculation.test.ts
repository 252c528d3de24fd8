/**
 * Guesses of tokens change nothing: for every family, sessions that generate with guesses, without, and with other numbers of them in the
 * middle have the same tokens, log probabilities, chains and states, together and beside others that read.
 */
import { describe, expect, test } from 'vitest'
import type { Generate, Model, Speculation } from '../../src/engine/types.ts'
import { FAMILIES, openFamily } from '../families.ts'
import { errorOf, none, open } from './helpers.ts'
import { random, temporaryFolder } from './packages.ts'

const TEXT = Int32Array.from(Buffer.from('the cat sat on the mat, and the cat sat on the hat; the cat sat on the'))
const greedy = { temperature: 0, topK: 0, topP: 1, seed: 1n }

/** What four sessions ask for, each in its own way; of the third, what it drew so far counts. */
const ASKED: readonly ((drawn: readonly number[]) => Omit<Generate, 'count'>)[] = [
  () => greedy,
  () => ({ temperature: 4, topK: 0, topP: 0.9, seed: 2n, topLogprobs: 3 }),
  (drawn) => {
    const counts = new Map<number, number>()
    for (const token of drawn) counts.set(token, (counts.get(token) ?? 0) + 1)
    return {
      ...greedy,
      temperature: 0.2,
      topK: 20,
      penalties: { repetition: 1.1, presence: 0.2, frequency: 0.01, counts },
    }
  },
  () => ({ ...greedy, temperature: 0.5, seed: 4n, endTokens: [0x0a, 0x11] }),
]

interface Outcome {
  readonly tokens: number[]
  readonly logprobs: number[]
  readonly top: number[]
  ended: string | null
}

/** What became of the sessions after these pieces, each so many tokens; `before` is called before each piece. */
const live = async (
  model: Model,
  pieces: readonly number[],
  before: (piece: number) => void = () => {},
  readers = 0,
): Promise<unknown> => {
  const contexts = ASKED.map(() => model.createContext())
  const others = Array.from({ length: readers }, () => model.createContext())
  await model.process(contexts.map((context, i) => ({ context, tokens: TEXT.subarray(i), nats: false })))
  const out = ASKED.map((): Outcome => ({ tokens: [], logprobs: [], top: [], ended: null }))
  for (const [at, count] of pieces.entries()) {
    before(at)
    for (const context of others) context.reset()
    const alive = out.flatMap(({ ended }, i) => (ended === null ? [i] : []))
    const results = await model.process([
      ...alive.map((i) => ({
        context: contexts[i]!,
        tokens: none,
        nats: false,
        generate: { ...ASKED[i]!(out[i]!.tokens), count, more: true },
      })),
      ...others.map((context) => ({ context, tokens: TEXT, nats: true })),
    ])
    for (const [k, i] of alive.entries()) {
      const { generated, logprobs, top, topLogprobs, ended } = results[k]!
      out[i]!.tokens.push(...generated)
      out[i]!.logprobs.push(...logprobs)
      out[i]!.top.push(...[...(top ?? [])].flatMap((id, at) => [id, topLogprobs![at]!]))
      out[i]!.ended = ended
    }
  }
  const ends = contexts.map((context, i) => ({
    ...out[i],
    chain: context.chain,
    pulse: context.pulse,
    state: Buffer.from(context.serialize()).toString('base64'),
    gates: context.gates(),
  }))
  for (const context of [...contexts, ...others]) context.close()
  return ends
}

const PIECES = [1, 40, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 6, 3, 60, 16, 16, 48]

describe('guesses change nothing', () => {
  test.each(FAMILIES)('$name', async ({ key }) => {
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
