/**
 * Programs with a bound on their memory, pages of files included: groups of processes (cgroups) below the group that
 * this process is in, so what bounds this process bounds them too. A mapped file is then in memory as far as the bound
 * has room for it, and the kernel reads it again where it has not.
 *
 * Linux has two interfaces: groups of memory alone (version 1), and groups of everything (version 2), where a group
 * that has processes has no groups below it; `parent` is then the folder of a group without processes in which groups
 * of memory may be made.
 */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, mkdtempSync, readFileSync, rmdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'

const ROOT = '/sys/fs/cgroup'

/** The folder of this process's own group of memory; null: the system has version 2, or no groups. */
export const ownGroup = (): string | null => {
  const line = readFileSync('/proc/self/cgroup', 'utf8')
    .split('\n')
    .find((each) => each.split(':')[1]?.split(',').includes('memory'))
  const path = line === undefined ? null : join(ROOT, 'memory', line.split(':').slice(2).join(':'))
  return path !== null && existsSync(join(path, 'memory.limit_in_bytes')) ? path : null
}

export interface GroupRun {
  readonly output: string
  /** The most memory that the kernel counted, pages of files included, bytes. */
  readonly most: number
}

/** Runs a program of Node below `parent`. `limit` in bytes, null: none. Throws where it does not end with 0. */
export const runInGroup = async (parent: string, limit: number | null, args: readonly string[]): Promise<GroupRun> => {
  const group = mkdtempSync(join(parent, 'continuo-bench-'))
  try {
    const second = existsSync(join(group, 'memory.max'))
    if (limit !== null)
      writeFileSync(join(group, second ? 'memory.max' : 'memory.limit_in_bytes'), String(Math.floor(limit)))
    const enter = `echo $$ > '${join(group, 'cgroup.procs')}' && exec "$@"`
    const child = spawn('/bin/sh', ['-c', enter, 'sh', process.execPath, ...args], {
      stdio: ['ignore', 'pipe', 'inherit'],
    })
    let output = ''
    child.stdout.setEncoding('utf8').on('data', (text: string) => {
      output += text
    })
    const [code, signal] = (await once(child, 'close')) as [number | null, string | null]
    if (code !== 0) throw new Error(`${args.join(' ')} ended with ${code ?? signal} (limit ${limit ?? 'none'}).`)
    const most = Number(readFileSync(join(group, second ? 'memory.peak' : 'memory.max_usage_in_bytes'), 'utf8'))
    return { output, most }
  } finally {
    rmdirSync(group)
  }
}
