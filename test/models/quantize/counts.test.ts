/** Numbers and nesting of config.json are judged before anything is counted, made or walked by them. */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, describe, expect, test } from 'vitest'
import { canonicalJson } from '../../../src/engine/fingerprint.ts'
import { openPackage } from '../../../src/models/open.ts'
import { quantizePackage } from '../../../src/models/quantize/quantize.ts'
import { errorOf } from '../../engine/helpers.ts'
import { goodPackages, writeFiles } from '../../fuzz/packages.ts'

const root = mkdtempSync(join(tmpdir(), 'continuo-counts-'))
afterAll(() => rmSync(root, { recursive: true }))

type Json = { readonly [key: string]: unknown }
const packages = goodPackages()
const configOf = (name: string): Json => JSON.parse(Buffer.from(packages.get(name)!['config.json']!).toString())
let folders = 0
const written = (name: string, config: string): string => {
  const folder = join(root, `package-${++folders}`)
  writeFiles(folder, { ...packages.get(name)!, 'config.json': Buffer.from(config) })
  return folder
}
const opening = async (folder: string): Promise<void> =>
  (await openPackage(folder, { device: 'cpu', threads: 1, keepPacked: false, warn: () => {} })).model.close()

/** Every whole number in a configuration, by its path. */
const wholes = (value: unknown, path: readonly string[] = []): (readonly string[])[] => {
  if (typeof value === 'number') return Number.isInteger(value) ? [path] : []
  if (typeof value !== 'object' || value === null) return []
  return Object.entries(value).flatMap(([key, each]) => wholes(each, [...path, key]))
}
const replaced = (value: unknown, [key, ...rest]: readonly string[], by: number): unknown => {
  if (key === undefined) return by
  const copy = (Array.isArray(value) ? [...value] : { ...(value as Json) }) as Record<string, unknown>
  copy[key] = replaced(copy[key], rest, by)
  return copy
}

/** What says how often, how long or how wide, and is no number of the arithmetic. */
const JUDGED =
  /layer|vocab|size|n_|heads|head_dim|positions|ctx|embd|inner|width|window|segment|persistent|rope_increments/

describe.each([...packages.keys()])('%s', (name) => {
  const config = configOf(name)
  const paths = wholes(config).filter((path) => JUDGED.test(path.join('.')))

  test.each(paths.map((path) => [path.join('.'), path] as const))('a huge %s is refused', async (_, path) => {
    for (const huge of [1e9, 2 ** 31 - 1, 2 ** 32, 2 ** 53 - 1]) {
      const folder = written(name, JSON.stringify(replaced(config, path, huge)))
      // Layers of MAC alone have no window, others no segment; then the number means nothing. Where positions turn,
      // their number bounds a context and is the size of nothing; a scalar is a number of the arithmetic. Where every
      // layer has experts there is no MLP of the intermediate size.
      const unused =
        /window|segment|max_position_embeddings|scalar/.test(path.join('.')) ||
        ('num_experts' in config && path[0] === 'intermediate_size')
      const error = await errorOf(() => opening(folder)).catch((failed: unknown) => {
        if (unused) return null
        throw failed
      })
      if (error !== null) expect(error.code).toBe('INVALID')
    }
  })

  test('nesting beyond a bound is refused, in config.json as in the header', async () => {
    for (const depth of [65, 3000, 200_000]) {
      const nested = JSON.stringify({ ...config, more: 0 }).replace(
        '"more":0',
        `"more":${'['.repeat(depth)}${']'.repeat(depth)}`,
      )
      const { code, message } = await errorOf(() => opening(written(name, nested)))
      expect(code).toBe('INVALID')
      expect(message).toMatch(/config\.json is nested deeper than 64 levels at character \d+/)
    }
    const flat = JSON.stringify({ ...config, more: '['.repeat(3000) })
    await opening(written(name, flat))
  })
})

test('a number of layers is refused by whoever reads a package, with both numbers', async () => {
  const folder = written('gpt2', JSON.stringify({ ...configOf('gpt2'), n_layer: 2 ** 32 }))
  const expected = /n_layer is 4294967296, but tensors "h\.\*" of the model's files say 2/
  expect((await errorOf(() => opening(folder))).message).toMatch(expected)
  const quantizing = () => quantizePackage({ dir: folder, to: 'q8', group: 32, out: `${folder}-q8` })
  expect((await errorOf(quantizing)).message).toMatch(expected)
})

test('a value nested too deeply is not fingerprinted, in words', async () => {
  let deep: unknown = 1
  for (let level = 0; level < 100_000; level += 1) deep = [deep]
  expect(await errorOf(() => canonicalJson(deep))).toMatchObject({
    code: 'INVALID',
    message: expect.stringContaining('nested deeper'),
  })
})
