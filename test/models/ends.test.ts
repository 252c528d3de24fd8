/**
 * Several tokens end a text: which ones, what that makes of the fingerprint, and that any of them ends a generation.
 */
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, onTestFinished, test } from 'vitest'
import { messageOf } from '../../src/errors.ts'
import { readGeneration } from '../../src/models/files/generation.ts'
import { readText } from '../../src/models/files/package-text.ts'
import { openPackage } from '../../src/models/open.ts'
import { beginsWith as begins } from '../../src/models/tokenizer/published.ts'
import { SessionManager } from '../../src/sessions/manager.ts'
import { randomRwkv7, safetensors, temporaryFolder, writePackage } from '../engine/packages.ts'
import { byteLevel } from './tokenizer/fixtures.ts'

const SIZES = { L: 1, H: 1, N: 16, F: 32, V: 256, D: { w: 8, a: 8, v: 6, g: 10 } }
const weights = safetensors(randomRwkv7(7, SIZES), 'F32')

/** A package whose tokens are bytes, with more in config.json and a generation_config.json. */
const folder = (config: object = {}, generation?: unknown): string => {
  const dir = writePackage({ model_type: 'rwkv7', ...config }, weights)
  if (generation !== undefined)
    writeFileSync(
      join(dir, 'generation_config.json'),
      typeof generation === 'string' ? generation : JSON.stringify(generation),
    )
  return dir
}

describe('the tokens that end a text', () => {
  const read = async (config: Readonly<Record<string, unknown>>, generation?: unknown, json?: unknown) => {
    const dir = temporaryFolder()
    if (generation !== undefined) writeFileSync(join(dir, 'generation_config.json'), JSON.stringify(generation))
    if (json !== undefined) writeFileSync(join(dir, 'tokenizer.json'), JSON.stringify(json))
    const warnings: string[] = []
    const { endTokens: told } = await readGeneration(dir)
    const { endTokens } = await readText(
      { dir, path: dir, config, metadata: null, endTokens: told },
      json === undefined ? 256 : 2000,
      (said) => warnings.push(said),
    )
    return { endTokens, warnings }
  }
  const added = (...contents: readonly string[]) =>
    byteLevel({
      added_tokens: contents.map((content, at) => ({ id: 1500 + at, content, special: true, normalized: false })),
    })
  const named = added('</s>')
  const chat = added('</s>', '<|im_end|>', '<|eot_id|>', '<|im_start|>', '<|user|>')
  const harmony = added('<|endoftext|>', '<|end|>', '<|return|>', '<|call|>', '<|start|>')

  test.each<[string, Readonly<Record<string, unknown>>, unknown, unknown, readonly number[] | undefined]>([
    ["the tokenizer's one where nothing else is said", {}, undefined, named, undefined],
    ['a list of generation_config.json', {}, { eos_token_id: [9, 5, 9] }, named, [5, 9]],
    ['a number of generation_config.json', {}, { eos_token_id: 9 }, named, [9]],
    ["the tokenizer's one where generation_config.json names the same", {}, { eos_token_id: [1500] }, named, undefined],
    ["the tokenizer's one where generation_config.json names none", {}, { eos_token_id: null }, named, undefined],
    ['generation_config.json before config.json', { eos_token_id: [7, 1500] }, { eos_token_id: [5, 9] }, named, [5, 9]],
    ["a list of config.json with the tokenizer's one in it", { eos_token_id: [7, 1500] }, undefined, named, [7, 1500]],
    ["the tokenizer's one where config.json's list lacks it", { eos_token_id: [7, 8] }, undefined, named, undefined],
    [
      'a list of the text model inside config.json',
      { text_config: { eos_token_id: [7, 1500] } },
      undefined,
      named,
      [7, 1500],
    ],
    [
      "control tokens of conversations by their text where no file has a list, beside the tokenizer's one",
      {},
      undefined,
      chat,
      [1500, 1501, 1502],
    ],
    ['no token by its text where generation_config.json names one', {}, { eos_token_id: 1500 }, chat, undefined],
    ['no token by its text where config.json has a list', { eos_token_id: [7, 1500] }, undefined, chat, [7, 1500]],
    [
      '<|end|> as a part of an answer where there are <|return|> and <|call|>',
      {},
      undefined,
      harmony,
      [1500, 1502, 1503],
    ],
    ['the one of config.json where a token is a byte', { eos_token_id: 10 }, undefined, undefined, undefined],
    ['all of config.json where a token is a byte', { eos_token_id: [10, 0] }, undefined, undefined, [0, 10]],
    [
      "the tokenizer's one where an empty list says nothing",
      { eos_token_id: 10 },
      { eos_token_id: [] },
      undefined,
      undefined,
    ],
  ])('are %s', async (_, config, generation, json, expected) => {
    expect((await read(config, generation, json)).endTokens).toEqual(expected)
  })

  const gguf = (keys: Readonly<Record<string, number>>) => {
    const tokens = ['<unk>', '<s>', '</s>', '<|im_start|>', '<|im_end|>', ...Array(256).keys()].map((token, at) =>
      typeof token === 'string' ? token : `<0x${(at - 5).toString(16).toUpperCase().padStart(2, '0')}>`,
    )
    const metadata = new Map<string, unknown>([
      ['tokenizer.ggml.model', 'llama'],
      ['tokenizer.ggml.tokens', tokens],
      ['tokenizer.ggml.scores', tokens.map(() => 0)],
      ['tokenizer.ggml.token_type', tokens.map((_, at) => (at === 0 ? 2 : at < 5 ? 3 : 6))],
      ...Object.entries(keys).map(([key, id]): [string, unknown] => [`tokenizer.ggml.${key}_token_id`, id]),
    ])
    const endKeys = new Map(Object.entries(keys).map(([key, id]) => [id, `tokenizer.ggml.${key}_token_id`]))
    const from = { dir: temporaryFolder(), path: 'model.gguf', config: {}, metadata, endKeys }
    return readText({ ...from, endTokens: [...endKeys.keys()] }, tokens.length, () => {})
  }

  test('of a GGUF file are those of its keys, and control tokens by their text where none is the end of a turn', async () => {
    expect((await gguf({ eos: 2 })).ends).toEqual([
      { id: 2, from: 'tokenizer.ggml.eos_token_id' },
      { id: 4, from: 'its text' },
    ])
    expect((await gguf({ eos: 2 })).endTokens).toEqual([2, 4])
    expect((await gguf({ eos: 2, eot: 3 })).ends).toEqual([
      { id: 2, from: 'tokenizer.ggml.eos_token_id' },
      { id: 3, from: 'tokenizer.ggml.eot_token_id' },
    ])
    expect((await gguf({ eos: 2 })).nameOf(4)).toBe('<|im_end|>')
  })

  test('before or behind a text: tokenizer_config.json that says otherwise than tokenizer.json is named', async () => {
    const begun = { ...named, post_processor: begins('</s>') }
    const said = async (about: object, json: object): Promise<readonly string[]> => {
      const dir = temporaryFolder()
      writeFileSync(join(dir, 'tokenizer.json'), JSON.stringify(json))
      writeFileSync(join(dir, 'tokenizer_config.json'), JSON.stringify(about))
      const warnings: string[] = []
      const from = { dir, path: dir, config: {}, metadata: null, endTokens: null }
      await readText(from, 2000, (warning) => warnings.push(warning))
      return warnings
    }
    expect(await said({ add_bos_token: true }, named)).toEqual([expect.stringMatching(/puts no token before a text/)])
    expect(await said({ add_bos_token: true }, begun)).toEqual([])
    expect(await said({ add_bos_token: false }, begun)).toEqual([expect.stringMatching(/puts a token before a text/)])
    expect(await said({ add_bos_token: false }, named)).toEqual([])
    expect(await said({ add_eos_token: true }, named)).toEqual([expect.stringMatching(/a stream has no end/)])
    expect(await said({}, named)).toEqual([])
  })

  test('beyond the model end nothing, with a warning; a malformed file is refused', async () => {
    const { endTokens, warnings } = await read({}, { eos_token_id: [9, 2000] }, named)
    expect(endTokens).toEqual([9])
    expect(warnings).toEqual([
      expect.stringMatching(/names 9, 2000 as ends of a text, but the model has only 2000 ids/),
    ])
    for (const wrong of [{ eos_token_id: 'x' }, { eos_token_id: [1.5] }, { eos_token_id: -1 }, []])
      await expect(read({}, wrong, named)).rejects.toThrow(/generation_config.json cannot be used/)
    const dir = folder({}, '{')
    expect(messageOf(await openPackage(dir).catch((error: unknown) => error))).toMatch(
      /generation_config.json is not JSON/,
    )
  })
})

const opened = async (dir: string) => {
  const found = await openPackage(dir, { threads: 1, keepPacked: false })
  onTestFinished(() => found.model.close())
  return found
}

test("are part of the fingerprint only where they are not the tokenizer's one", async () => {
  const fingerprint = async (config: object, generation?: unknown) =>
    (await opened(folder(config, generation))).model.fingerprint
  const plain = await fingerprint({ eos_token_id: 10 })
  expect(await fingerprint({ eos_token_id: 10 }, {})).toBe(plain)
  expect(await fingerprint({ eos_token_id: 10 }, { eos_token_id: [10] })).toBe(plain)
  const others = await fingerprint({ eos_token_id: 10 }, { eos_token_id: [10, 0] })
  expect(others).not.toBe(plain)
  expect(await fingerprint({ eos_token_id: 10 }, { eos_token_id: [0, 10] })).toBe(others)
})

test('any of them ends a generation, and is not fed', async () => {
  const generate = async (dir: string) => {
    const { model, tokenizer } = await opened(dir)
    const manager = new SessionManager(model, { tokenizer, verifyWeights: false })
    const session = manager.createSession('ends')
    await manager.process(session, 'The harbour')
    const generation = await manager.generate(session, { maxTokens: 48, temperature: 1, seed: 3 })
    await manager.close()
    return generation
  }
  const free = await generate(folder())
  expect(free.finish).toBe('length')
  // Two tokens that come at different places, in either order of naming.
  const [early, late] = [free.ids[20]!, free.ids[9]!]
  const firstOf = (...ends: readonly number[]): number => free.ids.findIndex((id) => ends.includes(id))
  for (const ends of [[early], [late], [early, late], [late, early]]) {
    const { ids, finish } = await generate(folder({}, { eos_token_id: ends }))
    expect(finish).toBe('eos')
    expect(ids).toEqual(free.ids.slice(0, firstOf(...ends)))
  }
  expect(firstOf(early)).not.toBe(firstOf(late))
})
