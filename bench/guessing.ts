/** Two engines with the same weights, of which one guesses tokens: shared by the benches of speculation. */

import type { Context } from '../src/engine/context.ts'
import type { OpenModelOptions, Speculation } from '../src/engine/options.ts'
import type { Model } from '../src/engine/types.ts'
import { openModel } from '../src/models/open.ts'
import { median } from './support.ts'

export interface Side {
  readonly model: Model
  contexts: Context[]
}
export interface Pair {
  readonly plain: Side
  readonly guessing: Side
}
/** What a side wrote in a round. */
export interface Piece {
  readonly seconds: number
  /** Seconds of the process's CPUs. */
  readonly cpu: number
  readonly ids: readonly Int32Array[]
}

const none = new Int32Array(0)

/** `more`: options of the side that guesses. */
export const openPair = async (
  dir: string,
  threads: number,
  speculate: Speculation,
  more: Partial<OpenModelOptions> = {},
): Promise<Pair> => {
  const options: OpenModelOptions = { threads, device: 'cpu', keepPacked: false }
  return {
    plain: { model: await openModel(dir, { ...options, speculate: { tokens: 0 } }), contexts: [] },
    guessing: { model: await openModel(dir, { ...options, ...more, speculate }), contexts: [] },
  }
}

export const closePair = ({ plain, guessing }: Pair): void => {
  for (const { model, contexts } of [plain, guessing]) {
    for (const context of contexts) context.close()
    model.close()
  }
}

/** New sessions, each behind its prompt. */
export const readPrompts = async (side: Side, prompts: readonly Int32Array[]): Promise<void> => {
  for (const context of side.contexts) context.close()
  side.contexts = prompts.map(() => side.model.createContext())
  await side.model.process(side.contexts.map((context, i) => ({ context, tokens: prompts[i]!, nats: false })))
}

/** Goes on with each session for so many tokens. */
export const writeOn = async ({ model, contexts }: Side, count: number, temperature: number): Promise<Piece> => {
  const [started, used] = [performance.now(), process.cpuUsage()]
  const results = await model.process(
    contexts.map((context, i) => ({
      ...{ context, tokens: none, nats: false },
      generate: { temperature, topK: 0, topP: 1, seed: BigInt(i), count, more: true },
    })),
  )
  const { user, system } = process.cpuUsage(used)
  const seconds = (performance.now() - started) / 1000
  return { seconds, cpu: (user + system) / 1e6, ids: results.map(({ generated }) => generated) }
}

export const spread = (ratios: readonly number[]): string =>
  `${median(ratios).toFixed(2)} (${Math.min(...ratios).toFixed(2)} to ${Math.max(...ratios).toFixed(2)})`
