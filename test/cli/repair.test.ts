/**
 * Blobs that went missing or were changed are computed again by a command, where the proof is their sha256.
 *
 * @module-tag slow
 */
import { readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { expect, test } from 'vitest'
import { type FamilyKey, openFamily } from '../families.ts'
import { continuo, DOCUMENT, json, temporary } from './helpers.ts'

const TEXT = readFileSync(DOCUMENT, 'utf8').slice(0, 1500)

const blobsOf = (store: string): readonly string[] =>
  readdirSync(store, { recursive: true })
    .map(String)
    .filter((name) => /[0-9a-f]{64}\.[0-9a-f]{16}$/.test(name))
    .map((name) => join(store, name))
    .sort()

test.each(['qwen3', 'memory'] as FamilyKey[])('of %s', async (key) => {
  const folder = temporary()
  const { dir: model, overflow } = await openFamily(key, folder)
  const log = `file:${join(folder, 'log.db')}`
  const store = join(folder, 'store')
  for (const id of ['a', 'b'])
    expect((await continuo(['feed', '-', '--log', log, '--session', id], { input: `${id}${TEXT}` })).code).toBe(0)
  const place = ['--log', log, '--model', model, '--blob-store', store, '--overflow', overflow]
  const run = ['run', ...place, '--until-idle', '50', '--log-level', 'warn']
  expect(await continuo(run)).toMatchObject({ code: 0 })
  const before = blobsOf(store).map((path) => [path, readFileSync(path)] as const)
  expect(before.length).toBeGreaterThan(3)
  expect(await continuo(['repair', ...place])).toMatchObject({
    code: 0,
    out: expect.stringMatching(/^Read \d+ blobs of 2 sessions: 0 wrong, 0 put back or written anew\.\n$/),
  })
  const [[gone], [changed, bytes]] = [before[0]!, before.at(-1)!]
  rmSync(gone)
  const other = Buffer.from(bytes)
  other[100]! ^= 1
  writeFileSync(changed, other)
  const seen = await continuo(['repair', ...place])
  expect(seen.code).toBe(0)
  expect(seen.out).toMatch(/: 2 wrong, 2 put back or written anew\.\n$/)
  expect(seen.out).toMatch(/sha256 [0-9a-f]{12}…\) is (not in|damaged in) the blob store/)
  for (const [path, was] of before) expect(readFileSync(path).equals(was)).toBe(true)
  expect(await json('repair', ...place)).toEqual([
    {
      ok: true,
      sessions: ['a', 'b'].map((session) => expect.objectContaining({ session, wrong: 0, repaired: 0, reason: null })),
    },
  ])
  expect(await continuo(['verify', ...place])).toMatchObject({ code: 0 })
  const nobody = await continuo(['repair', ...place, '--session', 'nobody'])
  expect(nobody).toMatchObject({ code: 1, err: expect.stringContaining('There is no session "nobody"') })
})

test('of a session whose blocks are in the log: its snapshot is written anew', async () => {
  const folder = temporary()
  const { dir: model } = await openFamily('qwen3', folder)
  const path = join(folder, 'log.db')
  const place = ['--log', `file:${path}`, '--model', model]
  expect((await continuo(['feed', '-', '--log', `file:${path}`, '--session', 'a'], { input: TEXT })).code).toBe(0)
  const run = ['run', ...place, '--until-idle', '50', '--log-level', 'warn']
  expect(await continuo(run)).toMatchObject({ code: 0 })
  const db = new DatabaseSync(path)
  const where = `topic = (SELECT id FROM topics WHERE name = 'continuo.blobs') AND "offset" = 1`
  const { value } = db.prepare(`SELECT value FROM records WHERE ${where}`).get() as { value: Uint8Array }
  value[1000]! ^= 1
  db.prepare(`UPDATE records SET value = ? WHERE ${where}`).run(value)
  db.close()
  const seen = await continuo(['repair', ...place])
  expect(seen).toMatchObject({ code: 0, err: '' })
  expect(seen.out).toMatch(
    /^Session "a" \(partition 0\): 1 of 5 blobs wrong, its snapshot was written anew\.\n {2}The blob with positions \d+ to \d+ of the cache of session "a" .*\nRead 5 blobs of 1 session: 1 wrong, 1 put back or written anew\.\n$/,
  )
  expect(await json('repair', ...place)).toEqual([
    { ok: true, sessions: [expect.objectContaining({ session: 'a', blobs: 5, wrong: 0, repaired: 0, left: null })] },
  ])
  expect((await continuo(['feed', '-', '--log', `file:${path}`, '--session', 'a'], { input: 'and on' })).code).toBe(0)
  expect(await continuo(run)).toMatchObject({ code: 0, err: '' })
  expect(await continuo(['verify', ...place])).toMatchObject({ code: 0 })
})
