/**
 * The shipped model with matrices of few bits: what it predicts, and that its bits depend on no cut and no thread.
 *
 * @module-tag slow
 */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { type GroupSize, quantizePackage } from '../../../src/models/quantize/quantize.ts'
import type { TargetName } from '../../../src/models/quantize/quantizers.ts'
import { feed, generate, open } from '../../engine/helpers.ts'
import { newOut } from '../helpers.ts'

const root = join(import.meta.dirname, '..', '..', '..')
const demo = join(root, 'models', 'demo')
const text = readFileSync(join(root, 'docs', 'demo', 'harbour-log.txt')).subarray(0, 4000)

const quantised = async (to: TargetName, group: GroupSize): Promise<string> => {
  const out = newOut()
  await quantizePackage({ dir: demo, out, to, group })
  return out
}

interface Reading {
  readonly bitsPerByte: number
  readonly continuation: readonly number[]
  readonly chain: string
}

const read = async (dir: string, threads = 1, chunk = text.length): Promise<Reading> => {
  const model = await open(dir, { threads })
  const context = model.createContext()
  let nats = 0
  for (let at = 0; at < text.length; at += chunk) {
    const some = await feed(model, context, text.subarray(at, at + chunk))
    for (const value of some) if (!Number.isNaN(value)) nats += value
  }
  const { generated, head } = await generate(model, context, 64)
  return { bitsPerByte: nats / Math.LN2 / (text.length - 1), continuation: [...generated], chain: head.chain }
}

describe('the shipped model, quantised', () => {
  const groups = [32, 64] as const
  for (const group of groups)
    it(`as q8 in groups of ${group} reads within 0.02 bits per byte of the original, and goes on writing`, async () => {
      const original = await read(demo)
      const { bitsPerByte, continuation, chain } = await read(await quantised('q8', group))
      expect(Math.abs(bitsPerByte - original.bitsPerByte)).toBeLessThan(0.02)
      expect(continuation).toHaveLength(64)
      expect(chain).not.toBe(original.chain)
    })

  for (const group of groups)
    it(`as ternary in groups of ${group}, for which it was not trained, reads within 1 bit per byte of it`, async () => {
      const original = await read(demo)
      const { bitsPerByte, continuation } = await read(await quantised('ternary', group))
      expect(bitsPerByte).toBeGreaterThan(original.bitsPerByte)
      expect(bitsPerByte).toBeLessThan(original.bitsPerByte + 1)
      expect(continuation).toHaveLength(64)
    })

  for (const to of ['q8', 'ternary'] as const)
    it(`as ${to} gives the same bits on any number of threads and however the text is cut`, async () => {
      const dir = await quantised(to, 32)
      const whole = await read(dir)
      for (const [threads, chunk] of [
        [3, text.length],
        [1, 1],
        [2, 77],
      ] as const) {
        const { continuation, chain } = await read(dir, threads, chunk)
        expect({ continuation, chain }).toEqual({ continuation: whole.continuation, chain: whole.chain })
      }
    })

  it('is another model than the original, whose sessions have the same layout', async () => {
    const [original, q8, ternary] = await Promise.all([
      open(demo),
      quantised('q8', 32).then((dir) => open(dir)),
      quantised('ternary', 32).then((dir) => open(dir)),
    ])
    expect(new Set([original.fingerprint, q8.fingerprint, ternary.fingerprint]).size).toBe(3)
    expect([q8.layoutFingerprint, ternary.layoutFingerprint]).toEqual([
      original.layoutFingerprint,
      original.layoutFingerprint,
    ])
  })
})
