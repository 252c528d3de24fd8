import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { quantizePackage } from '../../../src/models/quantize/quantize.ts'
import { feed, open } from '../../engine/helpers.ts'
import { type Dtype, rounded, safetensors, type Tensor, type Tensors, writePackage } from '../../engine/packages.ts'
import { newOut } from '../helpers.ts'
import { dequantise, numbersOf, readStored } from '../quantize/quantized.ts'
import { type Gpt2Sizes, gpt2ConfigOf, gpt2Oracle, randomGpt2, withPrefix } from './gpt2.ts'

const projections = ['attn.c_attn', 'attn.c_proj', 'mlp.c_fc', 'mlp.c_proj']
const sizes: Gpt2Sizes = { L: 2, H: 3, N: 13, F: 41, V: 30, P: 20, tied: false }

/** [N, K] from [K, N]. */
const turn = (data: ArrayLike<number>, [K, N]: readonly [number, number]): number[] =>
  Array.from({ length: N * K }, (_, at) => data[(at % K) * N + Math.floor(at / K)]!)

describe.each<readonly [Dtype, 'q8' | 'ternary', 32 | 64]>([
  ['F32', 'q8', 32],
  ['BF16', 'q8', 64],
  ['F32', 'ternary', 32],
])('a package of %s as %s in groups of %i', (dtype, to, group) => {
  const quantise = async (of: Gpt2Sizes, tensors: Tensors): Promise<string> => {
    const dir = writePackage(gpt2ConfigOf(of), safetensors(withPrefix(tensors), dtype))
    const out = newOut()
    await quantizePackage({ dir, out, to, group })
    return out
  }

  test('holds its projections with outputs first, everything else as it was', async () => {
    const tensors = randomGpt2(4, sizes)
    const out = await quantise(sizes, tensors)
    const after = readStored(join(out, 'model.safetensors'))
    const quantised = [...after.tensors.keys()].filter((name) => after.tensors.has(`${name}.scales`))
    expect(quantised.toSorted()).toEqual(
      [
        'lm_head.weight',
        ...[0, 1].flatMap((l) => projections.map((name) => `transformer.h.${l}.${name}.weight`)),
      ].toSorted(),
    )
    for (const [name, { shape, data }] of withPrefix(tensors)) {
      const stored = Array.from(data, (value) => rounded(value, dtype))
      if (!quantised.includes(name)) {
        expect(numbersOf(after.tensors.get(name)!)).toEqual(stored)
        continue
      }
      const isHead = name === 'lm_head.weight'
      const K = isHead ? shape[1]! : shape[0]!
      const wanted = isHead ? stored : turn(stored, shape as [number, number])
      const { values, scales } = dequantise(after, name, K, group)
      expect(values).toHaveLength(wanted.length)
      if (to === 'q8') {
        for (const [at, value] of values.entries())
          expect(Math.abs(value - wanted[at]!)).toBeLessThanOrEqual(scales[at]! / 2 + 1e-9)
      } else {
        const energy = wanted.reduce((sum, value) => sum + value ** 2, 0)
        const error = wanted.reduce((sum, value, at) => sum + (value - values[at]!) ** 2, 0)
        expect(error / energy).toBeLessThan(0.3)
      }
    }
  })

  test('computes what its weights stand for', async () => {
    const tensors = randomGpt2(4, sizes)
    const out = await quantise(sizes, tensors)
    const after = readStored(join(out, 'model.safetensors'))
    const meant = new Map<string, Tensor>()
    for (const [name, { shape, data }] of tensors) {
      const file = name === 'lm_head.weight' ? name : `transformer.${name}`
      if (!after.tensors.has(`${file}.scales`)) {
        meant.set(name, { shape, data: data.map((value) => rounded(value, dtype)) })
        continue
      }
      const isHead = name === 'lm_head.weight'
      const [K, N] = isHead ? [shape[1]!, shape[0]!] : [shape[0]!, shape[1]!]
      const { values } = dequantise(after, file, K, group)
      meant.set(name, { shape, data: Float32Array.from(isHead ? values : turn(values, [N, K])) })
    }
    const oracle = gpt2Oracle(meant, sizes)
    const model = await open(out)
    const context = model.createContext()
    for (let at = 0; at < sizes.P; at += 1) {
      const wanted = oracle.feed((5 * at) % sizes.V)
      await feed(model, context, [(5 * at) % sizes.V], false)
      const logits = await model.logits(context)
      // Inputs of quantised matrices are rounded to 8 bits: some percent of the largest logit.
      const scale = Math.max(...wanted.map(Math.abs))
      expect(Math.max(...wanted.map((value, i) => Math.abs(value - logits[i]!))) / scale).toBeLessThan(0.08)
    }
  })
})

test('a matrix that passes in several pieces is the same matrix', { tags: 'slow' }, async () => {
  const wide: Gpt2Sizes = { L: 1, H: 1, N: 64, F: 17_000, V: 8, P: 4 }
  const tensors = randomGpt2(6, wide)
  const dir = writePackage(gpt2ConfigOf(wide), safetensors(tensors))
  const out = newOut()
  const told = await quantizePackage({ dir, out, to: 'q8', group: 32 })
  expect(told.tensors).toBe(4)
  expect(told.relativeRmsError).toBeLessThan(0.01)
  const after = readStored(join(out, 'model.safetensors'))
  for (const name of ['h.0.mlp.c_fc.weight', 'h.0.mlp.c_proj.weight']) {
    const { shape, data } = tensors.get(name)!
    const [K, N] = shape as [number, number]
    const { bytes } = after.tensors.get(name)!
    const scales = numbersOf(after.tensors.get(`${name}.scales`)!)
    let worst = 0
    for (let at = 0; at < N * K; at += 37) {
      const [n, k] = [Math.floor(at / K), at % K]
      const scale = scales[n * Math.ceil(K / 32) + Math.floor(k / 32)]!
      worst = Math.max(worst, Math.abs(data[k * N + n]! - bytes.readInt8(at) * scale) / scale)
    }
    expect(worst).toBeLessThanOrEqual(0.5 + 1e-4)
  }
})
