/** The shipped models/stream: what its page says of it. */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { openPackage } from '../../src/models/open.ts'
import { root } from '../../src/places.ts'
import { natsOf } from '../../src/watch/costs.ts'

const textOf = (name: string, bytes: number): Int32Array =>
  Int32Array.from(readFileSync(join(root, 'docs', 'demo', name)).subarray(0, bytes))

/** Bits of a byte, and the chain behind the last one. */
const read = async (model: string, tokens: Int32Array): Promise<readonly [bits: number, chain: string]> => {
  const opened = await openPackage(join(root, 'models', model))
  const context = opened.model.createContext()
  const nats = await natsOf(opened.model.submit, context, tokens)
  const { chain } = context
  opened.model.close()
  // Nothing predicted the first byte.
  return [nats.slice(1).reduce((sum, each) => sum + each, 0) / Math.LN2 / (tokens.length - 1), chain]
}

test('it reads a log in fewer bits than its memory by itself, and English as its network does, with the same bits everywhere', async () => {
  const [log, tale] = [textOf('harbour-day.txt', 12_000), textOf('harbour-log.txt', 4_000)]
  const [bits, chain] = await read('stream', log)
  expect(bits).toBeLessThan((await read('watch', log))[0] * 0.95)
  expect(chain).toBe('8d01b0cf5a6d91b2dc70ef4ece050e93')
  expect((await read('stream', tale))[0]).toBeLessThan(1.9)
})
