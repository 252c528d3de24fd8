/**
 * Packed weights: made once, mapped the next time, and never trusted before they were checked.
 *
 * @module-tag slow
 */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import {
  cpSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  utimesSync,
  writeFileSync,
} from 'node:fs'
import { basename, join } from 'node:path'
import { afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import type { OpenModelOptions } from '../../../src/engine/options.ts'
import type { Model } from '../../../src/engine/types.ts'
import { openPackage } from '../../../src/models/open.ts'
import { errorOf } from '../../engine/helpers.ts'
import { randomRwkv7, safetensors, temporaryFolder, writePackage } from '../../engine/packages.ts'
import { hasShared, sharedModel } from '../../engine/paths.ts'

const folder = { path: '', weights: '', beside: '' }
const before = process.env.CONTINUO_CACHE
let cache = ''
const kept = (): readonly string[] => (existsSync(join(cache, 'packed')) ? readdirSync(join(cache, 'packed')) : [])

/** A copy of a model, folder or file, whose place can be written. */
const copyModel = (from: string): string => {
  const to = join(temporaryFolder(), basename(from))
  cpSync(from, to, { recursive: true })
  return to
}

/** A file that changed a moment ago has no seal. */
const age = (path: string, seconds = 60): void => {
  const then = Date.now() / 1000 - seconds
  utimesSync(path, then, then)
}

beforeAll(() => {
  // 12 MB of weights: fewer are not kept unasked.
  const weights = randomRwkv7(17, { L: 2, H: 4, N: 64, F: 512, V: 4000, D: { w: 16, a: 16, v: 16, g: 16 } })
  folder.path = writePackage({ model_type: 'rwkv7' }, safetensors(weights))
  folder.weights = join(folder.path, 'model.safetensors')
  folder.beside = `${folder.weights}.packed`
  age(folder.weights)
})
beforeEach(() => {
  cache = temporaryFolder()
  process.env.CONTINUO_CACHE = cache
})
afterEach(() => {
  rmSync(folder.beside, { force: true })
  process.env.CONTINUO_CACHE = before
  delete process.env.CONTINUO_PACKED_BYTES
})

interface Read {
  readonly bits: string
  readonly fingerprint: string
  readonly packed: string | null
  readonly warnings: readonly string[]
}

/** Opens, computes, keeps (`keep`) and closes. */
const read = async (
  path = folder.path,
  options: OpenModelOptions = {},
  keep: (loaded: { model: Model; keepPacked(): Promise<void> }) => Promise<unknown> = (loaded) => loaded.keepPacked(),
): Promise<Read> => {
  const warnings: string[] = []
  const loaded = await openPackage(path, { threads: 2, ...options, warn: (message) => warnings.push(message) })
  const { model } = loaded
  const context = model.createContext()
  await model.process([{ context, tokens: Int32Array.from([1, 2, 3, model.vocabSize - 1]), nats: true }])
  const logits = await model.logits(context)
  const bits = `${context.chain} ${Buffer.from(logits.buffer).toString('hex')}`
  await keep(loaded)
  const { fingerprint, packed } = model
  model.close()
  return { bits, fingerprint, packed, warnings }
}
const beside = ({ model }: { readonly model: Model }): Promise<unknown> => model.keepPacked(folder.beside)

describe('packed weights', () => {
  it('are kept in the cache unless told otherwise, and the next start maps them: the same bits, the same model', async () => {
    const plain = await read(folder.path, { keepPacked: false })
    expect(kept()).toEqual([])
    const first = await read()
    const [name] = kept()
    const path = join(cache, 'packed', name!)
    expect(kept()).toHaveLength(1)
    expect(first).toEqual({ ...plain, packed: null })
    expect([await read(), await read()]).toEqual([
      { ...plain, packed: path },
      { ...plain, packed: path },
    ])
    // Nothing was written into the model's folder.
    expect(existsSync(folder.beside)).toBe(false)
  })

  it.runIf(hasShared)('give the bits of a model of every kind and number format that was packed anew', async () => {
    const models = readdirSync(sharedModel('gguf-tiny'))
      .filter((name) => name.endsWith('.gguf') && name !== 'blocks.gguf')
      .map((name) => join(sharedModel('gguf-tiny'), name))
    const folders = ['llama-tiny', 'gpt2-tiny', 'rwkv7-reverse', 'qwen35-tiny', 'qwen3moe-tiny', 'mamba2-tiny']
    for (const from of [...models, ...[...folders, 'lfm2-tiny', 'gemma3-tiny', 'titans-tiny-mac'].map(sharedModel)]) {
      const path = copyModel(from)
      const options = { keepPacked: false }
      let made: string | null = null
      const plain = await read(path, options, async ({ model }) => {
        for (const file of weightFiles(path)) age(file)
        made = (await model.keepPacked(`${weightFiles(path)[0]}.packed`))!.path
      })
      const mapped = await read(path)
      expect(mapped).toEqual({ ...plain, packed: made })
    }
  })

  it('beside the model are taken from there, and none are kept in the cache', async () => {
    const plain = await read(folder.path, {}, beside)
    expect(kept()).toEqual([])
    expect(await read()).toEqual({ ...plain, packed: folder.beside })
    expect(kept()).toEqual([])
  })

  it('that are damaged anywhere are found before anything is computed, and made anew', async () => {
    const plain = await read()
    const path = join(cache, 'packed', kept()[0]!)
    const good = readFileSync(path)
    for (const at of [0, 9, 20, 100, 170, 240, 300, good.length >> 2, good.length >> 1, good.length - 5]) {
      const bad = Buffer.from(good)
      bad[at]! ^= 4
      writeFileSync(path, bad)
      const mended = await read()
      expect({ ...mended, warnings: [] }).toEqual(plain)
      // A head that is damaged is none: there is nothing to say about it.
      const said =
        at <= 300 ? [] : [expect.stringMatching(`packed weights ${path} are damaged; the weights are packed anew`)]
      expect(mended.warnings).toEqual(said)
      expect(readFileSync(path).equals(good)).toBe(true)
    }
    writeFileSync(path, good.subarray(0, good.length - 1))
    expect((await read()).warnings).toEqual([expect.stringContaining('are cut short')])
    expect((await read()).packed).toBe(path)
  })

  it('of weights that were changed since are not taken, whatever their time says', async () => {
    const old = await read(folder.path, {}, beside)
    const weights = readFileSync(folder.weights)
    const time = statSync(folder.weights).mtimeMs / 1000
    const changed = Buffer.from(weights)
    changed.writeFloatLE(0.125, changed.length - 4)
    try {
      // The last tensor differs, its beginning too or not; the time is another one.
      writeFileSync(folder.weights, changed)
      age(folder.weights, 30)
      const other = await read(folder.path, { keepPacked: false })
      expect(other.bits).not.toBe(old.bits)
      expect(await read(folder.path)).toEqual({ ...other, packed: null })
      // The beginning of a tensor differs; the time is the same.
      const first = Buffer.from(weights)
      const data = 8 + Number(weights.readBigUInt64LE(0))
      first.writeFloatLE(0.125, data)
      writeFileSync(folder.weights, first)
      utimesSync(folder.weights, time, time)
      const another = await read(folder.path, { keepPacked: false })
      expect(another.fingerprint).not.toBe(old.fingerprint)
      expect((await read(folder.path)).fingerprint).toBe(another.fingerprint)
    } finally {
      writeFileSync(folder.weights, weights)
      utimesSync(folder.weights, time, time)
    }
    expect(await read()).toEqual({ ...old, packed: folder.beside })
  })

  it('whose model was copied or touched are taken once the weights gave their fingerprint', async () => {
    const plain = await read(folder.path, {}, beside)
    age(folder.weights, 1000)
    try {
      expect(await read()).toEqual({ ...plain, packed: folder.beside })
    } finally {
      age(folder.weights)
    }
  })

  it('of a file that changed a moment ago are not kept unasked, and refused where they are asked for', async () => {
    age(folder.weights, -3600)
    try {
      const { packed } = await read(folder.path, {}, async (loaded) => {
        await loaded.keepPacked()
        expect(kept()).toEqual([])
        const error = await errorOf(() => loaded.model.keepPacked(folder.beside))
        expect(error).toMatchObject({ code: 'INVALID', message: expect.stringContaining('was changed a moment ago') })
      })
      expect(packed).toBeNull()
    } finally {
      age(folder.weights)
    }
  })

  it('in the cache have a bound: those that were not used for longest go first', async () => {
    const plain = await read()
    const size = statSync(join(cache, 'packed', kept()[0]!)).size
    mkdirSync(join(cache, 'packed'), { recursive: true })
    for (const [name, seconds] of [
      ['older.packed', 3000],
      ['newer.packed', 2000],
      ['oldest.packed.part', 4000],
    ] as const) {
      writeFileSync(join(cache, 'packed', name), Buffer.alloc(size))
      age(join(cache, 'packed', name), seconds)
    }
    process.env.CONTINUO_PACKED_BYTES = String(2 * size)
    rmSync(join(cache, 'packed', kept().find((name) => /^[0-9a-f]{32}\./.test(name))!))
    await read()
    expect(kept().toSorted()).toEqual([expect.stringMatching(/^[0-9a-f]{32}\.packed$/), 'newer.packed'])
    // Too large to be kept at all.
    process.env.CONTINUO_PACKED_BYTES = '1000'
    for (const name of kept()) rmSync(join(cache, 'packed', name))
    expect(await read()).toEqual(plain)
    expect(kept()).toEqual([])
  })

  it('that change while a model serves are found by the check at its end', async () => {
    await read()
    const path = join(cache, 'packed', kept()[0]!)
    await read(folder.path, {}, async ({ model }) => {
      await model.verifyWeights()
      const bytes = readFileSync(path)
      bytes[bytes.length >> 1]! ^= 1
      writeFileSync(path, bytes)
      const error = await errorOf(() => model.verifyWeights())
      expect(error).toMatchObject({ code: 'REFUSED', message: expect.stringContaining(`packed weights in ${path}`) })
    })
  })

  it('are whole or absent, whoever is killed while writing them, and however many write them', {
    tags: ['slow'],
  }, async () => {
    const child = join(import.meta.dirname, 'packed-child.ts')
    const target = join(cache, 'target.packed')
    const start = () => spawn(process.execPath, [child, folder.path, target], { stdio: ['ignore', 'pipe', 'inherit'] })
    const plain = await read()
    // Killed at another place of the writing each time.
    for (let round = 0; round < 4; round += 1) {
      const writer = start()
      await once(writer.stdout, 'data')
      setTimeout(() => writer.kill('SIGKILL'), round * 3)
      await once(writer, 'exit')
      if (existsSync(target)) {
        expect(statSync(target).size).toBe(statSync(join(cache, 'packed', kept()[0]!)).size)
        expect(readFileSync(target).equals(readFileSync(join(cache, 'packed', kept()[0]!)))).toBe(true)
      }
      rmSync(target, { force: true })
    }
    const writers = [start(), start(), start()]
    const codes = await Promise.all(
      writers.map(async (writer) => {
        writer.stdout.resume()
        const [code] = (await once(writer, 'exit')) as [number]
        return code
      }),
    )
    expect(codes).toEqual([0, 0, 0])
    expect(readFileSync(target).equals(readFileSync(join(cache, 'packed', kept()[0]!)))).toBe(true)
    expect(existsSync(`${target}.part`)).toBe(false)
    expect((await read()).bits).toBe(plain.bits)
  })
})

const weightFiles = (path: string): readonly string[] =>
  statSync(path).isDirectory()
    ? readdirSync(path)
        .filter((name) => /\.(safetensors|bin)$/.test(name) && name.startsWith('model'))
        .map((name) => join(path, name))
    : [path]
