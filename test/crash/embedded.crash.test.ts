import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, expect, test } from 'vitest'
import { FAILPOINTS } from '../../src/observe/failpoint.ts'
import { openLog } from '../../src/streams/open.ts'
import { appendAll, collect, crashUntil, createCrashTopics, expectSame, finish, scenario } from './suite.ts'

const dir = mkdtempSync(join(tmpdir(), 'continuo-crash-'))
afterAll(() => rmSync(dir, { recursive: true, force: true }))

test('a worker on the embedded log, killed at least 50 times at every failpoint and at random, leaves what an undisturbed one leaves', {
  timeout: 900_000,
}, async () => {
  const rounds = scenario(120)
  const disturbed = `file:${join(dir, 'disturbed.db')}`
  const undisturbed = `file:${join(dir, 'undisturbed.db')}`
  for (const url of [disturbed, undisturbed]) {
    const log = await openLog(url)
    await createCrashTopics(log)
    await log.close()
  }
  const { kills, fired } = await crashUntil(disturbed, rounds, 50)
  await finish(disturbed)
  await appendAll(undisturbed, rounds.flat())
  await finish(undisturbed)

  expectSame(await collect(disturbed), await collect(undisturbed))
  expect(kills).toBeGreaterThanOrEqual(50)
  expect([...FAILPOINTS].filter((name) => !fired.has(name))).toEqual([])
})
