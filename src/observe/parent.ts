/** Notices that npm, which started this process, is gone. */

/** How often to look, ms. */
const PAUSE = 500

/**
 * Resolves when the npm that started this process is gone. npm hands a Ctrl-C on to its scripts, but dies of a SIGTERM
 * without telling them. Never resolves for a process that npm did not start; keeps none alive.
 */
export const npmGone = (): Promise<void> =>
  new Promise((resolve) => {
    if (process.env.npm_lifecycle_event === undefined) return
    const parent = process.ppid
    const timer = setInterval(() => {
      if (process.ppid === parent) return
      clearInterval(timer)
      resolve()
    }, PAUSE).unref()
  })
