/** Java programs from their published jars: what the test servers of several protocols need before they can start. */
import { execFile } from 'node:child_process'
import { mkdir, readFile, rename, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { promisify } from 'node:util'
import { ContinuoError } from '../src/errors.ts'

const run = promisify(execFile)

/** The version of `java`. Throws UNAVAILABLE where there is none, or none of 17 or newer. */
export const javaVersion = async (what: string): Promise<string> => {
  const { stderr } = await run('java', ['-version']).catch(() => {
    throw new ContinuoError(
      'UNAVAILABLE',
      `Starting ${what} without Docker needs Java 17 or newer: install a JDK (for example openjdk-17-jre-headless).`,
    )
  })
  const version = /version "([^"]+)"/.exec(stderr)?.[1] ?? 'unknown'
  if (Number(/^\d+/.exec(version)?.[0] ?? 0) < 17)
    throw new ContinuoError('UNAVAILABLE', `${what} needs Java 17 or newer, this is Java ${version}.`)
  return version
}

/**
 * Lets one process at a time prepare files, since test workers start together. Takes over the lock of a process that
 * has ended.
 */
export const locked = async (ready: string, work: () => Promise<void>): Promise<void> => {
  await mkdir(ready, { recursive: true })
  const lock = join(ready, 'lock')
  for (;;) {
    try {
      await writeFile(lock, String(process.pid), { flag: 'wx' })
      break
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error
      const holder = Number(await readFile(lock, 'utf8').catch(() => ''))
      if (holder > 0 && !isRunning(holder)) await rm(lock, { force: true })
      await delay(100)
    }
  }
  try {
    await work()
  } finally {
    await rm(lock, { force: true })
  }
}

const isRunning = (pid: number): boolean => {
  try {
    return process.kill(pid, 0)
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM'
  }
}

/** Makes `target` by filling a temporary folder and renaming it. Where another process was faster, its folder stays. */
export const once = async (target: string, fill: (folder: string) => Promise<void>): Promise<void> => {
  const folder = `${target}.${process.pid}.tmp`
  await mkdir(folder, { recursive: true })
  try {
    await fill(folder)
    await rename(folder, target).catch(async (error: NodeJS.ErrnoException) => {
      if (error.code !== 'ENOTEMPTY' && error.code !== 'EEXIST') throw error
    })
  } finally {
    await rm(folder, { recursive: true, force: true })
  }
}

/**
 * Copies the jars that `here`/pom.xml names to `here`/lib, where they are missing; lib/.pom holds `stamp`, the hash of
 * the pom that they came from. `otherwise`: what to do where there is no Maven.
 */
export const copyJars = async (
  here: string,
  stamp: string,
  { what, otherwise }: { readonly what: string; readonly otherwise: string },
  say: (line: string) => void,
): Promise<void> => {
  const lib = join(here, 'lib')
  if ((await readFile(join(lib, '.pom'), 'utf8').catch(() => '')) === stamp) return
  say(`Fetching ${what} with Maven (once) …`)
  await rm(lib, { recursive: true, force: true })
  await once(lib, async (folder) => {
    const pom = join(here, 'pom.xml')
    const args = ['-q', '-B', '-f', pom, 'dependency:copy-dependencies', `-DoutputDirectory=${folder}`]
    await run('mvn', args, { maxBuffer: 1 << 26 }).catch((error: NodeJS.ErrnoException & { stdout?: string }) => {
      if (error.code === 'ENOENT')
        throw new ContinuoError(
          'UNAVAILABLE',
          `Fetching ${what} needs Maven: install it (for example: apt install maven)${otherwise}.`,
        )
      const reason = /\[ERROR\] (.*)/.exec(error.stdout ?? '')?.[1] ?? error.message
      throw new ContinuoError('UNAVAILABLE', `Maven could not fetch ${what}: ${reason}`, { cause: error })
    })
    await writeFile(join(folder, '.pom'), stamp)
  })
}
