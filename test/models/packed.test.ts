/** Packed weights beside a model: made once, used the next time, and never trusted. */
import { existsSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { beforeAll, describe, expect, it } from 'vitest'
import { openModel } from '../../src/models/open.ts'
import { randomRwkv7, safetensors, writePackage } from '../engine/packages.ts'

const folder = { path: '', packed: '' }
beforeAll(() => {
  // 12 MB of weights: fewer are not worth a file.
  const weights = randomRwkv7(17, { L: 2, H: 4, N: 64, F: 512, V: 4000, D: { w: 16, a: 16, v: 16, g: 16 } })
  folder.path = writePackage({ model_type: 'rwkv7' }, safetensors(weights))
  folder.packed = join(folder.path, 'model.safetensors.packed')
})

const read = async (keepPacked = true): Promise<{ readonly bits: string; readonly warnings: readonly string[] }> => {
  const warnings: string[] = []
  const model = await openModel(folder.path, { threads: 2, keepPacked, warn: (message) => warnings.push(message) })
  const context = model.createContext()
  await model.process([{ context, tokens: Int32Array.from([1, 2, 3, 3999]), nats: true }])
  const logits = await model.logits(context)
  const bits = `${context.chain} ${Buffer.from(logits.buffer).toString('hex')}`
  model.close()
  return { bits, warnings }
}

describe('packed weights', () => {
  it('are kept unless told otherwise, and give the same bits', async () => {
    const plain = await read(false)
    expect(existsSync(folder.packed)).toBe(false)
    const first = await read()
    const { ino } = statSync(folder.packed)
    expect([await read(), await read()]).toEqual([first, first])
    expect(first).toEqual({ bits: plain.bits, warnings: [] })
    // Used, not made anew.
    expect(statSync(folder.packed).ino).toBe(ino)
  })

  it('of another model, or damaged, are made anew with one warning', async () => {
    const want = await read()
    const good = readFileSync(folder.packed)
    const bad = Buffer.from(good)
    bad[bad.length >> 1]! ^= 4
    writeFileSync(folder.packed, bad)
    const mended = await read()
    expect(mended.bits).toBe(want.bits)
    expect(mended.warnings).toEqual([`packed weights ${folder.packed} are damaged; they are packed anew.`])
    expect(readFileSync(folder.packed).equals(good)).toBe(true)

    // The weights change, and with them what the file must be for.
    const path = join(folder.path, 'model.safetensors')
    const model = readFileSync(path)
    const changed = Buffer.from(model)
    changed.writeFloatLE(0.125, changed.length - 4)
    rmSync(path)
    writeFileSync(path, changed)
    const other = await read()
    expect(other.warnings).toEqual([
      `packed weights ${folder.packed} belong to another model or graph; they are packed anew.`,
    ])
    expect(other.bits).not.toBe(want.bits)
    expect(await read()).toEqual({ bits: other.bits, warnings: [] })
  })
})
