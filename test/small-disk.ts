/** A disk that is really full: a small file system of its own, which only root on Linux can mount. */
import { execFileSync } from 'node:child_process'
import { mkdtempSync, rmSync, statfsSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, expect } from 'vitest'

export interface SmallDisk {
  /** Where it is mounted. */
  readonly folder: string
  /** Why there is none; null where there is one. */
  readonly missing: string | null
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
  const missing = mount()
  if (missing !== null) console.warn(`Tests on a full disk are skipped: ${missing}.`)
  afterAll(() => {
    if (missing === null) execFileSync('umount', [folder])
    rmSync(folder, { recursive: true, force: true })
  })
  return {
    folder,
    missing,
    fill() {
      const { bavail, bsize } = statfsSync(folder)
      writeFileSync(ballast, Buffer.alloc(bavail * bsize, 1))
      expect(statfsSync(folder).bavail).toBe(0)
    },
    makeRoom: () => rmSync(ballast),
  }
}
