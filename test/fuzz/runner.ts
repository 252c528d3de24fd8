/**
 * Runs the cases of one kind in a process of their own. A case is a finding where it ends as neither a result nor a ContinuoError with
 * a sentence and a code of its own, where the process dies, takes too much memory, or works on it for too long. The finding's input
 * goes into the corpus, and another process goes on behind it.
 *
 * "Too long" is time of the processor, where the system tells it, and far beyond what any case needs: a busy machine makes nothing fail.
 */
import { fork } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Told } from './child.ts'
import { corpusOf, keep } from './corpus.ts'

export interface FuzzOptions {
  readonly kind: string
  readonly count: number
  readonly seed: number
  /** Seconds of the processor for one case. */
  readonly seconds: number
  /** Resident bytes of the process. */
  readonly bytes: number
  /** Whether findings are kept; default true. */
  readonly keeps?: boolean
}

export interface Finding {
  readonly at: number
  readonly base: string
  readonly what: string
  /** Where the input lies; undefined: it was in the corpus already, or is not kept. */
  readonly path: string | undefined
}

export interface Report {
  readonly replayed: number
  readonly made: number
  /** How cases ended, and how many so. */
  readonly ends: ReadonlyMap<string, number>
  readonly findings: readonly Finding[]
  /** Of all processes. */
  readonly peakBytes: number
}

const read = (path: string): string => {
  try {
    return readFileSync(path, 'utf8')
  } catch {
    return ''
  }
}

/** Seconds of the processor that a process has used; elsewhere than on Linux those on the clock. */
const usedBy = (pid: number): number => {
  const fields = read(`/proc/${pid}/stat`)
    .replace(/^.*\) /s, '')
    .split(' ')
  return fields.length < 13 ? performance.now() / 1000 : (Number(fields[11]) + Number(fields[12])) / 100
}

const residentOf = (pid: number): number => 1024 * Number(/VmRSS:\s+(\d+)/.exec(read(`/proc/${pid}/status`))?.[1] ?? 0)

/** No case ends later than this on the clock, however little the process works: it waits for something that never comes. */
const STILL_SECONDS = 600

export const fuzz = async ({ kind, count, seed, seconds, bytes, keeps = true }: FuzzOptions): Promise<Report> => {
  const folder = mkdtempSync(join(tmpdir(), 'continuo-fuzz-'))
  const ends = new Map<string, number>()
  const findings: Finding[] = []
  const replayed = corpusOf(kind).length
  let peakBytes = 0
  const note = (at: number, base: string, what: string): void => {
    const input = readFileSync(join(folder, 'input'))
    const path = at >= 0 && keeps ? keep(kind, base, `found-${seed}-${at}`, input) : undefined
    findings.push({ at, base, what, path })
  }
  /** Resolves with the case to go on with; null: all are done. */
  const runFrom = (from: number): Promise<number | null> =>
    new Promise((resolve) => {
      const child = fork(join(import.meta.dirname, 'child.ts'), [kind, seed, from, count, folder].map(String), {
        execArgv: ['--max-old-space-size=1024', '--expose-gc'],
        stdio: ['ignore', 'ignore', 'pipe', 'ipc'],
        // What the kinds share with the suites must not take this process for one of vitest's.
        env: { ...process.env, VITEST: undefined },
      })
      const pid = child.pid!
      let current: { at: number; base: string; used: number; began: number } | null = null
      let killed = ''
      let done = false
      let said = ''
      child.stderr!.on('data', (chunk: Buffer) => {
        said = (said + chunk.toString()).slice(-4000)
      })
      const watch = setInterval(() => {
        const resident = residentOf(pid)
        peakBytes = Math.max(peakBytes, resident)
        if (current === null || killed !== '') return
        const used = usedBy(pid) - current.used
        const waited = (performance.now() - current.began) / 1000
        if (resident > bytes) killed = `took ${Math.round(resident / 1e6)} MB`
        else if (used > seconds) killed = `worked for more than ${seconds} s`
        else if (waited > STILL_SECONDS) killed = `did not end within ${STILL_SECONDS} s`
        if (killed !== '') child.kill('SIGKILL')
      }, 200)
      child.on('message', (told: Told) => {
        if ('begins' in told) {
          current = { at: told.begins, base: told.base, used: usedBy(pid), began: performance.now() }
        } else if ('ended' in told) {
          ends.set(told.ended, (ends.get(told.ended) ?? 0) + 1)
        } else if ('failed' in told) {
          note(current!.at, current!.base, told.failed)
        } else done = true
      })
      child.on('exit', (code, signal) => {
        clearInterval(watch)
        if (done) return resolve(null)
        if (current === null) {
          findings.push({
            at: from,
            base: '',
            what: `could not begin: exit ${code ?? signal}. ${said}`,
            path: undefined,
          })
          return resolve(null)
        }
        note(current.at, current.base, killed || `ended its process: ${signal ?? `exit ${code}`}. ${said}`)
        resolve(current.at + 1)
      })
    })
  try {
    for (let next: number | null = -replayed; next !== null; ) next = await runFrom(next)
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
  return { replayed, made: count, ends, findings, peakBytes }
}
