/**
 * A disk that breaks: a file system of its own that takes no writes any more from then on. Only root on Linux can mount
 * one, and ext4 alone can be told to fail.
 */
import { execFileSync } from 'node:child_process'
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { basename, join } from 'node:path'
import { afterAll, beforeAll, type TestContext } from 'vitest'

export interface FaultyDisk {
  /** Where it is mounted. */
  readonly folder: string
  /** Leaves the test out where there is none, and says why. */
  need(test: Pick<TestContext, 'skip'>): void
  /** Breaks it, for those who have files open in it too. */
  fail(): void
}

const BYTES = 32 << 20

/** For the top of a test file: the disk is there until its tests are over. */
export const faultyDisk = (): FaultyDisk => {
  const place = mkdtempSync(join(tmpdir(), 'continuo-faulty-'))
  const [image, folder] = [join(place, 'image'), join(place, 'disk')]
  /** What breaks the file system where it is written to. */
  let trigger = ''
  const mount = (): string | null => {
    try {
      mkdirSync(folder)
      writeFileSync(image, new Uint8Array(BYTES))
      execFileSync('mkfs.ext4', ['-q', image], { stdio: 'pipe' })
      execFileSync('mount', ['-o', 'loop,errors=remount-ro', image, folder], { stdio: 'pipe' })
    } catch (error) {
      return `mounting a file system in a file needs root, mkfs.ext4 and loop devices: ${String(error).split('\n')[0]}`
    }
    const [device = ''] = readFileSync('/proc/mounts', 'utf8')
      .split('\n')
      .map((line) => line.split(' '))
      .filter(([, at]) => at === folder)
      .map(([from]) => from!)
    trigger = `/sys/fs/ext4/${basename(device)}/trigger_fs_error`
    return existsSync(trigger) ? null : `there is no ${trigger}`
  }
  let missing: string | null = 'it was not mounted yet'
  // Not before: a file whose tests are only listed, or left out, has no disk that anybody would unmount.
  beforeAll(() => {
    missing = mount()
    if (missing !== null) console.warn(`Tests on a disk that breaks are skipped: ${missing}.`)
  })
  afterAll(() => {
    if (trigger !== '') execFileSync('umount', ['--lazy', folder])
    rmSync(place, { recursive: true, force: true })
  })
  return {
    folder,
    need({ skip }) {
      if (missing !== null) skip(missing)
    },
    fail: () => writeFileSync(trigger, 'a test'),
  }
}
