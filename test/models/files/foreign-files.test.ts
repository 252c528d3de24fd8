/** Files that are not what their names say: named for what they are, before sizes in them are believed. */
import { copyFileSync, mkdirSync, mkdtempSync, readFileSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { gzipSync } from 'node:zlib'
import { describe, expect, test } from 'vitest'
import { findModel } from '../../../src/hub/cache.ts'
import { readPackage } from '../../../src/models/files/package.ts'
import { openPackage } from '../../../src/models/open.ts'

const DEMO = join(import.meta.dirname, '..', '..', '..', 'models', 'demo')
const POINTER = 'version https://git-lfs.github.com/spec/v1\noid sha256:6b0f\nsize 6291456\n'

const FOREIGN: readonly (readonly [what: string, bytes: Uint8Array, says: RegExp])[] = [
  ['a pointer of Git LFS', Buffer.from(POINTER), /is a pointer of Git LFS: .* "git lfs pull"/],
  [
    'a page of HTML',
    Buffer.from('\ufeff\n<!DOCTYPE html><html><title>Sign in'),
    /is a page of HTML or XML: .*signed in/,
  ],
  ['an answer in XML', Buffer.from('<?xml version="1.0"?><Error><Code>AccessDenied'), /is a page of HTML or XML/],
  ['nothing', Buffer.alloc(0), /is empty \(0 bytes\)\. Fetch it again\.$/],
  ['zeros', Buffer.alloc(5000), /begins with zeros alone: a download that did not end/],
  ['an archive of gzip', gzipSync('weights'), /is a gzip archive\. Unpack it/],
  ['an archive of Zstandard', Buffer.from('28b52ffd0458', 'hex'), /is a Zstandard archive/],
  ['a document', Buffer.from('%PDF-1.7 …'), /is a PDF document/],
  ['text in UTF-16', Buffer.from('\ufeff{"a": 1}', 'utf16le'), /is text in UTF-16, expected UTF-8/],
]

const folder = (): string => {
  const dir = mkdtempSync(join(tmpdir(), 'continuo-foreign-'))
  for (const name of ['config.json', 'model.safetensors']) copyFileSync(join(DEMO, name), join(dir, name))
  return dir
}
const refusalOf = (path: string): Promise<unknown> =>
  readPackage(path).then(
    () => 'opened',
    (error: unknown) => error,
  )

describe.each(FOREIGN)('%s', (_, bytes, says) => {
  test.each(['model.safetensors', 'config.json'])('in the place of %s', async (name) => {
    const dir = folder()
    writeFileSync(join(dir, name), bytes)
    const found = await refusalOf(dir)
    expect(found).toMatchObject({ code: 'INVALID', message: expect.stringMatching(says) })
    expect((found as Error).message.startsWith(`${join(dir, name)} `)).toBe(true)
  })

  test.each(['model.gguf', 'model.pth'])('under the name of %s', async (name) => {
    const file = join(folder(), name)
    writeFileSync(file, bytes)
    expect(await refusalOf(file)).toMatchObject({ code: 'INVALID', message: expect.stringMatching(says) })
  })
})

test('a .gguf file that begins otherwise is never called safetensors', async () => {
  const file = join(folder(), 'model.gguf')
  for (const bytes of [Buffer.from('hello, this is no model'), Buffer.from('0800000000000000', 'hex')]) {
    writeFileSync(file, bytes)
    expect(await refusalOf(file)).toMatchObject({
      code: 'INVALID',
      message: `${file} is no GGUF file: it begins with the bytes ${bytes.toString('hex', 0, 4)}, expected 47475546 (GGUF). Fetch it again, or name the file by what it is.`,
    })
  }
})

test('a byte order mark before config.json is no part of it', async () => {
  const dir = folder()
  const config = readFileSync(join(DEMO, 'config.json'))
  writeFileSync(join(dir, 'config.json'), Buffer.concat([Buffer.from('efbbbf', 'hex'), config]))
  const [marked, plain] = [await openPackage(dir), await openPackage(DEMO)]
  expect(marked.model.fingerprint).toBe(plain.model.fingerprint)
  marked.model.close()
  plain.model.close()
})

test('an adapter is named as one', async () => {
  const dir = mkdtempSync(join(tmpdir(), 'continuo-foreign-'))
  writeFileSync(join(dir, 'adapter_config.json'), '{"peft_type": "LORA"}')
  copyFileSync(join(DEMO, 'model.safetensors'), join(dir, 'adapter_model.safetensors'))
  expect(await refusalOf(dir)).toMatchObject({ message: expect.stringMatching(/ is an adapter \(LoRA\), .*Merge it/) })
})

test('several snapshots of a hub, of which none is the newest, are named', async () => {
  const hub = mkdtempSync(join(tmpdir(), 'continuo-hub-'))
  const env = { HF_HUB_CACHE: hub, CONTINUO_CACHE: join(hub, 'own') }
  const snapshots = join(hub, 'models--owner--name', 'snapshots')
  mkdirSync(join(snapshots, 'a1'), { recursive: true })
  expect(await findModel('owner/name', env)).toBe(join(snapshots, 'a1'))
  mkdirSync(join(snapshots, 'b2'))
  await expect(findModel('owner/name', env)).rejects.toMatchObject({
    code: 'INVALID',
    message: `owner/name has 2 snapshots in ${snapshots}, and refs/main beside it names none of them. Name the folder of one: ${join(snapshots, 'a1')}, ${join(snapshots, 'b2')}.`,
  })
})
