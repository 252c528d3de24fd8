/** SIGINT, SIGTERM and SIGHUP (the terminal went away): the first asks for an orderly end, the second ends at once. */
import { npmGone } from '../observe/parent.ts'
import { say } from './output.ts'

const NUMBERS = { SIGHUP: 1, SIGINT: 2, SIGTERM: 15 } as const

/**
 * A signal that aborts on the first SIGINT, SIGTERM or SIGHUP (or when npm, which started us, got one), whose name is
 * its reason. `about` says what the orderly end does.
 */
export const untilSignal = (about?: string): AbortSignal => {
  const controller = new AbortController()
  for (const name of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) {
    process.on(name, () => {
      if (controller.signal.aborted) process.exit(128 + NUMBERS[name])
      if (about !== undefined) say(about)
      controller.abort(name)
    })
  }
  void npmGone().then(() => {
    if (controller.signal.aborted) return
    if (about !== undefined) say(about)
    controller.abort('SIGTERM')
  })
  return controller.signal
}

/** The exit code that a shell gives a process that the signal ended. */
export const exitCodeOfSignal = ({ reason }: AbortSignal): 129 | 130 | 143 => {
  if (reason === 'SIGHUP') return 129
  return reason === 'SIGINT' ? 130 : 143
}
