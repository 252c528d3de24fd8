import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, describe, test } from 'vitest'
import { gpt2, rwkv7, titans } from './families.ts'
import { crash, QUICK } from './suite.ts'

const dir = mkdtempSync(join(tmpdir(), 'continuo-crash-'))
afterAll(() => rmSync(dir, { recursive: true, force: true }))

describe('a worker on the embedded log, killed at every failpoint and at random, leaves what an undisturbed one leaves', {
  timeout: 900_000,
}, () => {
  test('with RWKV-7, a few times around a commit', () =>
    crash(rwkv7, (name) => `file:${join(dir, `once-${name}.db`)}`, QUICK))
  test('with RWKV-7, at least 50 times', { tags: 'slow' }, () =>
    crash(rwkv7, (name) => `file:${join(dir, `rwkv7-${name}.db`)}`, { kills: 50 }),
  )
  test('with Titans, at least 24 times', { tags: 'slow' }, async () =>
    crash(await titans(join(dir, 'titans')), (name) => `file:${join(dir, `titans-${name}.db`)}`, { kills: 24 }),
  )
  test('with GPT-2 that refuses what does not fit, at least 24 times', { tags: 'slow' }, () =>
    crash(gpt2('refuse', join(dir, 'gpt2')), (name) => `file:${join(dir, `gpt2-${name}.db`)}`, { kills: 24 }),
  )
})
