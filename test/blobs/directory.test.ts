import { existsSync, mkdtempSync, readdirSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, onTestFinished, test } from 'vitest'
import { openDirectoryStore } from '../../src/blobs/directory.ts'
import { openBlobStore, tryBlobStore } from '../../src/blobs/open.ts'
import { codeOf } from '../../src/errors.ts'
import { sharedContract } from './contract.ts'

const fresh = (): string => {
  const dir = mkdtempSync(join(tmpdir(), 'continuo-blobs-'))
  onTestFinished(() => rmSync(dir, { recursive: true, force: true }))
  return dir
}

sharedContract('a folder', async (claim) => {
  const store = openDirectoryStore(join(fresh(), 'not', 'there', 'yet'))
  try {
    await claim(store)
  } finally {
    store.close()
  }
})

test('a temporary file that a killed writer left is listed, and can be removed', async () => {
  const dir = fresh()
  const store = openDirectoryStore(dir)
  await store.begin('log/0')
  await store.put('log/0/whole', new Uint8Array(4))
  writeFileSync(join(dir, 'log', '0', 'half.4711.tmp'), 'ha')
  const names: string[] = []
  for await (const name of store.list('log/0')) names.push(name)
  expect(names.sort()).toEqual(['log/0/half.4711.tmp', 'log/0/whole'])
  await store.remove('log/0/half.4711.tmp')
  expect(readdirSync(join(dir, 'log', '0'))).toEqual(['whole'])
})

test('a place that is no folder is said to be one, with the flag to change', async () => {
  const dir = fresh()
  writeFileSync(join(dir, 'file'), '')
  const store = openDirectoryStore(join(dir, 'file'))
  for (const call of [() => store.begin('log/0'), () => store.get('log/0/1'), () => tryBlobStore(store)]) {
    const error = await call().then(
      () => null,
      (thrown: unknown) => thrown,
    )
    expect(codeOf(error)).toBe('UNAVAILABLE')
    expect(String(error)).toMatch(/blob store .*file could not be .*--blob-store/)
  }
})

test('nothing is written where the folder that was begun is gone: the store is away', async () => {
  const dir = join(fresh(), 'store')
  const store = openDirectoryStore(dir)
  await store.begin('log/0')
  await store.put('log/0/1', new Uint8Array(1))
  renameSync(dir, `${dir}.away`)
  await expect(store.put('log/0/2', new Uint8Array(1))).rejects.toMatchObject({
    code: 'UNAVAILABLE',
    message: expect.stringMatching(/^The blob store .*store is away: it has no folder log\/0\. .*--blob-store/),
  })
  expect(existsSync(dir)).toBe(false)
  renameSync(`${dir}.away`, dir)
  await store.put('log/0/2', new Uint8Array(1))
})

test('a URL of another kind is no store', async () => {
  await expect(openBlobStore('http://127.0.0.1/blobs')).rejects.toThrow(/A blob store is a folder, file:FOLDER or s3/)
})

test('a folder may be given as a URL, as the log is', async () => {
  const dir = join(fresh(), 'a b')
  for (const url of [
    `file:${dir}`,
    `file://${dir}`,
    `file://localhost${dir}`,
    `file:${dir.replace(' ', '%20')}`,
    `FILE:${dir}`,
  ])
    expect((await openBlobStore(url)).url).toBe(dir)
  expect((await openBlobStore('file:some/blobs')).url).toBe(join(process.cwd(), 'some', 'blobs'))
  for (const url of ['file:', 'file:a?b', 'file:a#b', 'file://elsewhere/a', 'file:%'])
    await expect(openBlobStore(url), url).rejects.toMatchObject({
      code: 'INVALID',
      message: expect.stringContaining('file:FOLDER'),
    })
})
