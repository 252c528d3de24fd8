/** Continuo's engine as a side of the bench. */

import type { Context } from '../../src/engine/context.ts'
import type { ExpertOptions } from '../../src/engine/options.ts'
import type { Model } from '../../src/engine/types.ts'
import type { Sampling } from '../../src/engine/work.ts'
import { openModel } from '../../src/models/open.ts'
import type { Side } from './side.ts'

export const greedy: Sampling = { temperature: 0, topK: 0, topP: 1, seed: 0n }
export const none = new Int32Array(0)

const sideOf = (model: Model, sessions: number): Side => {
  const one = model.createContext()
  const many = Array.from({ length: sessions }, () => model.createContext())
  const read = async (contexts: readonly Context[], ids: readonly Int32Array[]): Promise<void> => {
    await model.process(contexts.map((context, i) => ({ context, tokens: ids[i]!, nats: false })))
  }
  /** Generating decodes and also chooses the tokens, which llama.cpp's measure leaves out. */
  const generate = async (contexts: readonly Context[], count: number): Promise<number> => {
    const started = performance.now()
    const items = contexts.map((context) => ({ context, tokens: none, nats: false, generate: { ...greedy, count } }))
    await model.process(items)
    return (performance.now() - started) / 1000
  }
  return {
    name: 'Continuo',
    async fresh() {
      one.reset()
    },
    async feed(ids) {
      await read([one], [ids])
      return model.logits(one)
    },
    async prefill(ids) {
      one.reset()
      const started = performance.now()
      await read([one], [ids])
      await model.logits(one)
      return (performance.now() - started) / 1000
    },
    async decode(prompt, steps) {
      one.reset()
      await read([one], [prompt])
      return generate([one], steps)
    },
    async decodeMany(prompts, steps) {
      for (const context of many) context.reset()
      await read(many, prompts)
      return generate(many, steps)
    },
    async feedMany(ids) {
      await read(
        many,
        Array.from(ids, (_, i) => ids.subarray(i, i + 1)),
      )
      const all: Float32Array[] = []
      for (const context of many) all.push(await model.logits(context))
      return all
    },
    async close() {
      for (const context of [one, ...many]) context.close()
      model.close()
    },
  }
}

export const openContinuo = async (
  dir: string,
  threads: number,
  sessions: number,
  experts?: ExpertOptions,
): Promise<Side> => sideOf(await openModel(dir, { threads, device: 'cpu', ...(experts && { experts }) }), sessions)
