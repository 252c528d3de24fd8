/**
 * The command line with a model whose contexts have a last position.
 *
 * @module-tag slow
 */
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { beforeAll, describe, expect, it } from 'vitest'
import { safetensors, writePackage } from '../engine/packages.ts'
import { type Gpt2Sizes, gpt2ConfigOf, randomGpt2 } from '../models/gpt2/gpt2.ts'
import { continuo, json, sessionRow, temporary } from './helpers.ts'

const sizes: Gpt2Sizes = { L: 1, H: 2, N: 8, F: 20, V: 256, P: 48 }
const folder = temporary()
const prompt = 'It was the best of times.'
let model: string
beforeAll(() => {
  model = writePackage(gpt2ConfigOf(sizes), safetensors(randomGpt2(9, sizes)))
})

interface Generated {
  readonly ids: readonly number[]
  readonly finish: string
  readonly pulse: number
  readonly chain: string
}
const generate = async (text: string, ...more: readonly string[]): Promise<Generated> =>
  (await json<Generated>('generate', '--model', model, '--prompt', text, '--temperature', '0', ...more))[0]!

describe('continuo with GPT-2', () => {
  it('generates to the last position and says so; a window goes on', async () => {
    const full = await generate(prompt, '--max-tokens', '100')
    expect(full).toMatchObject({ finish: 'context', pulse: 48, ids: { length: 48 - prompt.length } })
    const windowed = await generate(prompt, '--max-tokens', '100', '--overflow', 'window')
    expect(windowed).toMatchObject({ finish: 'length', ids: { length: 100 } })
    // Up to the last position a window holds everything.
    expect(windowed.ids.slice(0, full.ids.length)).toEqual(full.ids)
    const long = await continuo(['generate', '--model', model, '--prompt', prompt.repeat(2)])
    expect(long).toMatchObject({
      code: 1,
      err: expect.stringContaining('context overflow: 50 positions exceed the 48'),
    })
  })

  it('evaluates what fits, and what does not through a window only', async () => {
    const write = (name: string, text: string): string => {
      writeFileSync(join(folder, name), text)
      return join(folder, name)
    }
    const [short, long] = [write('short.txt', prompt), write('long.txt', prompt.repeat(4))]
    const results = await Promise.all(
      [[], ['--chunk-tokens', '7']].map((flags) => json('eval', short, '--model', model, ...flags)),
    )
    expect(results[1]![0]!.chain).toBe(results[0]![0]!.chain)
    const refused = await continuo(['eval', long, '--model', model])
    expect(refused).toMatchObject({
      code: 1,
      err: expect.stringContaining(
        '100 positions exceed the 48 of one context. Give a shorter text. A GPT-2 can let attention see a window',
      ),
    })
    const [seen] = await json('eval', long, '--model', model, '--overflow', 'window', '--chunk-tokens', '9')
    expect(seen).toMatchObject({ tokens: 100, predictions: 99, pulse: 100 })
  })

  it('runs and verifies a log, refusing or windowed, and never one as the other', async () => {
    for (const [overflow, other] of [
      ['refuse', 'window'],
      ['window', 'refuse'],
    ] as const) {
      const log = `file:${join(folder, `${overflow}.db`)}`
      await json('topics', 'apply', '--log', log)
      writeFileSync(join(folder, 'text.txt'), prompt)
      const fed = await continuo(['feed', join(folder, 'text.txt'), '--log', log, '--session', 's', '--generate', '60'])
      expect(fed.code).toBe(0)
      const run = (how: string) =>
        continuo(['run', '--log', log, '--model', model, '--until-idle', '50', '--overflow', how])
      expect((await run(overflow)).code).toBe(0)
      expect((await sessionRow(log, 's')).pulse).toBe(overflow === 'refuse' ? 48 : prompt.length + 60)
      const verify = (how: string) => continuo(['verify', '--log', log, '--model', model, '--overflow', how])
      expect(await verify(overflow)).toMatchObject({ code: 0, out: expect.stringContaining('Everything agrees.') })
      expect((await run(other)).code).toBe(3)
      expect((await verify(other)).code).toBe(3)
    }
  })

  it('refuses a window for a model without a last position', async () => {
    const demo = join(import.meta.dirname, '..', '..', 'models', 'demo')
    const { code, err } = await continuo(['generate', '--model', demo, '--prompt', 'x', '--overflow', 'window'])
    expect(code).toBe(1)
    expect(err).toContain('a "rwkv7" model has no last position to go past')
  })
})
