import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { codeOf, messageOf } from '../../src/errors.ts'
import { addKey, openKeyring, readKeys, removeKey } from '../../src/gateway/keys.ts'
import { temporary } from '../cli/helpers.ts'

const folder = temporary()

test('a key is known by its name until it is removed, and a name is given once', async () => {
  const file = join(folder, 'a.json')
  const alice = await addKey(file, 'alice')
  const bob = await addKey(file, 'bob')
  expect(alice).not.toBe(bob)
  const ring = openKeyring(file, () => expect.fail('nothing is wrong with the file'))
  expect([alice, bob, `${alice}=`, ''].map((key) => ring.nameOf(key))).toEqual(['alice', 'bob', null, null])
  expect(codeOf(await addKey(file, 'alice').catch((error: unknown) => error))).toBe('INVALID')
  await removeKey(file, 'alice')
  expect(openKeyring(file, () => undefined).nameOf(alice)).toBeNull()
  expect(readKeys(file).keys.map(({ name }) => name)).toEqual(['bob'])
})

test.each([
  ['no JSON', '{'],
  ['another version', '{"version":2,"keys":[]}'],
  [
    'a key in place of its hash',
    '{"version":1,"keys":[{"name":"a","sha256":"ck_secret","created":"2026-01-01T00:00:00Z"}]}',
  ],
])('a file with %s is refused, and its content is not shown', (what, content) => {
  const file = join(folder, `${what}.json`)
  writeFileSync(file, content)
  let message = ''
  try {
    readKeys(file)
  } catch (error) {
    message = messageOf(error)
  }
  expect(message).toContain(file)
  expect(message).not.toContain('ck_secret')
})

test('a file that is damaged while the gateway runs shuts nobody out, and says so', async () => {
  const file = join(folder, 'b.json')
  const key = await addKey(file, 'a')
  const warnings: string[] = []
  const ring = openKeyring(file, (message) => warnings.push(message))
  writeFileSync(file, 'x')
  await expect.poll(() => [ring.nameOf(key), warnings.length], { timeout: 5000 }).toEqual(['a', 1])
  expect(warnings[0]).toContain(file)
})
