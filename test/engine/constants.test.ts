/** Constants as the host gets them: the bytes of their files, and the numbers that operations compute with. */

import { truncateSync, unlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'
import { buildGraph } from '../../src/engine/builder.ts'
import { pattern, ref } from '../../src/engine/builder-types.ts'
import { openGraph } from '../../src/engine/engine.ts'
import type { Executor, Fetched } from '../../src/engine/executor-types.ts'
import { errorOf, testDevice } from './helpers.ts'
import { random, rawSafetensors, temporaryFolder } from './packages.ts'

interface Stored {
  readonly dtype: string
  readonly shape: readonly number[]
  readonly data: Float32Array | Float64Array | Uint16Array | Uint8Array | Int8Array
}
const next = random(8)
const floats = (count: number): Float32Array => Float32Array.from({ length: count }, () => next() - 0.5)
const count = (shape: readonly number[]): number => shape.reduce((a, b) => a * b, 1)
const f32 = (...shape: number[]): Stored => ({ dtype: 'F32', shape, data: floats(count(shape)) })
/** 1, −2, 1.5 and 0.375 by their bits. */
const halves = Uint16Array.of(0x3c00, 0xc000, 0x3e00, 0x3600)
const upper = Uint16Array.of(0x3f80, 0xc000, 0x3fc0, 0x3ec0)
const plain = [1, -2, 1.5, 0.375]

const tensors: Readonly<Record<string, Stored>> = {
  wide: f32(3, 70),
  fused: f32(6, 4),
  half: { dtype: 'F16', shape: [2, 2], data: halves },
  brain: { dtype: 'BF16', shape: [1, 4], data: upper },
  byte: { dtype: 'F8_E4M3', shape: [2, 2], data: Uint8Array.of(0x38, 0xc0, 0x3c, 0x2c) },
  double: { dtype: 'F64', shape: [4], data: Float64Array.of(1, -2, 1.5, 0.375) },
  codes: { dtype: 'I8', shape: [2, 32], data: Int8Array.from({ length: 64 }, (_, i) => i - 31) },
  'codes.scales': { dtype: 'F16', shape: [2, 1], data: Uint16Array.of(0x3c00, 0xb800) },
  nibbles: { dtype: 'U8', shape: [1, 16], data: Uint8Array.from({ length: 16 }, (_, i) => i * 17) },
  'nibbles.scales': { dtype: 'F16', shape: [1, 1], data: Uint16Array.of(0x4000) },
  ...Object.fromEntries([0, 1, 2].map((l) => [`W.${l}`, f32(2, 3)])),
  ...Object.fromEntries([0, 1].map((e) => [`E.${e}`, f32(3, 2)])),
}

const file = (): string => {
  let at = 0
  const header = Object.fromEntries(
    Object.entries(tensors).map(([name, { dtype, shape, data }]) => {
      const from = at
      at += data.byteLength
      return [name, { dtype, shape, data_offsets: [from, at] }]
    }),
  )
  const path = join(temporaryFolder(), 'model.safetensors')
  const parts = Object.values(tensors).map(({ data }) => new Uint8Array(data.buffer, data.byteOffset, data.byteLength))
  writeFileSync(path, rawSafetensors(JSON.stringify(header), Buffer.concat(parts)))
  return path
}

const opened = async (path = file()): Promise<Executor> => {
  const g = buildGraph()
  const l = g.index('l', 3)
  g.matrix('wide', [3, 70], ref('wide'))
  g.matrix('turned', [70, 3], ref('wide', { transposed: true }))
  g.matrix('some', [2, 4], ref('fused', { view: { repeat: 2, step: 3, parts: [[1, 1]] } }))
  g.vector('row', 4, ref('fused', { row: 5, map: 'one_plus' }))
  g.matrix('half', [2, 2], ref('half'))
  g.vector('brain', 4, ref('brain'))
  g.lookup('table', [2, 2], ref('half'))
  g.matrix('byte', [2, 2], ref('byte'))
  g.vector('double', 4, ref('double'))
  g.matrix('q8', [2, 32], ref('codes', { storage: 'q8', scales: 'codes.scales', group: 32 }))
  g.matrix('i4', [1, 32], ref('nibbles', { storage: 'i4', scales: 'nibbles.scales', group: 32 }))
  g.matrices('W', [2, 3], pattern('W.{l}'), { over: l, from: 1 })
  g.matrices('some.W', [2, 3], pattern('W.{odd}'), { over: g.part('odd', l, [0, 2]) })
  g.stack('experts', [2, 3, 2], ref('E.{e}'))
  const x = g.dynamic('x', [4], 'f32')
  g.block('run', [x], () => ({ y: g.tanh('y', x) }))
  const model = await openGraph(g.finish(), path, { threads: 1, ...testDevice })
  onTestFinished(() => model.close())
  return model.createExecutor()
}
const numbers = ({ data }: Fetched): number[] => Array.from(data as Float32Array)

describe('constants of an executor', () => {
  it('come as their tensors stand in the file: dtype, shape and bytes, whatever the graph makes of them', async () => {
    const executor = await opened()
    const { dtype, shape, data } = tensors.fused!
    for (const name of ['some', 'row']) expect(executor.fetch(name)).toEqual({ dtype, shape, data })
    const same = { wide: 'wide', turned: 'wide', half: 'half', brain: 'brain', table: 'half', byte: 'byte' }
    for (const [name, tensor] of Object.entries(same)) expect(executor.fetch(name)).toEqual(tensors[tensor])
    // A dtype without an array of its own.
    const { buffer } = tensors.double!.data
    expect(executor.fetch('double')).toEqual({ dtype: 'F64', shape: [4], data: new Uint8Array(buffer) })
    for (const [name, tensor] of Object.entries({ q8: 'codes', i4: 'nibbles' })) {
      expect(executor.fetch(name)).toEqual({ ...tensors[tensor], scales: tensors[`${tensor}.scales`] })
    }
  })

  it('come widened as operations compute with them, in the shape that the graph declares', async () => {
    const executor = await opened()
    const widened = (name: string): Fetched => executor.fetch(name, { widened: true })
    expect(widened('wide')).toEqual(tensors.wide)
    const wide = [...tensors.wide!.data]
    const turned = Array.from({ length: 210 }, (_, i) => wide[(i % 3) * 70 + Math.floor(i / 3)])
    expect(widened('turned')).toMatchObject({ dtype: 'F32', shape: [70, 3] })
    expect(numbers(widened('turned'))).toEqual(turned)
    const fused = [...tensors.fused!.data]
    expect(numbers(widened('some'))).toEqual([...fused.slice(4, 8), ...fused.slice(16, 20)])
    expect(numbers(widened('row'))).toEqual(fused.slice(20).map((v) => Math.fround(1 + v)))
    for (const name of ['half', 'brain', 'table', 'byte', 'double']) expect(numbers(widened(name))).toEqual(plain)
    const codes = [...tensors.codes!.data]
    expect(numbers(widened('q8'))).toEqual(codes.map((q, i) => q * (i < 32 ? 1 : -0.5)))
    const nibbles = [...tensors.nibbles!.data].flatMap((byte) => [(byte & 15) - 8, (byte >> 4) - 8])
    expect(numbers(widened('i4'))).toEqual(nibbles.map((q) => q * 2))
  })

  it('of a family come member by member, of a stack all together', async () => {
    const executor = await opened()
    for (const [name, tensor] of [
      ['W(1)', 'W.1'],
      ['W(2)', 'W.2'],
      ['some.W(0)', 'W.0'],
      ['some.W(1)', 'W.2'],
    ] as const) {
      expect(executor.fetch(name)).toEqual(tensors[tensor])
      expect(executor.fetch(name, { widened: true })).toEqual(tensors[tensor])
    }
    const data = Float32Array.of(...tensors['E.0']!.data, ...tensors['E.1']!.data)
    for (const widened of [false, true])
      expect(executor.fetch('experts', { widened })).toEqual({ dtype: 'F32', shape: [2, 3, 2], data })
  })

  it('are refused by a sentence where there is no such member', async () => {
    const executor = await opened()
    const says = (name: string, options = {}) => errorOf(() => executor.fetch(name, options))
    expect(await says('W')).toEqual({
      code: 'MISUSE',
      message: '"W" is a family: fetch one of its members, "W(1)" to "W(2)".',
    })
    expect(await says('W(0)')).toEqual({ code: 'INVALID', message: '"W(0)" is not there, expected 1 to 2.' })
    expect((await says('W(3)', { widened: true })).code).toBe('INVALID')
    expect((await says('wide(0)')).message).toContain('is no family')
    expect((await says('y(0)')).message).toContain('only constants')
    expect((await says('y', { widened: true })).message).toContain('only constants')
    expect((await says('V(0)')).message).toContain('declares no "V"')
  })

  it('as stored need the file; widened they do not', async () => {
    const path = file()
    const executor = await opened(path)
    truncateSync(path, 100)
    expect((await errorOf(() => executor.fetch('wide'))).code).toBe('INVALID')
    writeFileSync(path, rawSafetensors(JSON.stringify({ other: { dtype: 'F32', shape: [0], data_offsets: [0, 0] } })))
    expect(await errorOf(() => executor.fetch('wide'))).toMatchObject({
      code: 'REFUSED',
      message: expect.stringContaining('the files lack tensor "wide"'),
    })
    unlinkSync(path)
    expect((await errorOf(() => executor.fetch('wide'))).message).toContain(path)
    expect(executor.fetch('wide', { widened: true })).toEqual(tensors.wide)
  })
})
