// Says how far a build is while the thread that started it waits for it: another thread reads the build's log, and
// writes to stderr.
import { closeSync, fstatSync, openSync, readSync, writeSync } from 'node:fs'
import { isMainThread, Worker, workerData } from 'node:worker_threads'

const CLEAR = '\r\u001b[2K'
/** How often it looks: a line that is rewritten in place, and one below the other. ms. */
const [LIVE, PLAIN] = [500, 15_000]
const TAIL = 4096

/**
 * Per cent that the last line with a number says: `[ 42%]` of make, `[12/60]` of ninja; null where there is none.
 *
 * @type {(text: string) => number | null}
 */
export const percentIn = (text) => {
  const [, percent, done, all] = [...text.matchAll(/\[ *(?:(\d+)%|(\d+)\/(\d+))\]/g)].at(-1) ?? []
  if (percent !== undefined) return Number(percent)
  return done === undefined ? null : Math.floor((100 * Number(done)) / Number(all))
}

/** Returns a function that ends it. The line is gone then. */
export const tellProgress = (what, log, every = process.stderr.isTTY ? LIVE : PLAIN) => {
  const live = process.stderr.isTTY === true
  const worker = new Worker(new URL(import.meta.url), { workerData: { what, log, every, live }, execArgv: [] })
  // A build does not fail because nobody can say how far it is.
  worker.on('error', () => {}).unref()
  return () => {
    void worker.terminate()
    if (live) writeSync(2, CLEAR)
  }
}

const lastOf = (log) => {
  const file = openSync(log, 'r')
  try {
    const bytes = Buffer.alloc(TAIL)
    const read = readSync(file, bytes, 0, TAIL, Math.max(0, fstatSync(file).size - TAIL))
    return bytes.toString('latin1', 0, read)
  } finally {
    closeSync(file)
  }
}

if (!isMainThread && workerData?.log !== undefined) {
  const { what, log, every, live } = workerData
  let said = null
  setInterval(() => {
    const percent = percentIn(lastOf(log))
    if (percent === null || percent === said) return
    said = percent
    writeSync(2, live ? `${CLEAR}${what}: ${percent}%` : `${what}: ${percent}%\n`)
  }, every)
}
