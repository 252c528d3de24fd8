/**
 * Sessions of the perspective family: what they own, what draws and adaptations leave alone, and bounds that hold in
 * any of them.
 *
 * @module-tag slow
 */
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import type { Context, ContextHead, EngineContext } from '../../../src/engine/context.ts'
import type { Model } from '../../../src/engine/types.ts'
import type { WorkItem } from '../../../src/engine/work.ts'
import { bits, errorOf, feed, none, sameBytes } from '../../engine/helpers.ts'
import { random, temporaryFolder } from '../../engine/packages.ts'
import { drawAt, largest, openPerspective, stateOf } from './engine.ts'
import { within } from './margins.ts'
import { type Change, LIMITS, perspectiveConfig, writePerspective } from './package.ts'
import { openReference } from './reference.ts'

const written = (change: Change, seed = 21): string =>
  writePerspective(join(temporaryFolder(), 'model'), perspectiveConfig(change), seed)
const tokensOf = (seed: number, count: number, vocabulary = 256): number[] => {
  const next = random(seed)
  return Array.from({ length: count }, () => Math.floor(next() * vocabulary))
}
const headOf = ({ pulse, origin, chain }: EngineContext): ContextHead => ({ pulse, origin, chain })
const copyOf = (model: Model, context: EngineContext): EngineContext => {
  const copy = model.createContext()
  copy.restore(context.serialize(), headOf(context))
  return copy
}
const adaptItem = (context: Context, evaluations: number, seed = 0n): WorkItem => ({
  ...{ context, tokens: none, nats: false },
  request: { type: 'adapt', evaluations, seed },
})
const generateItem = (context: Context, count: number, perspectives = true): WorkItem => ({
  ...{ context, tokens: none, nats: false, perspectives },
  generate: { count, temperature: 0.9, topK: 0, topP: 1, seed: 3n },
})
const SURE: Change = { mpd: { max_p: 1 }, hdm: { write_nats: 5 } }

describe('block "again"', () => {
  /** Runs it once from where the last token's layers began, moved by what a perspective changes. */
  const again = async (
    model: Model,
    context: EngineContext,
    { move = 0, rank = 0 }: { readonly move?: number; readonly rank?: number } = {},
  ) => {
    const executor = model.createExecutor({ context })
    const before = context.serialize()
    executor.insert('again.start', Float32Array.from(stateOf(model, context).get('mpd.x')!.data))
    for (const name of ['again.keep', 'again.rank', 'again.move.1', 'again.move.2'])
      executor.insert(name, name === 'again.keep' ? [1, 1] : name === 'again.rank' ? [rank] : [move, move])
    await executor.step('again')
    expect(sameBytes(context.serialize(), before)).toBe(true)
    return {
      hidden: bits(executor.fetch('again.hidden').data as Float32Array),
      routes: [1, 2].map((layer) => [...(executor.fetch(`again.${layer}.experts`).data as Int32Array)]),
    }
  }

  it.each<[string, Change]>([
    ['usual', {}],
    ['as many keys as channels', { pdr: { width: 16, rank: 16 } }],
    ['as many keys as channels, of no vector', { pdr: { width: 37, rank: 37, write: 'plain' } }],
    ['more keys than a block of an inner product', { pdr: { width: 300, rank: 300 } }],
    ['two experts, a window that wraps', { experts: { top_k: 2 }, sliding_window: 3 }],
  ])("gives the last token's own bits where a perspective changes nothing: %s", async (_, change) => {
    const model = await openPerspective(written({ layer_types: ['pdr', 'pdr', 'gqa'], ...change }))
    const context = model.createContext()
    for (const token of tokensOf(1, 12)) {
      await feed(model, context, [token])
      const { hidden } = await again(model, context)
      expect(hidden).toEqual(bits(Float32Array.from(stateOf(model, context).get('hidden.last')!.data)))
    }
    await model.process([adaptItem(context, 9)])
    await feed(model, context, [77])
    const { hidden } = await again(model, context)
    expect(hidden).toEqual(bits(Float32Array.from(stateOf(model, context).get('hidden.last')!.data)))
  })

  it('takes the routes of the reference, from the next rank and from the other side of the torus', async () => {
    const dir = written({ mpd: { perspectives: ['base', 'second', 'antipode'], max_p: 1 }, experts: { top_k: 2 } })
    const model = await openPerspective(dir)
    const session = openReference(dir).open()
    const context = model.createContext()
    let compared = 0
    for (const token of tokensOf(2, 30)) {
      const fed = session.feed(token)
      await feed(model, context, [token])
      const { experts, margins } = session.draw(1)
      if (!within(margins, { ...LIMITS, trigger: 0, jsd: 0 }) || !within(fed.margins, LIMITS)) continue
      compared += 1
      expect((await again(model, context, { rank: 1 })).routes).toEqual(experts![1])
      expect((await again(model, context, { move: 0.5 })).routes).toEqual(experts![2])
    }
    expect(compared).toBeGreaterThan(5)
  })
})

describe('draws of a perspective model', () => {
  it('finds no divergence of a perspective that changes nothing from base', async () => {
    for (const pdr of [{}, { width: 16, rank: 16 }]) {
      const mpd = { perspectives: ['base', 'jitter'], jitter_std: 0, max_p: 1 } as const
      const model = await openPerspective(written({ mpd, pdr }))
      const context = model.createContext()
      for (const token of tokensOf(3, 25)) {
        await feed(model, context, [token])
        const { note } = await drawAt(model, context, 1)
        expect([note.fired, note.jsd, note.agreed]).toEqual([true, 0, true])
      }
    }
  })

  it('take no notice of a perspective whose logits are not finite', async () => {
    const mpd = { perspectives: ['base', 'temperature'], temperature: 1e-38, max_p: 1 } as const
    const model = await openPerspective(written({ mpd }))
    const context = model.createContext()
    await feed(model, context, tokensOf(18, 5))
    const logits = await model.logits(context)
    const { note, generated } = await drawAt(model, context, 1)
    expect(note).toMatchObject({ fired: true, jsd: null, agreed: false, hdm: null })
    expect(generated[0]).toBe(logits.indexOf(Math.max(...logits)))
  })

  it('leave the state and the clock alone, and are the same whether their notes are wanted or not', async () => {
    const model = await openPerspective(written(SURE))
    const [told, untold, read] = [model.createContext(), model.createContext(), model.createContext()]
    const tokens = tokensOf(4, 15)
    for (const context of [told, untold, read]) await feed(model, context, tokens)
    const [a] = await model.process([generateItem(told, 12)])
    const [b] = await model.process([generateItem(untold, 12, false)])
    expect([b!.draws, b!.experts]).toEqual([undefined, undefined])
    expect(a!.draws).toHaveLength(12)
    expect(a!.experts).toHaveLength(12 * 3)
    expect(a!.generated).toEqual(b!.generated)
    expect(bits(a!.logprobs)).toEqual(bits(b!.logprobs))
    // Tokens that were generated leave what the same tokens leave where they were read.
    await feed(model, read, a!.generated)
    for (const other of [untold, read]) {
      expect(headOf(other)).toEqual(headOf(told))
      expect(sameBytes(other.serialize(), told.serialize())).toBe(true)
    }
  })

  it('of so many sessions at once that their perspectives fill several steps are those of each alone', async () => {
    const mpd = { perspectives: ['base', 'jitter', 'dropout', 'second', 'antipode', 'random'], max_p: 1 } as const
    const model = await openPerspective(written({ mpd }), { threads: 2 })
    // 5 of them run layers: 150 rows and more, where a step has 128.
    const texts = Array.from({ length: 31 }, (_, i) => tokensOf(100 + i, 3 + (i % 5)))
    const opened = async () =>
      Promise.all(
        texts.map(async (tokens) => {
          const context = model.createContext()
          await feed(model, context, tokens)
          return context
        }),
      )
    const [together, alone] = [await opened(), await opened()]
    const results = await model.process(together.map((context) => generateItem(context, 3)))
    for (const [i, context] of alone.entries()) {
      const [own] = await model.process([generateItem(context, 3)])
      expect(results[i]!.draws).toEqual(own!.draws)
      expect(results[i]!.experts).toEqual(own!.experts)
      expect(together[i]!.chain).toBe(context.chain)
    }
  })

  it('are noted of generated tokens alone, where an item reads before it generates', async () => {
    const model = await openPerspective(written(SURE))
    const [one, two] = [model.createContext(), model.createContext()]
    const tokens = Int32Array.from(tokensOf(5, 9))
    const [whole] = await model.process([{ ...generateItem(one, 4), tokens, nats: true }])
    await feed(model, two, tokens)
    const [apart] = await model.process([generateItem(two, 4)])
    expect(whole!.draws).toEqual(apart!.draws)
    expect(whole!.experts).toEqual(apart!.experts)
    expect(whole!.generated).toEqual(apart!.generated)
  })

  it('are the same from a snapshot that was taken between a token and the draw behind it', async () => {
    const model = await openPerspective(written(SURE))
    const other = await openPerspective(written(SURE), { threads: 1, experts: { bytes: 16384 } })
    let context = model.createContext()
    await feed(model, context, tokensOf(6, 20))
    await model.process([adaptItem(context, 16)])
    const straight = copyOf(model, context)
    const [wanted] = await model.process([generateItem(straight, 8)])
    for (let i = 0; i < 8; i += 1) {
      const [one] = await model.process([generateItem(context, 1)])
      expect(one!.generated[0]).toBe(wanted!.generated[i])
      expect(one!.draws![0]).toEqual(wanted!.draws![i])
      const next = (i % 2 === 0 ? other : model).createContext()
      next.restore(context.serialize(), headOf(context))
      if (i % 2 === 0) {
        // By another process's model the draw is the same; the session goes on here.
        const ahead = { ...wanted!.draws![i + 1] }
        if (i < 7) expect((await drawAt(other, next, 3, 0.9)).note).toEqual(ahead)
        next.close()
      } else {
        context.close()
        context = next
      }
    }
    expect(headOf(context)).toEqual(headOf(straight))
  })
})

describe('adaptations of a perspective model', () => {
  it('of two sessions do not meet, and hold up nobody', async () => {
    const model = await openPerspective(written(SURE), { threads: 3 })
    const story = (context: Context, seed: number): readonly WorkItem[] => [
      { context, tokens: Int32Array.from(tokensOf(seed, 18)), nats: false },
      adaptItem(context, 16 + seed, BigInt(seed)),
      generateItem(context, 5),
      { context, tokens: Int32Array.from(tokensOf(seed + 1, 13)), nats: false },
      adaptItem(context, 30, BigInt(seed)),
      generateItem(context, 5),
    ]
    const alone = await Promise.all(
      [7, 8].map(async (seed) => {
        const context = model.createContext()
        for (const item of story(context, seed)) await model.submit(item)
        return context
      }),
    )
    const apart = [model.createContext(), model.createContext()]
    for (const [i, seed] of [7, 8].entries()) for (const item of story(apart[i]!, seed)) await model.submit(item)
    const shifted = [model.createContext(), model.createContext()]
    const [first, second] = [story(shifted[0]!, 7), story(shifted[1]!, 8)]
    // One adapts while the other reads or draws.
    for (let i = 0; i <= first.length; i += 1)
      await Promise.all([...first.slice(i, i + 1), ...second.slice(Math.max(0, i - 1), i)].map(model.submit))
    for (const others of [apart, shifted]) {
      for (const [i, context] of others.entries()) {
        expect(headOf(context)).toEqual(headOf(alone[i]!))
        expect(sameBytes(context.serialize(), alone[i]!.serialize())).toBe(true)
      }
    }
    const [a, b] = alone.map((context) => stateOf(model, context).get('fmea.pdr.p_proj.B')!.data)
    expect(largest(a!)).toBeGreaterThan(0)
    expect(a).not.toEqual(b)
  })

  it('do nothing with fewer than two tokens since the session began or began anew', async () => {
    const model = await openPerspective(written(SURE))
    const context = model.createContext()
    const nothing = async (tokens: number): Promise<void> => {
      const [before, head] = [context.serialize(), headOf(context)]
      const [result] = await model.process([adaptItem(context, 50)])
      expect(result!.adapted).toMatchObject({ tokens, evaluations: 0, stages: [], bound: 0 })
      expect(headOf(context)).toEqual(head)
      expect(sameBytes(context.serialize(), before)).toBe(true)
    }
    await nothing(0)
    await feed(model, context, [5])
    await nothing(1)
    await feed(model, context, [6, 7, 8])
    context.reset()
    await nothing(0)
    await feed(model, context, [9])
    await nothing(1)
    await feed(model, context, [10])
    const [result] = await model.process([adaptItem(context, 1)])
    expect(result!.adapted).toMatchObject({ tokens: 2, evaluations: 1, stages: [] })
  })

  it('do not depend on the recurrent state: a session that was reset adapts as a new one that read the same', async () => {
    const model = await openPerspective(written({ ...SURE, recent: 6 }))
    const [old, young] = [model.createContext(), model.createContext()]
    await feed(model, old, tokensOf(9, 40))
    await feed(model, young, tokensOf(10, 40))
    const window = tokensOf(11, 6)
    for (const context of [old, young]) await feed(model, context, window)
    const [a, b] = await model.process([adaptItem(old, 20), adaptItem(young, 20)])
    const { bound: _, ...rest } = a!.adapted!
    expect(b!.adapted).toMatchObject(rest)
    for (const name of ['fmea.pdr.p_proj.A', 'fmea.pdr.p_proj.B', 'router.offset'])
      expect(stateOf(model, old).get(name)).toEqual(stateOf(model, young).get(name))
  })

  it('bind a token once, however often they are asked', async () => {
    const model = await openPerspective(written({ ...SURE, hdm: { write_nats: 0 } }))
    const context = model.createContext()
    await feed(model, context, tokensOf(12, 10))
    const bound = async (): Promise<number> => (await model.process([adaptItem(context, 1)]))[0]!.adapted!.bound
    expect(await bound()).toBe(9)
    const banks = stateOf(model, context).get('hdm.banks')
    expect(await bound()).toBe(0)
    expect(stateOf(model, context).get('hdm.banks')).toEqual(banks)
    await feed(model, context, tokensOf(13, 3))
    expect(await bound()).toBe(3)
    expect(stateOf(model, context).get('hdm.through')!.data).toEqual([13])
    // More than the window holds: what left it is not bound.
    await feed(model, context, tokensOf(14, 30))
    expect(await bound()).toBe(11)
  })

  it('use as many evaluations as whole stages take', async () => {
    const model = await openPerspective(written(SURE))
    const context = model.createContext()
    await feed(model, context, tokensOf(15, 5))
    // One, then 5 for adapters and 3 for the router in turn.
    for (const [asked, used, stages] of [
      [1, 1, 0],
      [5, 1, 0],
      [6, 6, 1],
      [8, 6, 1],
      [9, 9, 2],
      [13, 9, 2],
      [14, 14, 3],
      [17, 17, 4],
    ] as const) {
      const fork = model.forkContext(context)
      const [result] = await model.process([adaptItem(fork, asked)])
      expect([result!.adapted!.evaluations, result!.adapted!.stages.length]).toEqual([used, stages])
      fork.close()
    }
  })

  it('of a state that holds no tokens of the model are refused, and the session takes a reset', async () => {
    const model = await openPerspective(written({ vocab_size: 61 }))
    const context = model.createContext()
    await feed(model, context, [1, 2, 3])
    const state = context.serialize()
    const { offset } = model.layout.tensors(state).find(({ name }) => name === 'recent.ids')!
    for (const id of [61, -1, 2 ** 30]) {
      const forged = state.slice()
      new DataView(forged.buffer).setInt32(offset + 4, id, true)
      const other = model.createContext()
      other.restore(forged, headOf(context))
      expect(await errorOf(() => model.process([adaptItem(other, 9)]))).toMatchObject({
        code: 'REFUSED',
        message: expect.stringContaining(`recent tokens hold ${id}, expected token ids from 0 to 60`),
      })
      other.reset()
      await feed(model, other, [1, 2])
      await model.process([adaptItem(other, 1)])
    }
  })

  it('end with the first state at a reset', async () => {
    const model = await openPerspective(written(SURE))
    const context = model.createContext()
    const first = context.serialize()
    await feed(model, context, tokensOf(16, 20))
    await model.process([adaptItem(context, 40)])
    expect(sameBytes(context.serialize(), first)).toBe(false)
    context.reset()
    expect(sameBytes(context.serialize(), first)).toBe(true)
    expect(context.pulse).toBe(20n)
  })

  it('are refused with a budget that is none, and by models that have nothing that adapts', async () => {
    const model = await openPerspective(written(SURE))
    const context = model.createContext()
    for (const evaluations of [0, -1, 1.5, 65537, Number.NaN])
      expect(await errorOf(() => model.process([adaptItem(context, evaluations)]))).toMatchObject({
        code: 'INVALID',
        message: expect.stringContaining('evaluations'),
      })
    expect(await errorOf(() => model.process([adaptItem(context, 1, -1n)]))).toMatchObject({
      code: 'INVALID',
      message: expect.stringContaining('seed'),
    })
    const plain = await openPerspective(written({ hdm: null, fmea: null }))
    const other = plain.createContext()
    await feed(plain, other, [1, 2, 3])
    const before = headOf(other)
    expect(await errorOf(() => plain.process([adaptItem(other, 5)]))).toMatchObject({
      message: expect.stringContaining('nothing that adapts'),
    })
    expect(headOf(other)).toEqual(before)
    await feed(plain, other, [4])
  })
})

describe('the recurrence', () => {
  it.each([
    'convex',
    'plain',
  ] as const)('%s: no column of a state outgrows the values that were written', async (write) => {
    const [gamma_max, layers] = [0.97, [0, 2]]
    const model = await openPerspective(written({ pdr: { write, gamma_max, width: 40, rank: 12 } }))
    const executor = model.createExecutor({ memoryReuse: false })
    const { context } = executor
    let V = 0
    const limit = write === 'convex' ? 1 : 1 / (1 - gamma_max)
    for (let piece = 0; piece < 30; piece += 1) {
      // The same token for long lets the state go as far as it can.
      executor.insert('token', piece < 15 ? tokensOf(piece, 10) : Array.from({ length: 10 }, () => 99))
      await executor.step('step')
      for (const layer of layers) V = Math.max(V, largest(Array.from(executor.fetch(`${layer}.pdr.v`).data, Number)))
      const { data, shape } = stateOf(model, context).get('pdr.S')!
      const [depth, r, E] = shape as [number, number, number]
      for (let layer = 0; layer < depth; layer += 1) {
        for (let a = 0; a < E; a += 1) {
          const norm = Math.hypot(...Array.from({ length: r }, (_, b) => data[(layer * r + b) * E + a]!))
          expect(norm).toBeLessThanOrEqual(V * limit * (1 + 1e-5))
        }
      }
    }
  })
})
