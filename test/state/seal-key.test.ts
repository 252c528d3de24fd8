import { createHmac } from 'node:crypto'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, describe, expect, test } from 'vitest'
import { readSealKeys, type SealKeys } from '../../src/seal-key.ts'
import { type SealPlace, seal, unseal } from '../../src/state/head.ts'
import type { PartitionCursor } from '../../topics/state.ts'
import { refuses } from '../streams/helpers.ts'

const folder = mkdtempSync(join(tmpdir(), 'continuo-seal-'))
afterAll(() => rmSync(folder, { recursive: true }))
const file = (name: string, contents: string | Uint8Array): string => {
  const path = join(folder, name)
  writeFileSync(path, contents)
  return path
}

const key = (byte: number): Uint8Array => new Uint8Array(32).fill(byte)
const keys = (byte: number, old: SealKeys['old'] = null): SealKeys => ({ key: key(byte), old })
const place = (sealing?: SealKeys, topic = 'p.state', partition = 3): SealPlace => ({ topic, partition, keys: sealing })

const record: PartitionCursor = {
  type: 'cursor',
  version: 1,
  group: 'g',
  topic: 'p.chunks',
  partition: 3,
  offset: 12,
  done: [],
  model: '0'.repeat(64),
  layout: '0'.repeat(64),
}
const open = async (made: ReturnType<typeof seal>, at: SealPlace): Promise<unknown> =>
  unseal('here', made.key, made.value, made.headers, at)

describe('a keyed seal', () => {
  test('is the HMAC of docs/formats.md over domain, topic, partition, key and value', () => {
    const { key: name, value, headers } = seal(record, place(keys(1)))
    const mac = createHmac('sha256', key(1))
    for (const part of ['continuo-state-1', 'p.state', '3', name, value]) {
      const bytes = Buffer.from(part)
      const length = Buffer.alloc(4)
      length.writeUInt32LE(bytes.length)
      mac.update(length).update(bytes)
    }
    expect(headers.map(([header, content]) => [header, Buffer.from(content).toString()])).toEqual([
      ['hmac-sha256', mac.digest('hex')],
    ])
  })

  test('opens with its key, and with a former one while that is accepted', async () => {
    const made = seal(record, place(keys(1)))
    expect(await open(made, place(keys(1)))).toEqual(record)
    expect(await open(made, place(keys(2, key(1))))).toEqual(record)
    expect(await open(seal(record), place(keys(1, 'plain')))).toEqual(record)
    expect(await open(seal(record), place())).toEqual(record)
  })

  test('is REFUSED by name: no key, another key, no seal key where one is asked for, another place, other bytes', async () => {
    const made = seal(record, place(keys(1)))
    await refuses(open(made, place()), 'REFUSED', 'here', '--seal-key')
    await refuses(open(made, place(keys(2))), 'REFUSED', 'here', 'not sealed with this key', '--seal-key-old')
    await refuses(open(made, place(keys(2, 'plain'))), 'REFUSED', 'not sealed with this key')
    await refuses(open(seal(record), place(keys(1))), 'REFUSED', 'sealed without a key', 'plain')
    await refuses(open(seal(record), place(keys(1, key(2)))), 'REFUSED', 'sealed without a key')
    await refuses(open(made, place(keys(1), 'p.state', 4)), 'REFUSED', 'moved')
    await refuses(open(made, place(keys(1), 'q.state')), 'REFUSED', 'moved')
    const value = Uint8Array.from(made.value)
    value[20]! ^= 1
    await refuses(open({ ...made, value }, place(keys(1))), 'REFUSED', 'altered')
    await refuses(open({ ...made, key: Buffer.from('other') }, place(keys(1))), 'REFUSED', 'moved')
    // A plain seal beside the keyed one does not help: the keyed one counts.
    const headers = [...seal(record).headers, ['hmac-sha256', Buffer.from('0'.repeat(64))] as const]
    await refuses(open({ ...made, headers }, place(keys(1, 'plain'))), 'REFUSED', 'not sealed with this key')
  })
})

describe('a seal key', () => {
  const hex = '0123456789abcdef'.repeat(4)
  test('is what hexadecimal digits say, or the bytes of the file, or the environment', () => {
    const digits = Buffer.from(hex, 'hex')
    expect(readSealKeys({ file: file('hex', `${hex}\n`) }, {})).toEqual({ key: digits, old: null })
    const raw = Buffer.alloc(32, 0xfe)
    expect(readSealKeys({ file: file('raw', raw), old: 'plain' }, {})).toEqual({ key: raw, old: 'plain' })
    expect(readSealKeys({}, { CONTINUO_SEAL_KEY: hex })).toEqual({ key: digits, old: null })
    expect(readSealKeys({ old: file('old', raw) }, { CONTINUO_SEAL_KEY_FILE: join(folder, 'hex') })).toEqual({
      key: digits,
      old: raw,
    })
    expect(readSealKeys({}, {})).toBeNull()
  })

  test('that cannot serve is INVALID, and no message shows it', async () => {
    const call = async (of: Parameters<typeof readSealKeys>[0], env = {}) => readSealKeys(of, env)
    await refuses(call({ file: join(folder, 'none') }), 'INVALID', '--seal-key', 'cannot be read')
    await refuses(call({ file: file('short', 'Zs3cr3tZ') }), 'INVALID', '8 bytes', 'openssl rand')
    await refuses(call({ file: file('shorthex', 'ab'.repeat(31)) }), 'INVALID', '31 bytes')
    await refuses(call({ file: file('long', Buffer.alloc(5000, 1)) }), 'INVALID', '5000 bytes')
    await refuses(call({ old: 'plain' }), 'INVALID', '--seal-key FILE')
    await refuses(call({}, { CONTINUO_SEAL_KEY: 'Zs3cr3tZ' }), 'INVALID', 'hexadecimal')
    await refuses(call({}, { CONTINUO_SEAL_KEY: hex, CONTINUO_SEAL_KEY_FILE: 'x' }), 'INVALID', 'one of them')
    for (const of of [{ file: join(folder, 'short') }, {}])
      await call(of, { CONTINUO_SEAL_KEY: 'Zs3cr3tZ' }).catch((error: Error) =>
        expect(error.stack).not.toContain('s3cr'),
      )
  })
})
