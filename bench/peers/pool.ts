/**
 * libuv's thread pool. The binding computes every `llama_decode` on one of its threads, by default on four of them by
 * turns, and llama.cpp's own threads stand beside them. With one thread in the pool, all steps are computed on the same
 * thread, and llama.cpp decodes one session about twice as fast here. libuv reads the size once, before a script can
 * set it: so it is set for a child.
 */
import { spawnSync } from 'node:child_process'

const VARIABLE = 'UV_THREADPOOL_SIZE'
const ONE = '1'

/** Whether this process has a pool of one thread. */
export const hasOneThread = (): boolean => process.env[VARIABLE] === ONE

/** Runs this very program again with a pool of one thread; returns its exit code. */
export const runWithOneThread = (): number => {
  const { status, error } = spawnSync(process.execPath, [...process.execArgv, ...process.argv.slice(1)], {
    env: { ...process.env, [VARIABLE]: ONE },
    stdio: 'inherit',
  })
  if (error) throw new Error(`${process.execPath} does not run: ${error.message}.`, { cause: error })
  return status ?? 1
}
