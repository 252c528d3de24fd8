/**
 * Packages that are quantised: what is written, what is left alone, and what is refused.
 *
 * @module-tag slow
 */
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { inspectTensors } from '../../../src/engine/inspect.ts'
import type { TensorEntry } from '../../../src/engine/native.ts'
import { families } from '../../../src/models/index.ts'
import { defaultOut, matrixTensors, quantizePackage } from '../../../src/models/quantize/quantize.ts'
import { errorOf, feed, open } from '../../engine/helpers.ts'
import { randomRwkv7, safetensors, type Tensors, toFla, writePackage } from '../../engine/packages.ts'
import { CONFIG, newOut, q8, SIZES, write } from '../helpers.ts'
import { dequantise, dequantisedTensors, numbersOf, readStored, type StoredFile } from './quantized.ts'

const MATRICES = [
  ...[0, 1].flatMap((l) =>
    ['att.receptance', 'att.key', 'att.value', 'att.output', 'ffn.key', 'ffn.value'].map(
      (name) => `blocks.${l}.${name}.weight`,
    ),
  ),
  'head.weight',
]
const demo = join(import.meta.dirname, '..', '..', '..', 'models', 'demo')
const document = join(import.meta.dirname, '..', '..', '..', 'docs', 'demo', 'harbour-log.txt')

const stored = (dir: string): StoredFile => readStored(join(dir, 'model.safetensors'))
const sorted = (names: Iterable<string>): string[] => [...names].toSorted()

const entries = (tensors: Tensors): TensorEntry[] =>
  [...tensors].map(([name, { shape }]) => ({ name, shape, dtype: 'F32', file: 0, offset: 0, bytes: 0 }))
const matricesOf = (tensors: Tensors, config: object = CONFIG) =>
  matrixTensors(families.get('rwkv7')!.build(config, entries(tensors)).graph)

describe('the tensors that are quantised', () => {
  it('are those the graph multiplies with as the file has them', () => {
    const found = matricesOf(randomRwkv7(1, SIZES))
    expect(sorted(found.keys())).toEqual(sorted(MATRICES))
    expect(found.get('blocks.1.ffn.key.weight')).toEqual([131, 77])
    expect(found.get('blocks.1.ffn.value.weight')).toEqual([77, 131])
  })

  it('are not the table that is looked up in, also where it is the output matrix too', () => {
    const tied = randomRwkv7(1, SIZES)
    tied.delete('head.weight')
    const found = matricesOf(tied, { ...CONFIG, tie_word_embeddings: true })
    expect(sorted(found.keys())).toEqual(sorted(MATRICES.filter((name) => name !== 'head.weight')))
  })

  it('are the low-rank matrices too where the file has outputs first', () => {
    const found = matricesOf(toFla(randomRwkv7(1, SIZES)))
    expect(found.get('model.layers.0.attn.w_lora.lora.0.weight')).toEqual([8, 77])
    expect(found.size).toBe(MATRICES.length + 2 * 3 * 2 + 2)
  })
})

describe.each(['F32', 'F16', 'BF16'] as const)('a package of %s', (dtype) => {
  it.each([
    ['q8', 32],
    ['q8', 64],
    ['i4', 32],
    ['i4', 64],
    ['ternary', 32],
    ['ternary', 64],
  ] as const)('as %s in groups of %i holds what the words of the format say', async (to, group) => {
    const dir = write(dtype)
    const out = newOut()
    const told = await quantizePackage({ dir, out, to, group })
    const before = stored(dir)
    const after = stored(out)
    const format = to === 'ternary' ? 'ternary3' : to
    expect(JSON.parse(readFileSync(join(out, 'config.json'), 'utf8'))).toEqual({
      ...CONFIG,
      quantization_config: { quant_method: 'continuo', format, group_size: group },
    })
    expect(after.metadata).toEqual({ 'continuo.quantized': `${format} group ${group}` })
    expect(sorted(after.tensors.keys())).toEqual(
      sorted([...before.tensors.keys(), ...MATRICES.map((name) => `${name}.scales`)]),
    )

    let error = 0
    let energy = 0
    let weights = 0
    let bytes = 0
    for (const [name, tensor] of before.tensors) {
      const kept = after.tensors.get(name)!
      if (!MATRICES.includes(name)) {
        expect({ name, ...kept, begin: 0 }).toEqual({ name, ...tensor, begin: 0 })
        continue
      }
      const [N = 0, K = 0] = tensor.shape
      const scales = after.tensors.get(`${name}.scales`)!
      expect(scales).toMatchObject({ dtype: 'F16', shape: [N, Math.ceil(K / group)] })
      expect(kept).toMatchObject(
        to === 'q8'
          ? { dtype: 'I8', shape: [N, K] }
          : { dtype: 'U8', shape: [N, Math.ceil(K / (to === 'i4' ? 2 : 5))] },
      )
      bytes += kept.bytes.length + scales.bytes.length
      const restored = dequantise(after, name, K, group)
      for (const [i, value] of numbersOf(tensor).entries()) {
        const off = Math.abs(value - restored.values[i]!)
        if (to === 'q8' && off > restored.scales[i]! / 2) expect.fail(`${name}[${i}] is off by ${off}`)
        error += off * off
        energy += value * value
        weights += 1
      }
    }
    expect(told).toMatchObject({
      format,
      groupSize: group,
      tensors: MATRICES.length,
      weights,
      copied: before.tensors.size - MATRICES.length,
      bitsPerWeight: (8 * bytes) / weights,
      bytesBefore: readFileSync(join(dir, 'model.safetensors')).length,
      bytesAfter: readFileSync(join(out, 'model.safetensors')).length,
      files: [],
      leftOut: [],
    })
    expect(told.relativeRmsError).toBeCloseTo(Math.sqrt(error / energy), 10)
  })
})

describe('the file', () => {
  it('is dense, in the order of its header, every tensor at a multiple of its numbers, and the engine reads its header', async () => {
    const dir = write('BF16')
    const out = newOut()
    await quantizePackage({ dir, out, to: 'ternary', group: 32 })
    const { tensors, data } = stored(out)
    expect(data % 8).toBe(0)
    let end = 0
    for (const { begin, bytes, dtype } of tensors.values()) {
      expect(begin).toBe(end)
      expect(begin % (dtype === 'U8' ? 1 : 2)).toBe(0)
      end += bytes.length
    }
    const read = inspectTensors(join(out, 'model.safetensors'))
    expect(read.map(({ name }) => name)).toEqual([...tensors.keys()])
    expect(read.map(({ offset }) => offset - data)).toEqual([...tensors.values()].map(({ begin }) => begin))
  })

  it('begins with wide numbers, so that an odd number of bytes moves none of them from its place', async () => {
    const tensors = safetensors(randomRwkv7(1, SIZES), 'F32')
    const out = newOut()
    await quantizePackage({ dir: writePackage(CONFIG, tensors), out, to: 'ternary', group: 64 })
    const dtypes = [...stored(out).tensors.values()].map(({ dtype }) => dtype)
    expect(dtypes.filter((dtype, at) => dtype !== dtypes[at - 1])).toEqual(['F32', 'F16', 'U8'])
  })

  it('keeps the metadata of the source', async () => {
    const out = newOut()
    await q8(demo, out)
    expect(stored(out).metadata).toEqual({
      ...stored(demo).metadata,
      'continuo.quantized': 'q8 group 32',
    })
    expect(stored(demo).metadata).toHaveProperty('format', 'pt')
  })

  it('is the same whenever it is written', async () => {
    const dir = write('F16')
    const [one, other] = [newOut(), newOut()]
    await q8(dir, one)
    await q8(dir, other)
    const [a, b] = [one, other].map((out) => readFileSync(join(out, 'model.safetensors')))
    expect(a!.equals(b!)).toBe(true)
  })

  it('comes out the same where rows pass in several pieces', async () => {
    // 4,099 rows of 320 F32: more than one piece of 4 MiB, and no whole number of them.
    const sizes = { L: 1, H: 5, N: 64, F: 320, V: 4099, D: { w: 8, a: 8, v: 8, g: 8 } }
    const tensors = randomRwkv7(3, sizes)
    const out = newOut()
    const seen = new Map<string, number>()
    const dir = write('F32', tensors)
    await q8(dir, out, {
      onProgress: ({ tensor }) => seen.set(tensor, (seen.get(tensor) ?? 0) + 1),
    })
    expect([seen.get('head.weight'), seen.get('emb.weight')]).toEqual([2, 2])
    const after = stored(out)
    const { values, scales } = dequantise(after, 'head.weight', 320, 32)
    const worst = tensors
      .get('head.weight')!
      .data.reduce((most, value, i) => Math.max(most, Math.abs(value - values[i]!) / scales[i]!), 0)
    expect(worst).toBeLessThanOrEqual(0.5)
    expect(worst).toBeGreaterThan(0.4)
    expect(after.tensors.get('emb.weight')!.bytes.equals(new Uint8Array(tensors.get('emb.weight')!.data.buffer))).toBe(
      true,
    )
    const path = join(dir, 'model.safetensors')
    const file = readFileSync(path)
    for (const { name, offset, bytes } of inspectTensors(path).filter(({ shape }) => shape[0] === 4099)) {
      const damaged = Buffer.from(file)
      damaged.writeFloatLE(Number.NaN, offset + bytes - 4 * 7)
      writeFileSync(path, damaged)
      const { message } = await errorOf(() => q8(dir, newOut()))
      expect(message).toContain(`Tensor "${name}" holds a number that is not finite`)
      expect(message).toContain(`element ${4099 * 320 - 7})`)
    }
  })
})

describe('the rest of the folder', () => {
  it('goes along, but for folders and for weights in other files', async () => {
    const dir = write()
    writeFileSync(join(dir, 'tokenizer.json'), '{"a":1}')
    writeFileSync(join(dir, 'notes.md'), 'notes')
    writeFileSync(join(dir, 'model.safetensors.index.json'), '{}')
    writeFileSync(join(dir, 'pytorch_model.bin'), 'x')
    mkdirSync(join(dir, 'original'))
    const out = newOut()
    const told = await q8(dir, out)
    expect(told).toMatchObject({
      files: ['notes.md', 'tokenizer.json'],
      leftOut: ['model.safetensors.index.json', 'original', 'pytorch_model.bin'],
    })
    expect(sorted(readdirSync(out))).toEqual(['config.json', 'model.safetensors', 'notes.md', 'tokenizer.json'])
    expect(readFileSync(join(out, 'tokenizer.json'), 'utf8')).toBe('{"a":1}')
  })

  it('is written beside the package when nobody says where', () => {
    expect(defaultOut('models/demo', 'q8')).toBe('models/demo-q8')
    expect(defaultOut('models/demo/', 'ternary')).toBe('models/demo-ternary')
    expect(defaultOut('demo', 'q8')).toBe('demo-q8')
    expect(defaultOut('/demo', 'q8')).toBe('/demo-q8')
    expect(defaultOut('.', 'q8')).toMatch(/^\.\.\/.+-q8$/)
  })
})

describe('the shipped model', () => {
  /** Bits per byte over the beginning of the shipped document. */
  const bitsPerByte = async (dir: string): Promise<number> => {
    const model = await open(dir)
    const text = readFileSync(document).subarray(0, 2000)
    const nats = await feed(model, model.createContext(), text)
    return nats.subarray(1).reduce((sum, value) => sum + value, 0) / Math.LN2 / (text.length - 1)
  }
  const multipliedOut = (out: string): string =>
    writePackage(
      JSON.parse(readFileSync(join(demo, 'config.json'), 'utf8')),
      safetensors(dequantisedTensors(stored(demo), stored(out), 32), 'F32'),
    )

  it('as q8, multiplied out again, predicts a text within 0.005 bits per byte of what it did', async () => {
    const out = newOut()
    await q8(demo, out)
    expect(Math.abs((await bitsPerByte(multipliedOut(out))) - (await bitsPerByte(demo)))).toBeLessThan(0.005)
  })

  it('as ternary, for which it was not trained, predicts much worse', async () => {
    const out = newOut()
    const told = await quantizePackage({ dir: demo, out, to: 'ternary', group: 32 })
    expect(told.relativeRmsError).toBeGreaterThan(0.3)
    const [ternary, original] = [await bitsPerByte(multipliedOut(out)), await bitsPerByte(demo)]
    expect(ternary).toBeGreaterThan(original + 0.5)
  })
})
