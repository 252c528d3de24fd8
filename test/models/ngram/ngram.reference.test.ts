/**
 * An ngram memory against an implementation that shares nothing with the engine: its tables to the last bit, its
 * predictions within rounding.
 */
import { fileURLToPath } from 'node:url'
import { describe, expect, it, onTestFinished } from 'vitest'
import { buildGraph } from '../../../src/engine/builder.ts'
import { ref } from '../../../src/engine/builder-types.ts'
import { openGraph } from '../../../src/engine/engine.ts'
import { callNative } from '../../../src/engine/native.ts'
import type { Model } from '../../../src/engine/types.ts'
import { feed, generate, greedy, open, sameBytes } from '../../engine/helpers.ts'
import { surprisalOf } from '../../engine/oracle.ts'
import { random, safetensors, type Tensor, writePackage } from '../../engine/packages.ts'
import { DRAWN, type NgramReference, ngramReference, smallReference, subwordReference } from './reference.ts'
import { TEXTS, tokensOf } from './subwords.ts'
import { logLines, randomLearned, shippedLearned, writeNgram } from './texts.ts'

const watch = fileURLToPath(new URL('../../../models/watch', import.meta.url))

/**
 * The engine computes in f32 what the reference does in f64, and each goes on with what it learned itself. So far
 * apart, in nats, may a byte be (3e-4 was seen) and the mean of a text (1e-7 was seen).
 */
const BYTE = 1e-3
const MEAN = 1e-6

const worst = (got: ArrayLike<number>, want: ArrayLike<number>): number => {
  expect(got.length).toBe(want.length)
  return Array.from(want, (value, i) => Math.abs(value - got[i]!)).reduce((most, value) => Math.max(most, value), 0)
}

/** The engine's tables are the reference's. */
const sameTables = (model: Model, state: Uint8Array, reference: NgramReference): void => {
  const tensors = new Map(model.layout.tensors(state).map((entry) => [entry.name, entry]))
  const bytesOf = (name: string): Uint8Array => {
    const { offset, bytes } = tensors.get(name)!
    return state.subarray(offset, offset + bytes)
  }
  expect(sameBytes(bytesOf('ngram.slots'), reference.slots())).toBe(true)
  const [got, want] = [bytesOf('ngram.text'), reference.text()]
  expect(got.length).toBe(want.length)
  const differing: number[] = []
  for (const [i, byte] of want.entries()) if (got[i] !== byte && (i < DRAWN.from || i >= DRAWN.to)) differing.push(i)
  expect(differing).toEqual([])
}

/** Reads a text in pieces, and compares what came of it in between. */
const agrees = async (
  model: Model,
  reference: NgramReference,
  text: Uint8Array,
  base?: (byte: number) => Float32Array,
): Promise<void> => {
  const context = model.createContext()
  const got: number[] = []
  const want: number[] = []
  let logits: Float64Array = new Float64Array(256)
  const pieces = [1, 1, 1, 1, 2, 7, 300, 129]
  for (let at = 0, piece = 0; at < text.length; piece += 1) {
    const bytes = text.subarray(at, at + pieces[piece % pieces.length]!)
    at += bytes.length
    const nats = await feed(model, context, bytes)
    for (const [i, byte] of bytes.entries()) {
      if (context.pulse > BigInt(bytes.length) || i > 0) {
        got.push(nats[i]!)
        want.push(surprisalOf([...logits], byte))
      }
      logits = reference.step(byte, base?.(byte))
    }
    if (piece < 7 || piece % 16 === 0 || at >= text.length) sameTables(model, context.serialize(), reference)
  }
  expect(worst(await model.logits(context), logits)).toBeLessThan(BYTE)
  expect(worst(got, want)).toBeLessThan(BYTE)
  expect(Math.abs(want.reduce((sum, nats, i) => sum + nats - got[i]!, 0)) / want.length).toBeLessThan(MEAN)
  // What it reads it learns: bytes would have ln 256 = 5.5 each.
  expect(want.reduce((sum, nats) => sum + nats, 0) / want.length).toBeLessThan(4)
}

describe('an ngram memory against an independent implementation in double precision', () => {
  it('that begins with nothing, where contexts fight for slots', { tags: 'slow' }, async () => {
    await agrees(await open(writeNgram(1024)), ngramReference(1024), logLines(1, 3500))
  })

  it('that begins with what other texts taught it, in a number of slots that is no power of two', {
    tags: 'slow',
  }, async () => {
    const learned = randomLearned(7)
    await agrees(await open(writeNgram(5002, learned)), ngramReference(5002, learned), logLines(2, 3000))
  })

  it('of the small form, whose contexts fight for slots, and whose text is longer than its ring', async () => {
    const learned = randomLearned(9, 'small')
    for (const [seed, from] of [
      [4, null],
      [11, learned],
    ] as const)
      await agrees(
        await open(writeNgram(1024, from, { form: 'small' })),
        smallReference(1024, from),
        logLines(seed, 4500),
      )
  })

  it('that is shipped', async () => {
    await agrees(await open(watch), ngramReference(58_368, shippedLearned(watch)), logLines(3, 2500))
  })

  it('whose text is longer than its ring, and whose counts are full', { tags: 'slow' }, async () => {
    const learned = randomLearned(8).map((number) => 3 * number)
    const rare = Buffer.from('\nrare 0071 is\nrare 0072 is\n')
    const prose = Buffer.from(`${'ab\n'.repeat(300)}${'nobody counts the dogs, and no dog minds.\n'.repeat(80)}`)
    // Zeros lie where the ring had the digits of the last rare number.
    const parts = [rare, prose.subarray(0, 4062), Buffer.from('0'.repeat(50)), rare, logLines(5, 1000)]
    const text = Buffer.concat(parts)
    await agrees(await open(writeNgram(4096, learned)), ngramReference(4096, learned), text)
  })

  it('of bytes that have no order', async () => {
    const next = random(5)
    const bytes = Uint8Array.from({ length: 900 }, () => Math.floor(next() * 256))
    const model = await open(writeNgram(1024))
    const context = model.createContext()
    const reference = ngramReference(1024)
    await feed(model, context, bytes)
    for (const byte of bytes) reference.step(byte)
    sameTables(model, context.serialize(), reference)
  })

  it.each(['read', 'all'] as const)('of what it draws where it learns from %s', async (learn) => {
    const model = await open(writeNgram(2048, null, { learn }))
    const context = model.createContext()
    const reference = ngramReference(2048)
    const text = logLines(6, 1200)
    let logits: Float64Array = new Float64Array(256)
    for (const [from, to] of [
      [0, 800],
      [800, 1200],
    ] as const) {
      await feed(model, context, text.subarray(from, to))
      for (const byte of text.subarray(from, to)) logits = reference.step(byte)
      const { generated } = await generate(model, context, 150, { ...greedy, temperature: 1, seed: 3n })
      for (const byte of generated) logits = reference.step(byte, undefined, learn === 'all')
      expect(worst(await model.logits(context), logits)).toBeLessThan(BYTE)
      sameTables(model, context.serialize(), reference)
    }
  })

  it.each([
    ['read', null],
    ['all', null],
    ['read', randomLearned(6)],
  ] as const)('of subwords, on top of a network’s logits, where it learns from %s', async (learn, learned) => {
    const V = TEXTS.length
    const slots = 1024
    const sizes = callNative((addon) => addon.ngram('subwords', slots))
    const g = buildGraph()
    const token = g.dynamic('token', [], 'i32')
    const rows = g.lookup('rows', [V, V], ref('rows'))
    const tables = {
      slots: g.table('ngram.slots', [slots, 4], { dtype: 'i32' })(),
      text: g.table('ngram.text', [sizes.text], { dtype: 'i32' })(),
      base: g.table('ngram.base', [V])(),
      mixture: g.table('ngram.mixture', [sizes.mixture])(),
    }
    const last = g.table('last', [V])
    const first = learned && g.vector('learned', learned.length, ref('learned'))
    g.block('first', [], () => {
      g.cacheNgramFirst(tables.mixture, first)
      return {}
    })
    g.block('step', [token], () => {
      const hidden = g.cacheNgram('hidden', tables, token, learn, g.embed('base', token, rows))
      return { hidden, previous: g.cacheShift('previous', last(), hidden) }
    })
    const hidden = g.dynamic('of', [V], 'f32')
    g.block('predict', [hidden], () => ({ logits: g.scale('logits', hidden, 1) }))
    const next = random(9)
    const data = Float32Array.from({ length: V * V }, () => 4 * next() - 2)
    const baseOf = (id: number) => data.subarray(id * V, id * V + V)
    const tensors: [string, Tensor][] = [['rows', { shape: [V, V], data }]]
    if (learned !== null) tensors.push(['learned', { shape: [learned.length], data: learned }])
    const folder = writePackage({}, safetensors(new Map(tensors)))
    const vocabulary = { bytesOf: (id: number) => TEXTS[id]! }
    const file = `${folder}/model.safetensors`
    await expect(openGraph(g.finish(), file)).rejects.toThrow('no tokenizer that says it')
    const model = await openGraph(g.finish(), file, { threads: 1 }, vocabulary)
    onTestFinished(() => model.close())

    const tokens = tokensOf(logLines(4, 4500))
    // One that stands for nothing, first and in between.
    const ids = [0, ...tokens.slice(0, 700), 0, 0, ...tokens.slice(700)]
    const context = model.createContext()
    const reference = subwordReference(slots, TEXTS, learned)
    const got: number[] = []
    const want: number[] = []
    let logits: Float64Array = new Float64Array(V)
    const pieces = [1, 1, 1, 2, 7, 300, 129]
    for (let at = 0, piece = 0; at < ids.length; piece += 1) {
      const some = ids.slice(at, at + pieces[piece % pieces.length]!)
      const nats = await feed(model, context, some)
      for (const [i, id] of some.entries()) {
        if (at + i > 0) {
          got.push(nats[i]!)
          want.push(surprisalOf([...logits], id))
        }
        logits = reference.step(id, baseOf(id))
      }
      at += some.length
      sameTables(model, context.serialize(), reference)
    }
    expect(worst(await model.logits(context), logits)).toBeLessThan(BYTE)
    expect(worst(got, want)).toBeLessThan(BYTE)
    // Without the memory a token of random logits has more than ln of their number.
    expect(want.slice(-400).reduce((sum, nats) => sum + nats, 0) / 400).toBeLessThan(Math.log(V) / 2)
    const { generated } = await generate(model, context, 60, { ...greedy, temperature: 1, seed: 3n })
    for (const id of generated) logits = reference.step(id, baseOf(id), learn === 'all')
    expect(worst(await model.logits(context), logits)).toBeLessThan(BYTE)
    sameTables(model, context.serialize(), reference)
  })

  it('on top of a network’s logits', async () => {
    const sizes = callNative((addon) => addon.ngram('bytes', 2048))
    const g = buildGraph()
    const token = g.dynamic('token', [], 'i32')
    const rows = g.lookup('rows', [256, 256], ref('rows'))
    const tables = {
      slots: g.table('slots', [2048, 2], { dtype: 'i32' })(),
      text: g.table('text', [sizes.text], { dtype: 'i32' })(),
      mixture: g.table('mixture', [sizes.mixture])(),
    }
    const last = g.table('last', [256])
    g.block('first', [], () => {
      g.cacheNgramFirst(tables.mixture, null)
      return {}
    })
    g.block('step', [token], () => {
      const hidden = g.cacheNgram('hidden', tables, token, 'read', g.embed('base', token, rows))
      return { hidden, previous: g.cacheShift('previous', last(), hidden) }
    })
    const hidden = g.dynamic('of', [256], 'f32')
    g.block('predict', [hidden], () => ({ logits: g.scale('logits', hidden, 1) }))
    const next = random(9)
    const data = Float32Array.from({ length: 256 * 256 }, () => 2 * next() - 1)
    const folder = writePackage({}, safetensors(new Map([['rows', { shape: [256, 256], data }]])))
    const model = await openGraph(g.finish(), `${folder}/model.safetensors`, { threads: 1 })
    onTestFinished(() => model.close())
    const context = model.createContext()
    const text = logLines(4, 1500)
    const nats = await feed(model, context, text)
    const reference = ngramReference(2048)
    let logits: Float64Array = new Float64Array(256)
    const want = Array.from(text, (byte) => {
      const surprisal = surprisalOf([...logits], byte)
      logits = reference.step(byte, data.subarray(byte * 256, byte * 256 + 256))
      return surprisal
    })
    expect(worst(nats.subarray(1), want.slice(1))).toBeLessThan(BYTE)
    expect(worst(await model.logits(context), logits)).toBeLessThan(BYTE)
  })
})
