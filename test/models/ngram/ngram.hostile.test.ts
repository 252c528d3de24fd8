/**
 * Tables of an ngram memory from somebody else. An index in them is believed only within its table: whatever they hold,
 * reading on gives numbers or a sentence. native/test/kernels/ngram_test.cc has the same with fences around the tables.
 *
 * @module-tag slow
 */
import { beforeAll, describe, expect, it } from 'vitest'
import type { Model } from '../../../src/engine/types.ts'
import { ContinuoError } from '../../../src/errors.ts'
import { openModel } from '../../../src/models/open.ts'
import { clockOf } from '../../../src/operators/advance/session-state.ts'
import { admit } from '../../../src/operators/sessions/admit.ts'
import { SessionManager } from '../../../src/sessions/manager.ts'
import { decodeSnapshot } from '../../../src/state/snapshot.ts'
import { bits, errorOf, feed, generate } from '../../engine/helpers.ts'
import { random, temporaryFolder } from '../../engine/packages.ts'
import { forged } from '../../sessions/forged.ts'
import { tokensOf, writeSubwords } from './subwords.ts'
import { logLines, writeNgram } from './texts.ts'

const MODELS: readonly (readonly [name: string, write: () => string, text: Int32Array])[] = [
  ['an ngram memory', () => writeNgram(1024), Int32Array.from(logLines(31, 900))],
  [
    'a memory of subwords',
    () => writeSubwords(temporaryFolder(), 1024),
    Int32Array.from(tokensOf(logLines(31, 4000)).slice(0, 900)),
  ],
]
const ROUNDS = 16

type Words = (next: () => number) => number
const any: Words = (next) => Math.floor(next() * 2 ** 32)
const EDGES = [0, 1, 2, 254, 255, 256, 1023, 1024, 2 ** 16, 2 ** 31 - 1, 2 ** 31, 2 ** 32 - 2, 2 ** 32 - 1]
const edge: Words = (next) => EDGES[Math.floor(next() * EDGES.length)]!
const asBits = (number: number): number => new Uint32Array(Float32Array.of(number).buffer)[0]!
/** Finite floats of every size. */
const finite: Words = (next) => {
  const word = any(next)
  return (word & 0x7f800000) === 0x7f800000 ? asBits(3e38) : word
}
const huge: Words = (next) => asBits((next() < 0.5 ? -1 : 1) * 3.4e38)
const falling: Words = (next) => asBits(-20 * next())

/** What is written over a table, all of it or one word in so many. */
const FORGERIES: readonly (readonly [string, Readonly<Record<string, readonly [Words, number]>>])[] = [
  ['any bits in the text', { 'ngram.text': [any, 1] }],
  ['edges in the text', { 'ngram.text': [edge, 1] }],
  ['some bits of the text', { 'ngram.text': [any, 9] }],
  ['some edges of the text', { 'ngram.text': [edge, 40] }],
  ['any bits in the slots', { 'ngram.slots': [any, 1] }],
  ['edges in the slots', { 'ngram.slots': [edge, 1] }],
  ['any finite numbers in the mixture', { 'ngram.mixture': [finite, 1] }],
  ['some finite numbers in the mixture', { 'ngram.mixture': [finite, 200] }],
  ['sums that overflow in the mixture', { 'ngram.mixture': [huge, 1] }],
  ['negative numbers in the mixture', { 'ngram.mixture': [falling, 1] }],
  ['any bits everywhere', { 'ngram.text': [any, 1], 'ngram.slots': [any, 1], 'ngram.mixture': [finite, 3] }],
  ['edges everywhere', { 'ngram.text': [edge, 3], 'ngram.slots': [edge, 3], 'ngram.mixture': [huge, 5] }],
]

describe.each(MODELS)('the tables of %s', (_, write, TEXT) => {
  let model: Model
  let sound: Uint8Array
  let want: Uint32Array
  const head = { pulse: 600n, origin: 0n, chain: '0'.repeat(32) }
  const overwritten = (tables: (typeof FORGERIES)[number][1], next: () => number): Uint8Array => {
    const out = sound.slice()
    const view = new DataView(out.buffer)
    for (const { name, offset, bytes } of model.layout.tensors(out)) {
      const [word, every] = tables[name] ?? [any, Number.POSITIVE_INFINITY]
      for (let at = offset; at < offset + bytes; at += 4) if (next() * every < 1) view.setUint32(at, word(next), true)
    }
    return out
  }
  beforeAll(async () => {
    model = await openModel(write(), { threads: 2 })
    const context = model.createContext()
    await feed(model, context, TEXT.subarray(0, 600), false)
    sound = context.serialize()
    want = bits(await feed(model, context, TEXT.subarray(600)))
    return () => model.close()
  })

  it.each(
    FORGERIES,
  )('%s: what follows is numbers, or the sentence that it stopped being finite', async (__, tables) => {
    let numbers = 0
    for (let seed = 0; seed < ROUNDS; seed += 1) {
      const state = overwritten(tables, random(seed * 7 + 1))
      const [context, beside] = [model.createContext(), model.createContext()]
      context.restore(state, head)
      beside.restore(sound, head)
      const tokens = TEXT.subarray(600)
      const [read, other] = await Promise.allSettled([
        model.submit({ context, tokens, nats: true }),
        model.submit({ context: beside, tokens, nats: true }),
      ])
      if (read.status === 'fulfilled') {
        numbers += 1
        expect(read.value.nats.every(Number.isFinite)).toBe(true)
        await generate(model, context, 20)
        context.reset()
      } else {
        expect(read.reason).toBeInstanceOf(ContinuoError)
        expect(read.reason).toMatchObject({ code: 'REFUSED', message: expect.stringContaining('finite') })
      }
      // Whoever shares the step notices nothing.
      expect(other.status).toBe('fulfilled')
      if (other.status === 'fulfilled') expect(bits(other.value.nats)).toEqual(want)
      for (const one of [context, beside]) one.close()
    }
    // Text and slots are whole numbers: nothing in them stops being finite.
    if (!('ngram.mixture' in tables)) expect(numbers).toBe(ROUNDS)
  })

  it.each([
    ['NaN', 0x7fc00000],
    ['another NaN', 0xffffffff],
    ['∞', 0x7f800000],
    ['−∞', 0xff800000],
  ])('%s in the mixture is refused when it is loaded', async (__, word) => {
    const { offset, bytes } = model.layout.tensors(sound).find(({ name }) => name === 'ngram.mixture')!
    const context = model.createContext()
    for (const at of [0, 4 * 1000, bytes - 4]) {
      const state = sound.slice()
      new DataView(state.buffer).setUint32(offset + at, word, true)
      expect(await errorOf(() => context.restore(state, head))).toMatchObject({
        code: 'INVALID',
        message: expect.stringContaining('"ngram.mixture"'),
      })
    }
    context.close()
  })

  it('a forged state gives the same numbers in any cut', async () => {
    const tokens = TEXT.subarray(600, 800)
    for (let seed = 0; seed < 30; seed += 1) {
      const state = overwritten(
        { 'ngram.text': [seed % 2 === 0 ? any : edge, 1 + (seed % 5)], 'ngram.slots': [any, 2] },
        random(seed),
      )
      const [whole, cut] = [model.createContext(), model.createContext()]
      for (const context of [whole, cut]) context.restore(state, head)
      const nats = await feed(model, whole, tokens)
      const pieces: number[] = []
      for (let at = 0; at < tokens.length; at += 13)
        pieces.push(...(await feed(model, cut, tokens.subarray(at, at + 13))))
      expect(bits(Float32Array.from(pieces))).toEqual(bits(nats))
      expect(cut.chain).toBe(whole.chain)
      for (const one of [whole, cut]) one.close()
    }
  })

  it('in a checkpoint from elsewhere are taken, and the session goes on', async () => {
    const sessions = new SessionManager(model, { verifyWeights: false })
    sessions.createSession('s')
    await sessions.process('s', TEXT.subarray(0, 300))
    const file = await sessions.checkpointSession('s')
    await sessions.close()
    const next = random(77)
    const blob = forged(file, {
      tensors: (tensors) => {
        for (const name of ['ngram.slots', 'ngram.text']) {
          const { bytes } = tensors.get(name)!
          for (let at = 0; at < bytes.length; at += 4) bytes.writeUInt32LE(any(next), at)
        }
      },
    })
    await admit(blob, model, null)
    const { head, state } = await decodeSnapshot(blob, model.layout)
    const context = await model.openContext(state, clockOf(head))
    const nats = await feed(model, context, TEXT.subarray(300))
    expect(nats.every(Number.isFinite)).toBe(true)
    context.close()
  })
})
