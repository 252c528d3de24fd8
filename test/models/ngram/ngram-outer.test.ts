/**
 * A decoder with both memories: its context lies outside (docs/infinite-context.md), and behind it an ngram memory
 * learns the text (docs/ngram.md).
 */
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import type { EngineContext } from '../../../src/engine/context.ts'
import type { Model } from '../../../src/engine/types.ts'
import type { MemoryRequest } from '../../../src/engine/work.ts'
import { root } from '../../../src/places.ts'
import type { MemoryEvent } from '../../../topics/observations.ts'
import { continuo, json } from '../../cli/helpers.ts'
import { errorOf, generate, open, sameBytes } from '../../engine/helpers.ts'
import { surprisalOf } from '../../engine/oracle.ts'
import { temporaryFolder } from '../../engine/packages.ts'
import { familyOf } from '../../families.ts'
import { SETTINGS, writeBytes } from '../outer-memory/outer-memory-settings.ts'
import { ngramReference } from './reference.ts'
import { logLines } from './texts.ts'

const SLOTS = 2048
const ngram = { slots: SLOTS }
const text = logLines(31, 900)

interface Reading {
  readonly nats: readonly number[]
  readonly events: readonly MemoryEvent[]
  readonly context: EngineContext
}

/** Reads the text in pieces; behind byte 400 it archives, behind 700 it asks for blocks. */
const read = async (model: Model, cut: number, context = model.createContext()): Promise<Reading> => {
  const nats: number[] = []
  const events: MemoryEvent[] = []
  const submit = async (tokens: Int32Array, request?: MemoryRequest) => {
    const done = await model.submit({ context, tokens, nats: true, ...(request && { request }) })
    nats.push(...done.nats)
    events.push(...(done.events ?? []))
  }
  for (const [from, to, request] of [
    [0, 400, { type: 'archive' }],
    [400, 700, { type: 'retrieve' }],
    [700, text.length],
  ] as const) {
    for (let at = from; at < to; at += cut) await submit(Int32Array.from(text.subarray(at, Math.min(at + cut, to))))
    if (request !== undefined) await submit(new Int32Array(0), request)
  }
  return { nats, events, context }
}

const tablesOf = (model: Model, state: Uint8Array) =>
  new Map(model.layout.tensors(state).map(({ name, offset, bytes }) => [name, state.subarray(offset, offset + bytes)]))

describe.each(SETTINGS)('an external memory, $name, before an ngram memory', (setting) => {
  test('does what it does alone, bit for bit, in any cut', async () => {
    const [outer, model] = [await open(writeBytes(setting)), await open(writeBytes(setting, ngram), { threads: 2 })]
    expect(model.fingerprint).not.toBe(outer.fingerprint)
    const wanted = await read(outer, 64)
    const got = await read(model, 64)
    expect(got.events.length).toBeGreaterThan(5)
    expect(got.events).toEqual(wanted.events)
    const [here, there] = [tablesOf(model, got.context.serialize()), tablesOf(outer, wanted.context.serialize())]
    for (const [name, bytes] of there) expect(sameBytes(here.get(name)!, bytes), name).toBe(true)
    expect([...here.keys()].filter((name) => !there.has(name)).sort()).toEqual(
      ['ngram.last', 'ngram.mixture', 'ngram.slots', 'ngram.text'].sort(),
    )
    const again = await read(model, 7)
    expect(again.nats).toEqual(got.nats)
    expect(again.events).toEqual(got.events)
    expect(again.context.chain).toBe(got.context.chain)
  })
})

test('what is read costs what the ngram memory’s reference says behind the decoder’s logits', async () => {
  const [outer, model] = [await open(writeBytes(SETTINGS[0]!)), await open(writeBytes(SETTINGS[0]!, ngram))]
  const { nats } = await read(model, 1)
  const reference = ngramReference(SLOTS)
  const context = outer.createContext()
  let logits: Float64Array | null = null
  let sum = 0
  for (const [i, byte] of text.subarray(0, 400).entries()) {
    if (logits !== null) {
      const cost = surprisalOf([...logits], byte)
      expect(Math.abs(cost - nats[i]!)).toBeLessThan(1e-3)
      sum += cost
    }
    await outer.submit({ context, tokens: Int32Array.of(byte), nats: false })
    logits = reference.step(byte, Float32Array.from(await outer.logits(context)))
  }
  // What it reads it learns: bytes would have ln 256 = 5.5 each.
  expect(sum / 400).toBeLessThan(4)
})

test('a snapshot and a fork have both memories', async () => {
  const model = await open(writeBytes(SETTINGS.at(-1)!, ngram))
  const { context } = await read(model, 100)
  const fork = model.createContext()
  const { pulse, origin, chain } = context
  fork.restore(context.serialize(), { pulse, origin, chain })
  const drawn = await generate(model, context, 60)
  expect((await generate(model, fork, 60)).generated).toEqual(drawn.generated)
  expect(fork.chain).toBe(context.chain)
})

test('memory init gives a folder both, in either order; a model without an external memory is refused', async () => {
  const watch = join(root, 'models', 'watch')
  const made = async (...orders: (readonly string[])[]) => {
    const folder = await familyOf('qwen3').write(join(temporaryFolder(), 'qwen3'))
    for (const flags of orders) await json('memory', 'init', folder, ...flags)
    const again = await continuo(['memory', 'init', folder, ...orders[0]!])
    expect(again).toMatchObject({ code: 1, err: expect.stringContaining('is there already') })
    return { folder, memory: JSON.parse(readFileSync(join(folder, 'memory.json'), 'utf8')) }
  }
  const learned = ['--ngram', '--slots', '4096', '--learned', watch]
  const { folder, memory } = await made([], learned)
  expect(memory.ngram).toEqual({ slots: 4096, learn: 'read', learned: true })
  expect((await made(learned, [])).memory).toEqual(memory)
  const model = await open(folder)
  const names = model.layout.tensors(model.createContext().serialize()).map(({ name }) => name)
  expect(names).toEqual(expect.arrayContaining(['cold', 'ngram.slots']))

  const titans = await familyOf('titans').write(join(temporaryFolder(), 'titans'))
  writeFileSync(join(titans, 'memory.json'), JSON.stringify({ ...memory, ngram }))
  expect((await errorOf(() => open(titans))).message).toContain('keeps no external memory')
  writeFileSync(join(folder, 'memory.json'), JSON.stringify({ ...memory, ngram: { slots: 3 } }))
  expect((await errorOf(() => open(folder))).message).toContain('memory.json: ngram.slots: ')
})
