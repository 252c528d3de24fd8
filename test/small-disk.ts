/** A disk that is really full: a small file system of its own, which only root on Linux can mount. */
import { execFileSync } from 'node:child_process'
import { mkdtempSync, rmSync, statfsSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, afterEach, beforeAll, expect, type TestContext } from 'vitest'

export interface SmallDisk {
  /** Where it is mounted. */
  readonly folder: string
  /** Leaves the test out where there is none, and says why. */
  need(test: Pick<TestContext, 'skip'>): void
  /** Leaves no block free, or so many bytes in whole blocks. */
  fill(free?: number): void
  /** Takes that back. */
  makeRoom(): void
}

/** For the top of a test file: the disk is there until its tests are over. `size`: as `mount` takes it. */
export const smallDisk = (size: string): SmallDisk => {
  const folder = mkdtempSync(join(tmpdir(), 'continuo-disk-'))
  const ballast = join(folder, 'ballast')
  const mount = (): string | null => {
    if (process.platform !== 'linux') return 'mounting a small file system is written for Linux'
    try {
      execFileSync('mount', ['-t', 'tmpfs', '-o', `size=${size}`, 'continuo-test', folder], { stdio: 'pipe' })
      return null
    } catch (error) {
      return `mounting a small file system needs root: ${String(error).split('\n')[0]}`
    }
  }
  let missing: string | null = 'it was not mounted yet'
  // Not before: a file whose tests are only listed, or left out, has no disk that anybody would unmount.
  beforeAll(() => {
    missing = mount()
    if (missing !== null) console.warn(`Tests on a full disk are skipped: ${missing}.`)
  })
  // A test that failed leaves room for the next.
  afterEach(() => rmSync(ballast, { force: true }))
  afterAll(() => {
    if (missing === null) execFileSync('umount', [folder])
    rmSync(folder, { recursive: true, force: true })
  })
  return {
    folder,
    need({ skip }) {
      if (missing !== null) skip(missing)
    },
    fill(free = 0) {
      const { bavail, bsize } = statfsSync(folder)
      const left = Math.ceil(free / bsize)
      writeFileSync(ballast, Buffer.alloc((bavail - left) * bsize, 1))
      expect(statfsSync(folder).bavail).toBe(left)
    },
    makeRoom: () => rmSync(ballast),
  }
}
