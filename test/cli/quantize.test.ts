// @module-tag slow
import { cpSync, existsSync, mkdirSync, readdirSync, readFileSync, rmSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { beforeAll, describe, expect, it } from 'vitest'
import { inspectTensors } from '../../src/engine/inspect.ts'
import { randomRwkv7, rawSafetensors, safetensors, writePackage } from '../engine/packages.ts'
import { dequantise, numbersOf, readStored } from '../models/quantize/quantized.ts'
import { continuo, eventually, json, MODEL, type Running, start, temporary } from './helpers.ts'

const folder = temporary()
let outs = 0
const newOut = (): string => join(folder, `out-${++outs}`)
const weightsOf = (dir: string): string => join(dir, 'model.safetensors')

describe('continuo quantize', () => {
  it('writes the shipped model as q8: the engine reads the header, and no weight is off by more than half its scale', async () => {
    const out = newOut()
    const [told] = await json('quantize', MODEL, '--to', 'q8', '--out', out)
    const before = readStored(weightsOf(MODEL))
    const after = readStored(weightsOf(out))
    const read = inspectTensors(weightsOf(out))
    const matrices = read.filter(({ dtype }) => dtype === 'I8')
    expect(matrices).toHaveLength(6 * 6 + 1)
    expect(read).toHaveLength(before.tensors.size + matrices.length)
    let weights = 0
    for (const { name, shape } of matrices) {
      const original = before.tensors.get(name)!
      expect(shape).toEqual(original.shape)
      const { values, scales } = dequantise(after, name, shape[1]!, 32)
      const bad = numbersOf(original).findIndex((w, i) => !(Math.abs(w - values[i]!) <= scales[i]! / 2))
      expect({ name, bad }).toEqual({ name, bad: -1 })
      weights += values.length
    }
    expect(told).toEqual({
      dir: MODEL,
      out,
      format: 'q8',
      groupSize: 32,
      rounding: 'nearest',
      calibrationTokens: 0,
      tensors: 37,
      weights,
      copied: before.tensors.size - 37,
      bytesBefore: statSync(weightsOf(MODEL)).size,
      bytesAfter: statSync(weightsOf(out)).size,
      bitsPerWeight: 8.5,
      relativeRmsError: expect.closeTo(0.0055, 4),
      files: readdirSync(MODEL).filter((name) => !['config.json', 'model.safetensors'].includes(name)),
      leftOut: [],
      seconds: expect.any(Number),
    })
  })

  it('writes beside the package when nobody says where, and says what it did', async () => {
    const dir = join(folder, 'mine')
    cpSync(MODEL, dir, { recursive: true })
    const { code, out } = await continuo(['quantize', `${dir}/`, '--to', 'ternary', '--group', '64'])
    expect(code).toBe(0)
    expect(out).toMatch(
      /^Wrote \S+mine-ternary: 37 matrices as ternary3, group 64; 164 tensors as they were\.\n2,703,360 weights at 1\.87 bits, relative RMS error 0\.\d{3}\.\nweights: 6\.3 MB → 1\.5 MB in \d+\.\d s\.\n$/,
    )
    expect(JSON.parse(readFileSync(join(folder, 'mine-ternary', 'config.json'), 'utf8'))).toMatchObject({
      model_type: 'rwkv7',
      quantization_config: { quant_method: 'continuo', format: 'ternary3', group_size: 64 },
    })
  })

  it.each([
    [['quantize', '--to', 'q8'], 'continuo quantize needs DIR'],
    [['quantize', MODEL], 'continuo quantize needs --to q8|i4|ternary'],
    [['quantize', MODEL, '--to', 'q4'], '--to is one of q8, i4, ternary; "q4" is none of them.'],
    [['quantize', MODEL, '--to', 'q8', '--group', '48'], '--group is one of 32, 64; "48" is none of them.'],
    [
      ['quantize', MODEL, '--to', 'i4', '--rounding', 'up'],
      '--rounding is one of nearest, search, importance, compensated; "up" is none of them.',
    ],
  ])('ends with 2 and a sentence for %j', async (argv, part) => {
    const { code, out, err } = await continuo(argv)
    expect({ code, out }).toEqual({ code: 2, out: '' })
    expect(err).toContain(part)
    expect(err.trim().split('\n')).toHaveLength(1)
  })

  it('ends with 1 and a sentence for what it cannot quantise or write', async () => {
    const out = newOut()
    expect(await continuo(['quantize', MODEL, '--to', 'q8', '--out', out])).toMatchObject({ code: 0 })
    for (const [argv, part] of [
      [[MODEL, '--out', out], 'expected a new or empty folder. Name another with --out, or remove it.'],
      [[out], 'is quantised already (q8, group 32)'],
      [[folder], 'is not a model package'],
    ] as const) {
      const refused = await continuo(['quantize', ...argv, '--to', 'ternary'])
      expect(refused).toMatchObject({ code: 1, out: '' })
      expect(refused.err).toContain(part)
      expect(refused.err.trim().split('\n')).toHaveLength(1)
    }
    expect(existsSync(`${out}-ternary`)).toBe(false)
  })
})

/** 34 million weights, half of them to quantise: long enough to be met in the middle. */
const largeFile = (): Uint8Array => {
  const sizes = { L: 1, H: 4, N: 64, F: 256, V: 64, D: { w: 32, a: 32, v: 32, g: 32 } }
  const small = join(writePackage({}, safetensors(randomRwkv7(5, sizes), 'BF16'), temporary()), 'model.safetensors')
  const pieces: Uint8Array[] = []
  const header: Record<string, object> = {}
  let end = 0
  for (const [name, { dtype, shape, bytes }] of readStored(small).tensors) {
    const times = shape[0] === sizes.V ? 1024 : 1
    const data_offsets = [end, end + times * bytes.length]
    header[name] = { dtype, shape: [shape[0]! * times, ...shape.slice(1)], data_offsets }
    pieces.push(...new Array<Uint8Array>(times).fill(bytes))
    end += times * bytes.length
  }
  return rawSafetensors(JSON.stringify(header), Buffer.concat(pieces))
}

describe('continuo quantize, cut short', () => {
  const parent = join(temporary(), 'models')
  const dir = join(parent, 'large')
  const whole = newOut()
  let files: readonly string[]

  beforeAll(async () => {
    mkdirSync(dir, { recursive: true })
    writePackage({ model_type: 'rwkv7' }, largeFile(), dir)
    await json('quantize', dir, '--to', 'q8', '--out', whole)
    files = readdirSync(parent)
  })

  /** The command at work, its temporary folder holding at least `share` of the file it writes. */
  const inTheMiddle = async (share: number): Promise<{ running: Running; out: string; written: string }> => {
    const out = join(parent, 'large-q8')
    const running = start(['quantize', dir, '--to', 'q8'])
    const written = await eventually(() => {
      const name = readdirSync(parent).find((each) => /^large-q8\.[0-9a-f]{8}\.tmp$/.test(each))
      if (name === undefined) throw new Error('nothing is written yet')
      const path = join(parent, name)
      if (share > 0 && statSync(weightsOf(path)).size < share * statSync(weightsOf(whole)).size) {
        throw new Error('too little is written yet')
      }
      return path
    })
    return { running, out, written }
  }

  it.each([
    0, 0.3, 0.8,
  ])('by SIGKILL with %s of it written, leaves nothing under the name, and is done by the next run', async (share) => {
    const { running, out, written } = await inTheMiddle(share)
    running.child.kill('SIGKILL')
    expect((await running.done).signal).toBe('SIGKILL')
    expect(existsSync(written)).toBe(true)
    expect(existsSync(out)).toBe(false)
    const again = newOut()
    await json('quantize', dir, '--to', 'q8', '--out', again)
    expect(readFileSync(weightsOf(again)).equals(readFileSync(weightsOf(whole)))).toBe(true)
    rmSync(written, { recursive: true })
  })

  it('by SIGINT, leaves nothing at all', async () => {
    const { running } = await inTheMiddle(0.3)
    running.child.kill('SIGINT')
    expect(await running.done).toMatchObject({ code: 130, out: '' })
    expect((await running.done).err).toContain('Stopping: removing what was written.')
    expect(readdirSync(parent)).toEqual(files)
  })
})
