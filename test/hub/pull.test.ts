/** continuo pull against a hub on this machine: whole, resumed, refused, and damaged on the way. */
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import type { ServerResponse } from 'node:http'
import { join } from 'node:path'
import fc from 'fast-check'
import { beforeEach, describe, expect, onTestFinished, test } from 'vitest'
import { codeOf, messageOf } from '../../src/errors.ts'
import { findModel, isPlainPath, modelFolder, parseName } from '../../src/hub/cache.ts'
import { pullModel } from '../../src/hub/pull.ts'
import type { Hub } from '../../src/hub/request.ts'
import { continuo, start } from '../cli/helpers.ts'
import { temporaryFolder } from '../engine/packages.ts'
import { COMMIT, type Fault, startHub, type TestHub } from './server.ts'

const MODEL = 'some-one/A.model_1'
const WEIGHTS = Buffer.from(Uint8Array.from({ length: 300_000 }, (_, at) => (at * at + (at >> 8)) & 255))
const CONFIG = '{"model_type":"rwkv7"}'
const PLAIN = { 'config.json': CONFIG, 'model.safetensors': WEIGHTS, 'README.md': 'Read me', 'tf_model.h5': WEIGHTS }

const hubOf = async (files: Readonly<Record<string, string | Buffer>> = PLAIN): Promise<TestHub> => {
  const hub = await startHub(MODEL, files)
  onTestFinished(() => hub.close())
  return hub
}

let folder = ''
/** Hears how far a file has come. */
let onBytes = (_done: number): void => {}
beforeEach(() => {
  folder = join(temporaryFolder(), 'model')
  onBytes = () => {}
})

/**
 * Sends the bytes from `from` on, and breaks off when the other side has read up to `to`: it loses what it has not
 * read.
 */
const sendUntil = (response: ServerResponse, from: number, to: number, status: 200 | 206): void => {
  response.writeHead(status, {
    'content-length': WEIGHTS.length - from,
    ...(status === 206 && { 'content-range': `bytes ${from}-${WEIGHTS.length - 1}/${WEIGHTS.length}` }),
  })
  response.write(WEIGHTS.subarray(from, to))
  onBytes = (done) => {
    if (done >= to) response.destroy()
  }
}

const pull = (hub: TestHub, file: string | null = null, more: Partial<Hub> = {}) =>
  pullModel(
    { url: hub.url, pause: 1, patience: 2000, ...more },
    { model: { ...parseName(MODEL)!, file }, revision: 'main', folder, onProgress: (_, done) => onBytes(done) },
  )
const there = (): string[] => readdirSync(folder).toSorted()
const stored = (hub: TestHub) => hub.asked.filter(({ at }) => at === 'store')

describe('a model', () => {
  test('comes with what is read of it and nothing else; called again, nothing comes twice', async () => {
    const hub = await hubOf()
    const { files, commit, path } = await pull(hub)
    expect(commit).toBe(COMMIT)
    expect(path).toBe(folder)
    expect(there()).toEqual(['.pull.json', 'config.json', 'model.safetensors'])
    expect(readFileSync(join(folder, 'model.safetensors'))).toEqual(WEIGHTS)
    expect(readFileSync(join(folder, 'config.json'), 'utf8')).toBe(CONFIG)
    expect(files.map(({ file, downloaded }) => [file, downloaded])).toEqual([
      ['config.json', true],
      ['model.safetensors', true],
    ])
    const again = await pull(hub)
    expect(again.files.map(({ downloaded }) => downloaded)).toEqual([false, false])
  })

  test('that changed on the hub comes anew, and a file that was lost', async () => {
    const hub = await hubOf()
    await pull(hub)
    hub.files.set('config.json', Buffer.from('{"model_type":"gpt2"} '))
    rmSync(join(folder, 'model.safetensors'))
    expect((await pull(hub)).files.map(({ downloaded }) => downloaded)).toEqual([true, true])
    expect(readFileSync(join(folder, 'config.json'), 'utf8')).toContain('gpt2')
  })

  test.each<[string, readonly string[], readonly string[]]>([
    [
      'shards with their index, tokenizer and template',
      [
        'model-00001-of-00002.safetensors',
        'model-00002-of-00002.safetensors',
        'model.safetensors.index.json',
        'tokenizer.json',
        'chat_template.jinja',
        'pytorch_model.bin',
        'x.gguf',
      ],
      [
        'chat_template.jinja',
        'model-00001-of-00002.safetensors',
        'model-00002-of-00002.safetensors',
        'model.safetensors.index.json',
        'tokenizer.json',
      ],
    ],
    [
      'pytorch_model.bin where there is nothing else',
      ['pytorch_model.bin', 'flax_model.msgpack'],
      ['pytorch_model.bin'],
    ],
    ['the one GGUF file', ['a-Q8_0.gguf', 'README.md'], ['a-Q8_0.gguf']],
    [
      'all parts of a GGUF file',
      ['a-00001-of-00002.gguf', 'a-00002-of-00002.gguf'],
      ['a-00001-of-00002.gguf', 'a-00002-of-00002.gguf'],
    ],
    ['the one RWKV file and its vocabulary', ['x.pth', 'rwkv_vocab_v1.txt'], ['rwkv_vocab_v1.txt', 'x.pth']],
  ])('of %s', async (_, files, expected) => {
    const hub = await hubOf(Object.fromEntries(files.map((file) => [file, `content of ${file}`])))
    await pull(hub)
    expect(there()).toEqual(['.pull.json', ...expected])
  })

  test('of several is refused, and each can be named, also below a folder', async () => {
    const hub = await hubOf({
      'a.gguf': 'a',
      'b.gguf': 'b',
      'deep/c-00001-of-00002.gguf': 'c',
      'deep/c-00002-of-00002.gguf': 'd',
    })
    await expect(pull(hub)).rejects.toThrow(
      /several models: a.gguf, b.gguf. Name one: continuo pull some-one\/A.model_1:a.gguf/,
    )
    expect((await pull(hub, 'b.gguf')).path).toBe(join(folder, 'b.gguf'))
    expect((await pull(hub, 'deep/c-00001-of-00002.gguf')).path).toBe(join(folder, 'deep/c-00001-of-00002.gguf'))
    expect(there()).toEqual(['.pull.json', 'b.gguf', 'deep'])
    expect(readdirSync(join(folder, 'deep'))).toHaveLength(2)
    await expect(pull(hub, 'z.gguf')).rejects.toThrow(/has no file z.gguf. Its files: a.gguf, b.gguf, deep/)
  })

  test('without weights is refused, and names of files that lead elsewhere are not taken', async () => {
    await expect(pull(await hubOf({ 'config.json': CONFIG }))).rejects.toThrow(
      /no weights that Continuo reads .* Its files: config.json/,
    )
    const hub = await hubOf({ ...PLAIN, '../outside.gguf': 'x', 'a/../../b.gguf': 'x', '/etc/c.gguf': 'x' })
    await pull(hub)
    expect(there()).toEqual(['.pull.json', 'config.json', 'model.safetensors'])
    for (const file of ['../outside.gguf', 'a/../../b.gguf', '/etc/c.gguf'])
      await expect(pull(hub, file)).rejects.toThrow(/has no file/)
  })
})

describe('a connection', () => {
  /** Breaks off after so many bytes of the content, each time a part of the large file is asked for. */
  const breaking =
    (after: number, times: number): Fault =>
    ({ at, range }, response) => {
      if (at !== 'store' || times === 0) return false
      times -= 1
      const from = Number(/\d+/.exec(range ?? '')?.[0] ?? 0)
      sendUntil(response, from, Math.min(from + after, WEIGHTS.length - 1), range === undefined ? 200 : 206)
      return true
    }

  test('that breaks again and again is taken up where it broke', async () => {
    const hub = await hubOf()
    hub.fault = breaking(40_000, 6)
    await pull(hub)
    expect(readFileSync(join(folder, 'model.safetensors'))).toEqual(WEIGHTS)
    const ranges = stored(hub).map(({ range }) => range)
    expect(ranges).toEqual([undefined, ...[1, 2, 3, 4, 5, 6].map((times) => `bytes=${40_000 * times}-`)])
  })

  test('that brings nothing any more ends with UNAVAILABLE; the next call goes on, and its bytes are checked with the others', async () => {
    const hub = await hubOf()
    hub.fault = breaking(50_000, 1)
    const first = hub.fault
    hub.fault = (asked, response) => {
      if (first(asked, response)) return true
      if (asked.at !== 'store') return false
      response.destroy()
      return true
    }
    const failed = await pull(hub).catch((error: unknown) => error)
    expect(codeOf(failed)).toBe('UNAVAILABLE')
    expect(messageOf(failed)).toMatch(/5 times in a row. The same command goes on where this one stopped/)
    expect(there().filter((name) => name.endsWith('.part'))).toHaveLength(1)
    expect(there()).not.toContain('model.safetensors')
    hub.fault = () => false
    hub.asked.length = 0
    await pull(hub)
    expect(readFileSync(join(folder, 'model.safetensors'))).toEqual(WEIGHTS)
    expect(stored(hub).at(-1)!.range).toBe('bytes=50000-')
    expect(there()).toEqual(['.pull.json', 'config.json', 'model.safetensors'])
  })

  test('that falls silent counts as broken', async () => {
    const hub = await hubOf()
    let silent = true
    hub.fault = ({ at }, response) => {
      if (at !== 'store' || !silent) return false
      silent = false
      response.writeHead(200, { 'content-length': WEIGHTS.length })
      response.write(WEIGHTS.subarray(0, 1000))
      return true
    }
    await pull(hub, null, { patience: 200 })
    expect(readFileSync(join(folder, 'model.safetensors'))).toEqual(WEIGHTS)
  })

  test('is given up at a signal, and the part is kept', async () => {
    const hub = await hubOf()
    const stop = new AbortController()
    hub.fault = ({ at }, response) => {
      if (at !== 'store') return false
      response.writeHead(200, { 'content-length': WEIGHTS.length })
      response.write(WEIGHTS.subarray(0, 70_000), () => stop.abort(new Error('enough')))
      return true
    }
    await expect(pull(hub, null, { signal: stop.signal })).rejects.toThrow('enough')
    expect(there()).not.toContain('model.safetensors')
  })
})

test('weights for which the disk has no room are not begun, and what came before them is known to the next call', async () => {
  const hub = await hubOf()
  hub.fault = ({ url }, response) => {
    if (!url.endsWith('/model.safetensors')) return false
    response.writeHead(200, { etag: `"${'0'.repeat(64)}"`, 'content-length': 1e15 }).write(WEIGHTS)
    return true
  }
  const failed = await pull(hub).catch((error: unknown) => error)
  expect(codeOf(failed)).toBe('UNAVAILABLE')
  expect(messageOf(failed)).toMatch(
    /1000000000000000 bytes are to come, and the disk of .* has room for \d+\. Free some space/,
  )
  expect(there()).toEqual(['.pull.json', 'config.json'])
  hub.fault = () => false
  expect((await pull(hub)).files.map(({ downloaded }) => downloaded)).toEqual([false, true])
})

describe('what comes is refused, and takes no name, when', () => {
  const broken = async (fault: Fault): Promise<string> => {
    const hub = await hubOf()
    hub.fault = fault
    const failed = await pull(hub).catch((error: unknown) => error)
    expect(codeOf(failed)).toBe('INVALID')
    expect(existsSync(join(folder, 'model.safetensors'))).toBe(false)
    return messageOf(failed)
  }
  const damaged = Buffer.from(WEIGHTS)
  damaged[123_456]! ^= 1

  test('a bit of it is another', async () => {
    const said = await broken(({ at }, response) => {
      if (at === 'store') response.writeHead(200, { 'content-length': damaged.length }).end(damaged)
      return at === 'store'
    })
    expect(said).toMatch(/what came has the sha256 [0-9a-f]{64}, expected [0-9a-f]{64}. It was thrown away/)
    expect(there().filter((name) => name.endsWith('.part'))).toEqual([])
  })

  test('a small file is another than its Git hash says', async () => {
    const said = await broken(({ url }, response) => {
      if (!url.endsWith('/config.json')) return false
      response.writeHead(200, { etag: `"${'0'.repeat(40)}"`, 'content-length': CONFIG.length }).end(CONFIG)
      return true
    })
    expect(said).toMatch(/has the Git hash [0-9a-f]{40}, expected 0{40}/)
  })

  test('there is more of it than was announced', async () => {
    const said = await broken(({ at }, response) => {
      if (at === 'store') response.writeHead(200).end(Buffer.concat([WEIGHTS, WEIGHTS]))
      return at === 'store'
    })
    expect(said).toMatch(/more than the 300000 bytes that were announced/)
  })

  test('it begins at another place than was asked for', async () => {
    let times = 0
    const ranges: unknown[] = []
    const said = await broken(({ at, range }, response) => {
      if (at !== 'store') return false
      times += 1
      if (times === 1) sendUntil(response, 0, 50_000, 200)
      else {
        ranges.push(range)
        response.writeHead(206, { 'content-range': `bytes 7-299999/${WEIGHTS.length}` }).end(WEIGHTS.subarray(7))
      }
      return true
    })
    expect(ranges).toEqual(['bytes=50000-'])
    expect(said).toMatch(/asked for bytes from 50000 of 300000, got "bytes 7-299999\/300000"/)
  })

  test.each<[string, Readonly<Record<string, string>>, RegExp]>([
    ['nothing says what it should be', { 'content-length': '5' }, /neither a sha256 nor a Git hash as ETag/],
    ['an ETag is of another kind', { etag: '"d41d8cd98f00b204e9800998ecf8427e"' }, /neither a sha256 nor a Git hash/],
  ])('%s', async (_, headers, words) => {
    const said = await broken(({ url }, response) => {
      if (!url.endsWith('/config.json')) return false
      response.writeHead(200, headers).end('12345')
      return true
    })
    expect(said).toMatch(words)
  })

  test('a file beside the weights is larger than any that is read', async () => {
    const said = await broken(({ url }, response) => {
      if (!url.endsWith('/config.json')) return false
      response.writeHead(200, { etag: `"${'0'.repeat(40)}"`, 'content-length': 1e12 }).write('1')
      return true
    })
    expect(said).toMatch(
      /config\.json: the hub announces 1000000000000 bytes, expected at most 268435456 of such a file/,
    )
    expect(existsSync(folder)).toBe(false)
  })

  test('a package has more files than any', async () => {
    const files = Array.from({ length: 5000 }, (_, at) => ({
      rfilename: `model-${String(at).padStart(5, '0')}-of-05000.safetensors`,
    }))
    const siblings = [...files, { rfilename: 'model.safetensors.index.json' }]
    const said = await broken(({ url }, response) => {
      if (url.startsWith('/api/')) response.writeHead(200).end(JSON.stringify({ sha: COMMIT, siblings }))
      return url.startsWith('/api/')
    })
    expect(said).toMatch(/has 5001 files that make the package, expected at most 4096/)
  })

  test('nothing says how long it is', async () => {
    const said = await broken(({ url }, response) => {
      if (!url.endsWith('/config.json')) return false
      response.writeHead(200, { etag: `"${'0'.repeat(40)}"`, 'transfer-encoding': 'chunked' }).end('12345')
      return true
    })
    expect(said).toMatch(/does not say how long the file is/)
  })

  test.each<[string, string | object, RegExp]>([
    ['the list is no JSON', '<html>', /no JSON/],
    ['the list has no commit', { siblings: [] }, /no list of files/],
    ['the list has no files', { sha: COMMIT }, /no list of files/],
  ])('%s', async (_, list, words) => {
    const said = await broken(({ url }, response) => {
      if (url.startsWith('/api/')) response.writeHead(200).end(typeof list === 'string' ? list : JSON.stringify(list))
      return url.startsWith('/api/')
    })
    expect(said).toMatch(words)
  })
})

describe('a hub that', () => {
  const answering =
    (status: number, headers: Readonly<Record<string, string>> = {}, times = Number.POSITIVE_INFINITY): Fault =>
    ({ url }, response) => {
      if (!url.startsWith('/api/') || times === 0) return false
      times -= 1
      response.writeHead(status, headers).end()
      return true
    }

  test.each<[number, string, RegExp]>([
    [401, 'DENIED', /refused \(401\)\. Either there is no such model, or it needs a token; set HF_TOKEN/],
    [403, 'DENIED', /refused \(403\): its licence has to be accepted on the page of the model/],
    [404, 'INVALID', /no such model, revision or file \(404\)\. Check the name/],
    [400, 'INVALID', /answered 400, expected 200/],
    [429, 'UNAVAILABLE', /answered 429, 5 times in a row/],
    [503, 'UNAVAILABLE', /answered 503, 5 times in a row/],
  ])('answers %i is told as %s', async (status, code, words) => {
    const hub = await hubOf()
    hub.fault = answering(status, { 'retry-after': '0' })
    const failed = await pull(hub).catch((error: unknown) => error)
    expect(codeOf(failed)).toBe(code)
    expect(messageOf(failed)).toMatch(words)
    expect(hub.asked).toHaveLength(code === 'UNAVAILABLE' ? 5 : 1)
  })

  test('asks to wait is waited for', async () => {
    const hub = await hubOf()
    hub.fault = answering(429, { 'retry-after': '0' }, 3)
    await pull(hub)
    expect(hub.asked.filter(({ url }) => url.startsWith('/api/'))).toHaveLength(4)
  })

  test('redirects without an end, or to another protocol, is refused', async () => {
    const hub = await hubOf()
    hub.fault = answering(302, { location: '/api/models/x' })
    await expect(pull(hub)).rejects.toThrow(/more than 8 redirects/)
    hub.fault = answering(302, { location: 'file:///etc/passwd' })
    await expect(pull(hub)).rejects.toThrow(/a redirect to file:/)
  })

  test('does not answer at all is told as UNAVAILABLE', async () => {
    const hub = await hubOf()
    await hub.close()
    const failed = await pull(hub).catch((error: unknown) => error)
    expect(codeOf(failed)).toBe('UNAVAILABLE')
    expect(messageOf(failed)).toMatch(/ECONNREFUSED/)
  })

  test('gets the token, and where it redirects to does not', async () => {
    const hub = await hubOf()
    await pull(hub, null, { token: 'hf_secret' })
    for (const { at, authorization } of hub.asked)
      expect(authorization).toBe(at === 'hub' ? 'Bearer hf_secret' : undefined)
    expect(stored(hub).length).toBeGreaterThan(0)
  })
})

describe('a name', () => {
  test.each([
    ['owner/name', { owner: 'owner', name: 'name', file: null }],
    ['Qwen/Qwen3-0.6B', { owner: 'Qwen', name: 'Qwen3-0.6B', file: null }],
    ['a/b:c-Q4_K.gguf', { owner: 'a', name: 'b', file: 'c-Q4_K.gguf' }],
    ['a/b:c/d.gguf', { owner: 'a', name: 'b', file: 'c/d.gguf' }],
  ])('%s has its parts', (text, parts) => {
    expect(parseName(text)).toEqual(parts)
  })

  test.each([
    'name',
    'a/b/c',
    '/a/b',
    './a/b',
    '../a',
    'a/..',
    'a/b:',
    'a/b:../c',
    'a/b:/c',
    'a/b:c//d',
    'a/b:c\\d',
    'a--b/c',
    'a/b:.',
    '',
  ])('%j is none', (text) => {
    expect(parseName(text)).toBeNull()
  })

  test('never leads out of the cache', () => {
    const env = { CONTINUO_CACHE: '/cache' }
    fc.assert(
      fc.property(fc.string(), fc.string(), fc.string(), (owner, name, file) => {
        const parsed = parseName(`${owner}/${name}:${file}`)
        if (parsed === null) return
        expect(modelFolder(parsed, env)).toMatch(/^\/cache\/models\/[^/]+\/[^/]+$/)
        expect(join('/x', parsed.file!).startsWith('/x/')).toBe(true)
      }),
    )
    expect(isPlainPath('a'.repeat(600))).toBe(false)
    expect(isPlainPath(Array(9).fill('a').join('/'))).toBe(false)
  })

  test("is found as a path, in the cache, then in Hugging Face's, and otherwise refused with both places", async () => {
    const root = temporaryFolder()
    const env = { CONTINUO_CACHE: join(root, 'own'), HF_HOME: join(root, 'hf') }
    const refused = await findModel('a/b', env).catch((error: unknown) => messageOf(error))
    expect(refused).toContain(join(root, 'own', 'models', 'a', 'b'))
    expect(refused).toContain(join(root, 'hf', 'hub', 'models--a--b'))
    expect(refused).toMatch(/continuo pull a\/b$/)
    expect(await findModel('models/demo', env)).toBe('models/demo')
    expect(await findModel('/no/such/folder', env)).toBe('/no/such/folder')
    const hub = join(root, 'hf', 'hub', 'models--a--b')
    mkdirSync(join(hub, 'snapshots', 'b'.repeat(40)), { recursive: true })
    expect(await findModel('a/b', env)).toBe(join(hub, 'snapshots', 'b'.repeat(40)))
    mkdirSync(join(hub, 'snapshots', COMMIT))
    mkdirSync(join(hub, 'refs'))
    mkdirSync(join(hub, 'blobs'))
    writeFileSync(join(hub, 'refs', 'main'), COMMIT)
    writeFileSync(join(hub, 'blobs', 'x'), 'x')
    symlinkSync('../../blobs/x', join(hub, 'snapshots', COMMIT, 'x.gguf'))
    expect(await findModel('a/b', env)).toBe(join(hub, 'snapshots', COMMIT))
    expect(await findModel('a/b:x.gguf', env)).toBe(join(hub, 'snapshots', COMMIT, 'x.gguf'))
    const own = join(root, 'own', 'models', 'a', 'b')
    mkdirSync(own, { recursive: true })
    writeFileSync(join(own, '.y.gguf.part'), '')
    expect(await findModel('a/b', env)).toBe(join(hub, 'snapshots', COMMIT))
    writeFileSync(join(own, 'config.json'), '{}')
    expect(await findModel('a/b', env)).toBe(own)
    expect(await findModel('a/b:x.gguf', env)).toBe(join(hub, 'snapshots', COMMIT, 'x.gguf'))
  })
})

describe('continuo pull', () => {
  test('says where the model is, and file by file what came; --json too', async () => {
    const hub = await hubOf()
    const env = { CONTINUO_CACHE: temporaryFolder(), HF_TOKEN: 'hf_secret' }
    const done = await continuo(['pull', MODEL, '--hub', `${hub.url}/`], { env })
    expect(done.code).toBe(0)
    expect(done.out).toBe(`${join(env.CONTINUO_CACHE, 'models', ...MODEL.split('/'))}\n`)
    expect(done.err).toMatch(/^\[1\/2\] config.json {2}22 B\n\[2\/2\] model.safetensors {2}300.0 kB\n$/)
    expect(hub.asked[0]!.authorization).toBe('Bearer hf_secret')
    const again = await continuo(['pull', MODEL, '--hub', hub.url, '--json'], { env })
    expect(JSON.parse(again.out)).toMatchObject({
      model: MODEL,
      commit: COMMIT,
      files: [
        { file: 'config.json', bytes: 22, downloaded: false },
        { file: 'model.safetensors', bytes: 300_000, downloaded: false },
      ],
    })
    expect(again.err).toContain('there already')
  })

  test('ends at a signal with its exit code, and goes on when called again', async () => {
    const hub = await hubOf()
    hub.fault = ({ at }, response) => {
      if (at !== 'store') return false
      response.writeHead(200, { 'content-length': WEIGHTS.length })
      response.write(WEIGHTS.subarray(0, 100_000))
      process.nextTick(() => running.child.kill('SIGINT'))
      return true
    }
    const args = ['pull', MODEL, '--hub', hub.url, '--to', folder]
    const running = start(args)
    const stopped = await running.done
    expect(stopped).toMatchObject({ code: 130, out: '' })
    expect(stopped.err).toContain('the same command goes on from here')
    hub.fault = () => false
    expect((await continuo(args)).code).toBe(0)
    expect(readFileSync(join(folder, 'model.safetensors'))).toEqual(WEIGHTS)
  })

  test('is refused for what is no name, and for a hub that is no URL', async () => {
    expect(await continuo(['pull', 'name'])).toMatchObject({
      code: 2,
      err: expect.stringMatching(/name is no name of a model; expected owner\/name/),
    })
    expect(await continuo(['pull', 'a/b', '--hub', 'hub'])).toMatchObject({
      code: 2,
      err: expect.stringMatching(/--hub is hub, expected a URL/),
    })
  })
})
