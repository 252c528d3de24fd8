/**
 * Tables that grow, and rings, lie in blocks of 256 positions: the bits are those of one span, and forks share what is
 * full.
 */
import { createHash } from 'node:crypto'
import { beforeAll, describe, expect, it } from 'vitest'
import type { EngineContext } from '../../src/engine/context.ts'
import type { OpenModelOptions } from '../../src/engine/options.ts'
import type { Model } from '../../src/engine/types.ts'
import { BASE, type DecoderConfig, randomDecoder, windowedGemma3 } from '../models/decoders.ts'
import { gpt2ConfigOf, randomGpt2 } from '../models/gpt2/gpt2.ts'
import { hybridTensors, qwen3NextConfig } from '../models/hybrids/hybrid-packages.ts'
import { bits, errorOf, feed, generate, open, sameBytes, testDevice } from './helpers.ts'
import { randomRwkv7, safetensors, writePackage } from './packages.ts'

const LONG: DecoderConfig = { ...BASE, max_position_embeddings: 1100 }
const long = (): string => writePackage(LONG, safetensors(randomDecoder(3, LONG)))
const tokens = (count: number, seed = 1): number[] =>
  Array.from({ length: count }, (_, i) => ((i * i + 7 * i) * seed + seed) % 29)
const windowed = (): string => writePackage(windowedGemma3(256), safetensors(randomDecoder(3, windowedGemma3(256))))
const gpt2 = (): string => {
  const sizes = { L: 2, H: 1, N: 2, F: 4, V: 32, P: 256 }
  return writePackage(gpt2ConfigOf(sizes), safetensors(randomGpt2(5, sizes)))
}
const llama: Kind = ['llama', long, {}]
const gemma3: Kind = ['gemma3, whose layers with a window have rings by the clock', windowed, {}]
const gpt2InWindow: Kind = ['gpt2 in a window, a ring by a counter', gpt2, { overflow: 'window' }]
type Kind = readonly [what: string, write: () => string, options: OpenModelOptions]

/** Chain, and the hash of nats and state, of tokens(800) in a model with tables in one span of memory. */
const GOLDEN: readonly (readonly [...Kind, string])[] = [
  [...llama, 'e5fbf8eea3df6e81edf05eda64ac94da fa0a69a8ce8f601cdd3189701876c0124988a612066d7711f45fe1f312049409'],
  [...gemma3, 'f18174ce2372f35da791cb49e7a815d7 5e04fbd263505fac9987c2ce70e634e7457e3c8ac02227ddc811033e4499622f'],
  [
    ...gpt2InWindow,
    '068471a3e0605010637fa41a0cba9ac3 887ed79dc5b9d4e1b2605123db34ef6637cfffeb11616a98d89cd53e0d42a855',
  ],
]
const drawn = { temperature: 1, topK: 0, topP: 1, seed: 5n }

const expectSame = (a: EngineContext, b: EngineContext): void => {
  expect([a.pulse, a.origin, a.chain]).toEqual([b.pulse, b.origin, b.chain])
  expect(sameBytes(a.serialize(), b.serialize())).toBe(true)
}
const restored = (model: Model, from: EngineContext): EngineContext => {
  const { pulse, origin, chain } = from
  const context = model.createContext()
  context.restore(from.serialize(), { pulse, origin, chain })
  return context
}

describe('a table in blocks', () => {
  it.each(GOLDEN)('of %s has the bits of one span, whatever the cut', async (_what, write, options, golden) => {
    const model = await open(write(), { threads: 2, ...options, ...testDevice })
    const ids = tokens(800)
    const hashes: string[] = []
    for (const most of [800, 97]) {
      const context = model.createContext()
      const hash = createHash('sha256')
      for (let at = 0; at < ids.length; at += most)
        hash.update(bits(await feed(model, context, ids.slice(at, at + most))))
      hash.update(context.serialize())
      hashes.push(`${context.chain} ${hash.digest('hex')}`)
    }
    expect(hashes).toEqual([golden, golden])
  })

  it('that grows takes memory by blocks: little at first, and no more than a block beyond its positions', async () => {
    const model = await open(long())
    const context = model.createContext()
    const base = context.bytes
    // Two layers of keys and values, each 12 channels of f32; and two lists of blocks, of 16 bytes for each of 8.
    const [position, lists] = [2 * 2 * 12 * 4, 2 * 8 * 16]
    await feed(model, context, tokens(1), false)
    expect(context.bytes - base).toBe(16 * position + lists)
    await feed(model, context, tokens(515), false)
    expect(context.bytes - base).toBe((256 + 256 + 16) * position + lists)
  })
})

const kinds: readonly Kind[] = [
  llama,
  gemma3,
  gpt2InWindow,
  ['qwen3-next, whose other layers are recurrent', hybrid, {}],
  ['rwkv7, which has no table that grows', rwkv7, {}],
]
describe.each(kinds)('a fork of %s', (_, dir, options) => {
  let path = ''
  beforeAll(() => {
    path = dir()
  })
  const parentOf = async (model: Model, count = 300): Promise<EngineContext> => {
    const context = model.createContext()
    await feed(model, context, tokens(count), false)
    return context
  }

  it('is what a copy of its state is, and each goes on by itself', async () => {
    const model = await open(path, options)
    const parent = await parentOf(model)
    const [fork, copy, other] = [model.forkContext(parent), restored(model, parent), restored(model, parent)]
    expectSame(fork, copy)
    expectSame(fork, parent)
    // In one step, and apart.
    const rows = [
      { context: parent, tokens: Int32Array.from(tokens(30, 2)), nats: true },
      { context: fork, tokens: Int32Array.from(tokens(30, 3)), nats: true },
    ]
    const [ofParent, ofFork] = (await model.process(rows)).map(({ nats }) => bits(nats))
    expect(ofFork).toEqual(bits(await feed(model, copy, tokens(30, 3))))
    expect(ofParent).toEqual(bits(await feed(model, other, tokens(30, 2))))
    expect((await generate(model, fork, 9, drawn)).generated).toEqual((await generate(model, copy, 9, drawn)).generated)
    expectSame(fork, copy)
    expectSame(parent, other)
  })

  it('of a fork stands when those before it have gone on, were reset or closed', async () => {
    const model = await open(path, options)
    const parent = await parentOf(model, 520)
    const want = restored(model, parent)
    const [child, reset] = [model.forkContext(parent), model.forkContext(parent)]
    const grandchild = model.forkContext(child)
    await feed(model, parent, tokens(40, 4), false)
    parent.close()
    reset.reset()
    await feed(model, reset, tokens(300, 5), false)
    expectSame(grandchild, child)
    await feed(model, child, tokens(20, 6), false)
    child.close()
    for (const context of [grandchild, want]) await feed(model, context, tokens(20, 7), false)
    expectSame(grandchild, want)
    // A ring by the clock goes on from where it stood.
    const fresh = await parentOf(model, 520)
    fresh.reset()
    await feed(model, fresh, tokens(300, 5), false)
    expect(sameBytes(fresh.serialize(), reset.serialize())).toBe(true)
  })

  it('is refused while a call has the context, and of one that is closed or another model’s', async () => {
    const [model, another] = [await open(path, options), await open(path, options)]
    const parent = await parentOf(model, 3)
    const running = feed(model, parent, tokens(9))
    expect(await errorOf(() => model.forkContext(parent))).toMatchObject({ code: 'MISUSE' })
    await running
    expect(await errorOf(() => another.forkContext(parent))).toMatchObject({ code: 'MISUSE' })
    parent.close()
    expect(await errorOf(() => model.forkContext(parent))).toMatchObject({ code: 'MISUSE' })
  })
})

describe('a thousand forks', () => {
  it('of a context with windows take the blocks of a ring that they write', async () => {
    const model = await open(writePackage(windowedGemma3(1024), safetensors(randomDecoder(3, windowedGemma3(1024)))))
    const parent = model.createContext()
    await feed(model, parent, tokens(2100), false)
    const { bytes } = parent
    // Keys and values of the layer with a window, each 12 channels of f32.
    const ring = 2 * 1024 * 12 * 4
    const forks = Array.from({ length: 100 }, () => model.forkContext(parent))
    const taken = (): number => forks.reduce((sum, fork) => sum + fork.bytes, 0) / forks.length
    const before = taken()
    expect(before).toBeLessThan(bytes - ring)
    for (const fork of forks) await feed(model, fork, tokens(1), false)
    expect(taken() - before).toBe(ring / 4)
    expect(parent.bytes).toBe(bytes)
    // The parent's next token lies in that block too, which the forks hold or held.
    await feed(model, parent, tokens(1), false)
    expectSame(parent, forks[7]!)
  })

  it('of a long context take the memory of their last blocks', async () => {
    const model = await open(long())
    const parent = model.createContext()
    await feed(model, parent, tokens(1030), false)
    const { bytes } = parent
    const forks = Array.from({ length: 1000 }, () => model.forkContext(parent))
    const more = forks.reduce((sum, fork) => sum + fork.bytes, 0)
    // Of 1,030 positions four blocks are shared; a fork has 16 places of its own.
    expect(more / 1000).toBeLessThan(bytes / 40)
    expect(parent.bytes).toBe(bytes)
    // Whoever is left counts what is shared.
    parent.close()
    for (const fork of forks.slice(0, 999)) fork.close()
    expect(forks[999]!.bytes).toBeGreaterThan(0.9 * bytes)
  })
})

function hybrid(): string {
  const config = qwen3NextConfig({ max_position_embeddings: 900 })
  return writePackage(config, safetensors(hybridTensors(13, config)))
}
function rwkv7(): string {
  const sizes = { L: 2, H: 2, N: 16, F: 40, V: 29, D: { w: 4, a: 4, v: 4, g: 4 } }
  return writePackage({ model_type: 'rwkv7' }, safetensors(randomRwkv7(1, sizes)))
}
