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
  /** Leaves no block free. */
  fill(): void
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
    fill() {
      const { bavail, bsize } = statfsSync(folder)
      writeFileSync(ballast, Buffer.alloc(bavail * bsize, 1))
      expect(statfsSync(folder).bavail).toBe(0)
    },
    makeRoom: () => rmSync(ballast),
  }
}
