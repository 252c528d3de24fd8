/** The Docker engine beside the tests. */
import { execFile, spawn } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { ROOT } from '../cli/helpers.ts'

const { version } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as { readonly version: string }
export const IMAGE = `continuo:${version}`

export interface Ended {
  readonly code: number
  /** What it wrote to stdout, and to stderr behind that. */
  readonly text: string
}

/** Runs `docker` to its end, however that is. */
export const tried = async (args: readonly string[], env: NodeJS.ProcessEnv = {}): Promise<Ended> => {
  try {
    const { stdout, stderr } = await promisify(execFile)('docker', args, {
      cwd: ROOT,
      maxBuffer: 1 << 26,
      env: { ...process.env, ...env },
    })
    return { code: 0, text: stdout + stderr }
  } catch (error) {
    const { code, stdout, stderr } = error as {
      readonly code: number
      readonly stdout: string
      readonly stderr: string
    }
    return { code, text: `${stdout}${stderr}` }
  }
}

/** Runs `docker`, which succeeds; its stdout without the last line's end. */
export const docker = async (args: readonly string[], env: NodeJS.ProcessEnv = {}): Promise<string> => {
  const { stdout } = await promisify(execFile)('docker', args, {
    cwd: ROOT,
    maxBuffer: 1 << 26,
    env: { ...process.env, ...env },
  })
  return stdout.trimEnd()
}

/** As a cluster that trusts nobody runs it: no root, no capabilities, a root file system that nobody writes. */
export const STRICT = [
  '--read-only',
  ...['--cap-drop', 'ALL', '--security-opt', 'no-new-privileges', '--user', '1000:1000', '--tmpfs', '/tmp'],
] as const

let count = 0
/** A name that nothing else on the engine has. */
export const fresh = (what: string): string => `continuo-${what}-${process.pid}-${count++}`

/** The host's process id of a container's first process. */
export const pidOf = async (container: string): Promise<number> =>
  Number(await docker(['inspect', '--format', '{{.State.Pid}}', container]))

/** Follows what a container writes until it matches; rejects where it ends without. */
export const wrote = (container: string, pattern: RegExp): Promise<RegExpExecArray> =>
  new Promise((resolve, reject) => {
    const child = spawn('docker', ['logs', '--follow', container], { stdio: ['ignore', 'pipe', 'pipe'] })
    let text = ''
    const read = (bytes: Buffer): void => {
      text += bytes
      const found = pattern.exec(text)
      if (found === null) return
      child.kill()
      resolve(found)
    }
    child.stdout.on('data', read)
    child.stderr.on('data', read)
    child.once('close', () => reject(new Error(`${container} ended without ${pattern}:\n${text}`)))
  })
