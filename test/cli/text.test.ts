/**
 * Models as they are published, through the command line: RWKV-7 with its vocabulary, a GGUF file with its own, and
 * models by name.
 */
import { copyFileSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { openPackage } from '../../src/models/open.ts'
import { hasShared, sharedModel } from '../engine/paths.ts'
import { continuo, json, MODEL, sessionRow, temporary } from './helpers.ts'

interface Answered {
  readonly text: string
  readonly fed: number
  readonly chain: string
  readonly exact: boolean
}
const DRAWN = ['--max-tokens', '16', '--seed', '3', '--threads', '1', '--device', 'cpu', '--json']

/** A package for reading: commands keep packed weights beside a model. */
const copied = (name: string, ...files: readonly string[]): string => {
  const dir = temporary()
  for (const file of files) copyFileSync(join(sharedModel(name), file), join(dir, file))
  return dir
}

describe.skipIf(!hasShared)('RWKV-7 as its author publishes it', () => {
  const files = ['RWKV-x070-tiny.pth', 'rwkv_vocab_v20230424.txt']

  test('reads and writes text with the vocabulary beside it, named as folder or file, and converses', {
    tags: 'slow',
  }, async () => {
    const dir = copied('rwkv7-pth-tiny', ...files)
    const [shown] = await json<{ tokenizer: string; fingerprint: string }>('model', 'show', dir)
    expect(shown!.tokenizer).toBe('rwkv_vocab_v20230424.txt')
    const prompt = ['generate', '--prompt', 'The event had every promise', ...DRAWN]
    const [byFolder, byFile] = await Promise.all(
      [dir, join(dir, files[0]!)].map((model) => continuo([...prompt, '--model', model])),
    )
    expect(byFolder!.code).toBe(0)
    expect(byFile!.out).toBe(byFolder!.out)
    const chat = await continuo(['chat', '--model', dir, ...DRAWN], { input: 'Hello\nAgain\n' })
    expect(chat.code).toBe(0)
    const turns = chat.out
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line) as Answered)
    expect(turns.map(({ exact }) => exact)).toEqual([true, true])
    const { model, tokenizer } = await openPackage(dir, { threads: 1, keepPacked: false, device: 'cpu' })
    try {
      expect(model.fingerprint).toBe(shown!.fingerprint)
      expect(model.endTokens).toBeNull()
      expect(tokenizer!.eos).toBe(0)
      expect(turns[0]!.fed).toBe(tokenizer!.turns!.encode('User: Hello\n\nAssistant:', 'nothing').length)
    } finally {
      model.close()
    }
  })

  test('eval reads its text by the vocabulary, and costs what was expected', async () => {
    const dir = copied('rwkv7-pth-tiny', ...files)
    const expected = JSON.parse(readFileSync(join(sharedModel('rwkv7-pth-tiny'), 'expected.json'), 'utf8')) as {
      readonly nll: readonly number[]
      readonly encodings: readonly { readonly text: string; readonly ids: readonly number[] }[]
    }
    const { model, tokenizer } = await openPackage(dir, { threads: 1, keepPacked: false, device: 'cpu' })
    try {
      const context = model.createContext()
      const { text } = expected.encodings.at(-1)!
      const { ids } = tokenizer!.push('', text)
      const { nats } = await model.submit({ context, tokens: ids.slice(0, 120), nats: true })
      context.close()
      for (const [at, nll] of expected.nll.entries()) expect(nats[at + 1]).toBeCloseTo(nll, 2)
    } finally {
      model.close()
    }
  })
})

describe.skipIf(!hasShared)("RWKV's vocabulary on a stream", () => {
  test('gives a session the same pulse and chain however its text was cut; verify agrees', {
    tags: 'slow',
  }, async () => {
    const dir = copied('rwkv7-pth-tiny', 'RWKV-x070-tiny.pth', 'rwkv_vocab_v20230424.txt')
    const folder = temporary()
    const file = join(folder, 'text.txt')
    const log = `file:${join(folder, 'text.db')}`
    writeFileSync(file, 'Hello, continuo! naïve café — 東京 🙂 the event had every promise.\n\n'.repeat(6))
    for (const [session, bytes] of [
      ['small', '5'],
      ['large', '10000'],
    ] as const)
      await json(
        'feed',
        file,
        '--log',
        log,
        '--session',
        session,
        '--chunk-bytes',
        bytes,
        '--generate',
        '20',
        '--seed',
        '2',
      )
    const model = ['--log', log, '--model', dir, '--device', 'cpu']
    expect(await continuo(['run', ...model, '--until-idle', '50', '--log-level', 'warn'])).toMatchObject({ code: 0 })
    const [small, large] = [await sessionRow(log, 'small'), await sessionRow(log, 'large')]
    expect(small.tokens).toBeGreaterThan(100)
    for (const member of ['pulse', 'chain', 'tokens', 'generated'] as const) expect(small[member]).toBe(large[member])
    expect(await continuo(['verify', ...model])).toMatchObject({ code: 0 })
  })
})

describe.skipIf(!hasShared)('a GGUF file', () => {
  test("of RWKV-7 has its vocabulary inside, and converses in RWKV's form", async () => {
    const dir = copied('gguf-tiny', 'rwkv7-f16.gguf')
    const [shown] = await json<{ tokenizer: string }>('model', 'show', join(dir, 'rwkv7-f16.gguf'))
    expect(shown!.tokenizer).toBe('GGUF')
    const chat = await continuo(['chat', '--model', dir, ...DRAWN], { input: 'Hello\n' })
    expect(chat.code).toBe(0)
    expect((JSON.parse(chat.out) as Answered).fed).toBeGreaterThan(5)
  })
})

describe('a model by its name', () => {
  test('runs from the cache as from its folder, with every command that takes --model', { tags: 'slow' }, async () => {
    const cache = temporary()
    const folder = join(cache, 'models', 'some-one', 'demo')
    mkdirSync(folder, { recursive: true })
    for (const file of ['config.json', 'model.safetensors']) copyFileSync(join(MODEL, file), join(folder, file))
    const env = { CONTINUO_CACHE: cache, HF_HOME: join(cache, 'none') }
    const args = ['generate', '--prompt', 'The harbour ', ...DRAWN, '--model']
    const [named, direct] = [await continuo([...args, 'some-one/demo'], { env }), await continuo([...args, MODEL])]
    expect(named.code).toBe(0)
    expect(named.out).toBe(direct.out)
    expect(JSON.parse((await continuo(['model', 'show', 'some-one/demo', '--json'], { env })).out)).toMatchObject({
      tokenizer: 'bytes',
    })
  })

  test('that is not there is refused, and nothing is asked for it', async () => {
    const env = { CONTINUO_CACHE: temporary(), HF_HOME: temporary() }
    const { code, err } = await continuo(['generate', '--prompt', 'x', '--model', 'some-one/else'], { env })
    expect(code).toBe(1)
    expect(err).toMatch(
      /some-one\/else is not a model package: there is no such path.* nothing in .* continuo pull some-one\/else/,
    )
  })
})
