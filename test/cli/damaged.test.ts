/**
 * One byte of an output record is changed on the disk: who notices.
 *
 * @module-tag slow
 */
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { expect, test } from 'vitest'
import { continuo, DOCUMENT, json, MODEL, runUntilIdle, temporary } from './helpers.ts'

test('a damaged token record is named by run, verify and doctor, though run itself reads no tokens', async () => {
  const path = join(temporary(), 'log.db')
  const log = `file:${path}`
  await json('feed', DOCUMENT, '--log', log, '--session', 's', '--generate', '5', '--seed', '1')
  expect(await runUntilIdle(log)).toMatchObject({ code: 0 })
  expect((await continuo(['doctor', '--log', log])).out).toMatch(/^ok {4}records /m)
  const db = new DatabaseSync(path)
  const last = `topic = (SELECT id FROM topics WHERE name = 'continuo.tokens')`
  const { value } = db.prepare(`SELECT value FROM records WHERE ${last}`).get() as { value: Uint8Array }
  value[value.length - 1] = 0
  db.prepare(`UPDATE records SET value = ? WHERE ${last}`).run(value)
  db.close()
  const where = /offset 0 of continuo\.tokens\[0\] fails its checksum/
  const run = await runUntilIdle(log)
  expect([run.code, run.err]).toEqual([3, expect.stringMatching(where)])
  const verify = await continuo(['verify', '--log', log, '--model', MODEL])
  expect([verify.code, verify.out]).toEqual([1, expect.stringMatching(where)])
  const doctor = await continuo(['doctor', '--log', log])
  expect([doctor.code, doctor.out]).toEqual([1, expect.stringMatching(where)])
})
