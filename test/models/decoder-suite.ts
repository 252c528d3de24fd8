/**
 * What every decoder must do: a random package against the reference, any cut the same bits, the results that others
 * computed.
 */
import { copyFileSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import type { OpenModelOptions } from '../../src/engine/options.ts'
import { bits, errorOf, feed, generate, open } from '../engine/helpers.ts'
import {
  type Dtype,
  random,
  rawSafetensors,
  rounded,
  safetensors,
  type Tensors,
  temporaryFolder,
  writePackage,
} from '../engine/packages.ts'
import { hasShared, sharedModel } from '../engine/paths.ts'
import { type DecoderConfig, decoderReference, randomDecoder } from './decoders.ts'

export const farthest = (actual: ArrayLike<number>, wanted: readonly number[]): number => {
  expect(actual.length).toBe(wanted.length)
  return wanted.reduce((most, value, i) => Math.max(most, Math.abs(actual[i]! - value)), 0)
}
export const randomIds = (count: number, vocabulary: number, seed: number): number[] => {
  const next = random(seed)
  return Array.from({ length: count }, () => Math.floor(next() * vocabulary))
}

export const openRandom = (
  config: DecoderConfig,
  tensors: Tensors,
  dtype: Dtype = 'F32',
  options: OpenModelOptions = { threads: 2 },
) => open(writePackage(config, safetensors(tensors, dtype)), options)

/** Tensors as a file of this dtype holds them. */
export const storedAs = (tensors: Tensors, dtype: Dtype): Tensors =>
  new Map(
    [...tensors].map(([name, { shape, data }]) => [name, { shape, data: data.map((value) => rounded(value, dtype)) }]),
  )

/** `tolerance`: of logits, over the largest of them. */
export const againstReference = (
  settings: readonly (readonly [name: string, config: DecoderConfig])[],
  tolerance = 2e-5,
): void => {
  describe.each(settings)('against a decoder in double precision: %s', (_, config) => {
    const tensors = randomDecoder(config.num_attention_heads * 10 + config.num_hidden_layers, config)
    const P = config.max_position_embeddings

    test.each<Dtype>(['F32', 'BF16'])('%s', async (dtype) => {
      const model = await openRandom(config, tensors, dtype)
      expect(model.positions).toBe(P)
      const reference = decoderReference(config, storedAs(tensors, dtype))
      const ids = randomIds(P, config.vocab_size, 7)
      const context = model.createContext()
      for (const [at, id] of ids.entries()) {
        const wanted = reference.feed(id)
        await feed(model, context, [id], false)
        if (at > 20 && at % 7 !== 0 && at < P - 1) continue
        const scale = Math.max(1, ...wanted.map(Math.abs))
        expect(farthest(await model.logits(context), wanted) / scale, `position ${at}`).toBeLessThan(tolerance)
      }
      expect((await errorOf(() => feed(model, context, [0]))).message).toContain(
        `${P + 1} positions exceed the ${P} of counter "pastLen"`,
      )
      expect(await generate(model, context, 4)).toMatchObject({ generated: { length: 0 }, ended: 'positions' })
    })

    test('any cut and any threads: the same bits', async () => {
      const ids = randomIds(P, config.vocab_size, 8)
      let whole: { nats: Uint32Array; chain: string; state: string } | null = null
      for (const threads of [1, 3]) {
        const model = await openRandom(config, tensors, 'F32', { threads })
        for (const size of [1, 6, P]) {
          const context = model.createContext()
          const nats: number[] = []
          for (let at = 0; at < ids.length; at += size)
            nats.push(...(await feed(model, context, ids.slice(at, at + size))))
          const state = Buffer.from(context.serialize()).toString('base64')
          const now = { nats: bits(Float32Array.from(nats)), chain: context.chain, state }
          whole ??= now
          expect(now).toEqual(whole)
        }
      }
    })
  })
}

interface Expected {
  readonly nll: readonly number[]
  readonly logits: readonly number[]
  readonly tolerance?: { readonly logits: number; readonly nats: number }
}

type Header = Record<string, { dtype: string; shape: number[]; data_offsets: [number, number] }>

/** The tensors of all files of a package, in one. */
const joined = (folder: string): Uint8Array => {
  const header: Header = {}
  const parts: Buffer[] = []
  let before = 0
  for (const name of readdirSync(folder).filter((each) => each.endsWith('.safetensors'))) {
    const file = readFileSync(join(folder, name))
    const begin = 8 + Number(file.readBigUInt64LE(0))
    const { __metadata__, ...tensors } = JSON.parse(file.toString('utf8', 8, begin)) as Header
    for (const [tensor, { data_offsets: at, ...rest }] of Object.entries(tensors))
      header[tensor] = { ...rest, data_offsets: [before + at[0], before + at[1]] }
    parts.push(file.subarray(begin))
    before += file.length - begin
  }
  return rawSafetensors(JSON.stringify(header), Buffer.concat(parts))
}

/** A package with results that were computed elsewhere, at any chunking. */
export const givesExpected = (name: string): void => {
  describe.skipIf(!hasShared)(`the test package ${name}`, () => {
    const folder = sharedModel(name)
    const read = (file: string): unknown => JSON.parse(readFileSync(join(folder, file), 'utf8'))
    test.each([1, 7, 64, 1000])('gives the expected logits and nats, cut into %i', async (size) => {
      const expected = read('expected.json') as Expected
      const told = expected as { readonly token_ids?: readonly number[] }
      const ids = told.token_ids ?? (read('input.json') as { readonly input_ids: readonly number[] }).input_ids
      const { logits: close, nats: total } = expected.tolerance ?? { logits: 5e-4, nats: 1e-2 }
      const own = temporaryFolder()
      copyFileSync(join(folder, 'config.json'), join(own, 'config.json'))
      writeFileSync(join(own, 'model.safetensors'), joined(folder))
      const model = await open(own, { threads: 2 })
      const context = model.createContext()
      const nats: number[] = []
      for (let at = 0; at < ids.length; at += size) nats.push(...(await feed(model, context, ids.slice(at, at + size))))
      const later = nats.slice(1)
      expect(farthest(later, expected.nll)).toBeLessThan(2 * close)
      const sum = (values: readonly number[]): number => values.reduce((a, b) => a + b, 0)
      expect(Math.abs(sum(later) - sum(expected.nll))).toBeLessThan(total)
      expect(farthest(await model.logits(context), expected.logits)).toBeLessThan(close)
    })
  })
}
