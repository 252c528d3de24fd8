/** Items of work, one by one: what shares the engine shares its steps and nothing else. */
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest'
import { buildGraph } from '../../src/engine/builder.ts'
import { autoDim, plus, ref, ring } from '../../src/engine/builder-types.ts'
import { type Context, ContextBroken } from '../../src/engine/context.ts'
import { openGraph } from '../../src/engine/engine.ts'
import type { Model } from '../../src/engine/types.ts'
import type { WorkItem } from '../../src/engine/work.ts'
import { openPackage } from '../../src/models/open.ts'
import { demoModel } from '../operators/harness.ts'
import { errorOf, testDevice } from './helpers.ts'
import { safetensors, writePackage } from './packages.ts'

let model: Model
beforeAll(async () => {
  model = (await openPackage(demoModel, { threads: 2, ...testDevice })).model
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

describe('items', () => {
  it('that are there together share steps, and each gets what it gets alone', async () => {
    const before = model.stats
    const contexts = Array.from({ length: 10 }, () => model.createContext())
    const items = contexts.map((context, n) => work(context, 65, 66 + n))
    const results = await model.process(items)
    const { steps, tokens, items: answered } = model.stats
    expect([tokens - before.tokens, answered - before.items]).toEqual([20, 10])
    expect(steps - before.steps).toBeLessThan(10)
    for (const [n, context] of contexts.entries()) {
      const alone = model.createContext()
      expect(results[n]).toEqual(await model.submit(work(alone, 65, 66 + n)))
      expect(context.chain).toBe(alone.chain)
    }
  })

  it('that are refused or diverge do so alone', async () => {
    const closed = model.createContext()
    closed.close()
    const [before, after] = [model.createContext(), model.createContext()]
    const settled = await Promise.allSettled([
      model.submit(work(before, 1, 2)),
      model.submit(work(closed, 1)),
      model.submit(work(model.createContext(), 999)),
      model.submit(work(doomed(), 3)),
      model.submit(work(after, 1, 2)),
    ])
    expect(settled.map(({ status }) => status)).toEqual(['fulfilled', 'rejected', 'rejected', 'rejected', 'fulfilled'])
    expect(settled[1]).toMatchObject({ reason: { code: 'MISUSE' } })
    expect(settled[2]).toMatchObject({ reason: { code: 'INVALID', message: expect.stringContaining('999') } })
    expect(settled[3]).toMatchObject({ reason: { code: 'REFUSED', message: expect.stringContaining('finite') } })
    expect((settled[3] as PromiseRejectedResult).reason).toBeInstanceOf(ContextBroken)
    expect(before.chain).toBe(after.chain)
    expect(before.pulse).toBe(2n)
  })

  it('whose context is at work are refused, and the work goes on', async () => {
    const context = model.createContext()
    const running = model.submit({ ...work(context, ...Array.from({ length: 600 }, (_, i) => i % 256)) })
    expect(await errorOf(() => model.submit(work(context, 1)))).toMatchObject({
      code: 'MISUSE',
      message: expect.stringContaining('submit() has it'),
    })
    expect((await running).nats).toHaveLength(600)
  })

  it.each([
    [[256], 'an end token is 256, expected token ids from 0 to 255'],
    [[3, -1], 'an end token is -1'],
    [[1.5], 'an end token is 1.5'],
  ])('with end tokens %j are refused', async (endTokens, says) => {
    const generate = { temperature: 0, topK: 0, topP: 1, seed: 0n, count: 1, endTokens }
    expect(await errorOf(() => model.submit({ ...work(model.createContext(), 1), generate }))).toMatchObject({
      code: 'INVALID',
      message: expect.stringContaining(says),
    })
  })

  it.each([0, 1, 1.09, 1001, Number.NaN])('a model is not opened with a step target of %s', async (stepTarget) => {
    expect(await errorOf(() => openPackage(demoModel, { stepTarget }))).toMatchObject({
      code: 'INVALID',
      message: `stepTarget is ${stepTarget}, expected a number from 1.1 to 1000.`,
    })
  })
})

describe('a number that is not finite', () => {
  const [C, V, places] = [4, 8, 6]
  /** Token 7 writes infinity into a table that no other node reads, at the newest position. */
  const open = async (kind: 'grows' | 'ring'): Promise<Model> => {
    const g = buildGraph()
    const emb = g.lookup('emb', [V, C], ref('emb'))
    const huge = g.lookup('huge', [V, C], ref('huge'))
    const head = g.matrix('head', [V, C], ref('head'))
    const length = g.counter('length', kind === 'grows' ? { max: 64 } : {})
    const table = g.table('T', [2, kind === 'grows' ? autoDim(length) : ring(places, length), C])
    const last = g.table('last', [C])
    const token = g.dynamic('token', [], 'i32')
    g.block('step', [token], () => {
      g.cacheIncrement(length)
      const x = g.embed('x', token, emb)
      const y = g.embed('y', token, huge)
      g.cacheWrite(table(1, plus(length, -1)), g.mul('z', y, y))
      return { hidden: x, previous: g.cacheShift('previous', last(), x) }
    })
    const hidden = g.dynamic('hidden', [C], 'f32')
    g.block('predict', [hidden], () => ({ logits: g.matmul('logits', hidden, head) }))
    const tensor = (at: (i: number) => number) => ({
      shape: [V, C],
      data: Float32Array.from({ length: V * C }, (_, i) => at(i)),
    })
    const weights = new Map([
      ['emb', tensor((i) => (i % 5) - 2)],
      ['huge', tensor((i) => (i >= 7 * C ? 1e30 : 1))],
      ['head', tensor((i) => (i % 3) / 4)],
    ])
    const folder = writePackage({}, safetensors(weights))
    const opened = await openGraph(g.finish(), join(folder, 'model.safetensors'), { threads: 1, ...testDevice })
    onTestFinished(() => opened.close())
    return opened
  }

  it.each([
    'grows',
    'ring',
  ] as const)('is found at the end of the item that wrote it, wherever in a table that %s', async (kind) => {
    const own = await open(kind)
    for (let before = 0; before < 15; before += 1) {
      const context = own.createContext()
      for (let n = 0; n < before; n += 1) await own.submit(work(context, n % 7))
      expect(await errorOf(() => own.submit(work(context, 7)))).toMatchObject({
        code: 'REFUSED',
        message: expect.stringContaining(`The state stopped being finite at pulse ${before + 1}`),
      })
      context.reset()
      await own.submit(work(context, 1, 2, 3))
      expect(await errorOf(() => own.submit(work(context, 4, 7, 5)))).toMatchObject({ code: 'REFUSED' })
      context.close()
    }
  })
})
