/**
 * Names of processes, by which another one can tell whether a process has ended. A number alone does not do: it is
 * given again, a container has its own 1, and a zombie still has its number.
 *
 *   <boot id>-<inode of the pid namespace>-<pid>-<time of its start, in clock ticks since the boot>
 */
import { readFileSync, readlinkSync } from 'node:fs'

/** What /proc says of a process. */
interface Status {
  /** R, S, D, T and others; Z and X have ended. */
  readonly state: string
  readonly started: string
}

/** Where /proc hides the processes of others, a signal still finds them. */
const isThere = (pid: number): boolean => {
  try {
    process.kill(pid, 0)
    return true
  } catch (error) {
    return (error as NodeJS.ErrnoException).code !== 'ESRCH'
  }
}

/** null: there is no such process here. Throws where /proc does not tell. */
const statusOf = (pid: number): Status | null => {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'latin1')
    // The second field is the name of the program in parentheses, which may hold anything.
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
    const [state, started] = [fields[0], fields[19]]
    if (state === undefined || started === undefined || !/^\d+$/.test(started)) throw new Error(`/proc/${pid}/stat`)
    return { state, started }
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    if ((code === 'ENOENT' || code === 'ESRCH') && !isThere(pid)) return null
    throw error
  }
}

/** Boot and pid namespace of this process; null where /proc does not tell. */
const here = (): string | null => {
  try {
    const boot = readFileSync('/proc/sys/kernel/random/boot_id', 'latin1').trim()
    const [, namespace] = /^pid:\[(\d+)\]$/.exec(readlinkSync('/proc/self/ns/pid')) ?? []
    return /^[0-9a-f-]{36}$/.test(boot) && namespace !== undefined ? `${boot}-${namespace}` : null
  } catch {
    return null
  }
}

/** The name of a process of this machine; null where there is none, or /proc does not tell. */
export const processName = (pid: number = process.pid): string | null => {
  const place = here()
  try {
    const status = place === null ? null : statusOf(pid)
    return status && `${place}-${pid}-${status.started}`
  } catch {
    return null
  }
}

/**
 * Whether the process has ended, for certain: it ran since this machine's boot in the pid namespace of this process,
 * and there it is no more, or has ended and was not waited for, or another one has its number. Of any other name
 * nothing is certain.
 */
export const hasEnded = (name: string): boolean => {
  const place = here()
  const [, where, pid, started] = /^(.+)-(\d+)-(\d+)$/.exec(name) ?? []
  if (place === null || where !== place) return false
  try {
    const status = statusOf(Number(pid))
    return status === null || status.started !== started || status.state === 'Z' || status.state === 'X'
  } catch {
    return false
  }
}
