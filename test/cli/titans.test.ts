// @module-tag slow
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { writeTitans } from '../../bench/titans-package.ts'
import { openLog } from '../../src/streams/open.ts'
import { topicNames } from '../../topics/index.ts'
import { continuo, temporary } from './helpers.ts'

const folder = temporary()
const model = join(folder, 'model')
const log = `file:${join(folder, 'log.db')}`

describe('continuo with Titans', { timeout: 120_000 }, () => {
  test('evaluates, generates, runs and verifies', async () => {
    await writeTitans(model, {
      composition: 'mag',
      levels: [1, 4, 64],
      hidden: 32,
      layers: 2,
      heads: 2,
      keyHeads: 1,
      headDim: 16,
      intermediate: 48,
      window: 24,
    })
    const text = join(import.meta.dirname, '../../LICENSE')
    const whole = await continuo(['eval', text, '--model', model, '--json'])
    const cut = await continuo(['eval', text, '--model', model, '--chunk-tokens', '7', '--json'])
    expect(whole.code).toBe(0)
    expect(JSON.parse(cut.out).chain).toBe(JSON.parse(whole.out).chain)

    const said = ['generate', '--model', model, '--prompt', 'Once', '--max-tokens', '9', '--json']
    const [once, again] = [await continuo(said), await continuo(said)]
    expect(once.code).toBe(0)
    expect(again.out).toBe(once.out)

    await continuo(['topics', 'apply', '--log', log, '--partitions', '1'])
    const stream = await openLog(log)
    const names = topicNames(stream.prefix)
    const event = (value: object) => ({ key: Buffer.from('s'), value: Buffer.from(JSON.stringify(value)) })
    await stream.append(names.chunks, [
      event({ type: 'text', text: 'The memory is trained by every token that it reads, and says so.' }),
      event({ type: 'generate', requestId: 'r', maxTokens: 20, seed: 3 }),
    ])
    await stream.close()
    expect((await continuo(['run', '--log', log, '--model', model, '--until-idle', '100'])).code).toBe(0)
    expect((await continuo(['verify', '--log', log, '--model', model])).code).toBe(0)
  })

  test('model show --trace repeats one step, at one clock', async () => {
    const mac = join(folder, 'mac')
    const sizes = { hidden: 32, layers: 1, heads: 2, keyHeads: 1, headDim: 16, intermediate: 48, window: 24 }
    await writeTitans(mac, { composition: 'mac', levels: [1, 4], segment: 8, ...sizes })
    // Seven times three tokens would leave the first segment.
    const { code, out, err } = await continuo(['model', 'show', mac, '--trace', '3', '--json'])
    expect({ code, err }).toEqual({ code: 0, err: '' })
    expect(JSON.parse(out).trace.ops.map(({ op }: { op: string }) => op)).toContain('cache.memory')
  })

  test('sessions --health tells of every level what it holds, what waits, and what its gates were', async () => {
    const { code, out } = await continuo(['sessions', '--log', log, '--health', '--json'])
    expect(code).toBe(0)
    const { vitals, health, pulse } = JSON.parse(out)
    expect(pulse).toBe(84)
    expect(vitals.window).toEqual({ used: 24, places: 24 })
    expect(vitals.levels.map(({ period }: { period: number }) => period)).toEqual([1, 4, 64])
    const [fast, , slow] = vitals.levels
    // It has no buffer; pulse 84 is the 20th after the slow level fired.
    expect(fast.bufferRatio).toBeNull()
    expect(slow.bufferRatio).toBeGreaterThan(0)
    expect(slow.bufferRatio).toBeCloseTo(
      Math.max(...[0, 1].map((l) => normOf(health, 'memory.G', l, 2) / normOf(health, 'memory.M', l, 2))),
    )
    for (const { gates, memory, momentum } of vitals.levels) {
      expect(memory).toBeGreaterThan(0)
      expect(momentum).toBeGreaterThan(0)
      expect(gates.theta).toBeGreaterThan(0)
      expect(gates.theta).toBeLessThan(1)
      expect(gates.eta).toBeLessThan(0.9)
      expect(gates.alpha).toBeGreaterThan(0.01)
      expect(gates.alpha).toBeLessThan(0.5)
    }
    const { out: table } = await continuo(['sessions', '--log', log, '--health'])
    expect(table).toMatch(/session +level +period +memory +momentum +waiting +theta +eta +alpha +window +bits\/token/)
    expect(table).toMatch(/^s +0 +1 .*24 of 24/m)
  })
})

interface Part {
  readonly name: string
  readonly layer: number
  readonly level: number | null
  readonly norm: number
}
const normOf = (parts: readonly Part[], name: string, layer: number, level: number): number =>
  parts.find((part) => part.name === name && part.layer === layer && part.level === level)!.norm
