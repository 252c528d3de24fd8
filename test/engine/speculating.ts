/** What suites of guesses have sessions do: each in its own way, in many pieces, beside others that read. */
import type { Model } from '../../src/engine/types.ts'
import type { Generate } from '../../src/engine/work.ts'
import { none } from './helpers.ts'

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
export const live = async (
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

/** Tokens of each item of a session. */
export const PIECES = [1, 40, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 6, 3, 60, 16, 16, 48]
