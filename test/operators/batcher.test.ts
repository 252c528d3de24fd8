import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import type { Context, Model, WorkItem } from '../../src/engine/types.ts'
import { openPackage } from '../../src/models/open.ts'
import { createBatcher } from '../../src/operators/batcher.ts'
import { demoModel } from './harness.ts'

let model: Model
beforeAll(async () => {
  model = (await openPackage(demoModel, { threads: 2 })).model
})
afterAll(() => model.close())

const work = (context: Context, ...tokens: readonly number[]): WorkItem => ({
  context,
  tokens: Int32Array.from(tokens),
  nats: true,
})

/** A context whose numbers are finite and overflow with the next token. */
const doomed = (): Context => {
  const context = model.createContext()
  const state = context.serialize()
  const view = new DataView(state.buffer, state.byteOffset, state.length)
  for (let at = 0; at < state.length; at += 4) view.setFloat32(at, 3e38, true)
  context.restore(state, { pulse: 4n, origin: 0n, chain: context.chain })
  return context
}

describe('batcher', () => {
  test('what waits together is one batch, and everybody gets the answer to his own question', async () => {
    const batcher = createBatcher(model)
    const contexts = Array.from({ length: 10 }, () => model.createContext())
    const results = await Promise.all(contexts.map((context, n) => batcher.process(work(context, 65, 66 + n))))
    expect(batcher.stats).toEqual({ batches: 1, items: 10, tokens: 20 })
    for (const [n, context] of contexts.entries()) {
      const alone = model.createContext()
      const [expected] = await model.process([work(alone, 65, 66 + n)])
      expect(results[n]).toEqual(expected)
      expect(context.chain).toBe(alone.chain)
    }
  })

  test('no batch is larger than 64; the rest is the next one', async () => {
    const batcher = createBatcher(model)
    await Promise.all(Array.from({ length: 130 }, () => batcher.process(work(model.createContext(), 1))))
    expect(batcher.stats).toEqual({ batches: 3, items: 130, tokens: 130 })
  })

  test('one item that the engine does not take is refused alone; its mates get another try', async () => {
    const batcher = createBatcher(model)
    const closed = model.createContext()
    closed.close()
    const settled = await Promise.allSettled([
      batcher.process(work(model.createContext(), 1)),
      batcher.process(work(closed, 1)),
      batcher.process(work(model.createContext(), 999)),
      batcher.process(work(model.createContext(), 2)),
    ])
    expect(settled.map(({ status }) => status)).toEqual(['fulfilled', 'rejected', 'rejected', 'fulfilled'])
    expect(settled[1]).toMatchObject({ reason: { code: 'MISUSE' } })
    expect(settled[2]).toMatchObject({ reason: { code: 'INVALID', message: expect.stringContaining('999') } })
  })

  test('a session that diverges takes no other with it', async () => {
    const batcher = createBatcher(model)
    const [before, after] = [model.createContext(), model.createContext()]
    const settled = await Promise.allSettled([
      batcher.process(work(before, 1, 2)),
      batcher.process(work(doomed(), 3)),
      batcher.process(work(after, 1, 2)),
    ])
    expect(settled.map(({ status }) => status)).toEqual(['fulfilled', 'rejected', 'fulfilled'])
    expect(settled[1]).toMatchObject({ reason: { code: 'REFUSED', message: expect.stringContaining('finite') } })
    expect(before.chain).toBe(after.chain)
    expect(before.pulse).toBe(2n)
  })
})
