/**
 * A log whose state is sealed with a key, under the real commands.
 *
 * @module-tag slow
 */
import { createHash } from 'node:crypto'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { continuo, DOCUMENT, json, MODEL, recordsOf, runUntilIdle, temporary, withLog } from './helpers.ts'

const folder = temporary()
const keyFile = (name: string, byte: string): string => {
  const path = join(folder, name)
  writeFileSync(path, byte.repeat(32))
  return path
}
const first = ['--seal-key', keyFile('first', '1f')]
const second = ['--seal-key', keyFile('second', '2e')]
const log = `file:${join(folder, 'log.db')}`
const export_ = (name: string, ...more: readonly string[]) =>
  continuo(['export', join(folder, name), '--log', log, '--session', 's', ...more])
const import_ = (name: string, into: string, ...more: readonly string[]) =>
  continuo([
    'import',
    join(folder, name),
    '--log',
    `file:${join(folder, into)}`,
    '--session',
    'c',
    '--model',
    MODEL,
    ...more,
  ])
const headers = async (): Promise<string[][]> =>
  (await recordsOf(log, 'continuo.state')).map((record) => record.headers.map(([name]) => name))

test('a log begun with a key is read with it alone; the key can be changed; a forged head is refused', async () => {
  await json('feed', DOCUMENT, '--log', log, '--session', 's', '--generate', '5', '--seed', '1')
  expect(await runUntilIdle(log, ...first)).toMatchObject({ code: 0 })
  expect((await headers()).every(([name]) => name === 'hmac-sha256')).toBe(true)
  expect((await continuo(['verify', '--log', log, '--model', MODEL, ...first])).code).toBe(0)

  // Without the key, and with another: 3, and a sentence that names the flag.
  for (const more of [[], second]) {
    const run = await runUntilIdle(log, ...more)
    expect([run.code, run.err]).toEqual([3, expect.stringContaining('--seal-key')])
  }
  const sessions = await continuo(['sessions', '--log', log])
  expect(sessions.code).not.toBe(0)
  expect(`${sessions.out}${sessions.err}`).toContain('--seal-key')

  // Exported files carry the seal, too.
  expect(await export_('sealed.safetensors', ...first)).toMatchObject({ code: 0 })
  for (const more of [[], second]) {
    const refused = await import_('sealed.safetensors', 'other.db', ...more)
    expect([refused.code, refused.err]).toEqual([3, expect.stringContaining('--seal-key')])
  }
  const tampered = readFileSync(join(folder, 'sealed.safetensors'))
  // Another number in the state, and a checksum made right, as anybody can.
  const length = Number(tampered.readBigUInt64LE())
  const header = JSON.parse(tampered.subarray(8, 8 + length).toString())
  const state = tampered.subarray(8 + length)
  state[0]! ^= 1
  const { head, sha256, vitals = '' } = header.__metadata__
  const right = createHash('sha256').update(head).update(state).update(vitals).digest('hex')
  tampered.write(
    tampered
      .subarray(8, 8 + length)
      .toString()
      .replace(sha256, right),
    8,
  )
  writeFileSync(join(folder, 'tampered.safetensors'), tampered)
  const forged = await import_('tampered.safetensors', 'other.db', ...first)
  expect([forged.code, forged.err]).toEqual([3, expect.stringContaining('altered')])
  expect(await import_('sealed.safetensors', 'other.db', ...first)).toMatchObject({ code: 0 })

  // Rotation: with both keys everything is read and written anew; then the new one is enough.
  expect(await runUntilIdle(log, ...second, '--seal-key-old', first[1]!)).toMatchObject({ code: 0 })
  expect(await continuo(['sessions', '--log', log, ...second])).toMatchObject({ code: 0 })
  expect(await runUntilIdle(log, ...second)).toMatchObject({ code: 0 })

  // Who may write the topic and has no key: a head with another pulse and a seal of the plain form.
  const records = await recordsOf(log, 'continuo.state')
  const newest = records.findLast(({ key }) => key!.length > 0)!
  const value = Buffer.from(Buffer.from(newest.value!).toString().replace('"surprisal":false', '"surprisal":true'))
  expect(value.equals(Buffer.from(newest.value!))).toBe(false)
  const seals = ['sha256', 'hmac-sha256'].map(
    (name) => [name, createHash('sha256').update(value).digest('hex')] as const,
  )
  for (const [name, seal] of seals) {
    await withLog(log, (open) =>
      open.append('continuo.state', [{ key: newest.key, value, headers: [[name, Buffer.from(seal)]] }], 0),
    )
    const refused = await runUntilIdle(log, ...second)
    expect([refused.code, refused.err]).toEqual([3, expect.stringContaining('--seal-key')])
  }
})

test('a log without a key comes under one', async () => {
  const plain = `file:${join(folder, 'plain.db')}`
  await json('feed', DOCUMENT, '--log', plain, '--session', 's', '--close')
  expect(await runUntilIdle(plain)).toMatchObject({ code: 0 })
  const refused = await runUntilIdle(plain, ...first)
  expect([refused.code, refused.err]).toEqual([3, expect.stringContaining('--seal-key-old plain')])
  expect(await runUntilIdle(plain, ...first, '--seal-key-old', 'plain')).toMatchObject({ code: 0 })
  expect(await continuo(['sessions', '--log', plain, ...first])).toMatchObject({ code: 0 })
})
