/**
 * The stream over a vocabulary whose tokens are more than bytes: the shipped model, told to read and write such tokens.
 */
import { copyFileSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import type { Model } from '../../../src/engine/types.ts'
import { openPackage } from '../../../src/models/open.ts'
import type { Tokenizer } from '../../../src/models/tokenizer/types.ts'
import type { Observed } from '../../../topics/observations.ts'
import { inPieces, readText, wordsOf256 } from '../../models/tokenizer/fixtures.ts'
import { type Bench, createBench, demoModel, event, verified } from '../harness.ts'

const document = readFileSync(new URL('../../../docs/demo/harbour-log.txt', import.meta.url), 'utf8')
  .replaceAll(/[^ -~\n]/g, '')
  .slice(0, 1500)

let dir = ''
let shared: { model: Model; tokenizer: Tokenizer | null }

beforeAll(async () => {
  dir = mkdtempSync(join(tmpdir(), 'continuo-words-'))
  for (const file of ['config.json', 'model.safetensors']) copyFileSync(join(demoModel, file), join(dir, file))
  writeFileSync(join(dir, 'tokenizer.json'), JSON.stringify(wordsOf256()))
  shared = await openPackage(dir, { threads: 2 })
})
afterAll(() => {
  shared.model.close()
  rmSync(dir, { recursive: true, force: true })
})

const use = async (claim: (bench: Bench) => Promise<void>): Promise<void> => {
  const bench = await createBench(shared)
  try {
    await claim(bench)
  } finally {
    await bench.close()
  }
}

test('chunks cut inside words leave no trace: one chain, one sum of nats, and bits per byte of the text', {
  tags: 'slow',
}, async () => {
  await use(async (bench) => {
    const tokenizer = shared.tokenizer!
    const ids = readText(tokenizer, [document])
    expect(ids.length).toBeLessThan(0.8 * document.length)
    await bench.feed(
      event('whole', { type: 'text', text: document }),
      event('whole', { type: 'boundary' }),
      ...inPieces(document, Array(400).fill(3)).map((text) => event('cut', { type: 'text', text })),
      event('cut', { type: 'boundary' }),
    )
    await bench.settle()
    const heads = await bench.heads()
    expect(heads.get('cut')!.chain).toBe(heads.get('whole')!.chain)
    expect(heads.get('cut')!.totals).toEqual(heads.get('whole')!.totals)
    expect(heads.get('whole')!.totals.tokens).toBe(ids.length)
    const [first] = (await bench.observations('whole')).filter((each): each is Observed => each.type === 'observed')
    const read = ids.slice(1, first!.tokens)
    const bytes = read.reduce((sum, id) => sum + tokenizer.bytesOf(id).length, 0)
    expect(first!.bitsPerByte).toBe(first!.nats / Math.LN2 / bytes)
    expect(bytes).toBeGreaterThan(first!.predictions)
    await verified(bench)
  })
})

test('a stop string ends the text in the middle of a token; its id stands, and nothing follows', {
  tags: 'slow',
}, async () => {
  await use(async (bench) => {
    const ask = { type: 'generate', requestId: 'r', maxTokens: 100, temperature: 1, seed: 11 } as const
    await bench.feed(event('free', { type: 'text', text: document }), event('free', ask))
    await bench.settle()
    const free = (await bench.generated('free')).flatMap(({ ids }) => ids)
    // The first byte of a token of several, which the text before does not hold.
    const told = free.map((id) => Buffer.from(shared.tokenizer!.bytesOf(id)).toString('latin1'))
    const at = told.findIndex((token, index) => {
      const before = told.slice(0, index).join('')
      return index > 20 && /^[ -~]{2}/.test(token) && !before.includes(before.slice(-1) + token[0])
    })
    expect(at).toBeGreaterThan(20)
    const before = told.slice(0, at).join('')
    const stop = before.slice(-1) + told[at]![0]
    await bench.feed(
      event('stopped', { type: 'text', text: document }),
      event('stopped', { ...ask, stop: [Buffer.from(stop, 'latin1').toString('utf8')] }),
    )
    await bench.settle()
    const events = await bench.generated('stopped')
    expect(events.flatMap(({ ids }) => ids)).toEqual(free.slice(0, at + 1))
    expect(
      events
        .map(({ text }) => text)
        .join('')
        .endsWith(stop),
    ).toBe(true)
    expect(events.at(-1)!.finish).toBe('stop')
    await verified(bench)
  })
})
