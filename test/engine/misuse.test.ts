/** Every method × {open, busy, closed, model closed} × {allowed, refused}; and every argument that is wrong. */
import { beforeAll, describe, expect, it } from 'vitest'
import { ContextBroken, type EngineContext } from '../../src/engine/context.ts'
import type { Model } from '../../src/engine/types.ts'
import type { WorkItem } from '../../src/engine/work.ts'
import { errorOf, feed, greedy, none, open, sameBytes } from './helpers.ts'
import { randomRwkv7, safetensors, writePackage } from './packages.ts'

let dir = ''
beforeAll(() => {
  dir = writePackage(
    { model_type: 'rwkv7' },
    safetensors(randomRwkv7(1, { L: 2, H: 2, N: 32, F: 128, V: 20, D: { w: 4, a: 4, v: 4, g: 4 } })),
  )
})

const work = (context: EngineContext, tokens: readonly number[] = [1]): WorkItem => ({
  context,
  tokens: Int32Array.from(tokens),
  nats: false,
})
const long = new Array<number>(3000).fill(1)

const methods: Record<string, (model: Model, context: EngineContext) => unknown> = {
  process: (model, context) => model.process([work(context)]),
  logits: (model, context) => model.logits(context),
  reset: (_, context) => context.reset(),
  serialize: (_, context) => context.serialize(),
  restore: (_, context) =>
    context.restore(new Uint8Array(2 * (64 + 64 + 2 * 32 * 32) * 4 + 256), {
      pulse: 1n,
      origin: 0n,
      chain: '0'.repeat(32),
    }),
  state: (_, context) => context.state(),
  capture: (_, context) => context.capture({ pulse: Number(context.pulse), ends: [] }),
  load: (_, context) => context.load(null, { pulse: 1n, origin: 0n, chain: '0'.repeat(32) }),
  restart: (_, context) => context.restart(),
  close: (_, context) => context.close(),
}

describe('misuse matrix', () => {
  it.each(Object.keys(methods))('%s is allowed on an open context', async (name) => {
    const model = await open(dir)
    const context = model.createContext()
    await feed(model, context, [1])
    await methods[name]!(model, context)
  })

  it.each(
    Object.keys(methods),
  )('%s is refused on a busy context, and the call in flight is not disturbed', async (name) => {
    const model = await open(dir)
    const [context, undisturbed] = [model.createContext(), model.createContext()]
    const running = model.process([work(context, long)])
    expect(await errorOf(() => methods[name]!(model, context))).toMatchObject({
      code: 'MISUSE',
      message: expect.stringContaining('busy'),
    })
    await running
    await model.process([work(undisturbed, long)])
    expect(context.chain).toBe(undisturbed.chain)
  })

  it('a context that is being copied refuses other calls, and the model stays open for it', async () => {
    const model = await open(dir)
    const context = model.createContext()
    await feed(model, context, [1, 2])
    const copy = context.state()
    for (const call of Object.values(methods))
      expect(await errorOf(() => call(model, context))).toMatchObject({
        code: 'MISUSE',
        message: expect.stringContaining('busy'),
      })
    const { pulse, origin, chain } = context
    const twin = await model.openContext(await copy, { pulse, origin, chain })
    expect(sameBytes(await twin.state(), context.serialize())).toBe(true)
    expect([await feed(model, twin, [3]), twin.chain]).toEqual([await feed(model, context, [3]), context.chain])
    await twin.restart()
    context.reset()
    expect([twin.origin, twin.chain]).toEqual([context.origin, context.chain])
    expect(sameBytes(await twin.state(), context.serialize())).toBe(true)
  })

  it.each(Object.keys(methods))('%s is refused on a closed context', async (name) => {
    const model = await open(dir)
    const context = model.createContext()
    await feed(model, context, [1])
    context.close()
    expect(await errorOf(() => methods[name]!(model, context))).toMatchObject({
      code: 'MISUSE',
      message: expect.stringContaining('closed'),
    })
  })

  it.each(Object.keys(methods))('%s is refused once the model is closed', async (name) => {
    const model = await open(dir)
    const context = model.createContext()
    await feed(model, context, [1])
    model.close()
    // Closing alone is allowed: it frees the memory.
    if (name === 'close') return context.close()
    expect(await errorOf(() => methods[name]!(model, context))).toMatchObject({
      code: 'MISUSE',
      message: expect.stringContaining('model is closed'),
    })
  })

  it('the head of a context can be read at any time; while busy it is that of the last settled call', async () => {
    const model = await open(dir)
    const context = model.createContext()
    const running = model.process([work(context, long)])
    expect(context.pulse).toBe(0n)
    await running
    expect(context.pulse).toBe(3000n)
    context.close()
    model.close()
    expect(context.pulse).toBe(3000n)
  })

  it('a model closes once, not with calls in flight, and makes no contexts afterwards', async () => {
    const model = await open(dir)
    const context = model.createContext()
    const running = model.process([work(context, long)])
    expect(await errorOf(() => model.close())).toMatchObject({
      code: 'MISUSE',
      message: expect.stringContaining('1 calls in flight'),
    })
    await running
    model.close()
    expect(await errorOf(() => model.close())).toMatchObject({ code: 'MISUSE' })
    expect(await errorOf(() => model.createContext())).toMatchObject({ code: 'MISUSE' })
  })

  it('another context can be serialised and processed while one is busy', async () => {
    const model = await open(dir)
    const [busy, idle] = [model.createContext(), model.createContext()]
    const running = model.process([work(busy, long)])
    expect(idle.serialize().length).toBe(model.contextBytes)
    await Promise.all([running, model.process([work(idle)])])
    expect(idle.pulse).toBe(1n)
  })

  it('a context of another model, or twice in a call, is refused', async () => {
    const [model, other] = [await open(dir), await open(dir)]
    const context = model.createContext()
    expect(await errorOf(() => other.process([work(context)]))).toMatchObject({
      code: 'MISUSE',
      message: expect.stringContaining('another model'),
    })
    expect(await errorOf(() => model.process([work(context), work(context)]))).toMatchObject({
      code: 'MISUSE',
      message: expect.stringContaining('Item 1'),
    })
    expect(context.pulse).toBe(0n)
  })
})

describe('wrong arguments', () => {
  it.each([
    ['a token past the vocabulary', { tokens: Int32Array.of(1, 20) }, 'token 1 is 20, expected 0 to 19'],
    ['a negative token', { tokens: Int32Array.of(-1) }, 'token 0 is -1'],
    ['tokens of another type', { tokens: [1] as unknown as Int32Array }, 'Int32Array'],
    ['a negative count', { generate: { ...greedy, count: -1 } }, 'count is -1'],
    ['half a token', { generate: { ...greedy, count: 1.5 } }, 'count is 1.5'],
    ['a negative temperature', { generate: { ...greedy, count: 1, temperature: -1 } }, 'temperature is -1'],
    ['no temperature', { generate: { ...greedy, count: 1, temperature: Number.NaN } }, 'temperature is NaN'],
    ['topP 0', { generate: { ...greedy, count: 1, topP: 0 } }, 'topP is 0'],
    ['topP above 1', { generate: { ...greedy, count: 1, topP: 1.1 } }, 'topP is 1.1'],
    ['a negative topK', { generate: { ...greedy, count: 1, topK: -1 } }, 'topK is -1'],
    ['a seed past 64 bits', { generate: { ...greedy, count: 1, seed: 2n ** 64n } }, 'seed is 18446744073709551616'],
    ['a seed that is no bigint', { generate: { ...greedy, count: 1, seed: 1 as unknown as bigint } }, 'seed is 1'],
    [
      'generation before the first token',
      { tokens: none, generate: { ...greedy, count: 1 } },
      'before the first token',
    ],
  ] as const)('%s is refused before anything moves', async (_, change, says) => {
    const model = await open(dir)
    const [good, bad] = [model.createContext(), model.createContext()]
    const items = [work(good), { ...work(bad), ...change }]
    expect(await errorOf(() => model.process(items))).toMatchObject({
      code: 'INVALID',
      message: expect.stringContaining(says),
    })
    expect(good.pulse).toBe(0n)
    await model.process([work(good), work(bad)])
  })

  it('there are no logits before the first token of a context', async () => {
    const model = await open(dir)
    const context = model.createContext()
    expect(await errorOf(() => model.logits(context))).toMatchObject({ code: 'INVALID' })
    await feed(model, context, [1])
    context.reset()
    expect(await errorOf(() => model.logits(context))).toMatchObject({ code: 'INVALID' })
  })

  it('restore refuses wrong lengths, numbers that are not finite and impossible heads, and leaves the context as it was', async () => {
    const model = await open(dir)
    const context = model.createContext()
    await feed(model, context, [1, 2])
    const head = { pulse: context.pulse, origin: context.origin, chain: context.chain }
    const state = context.serialize()
    const broken = state.slice()
    new DataView(broken.buffer).setFloat32(model.layout.first[2]!.offset + 4, Number.NaN, true)
    const wrong: [Uint8Array, typeof head, string][] = [
      [state.subarray(4), head, 'bytes, expected'],
      [broken, head, model.layout.first[2]!.name],
      [state, { ...head, origin: 3n }, 'origin'],
      [state, { ...head, pulse: -1n }, 'pulse'],
      [state, { ...head, pulse: 2n ** 64n }, 'pulse'],
      [state, { ...head, pulse: 2n ** 63n }, 'from 0 to 2^63'],
      [state, { ...head, chain: 'zz' }, 'chain'],
      [state, { ...head, chain: head.chain.toUpperCase() }, 'chain'],
    ]
    for (const [bytes, to, says] of wrong) {
      expect(await errorOf(() => context.restore(bytes, to))).toMatchObject({
        code: 'INVALID',
        message: expect.stringContaining(says),
      })
      expect(sameBytes(context.serialize(), state)).toBe(true)
      expect({ pulse: context.pulse, origin: context.origin, chain: context.chain }).toEqual(head)
    }
    // Bytes out of a larger buffer, at any alignment.
    const shifted = new Uint8Array(state.length + 3)
    shifted.set(state, 3)
    context.restore(shifted.subarray(3), head)
    expect(sameBytes(context.serialize(), state)).toBe(true)
  })

  it('a state that stops being finite rejects with its item; only reset and restore help the context', async () => {
    const model = await open(dir)
    const [good, bad] = [model.createContext(), model.createContext()]
    const state = bad.serialize()
    const view = new DataView(state.buffer)
    for (let at = 0; at < state.length; at += 4) view.setFloat32(at, 3e38, true)
    bad.restore(state, bad)
    const failure = await model.process([work(good), work(bad, [1, 2, 3])]).catch((error: unknown) => error)
    expect(failure).toBeInstanceOf(ContextBroken)
    expect(failure).toMatchObject({ code: 'REFUSED', message: expect.stringContaining('finite') })
    // The neighbour is done, and does not notice.
    const alone = model.createContext()
    await model.submit(work(alone))
    expect(good.chain).toBe(alone.chain)
    expect(await errorOf(() => model.process([work(bad)]))).toMatchObject({ code: 'MISUSE' })
    expect(await errorOf(() => model.logits(bad))).toMatchObject({ code: 'MISUSE' })
    expect(await errorOf(() => bad.serialize())).toMatchObject({ code: 'MISUSE' })
    bad.reset()
    await model.process([work(bad), work(good)])
  })

  it.each([0, -1, 1.5, 257, Number.NaN])('threads = %s is refused', async (threads) => {
    expect(await errorOf(() => open(dir, { threads }))).toMatchObject({
      code: 'INVALID',
      message: expect.stringContaining('threads'),
    })
  })

  it.each(['gpu', '', null])('device = %j is refused', async (device) => {
    expect(await errorOf(() => open(dir, { device: device as 'cpu' }))).toEqual({
      code: 'INVALID',
      message: `device is ${JSON.stringify(device)}, expected "auto", "cpu" or "cuda".`,
    })
  })

  it('the device "cuda" is refused where none can be used, and "auto" is the CPU there', async () => {
    expect(await errorOf(() => open(dir, { device: 'cuda' }))).toMatchObject({
      code: 'UNAVAILABLE',
      message: expect.stringMatching(/^CUDA cannot be used: .+: .+\. The device "auto" takes the CPU by itself/),
    })
    for (const device of ['auto', 'cpu', undefined] as const)
      expect(await open(dir, device === undefined ? {} : { device })).toMatchObject({ device: 'cpu' })
  })
})
