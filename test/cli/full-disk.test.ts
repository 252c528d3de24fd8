/**
 * A disk that is really full: a small file system of its own, which only root can mount.
 *
 * @module-tag slow
 */
import { execFileSync } from 'node:child_process'
import { existsSync, mkdirSync, readdirSync, rmSync, statfsSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, describe, expect, test } from 'vitest'
import { continuo, json, recordsOf, temporary } from './helpers.ts'

const folder = join(temporary(), 'disk')

const mount = (): string | null => {
  if (process.platform !== 'linux') return 'mounting a small file system is written for Linux'
  mkdirSync(folder)
  try {
    execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=4m', 'continuo-test', folder], { stdio: 'pipe' })
    return null
  } catch (error) {
    return `mounting a small file system needs root: ${String(error).split('\n')[0]}`
  }
}
const missing = mount()
if (missing !== null) console.warn(`Tests on a full disk are skipped: ${missing}.`)
afterAll(() => {
  if (missing === null) execFileSync('umount', [folder])
})

const ballast = join(folder, 'ballast')
/** Leaves no block free. */
const fill = (): void => {
  const { bavail, bsize } = statfsSync(folder)
  writeFileSync(ballast, Buffer.alloc(bavail * bsize, 1))
  expect(statfsSync(folder).bavail).toBe(0)
}
const feed = (log: string): string[] => ['feed', '--log', log, '--session', 's', '--boundary']

describe.skipIf(missing !== null)('a full disk', () => {
  test('is called full by feed into a log that is there, which goes on when there is room', async () => {
    const log = `file:${join(folder, 'log.db')}`
    await json(...feed(log))
    fill()
    const { code, err } = await continuo(feed(log))
    expect([code, err]).toEqual([1, expect.stringContaining('The disk is full')])
    rmSync(ballast)
    await json(...feed(log))
    expect((await recordsOf(log, 'continuo.chunks')).length).toBe(2)
  })

  test('is called full where a log should begin, and nothing is left behind', async () => {
    fill()
    const before = readdirSync(folder)
    for (const log of [`file:${join(folder, 'new.db')}`, `file:${join(folder, 'a', 'b', 'new.db')}`]) {
      for (const args of [feed(log), ['topics', 'apply', '--log', log]]) {
        const { code, err } = await continuo(args)
        expect([code, err]).toEqual([1, expect.stringContaining('The disk is full')])
      }
    }
    expect(readdirSync(folder)).toEqual(before)
    rmSync(ballast)
    await json(...feed(`file:${join(folder, 'new.db')}`))
    expect(existsSync(join(folder, 'new.db'))).toBe(true)
  })
})
