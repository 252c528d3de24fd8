/**
 * Files of a package that are none: a folder, a pipe that nobody writes to, a device that never ends. Each is refused
 * at once, by name.
 */
import { execFileSync } from 'node:child_process'
import { mkdirSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { openPackage } from '../../../src/models/open.ts'
import { errorOf } from '../../engine/helpers.ts'
import { randomRwkv7, safetensors, temporaryFolder, writePackage } from '../../engine/packages.ts'
import { BASE, randomDecoder } from '../decoders.ts'
import { writeSubwords } from '../ngram/subwords.ts'

const KINDS: readonly (readonly [name: string, put: (path: string) => void])[] = [
  ['a folder', (path) => mkdirSync(path)],
  ['a pipe', (path) => execFileSync('mkfifo', [path])],
  ['a device', (path) => symlinkSync('/dev/zero', path)],
]
const SIZES = { L: 1, H: 2, N: 18, F: 40, V: 131, D: { w: 5, a: 7, v: 3, g: 11 } }
const rwkv7 = () => writePackage({ model_type: 'rwkv7' }, safetensors(randomRwkv7(5, SIZES), 'BF16'))
/** Whose weights are several files. */
const sharded = (): string => {
  const folder = writePackage(BASE, safetensors(randomDecoder(12, BASE), 'BF16'))
  rmSync(join(folder, 'model.safetensors'))
  return folder
}

const FILES: readonly (readonly [file: string, write: () => string])[] = [
  ['config.json', rwkv7],
  ['memory.json', rwkv7],
  ['tokenizer.json', rwkv7],
  ['model.safetensors', rwkv7],
  ['generation_config.json', rwkv7],
  ['rwkv_vocab_test.txt', () => writeSubwords(temporaryFolder(), 1024)],
  ['model.safetensors.index.json', sharded],
  [
    'merges.txt',
    () => {
      const folder = rwkv7()
      writeFileSync(join(folder, 'vocab.json'), '{}')
      return folder
    },
  ],
  [
    'vocab.json',
    () => {
      const folder = rwkv7()
      writeFileSync(join(folder, 'merges.txt'), '')
      return folder
    },
  ],
]

describe.skipIf(process.platform !== 'linux').each(KINDS)('%s', (kind, put) => {
  test.each(FILES)('in place of %s is refused', async (file, write) => {
    const folder = write()
    const path = join(folder, file)
    rmSync(path, { force: true })
    put(path)
    const { code, message } = await errorOf(async () => (await openPackage(folder)).model.close())
    expect(code).toBe('INVALID')
    expect(message).toContain(path)
    expect(message).toMatch(new RegExp(`${kind}|is not a regular file`))
  })
})
