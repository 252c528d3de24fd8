/** Builds and runs probe/probe.cc, which measures the speed of the machine at this moment. */
import { spawnSync } from 'node:child_process'
import { existsSync, mkdirSync, statSync } from 'node:fs'
import { dirname } from 'node:path'
import { fileURLToPath } from 'node:url'

export interface Machine {
  /** Bytes a second read from memory. */
  readonly read: number
  /** f32 operations a second; a multiply-add is two. */
  readonly fma: number
  /** 8-bit integer operations a second; null where the CPU has no such instructions, or none that the probe knows. */
  readonly int8: number | null
}

/** A probe takes well under a second. A probe that takes longer than this is ended, ms. */
const PATIENCE = 60_000
const source = fileURLToPath(new URL('probe/probe.cc', import.meta.url))
const program = fileURLToPath(new URL('probe/build/probe', import.meta.url))

const run = (command: string, args: readonly string[]): string => {
  const { error, status, signal, stdout, stderr } = spawnSync(command, args, { encoding: 'utf8', timeout: PATIENCE })
  if (error) throw new Error(`${command} does not run: ${error.message}.`, { cause: error })
  if (status !== 0) throw new Error(`${command} ended with ${status ?? signal}: ${stderr.trim()}`)
  return stdout
}

/** Builds the probe for the CPU of this machine, unless it is built already. */
export const buildProbe = (): void => {
  if (existsSync(program) && statSync(program).mtimeMs > statSync(source).mtimeMs) return
  mkdirSync(dirname(program), { recursive: true })
  run(process.env.CXX ?? 'c++', ['-std=c++20', '-O3', '-march=native', '-pthread', '-o', program, source])
}

export const probe = (threads: number): Machine => JSON.parse(run(program, [String(threads)])) as Machine
