import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, describe, test } from 'vitest'
import { FAMILIES, openFamily } from '../families.ts'
import { crash, dozens, ONCE, QUICK } from './suite.ts'

const dir = mkdtempSync(join(tmpdir(), 'continuo-crash-'))
afterAll(() => rmSync(dir, { recursive: true, force: true }))

// Matrices of 8 bits and windows are tried on Kafka.
const families = FAMILIES.filter(({ key }) => key !== 'rwkv7-q8' && key !== 'gpt2-window')
const on = (which: string) => (name: string) => `file:${join(dir, `${which}-${name}.db`)}`

describe('a worker on the embedded log, killed at every failpoint and at random, leaves what an undisturbed one leaves', {
  timeout: 900_000,
}, () => {
  test('with RWKV-7, a few times around a commit', async () => crash(await openFamily('rwkv7', dir), on('few'), QUICK))
  test.each(families.filter(({ key }) => key !== 'rwkv7'))('with $name, once while it generates', async ({ key }) =>
    crash(await openFamily(key, dir), on(`once-${key}`), ONCE))
  test.each(families)('with $name, dozens of times', { tags: 'slow' }, async ({ key }) =>
    crash(await openFamily(key, dir), on(key), dozens(key)),
  )
})
