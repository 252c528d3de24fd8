/** Ends a JVM together with the process that started it. */
import { type ChildProcess, spawn } from 'node:child_process'

/**
 * Kills `pid` and removes `folder` once this process has ended, for any reason: a small shell waits for the end of a
 * pipe whose other end only this process has open. Kill the watcher when `pid` has ended by itself.
 */
export const watch = (pid: number, folder: string | undefined): ChildProcess => {
  const script = 'trap "" INT TERM HUP; cat >/dev/null; kill -9 "$1" 2>/dev/null; [ -z "$2" ] || rm -rf "$2"'
  const watcher = spawn('/bin/sh', ['-c', script, 'sh', String(pid), folder ?? ''], {
    stdio: ['pipe', 'ignore', 'ignore'],
    detached: true,
  })
  watcher.unref()
  const pipe = watcher.stdin as (NodeJS.WritableStream & { unref?: () => void }) | null
  pipe?.unref?.()
  watcher.on('error', () => {})
  return watcher
}
