/** An ngram memory behind models of other families: docs/ngram.md. */
import { copyFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import type { OpenModelOptions } from '../../../src/engine/options.ts'
import type { Model } from '../../../src/engine/types.ts'
import { openPackage } from '../../../src/models/open.ts'
import { root } from '../../../src/places.ts'
import { continuo, json } from '../../cli/helpers.ts'
import { feed } from '../../engine/helpers.ts'
import { randomRwkv7, safetensors, temporaryFolder, writePackage } from '../../engine/packages.ts'
import { hasShared, sharedModel } from '../../engine/paths.ts'
import { type FamilyKey, familyOf } from '../../families.ts'
import { tokensOf, writeSubwords } from './subwords.ts'
import { logLines } from './texts.ts'

const LINE = 'Worker 17 took job 4711 of queue north in 93 ms\n'
const tokens = Int32Array.from(Buffer.from(LINE.repeat(6)))

/** A family's package with a memory behind it, in a folder of its own. */
const withMemory = async (key: FamilyKey): Promise<string> => {
  const plain = await familyOf(key).write(join(temporaryFolder(), key))
  const folder = temporaryFolder()
  for (const name of ['config.json', 'model.safetensors']) copyFileSync(join(plain, name), join(folder, name))
  writeFileSync(join(folder, 'memory.json'), JSON.stringify({ kind: 'ngram', slots: 2048 }))
  return folder
}

const natsOf = async (model: Model, cut: number): Promise<readonly number[]> => {
  const context = model.createContext()
  const nats: number[] = []
  for (let at = 0; at < tokens.length; at += cut)
    nats.push(...(await feed(model, context, tokens.subarray(at, at + cut))))
  context.close()
  return nats
}

describe.each(['gpt2-window', 'qwen3', 'qwen35', 'titans', 'qwen3moe'] as const)('behind %s', (key) => {
  test('the model learns what it reads, with the same bits in any cut', async () => {
    const folder = await withMemory(key)
    const { model } = await openPackage(folder, { threads: 2 })
    const bare = (await openPackage(folder, { threads: 2, withoutMemory: true })).model
    expect(model.fingerprint).not.toBe(bare.fingerprint)
    const nats = await natsOf(model, 512)
    expect(await natsOf(model, 7)).toEqual(nats)
    const sum = (of: readonly number[]) => of.reduce((a, b) => a + b, 0)
    // A random model is as surprised by the sixth line as by the first one.
    expect(sum(nats.slice(-LINE.length))).toBeLessThan(sum((await natsOf(bare, 512)).slice(-LINE.length)) / 10)
    model.close()
    bare.close()
  })
})

describe('behind a model of subwords', () => {
  const lines = tokensOf(logLines(21, 6000))
  const read = async (folder: string, cut: number, options: OpenModelOptions = {}) => {
    const { model } = await openPackage(folder, { threads: 2, ...options })
    const context = model.createContext()
    const nats: number[] = []
    for (let at = 0; at < lines.length; at += cut) nats.push(...(await feed(model, context, lines.slice(at, at + cut))))
    const { chain } = context
    const state = context.serialize()
    model.close()
    return { nats, chain, state }
  }

  test('it learns what it reads, with the same bits in any cut', async () => {
    const folder = writeSubwords(temporaryFolder(), 4096)
    const whole = await read(folder, 512)
    expect(await read(folder, 7, { threads: 1 })).toEqual(whole)
    const bare = await read(folder, 512, { withoutMemory: true })
    const last = ({ nats }: { readonly nats: readonly number[] }) => nats.slice(-500).reduce((a, b) => a + b, 0)
    expect(last(whole)).toBeLessThan(last(bare) / 2)
  })

  test.skipIf(!hasShared)('a GGUF file has one, too', async () => {
    const folder = temporaryFolder()
    copyFileSync(join(sharedModel('gguf-tiny'), 'rwkv7-f16.gguf'), join(folder, 'model.gguf'))
    const path = join(folder, 'model.gguf')
    await json('memory', 'init', path, '--ngram', '--slots', '2048')
    const { model, tokenizer } = await openPackage(path)
    const bare = (await openPackage(path, { withoutMemory: true })).model
    expect(model.fingerprint).not.toBe(bare.fingerprint)
    const ids = Int32Array.from(tokenizer!.push('', LINE.repeat(6)).ids)
    const sum = async (of: Model) => {
      const nats = [...(await feed(of, of.createContext(), ids))]
      return nats.slice(-ids.length / 6).reduce((a, b) => a + b, 0)
    }
    expect(await sum(model)).toBeLessThan((await sum(bare)) / 4)
    model.close()
    bare.close()
  })
})

test('a model without a tokenizer, or with a memory of its own, is refused', async () => {
  const sizes = { L: 1, H: 2, N: 18, F: 40, V: 131, D: { w: 5, a: 7, v: 3, g: 11 } }
  const folder = writePackage({ model_type: 'rwkv7' }, safetensors(randomRwkv7(5, sizes), 'BF16'))
  expect(await continuo(['memory', 'init', folder, '--ngram'])).toMatchObject({
    code: 1,
    err: expect.stringContaining('has no tokenizer, and the memory learns what tokens stand for.'),
  })
  const ask = (dir: string, memory: unknown) => {
    writeFileSync(join(dir, 'memory.json'), JSON.stringify(memory))
    return openPackage(dir)
  }
  await expect(ask(folder, { kind: 'ngram' })).rejects.toThrow(
    'learns what its tokens stand for, and the package has no tokenizer that says it. Add the tokenizer',
  )
  await expect(ask(await familyOf('ngram').write(temporaryFolder()), { kind: 'ngram' })).rejects.toThrow(
    'a "ngram" model has a memory of its own',
  )
  await expect(ask(folder, { kind: 'ngram', slots: 3 })).rejects.toThrow('memory.json: slots: ')
  await expect(ask(folder, { kind: 'ngram', order: 3 })).rejects.toThrow(
    'Expected { "kind": "ngram", "slots": N, "learn": "read" or "all" }, and "learned": true',
  )
})

test('memory init --ngram --learned begins with what the votes of a package learned; without the file it is refused', async () => {
  const watch = join(root, 'models', 'watch')
  const folder = await familyOf('titans').write(join(temporaryFolder(), 'titans'))
  const bare = await openPackage(folder)
  await json('memory', 'init', folder, '--ngram', '--slots', '2048')
  const first = await openPackage(folder)
  rmSync(join(folder, 'memory.json'))
  expect(await continuo(['memory', 'init', folder, '--learned', watch])).toMatchObject({
    err: expect.stringContaining('--ngram'),
  })
  expect(await continuo(['memory', 'init', folder, '--ngram', '--learned', folder])).toMatchObject({
    code: 1,
    err: expect.stringContaining(
      'a "titans" model without the tensor "learned"; expected an ngram package of the whole form that has it',
    ),
  })
  const small = join(root, 'models', 'watch-small')
  expect(await continuo(['memory', 'init', folder, '--ngram', '--learned', small])).toMatchObject({
    code: 1,
    err: expect.stringContaining('an ngram package of the small form; expected'),
  })
  const [made] = await json<{ memory: unknown }>(
    ...['memory', 'init', folder, '--ngram', '--slots', '2048', '--learned', watch],
  )
  expect(made!.memory).toEqual({ kind: 'ngram', slots: 2048, learn: 'read', learned: true })
  const taught = await openPackage(folder)
  expect(new Set([bare, first, taught].map(({ model }) => model.fingerprint)).size).toBe(3)
  const text = await natsOf(taught.model, 512)
  expect(await natsOf(taught.model, 7)).toEqual(text)
  // Nothing predicted the first token.
  const sum = (of: readonly number[]) => of.slice(1).reduce((a, b) => a + b, 0)
  expect(sum(text)).toBeLessThan(sum(await natsOf(first.model, 512)))
  for (const { model } of [bare, first, taught]) model.close()
  rmSync(join(folder, 'memory.safetensors'))
  await expect(openPackage(folder)).rejects.toThrow('it says "learned": true, but')
})

test('memory init --ngram writes memory.json, and does not write another one', async () => {
  const plain = await familyOf('qwen3').write(join(temporaryFolder(), 'qwen3'))
  const [made] = await json<{ path: string; memory: unknown }>('memory', 'init', plain, '--ngram', '--slots', '4096')
  expect(made).toEqual({ path: join(plain, 'memory.json'), memory: { kind: 'ngram', slots: 4096, learn: 'read' } })
  const { model } = await openPackage(plain)
  model.close()
  expect(await continuo(['memory', 'init', plain, '--ngram'])).toMatchObject({
    code: 1,
    err: expect.stringContaining('is there already'),
  })
})
