import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { openFamily } from '../families.ts'
import { continuo, DOCUMENT, json, MODEL, ROOT, temporary } from './helpers.ts'

const folder = temporary()
const write = (name: string, bytes: Uint8Array | string): string => {
  const path = join(folder, name)
  writeFileSync(path, bytes)
  return path
}

interface Result {
  readonly tokens: number
  readonly predictions: number
  readonly nats: number
  readonly bitsPerByte: number | null
  readonly pulse: number
  readonly chain: string
}
const evaluate = async (file: string, ...more: readonly string[]): Promise<Result> => {
  const model = more.includes('--model') ? [] : ['--model', MODEL]
  return (await json<Result>('eval', file, ...model, ...more))[0]!
}

interface Expected {
  readonly prompt: string
  readonly prompt_bytes: readonly number[]
  readonly logits: readonly number[]
  readonly greedy_text: string
}
const expected = JSON.parse(readFileSync(join(MODEL, 'expected.json'), 'utf8')) as Expected

/** Models and texts that are too large for the repository; the reference of tiny-rwkv7 is rwkv.cpp's. */
const SHARED = process.env.CONTINUO_SHARED ?? join(ROOT, '..', 'shared')
const TINY = join(SHARED, 'models', 'tiny-rwkv7')
const SHAKESPEARE = join(SHARED, 'data', 'tinyshakespeare.txt')

describe('continuo eval', () => {
  it('gives the same nats and chain however the tokens are cut, and on any number of threads', {
    tags: 'slow',
  }, async () => {
    const text = write('beginning.txt', readFileSync(DOCUMENT, 'utf8').slice(0, 4000))
    const whole = await evaluate(text)
    expect(whole.tokens).toBe(readFileSync(text).length)
    expect(whole.predictions).toBe(whole.tokens - 1)
    for (const flags of [
      ['--chunk-tokens', '1'],
      ['--chunk-tokens', '777', '--threads', '1'],
      ['--threads', '3'],
    ]) {
      const { nats, chain } = await evaluate(text, ...flags)
      expect({ nats, chain }).toEqual({ nats: whole.nats, chain: whole.chain })
    }
  })

  it('reads a JSON array of ids as the same text', { tags: 'slow' }, async () => {
    const ids = write('ids.json', ` ${JSON.stringify([...Buffer.from(expected.prompt)])}\n`)
    const text = await evaluate(write('prompt.txt', expected.prompt))
    expect(await evaluate(ids)).toMatchObject({ nats: text.nats, chain: text.chain, pulse: text.pulse })
  })

  it('takes text that begins with a bracket for text', { tags: 'slow' }, async () => {
    for (const text of ['[1, 2', '[1.5]', '[-1]', '["a"]', '[x]']) {
      expect((await evaluate(write('bracket.txt', text))).tokens).toBe(text.length)
    }
  })

  it('writes the last logits as raw little-endian f32, as the reference has them', async () => {
    const file = join(folder, 'logits.bin')
    await evaluate(write('prompt.txt', expected.prompt), '--logits', file)
    const raw = readFileSync(file)
    expect(raw).toHaveLength(4 * expected.logits.length)
    for (const [at, value] of expected.logits.entries())
      expect(Math.abs(raw.readFloatLE(4 * at) - value)).toBeLessThan(1e-3)
  })

  it('has nothing to say of an empty file', async () => {
    expect(await evaluate(write('empty', ''))).toMatchObject({
      tokens: 0,
      predictions: 0,
      nats: 0,
      bitsPerByte: null,
      pulse: 0,
    })
    expect(await continuo(['eval', write('empty', ''), '--model', MODEL])).toMatchObject({ code: 0 })
  })

  it('refuses ids outside the vocabulary, and a folder that is no model', async () => {
    const outside = await continuo(['eval', write('ids.json', '[1,256]'), '--model', MODEL])
    expect(outside).toMatchObject({
      code: 1,
      out: '',
      err: 'Token ids go from 0 to 255 for this model; number 1 is 256.\n',
    })
    const nothing = await continuo(['eval', DOCUMENT, '--model', folder])
    expect(nothing.code).toBe(1)
    expect(nothing.err).toContain('is not a model package')
  })

  it('says of a folder and of a file that is not there what it needs', async () => {
    expect(await continuo(['eval', folder, '--model', MODEL])).toMatchObject({
      code: 2,
      out: '',
      err: `${folder} is a folder; a file is expected, or - for standard input.\n`,
    })
    const missing = await continuo(['eval', join(folder, 'nothing'), '--model', MODEL])
    expect(missing).toMatchObject({ code: 1, out: '' })
    expect(missing.err).toMatch(/nothing cannot be read: ENOENT.* Check the path\.\n$/)
  })

  it('reads standard input to its end', async () => {
    const { code, out } = await continuo(['eval', '-', '--model', MODEL, '--json'], { input: expected.prompt })
    expect(code).toBe(0)
    const { chain } = await evaluate(write('prompt.txt', expected.prompt))
    expect(JSON.parse(out)).toMatchObject({ tokens: expected.prompt.length, chain })
  })

  it.skipIf(!existsSync(TINY) || !existsSync(SHAKESPEARE))(
    'agrees with the reference of tiny-rwkv7 on ids',
    async () => {
      const { nll } = JSON.parse(readFileSync(join(TINY, 'expected.json'), 'utf8')) as {
        nll: { tokens_scored: number; total_nats: number; tolerance_rel: number }
      }
      const ids = write('ids.json', JSON.stringify([...readFileSync(SHAKESPEARE).subarray(0, 2000)]))
      const { nats, predictions } = await evaluate(ids, '--model', TINY)
      expect(predictions).toBe(nll.tokens_scored)
      expect(Math.abs(nats / nll.total_nats - 1)).toBeLessThan(nll.tolerance_rel)
    },
  )
})

describe('continuo generate', () => {
  const greedy = ['generate', '--model', MODEL, '--prompt', expected.prompt, '--temperature', '0']

  it('continues the prompt as the reference does', async () => {
    const count = String(expected.greedy_text.length)
    expect(await continuo([...greedy, '--max-tokens', count])).toEqual({
      code: 0,
      signal: null,
      out: `${expected.greedy_text}\n`,
      err: '',
    })
    const [told] = await json(...greedy, '--max-tokens', count)
    expect(told).toMatchObject({ text: expected.greedy_text, finish: 'length', pulse: 37 + 32 })
  })

  it('ends after a stop text and feeds nothing behind it', async () => {
    const [told] = await json(...greedy, '--stop', 'range', '--stop', 'zzz')
    expect(told).toMatchObject({ text: 'he was a strange', finish: 'stop', pulse: 37 + 16 })
  })

  it('draws the same text for the same seed, another for another', { tags: 'slow' }, async () => {
    const draw = async (seed: string): Promise<unknown> =>
      (await json('generate', '--model', MODEL, '--prompt', 'The sea ', '--max-tokens', '40', '--seed', seed))[0]?.text
    expect(await draw('5')).toBe(await draw('5'))
    expect(await draw('6')).not.toBe(await draw('5'))
  })
})

describe('a model with an external memory', () => {
  it('has the same chain with no archived block in memory, from a file, from a pipe, and cut anyhow', {
    tags: 'slow',
  }, async () => {
    const { dir: model } = await openFamily('memory', folder)
    const text = readFileSync(DOCUMENT).subarray(0, 6000)
    const file = write('long.txt', text)
    const { chain, nats, predictions, bitsPerByte } = await evaluate(file, '--model', model)
    const blocks = join(folder, 'blocks')
    const flags = ['--model', model, '--block-cache-bytes', '0', '--block-dir', blocks]
    expect(await evaluate(file, ...flags, '--chunk-tokens', '777')).toMatchObject({
      chain,
      nats,
      predictions,
      bitsPerByte,
    })
    expect(readdirSync(blocks)).toEqual([])
    const piped = await continuo(['eval', '-', ...flags, '--json'], { input: text })
    expect(JSON.parse(piped.out)).toMatchObject({ chain, nats, predictions, bitsPerByte })
    const event = write(
      'long.jsonl',
      `${JSON.stringify({ type: 'text', text: text.toString('utf8') })}\n{"type":"boundary"}\n`,
    )
    const logits = ['a', 'b'].map((name) => join(folder, name))
    expect(await evaluate(event, ...flags, '--logits', logits[0]!)).toMatchObject({ chain, nats })
    await evaluate(file, '--model', model, '--logits', logits[1]!)
    expect(readFileSync(logits[0]!).equals(readFileSync(logits[1]!))).toBe(true)
  })

  it('generates the same with none of them in memory', { tags: 'slow' }, async () => {
    const { dir: model } = await openFamily('memory', folder)
    const prompt = readFileSync(DOCUMENT, 'utf8').slice(0, 1500)
    const args = ['generate', '--model', model, '--prompt', prompt, '--max-tokens', '40', '--temperature', '1']
    const [one, other] = [await json(...args), await json(...args, '--block-cache-bytes', '0')]
    expect(other).toEqual(one)
  })

  it('is what the flags of archived blocks are for', async () => {
    const { code, err } = await continuo(['eval', DOCUMENT, '--model', MODEL, '--block-cache-bytes', '0'])
    expect(code).toBe(2)
    expect(err).toContain('--block-cache-bytes')
  })
})
