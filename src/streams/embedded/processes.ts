/**
 * Names of processes that other processes of the same machine can look up: whether the one that a name was given to still lives.
 *
 *   <boot id>-<pid namespace>-<pid>-<start time>        proc(5): sys/kernel/random/boot_id, self/ns/pid, stat fields 1 and 22
 *
 * A pid is given out again; with its start time, in clock ticks since the boot, it is not. A process in another pid namespace (a container)
 * or after another boot cannot be looked up, so it is never said to be gone. Linux only: elsewhere processes have no such name.
 */
import { readFileSync, readlinkSync } from 'node:fs'

interface Stat {
  /** One letter; Z and X: it has ended, and its parent has not asked yet how. */
  readonly state: string
  readonly started: string
}

/** null: there is no such process. Throws where that cannot be told. */
const statOf = (pid: number | 'self'): Stat | null => {
  try {
    const text = readFileSync(`/proc/${pid}/stat`, 'latin1')
    // The second field is the command in parentheses; it may hold any character. The third comes behind the last parenthesis.
    const fields = text.slice(text.lastIndexOf(')') + 2).split(' ')
    return { state: fields[0]!, started: fields[19]! }
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    if (code === 'ENOENT' || code === 'ESRCH') return null
    throw error
  }
}

/** What two processes must have in common for one to look the other up; null where the system does not say. */
const surroundings = (): string | null => {
  try {
    const boot = readFileSync('/proc/sys/kernel/random/boot_id', 'latin1').trim()
    const namespace = /\[(\d+)\]/.exec(readlinkSync('/proc/self/ns/pid'))?.[1]
    return namespace === undefined || statOf('self') === null ? null : `${boot}-${namespace}`
  } catch {
    return null
  }
}
const here = surroundings()

/** The name of this process; empty where processes have none. */
export const processName = here === null ? '' : `${here}-${process.pid}-${statOf('self')!.started}`

/** Whether the process of this name has ended. false: it lives, or cannot be looked up from here. */
export const hasEnded = (name: string): boolean => {
  const [, pid, started] = /-(\d+)-(\d+)$/.exec(name) ?? []
  if (here === null || pid === undefined || name !== `${here}-${pid}-${started}`) return false
  try {
    const stat = statOf(Number(pid))
    return stat === null || stat.started !== started || stat.state === 'Z' || stat.state === 'X'
  } catch {
    return false
  }
}
