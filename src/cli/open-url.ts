/** Opens an address in the browser of whoever sits at this machine. */
import { spawn } from 'node:child_process'

const OPENERS: Readonly<Partial<Record<NodeJS.Platform, readonly [string, ...string[]]>>> = {
  darwin: ['open'],
  win32: ['cmd', '/c', 'start', ''],
}

/** `failed` is told where there is nothing to open it with; the caller goes on either way. */
export const openUrl = (url: string, failed: (why: string) => void): void => {
  const [command, ...args] = OPENERS[process.platform] ?? ['xdg-open']
  const child = spawn(command, [...args, url], { stdio: 'ignore', detached: true })
  child.once('error', () => failed(`No browser can be opened from here (${command}); the page is at ${url}`))
  child.unref()
}
