/**
 * Runs the cases of one kind in a process of their own. A case is a finding where it ends as neither a result nor a
 * ContinuoError with a sentence and a code of its own, where the process dies, takes too much memory, or works on it
 * for too long. The finding's input goes into the corpus, and another process goes on behind it.
 *
 * "Too long" is time of the processor, where the system tells it, and far beyond what any case needs: a busy machine
 * makes nothing fail.
 */
import { fork } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { isAbsolute, join } from 'node:path'
import type { Progress, Told } from './child.ts'
import { corpusOf, keep } from './corpus.ts'
import type { OpenKind } from './kind.ts'
import { randomOf } from './mutate.ts'

export interface FuzzOptions {
  readonly kind: string
  readonly count: number
  readonly seed: number
  /** Seconds of the processor for one case. */
  readonly seconds: number
  /** Resident bytes of the process, beyond those it has before its first case. */
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
  /** Of all processes, beyond what each had before its first case. */
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

/**
 * No case ends later than this on the clock, however little the process works: it waits for something that never comes.
 */
const STILL_SECONDS = 600

export const fuzz = async ({ kind, count, seed, seconds, bytes, keeps = true }: FuzzOptions): Promise<Report> => {
  const folder = mkdtempSync(join(tmpdir(), 'continuo-fuzz-'))
  const ends = new Map<string, number>()
  const findings: Finding[] = []
  const replayed = corpusOf(kind).length
  let peakBytes = 0
  const note = (at: number, base: string, what: string, input: () => Uint8Array): void => {
    const path = at >= 0 && keeps ? keep(kind, base, `found-${seed}-${at}`, input()) : undefined
    findings.push({ at, base, what, path })
  }
  /** Of a process that is gone: a case follows from kind, seed and number. */
  const inputOf = async (at: number, base: string): Promise<Uint8Array> => {
    const { open } = (await import(isAbsolute(kind) ? kind : `./kinds/${kind}.ts`)) as { open: OpenKind }
    const again = await open(join(folder, 'again'))
    try {
      return again.make(base, randomOf(seed, at))
    } finally {
      await again.close()
    }
  }
  /** Where the process is; null: it has begun no case. A line that is being written is read a moment later. */
  const progressOf = (): Progress | null => {
    try {
      return JSON.parse(read(join(folder, 'progress')).split('\n', 1)[0]!) as Progress
    } catch {
      return null
    }
  }
  /** Resolves with the case to go on with; null: all are done. */
  const runFrom = (from: number): Promise<number | null> =>
    new Promise((resolve, reject) => {
      // What the process before this one left.
      for (const name of ['progress', 'work', 'again']) rmSync(join(folder, name), { force: true, recursive: true })
      const child = fork(join(import.meta.dirname, 'child.ts'), [kind, seed, from, count, folder].map(String), {
        execArgv: ['--max-old-space-size=1024', '--expose-gc'],
        stdio: ['ignore', 'ignore', 'pipe', 'ipc'],
        // What the kinds share with the suites must not take this process for one of vitest's.
        env: { ...process.env, VITEST: undefined },
      })
      const pid = child.pid!
      let current: { at: number; used: number; began: number } | null = null
      let killed = ''
      let done = false
      let said = ''
      child.stderr!.on('data', (chunk: Buffer) => {
        said = (said + chunk.toString()).slice(-4000)
      })
      const watch = setInterval(() => {
        const now = progressOf()
        if (now === null || killed !== '') return
        const grown = residentOf(pid) - now.resident
        peakBytes = Math.max(peakBytes, grown)
        if (current?.at !== now.at) current = { at: now.at, used: usedBy(pid), began: performance.now() }
        const used = usedBy(pid) - current.used
        const waited = (performance.now() - current.began) / 1000
        if (grown > bytes) killed = `took ${Math.round(grown / 1e6)} MB`
        else if (used > seconds) killed = `worked for more than ${seconds} s`
        else if (waited > STILL_SECONDS) killed = `did not end within ${STILL_SECONDS} s`
        if (killed !== '') child.kill('SIGKILL')
      }, 200)
      child.on('message', (told: Told) => {
        if ('failed' in told) note(told.at, told.base, told.failed, () => readFileSync(join(folder, 'input')))
        else done = true
      })
      child.on('exit', (code, signal) => {
        clearInterval(watch)
        const last = progressOf()
        for (const [end, times] of Object.entries(last?.ends ?? {})) ends.set(end, (ends.get(end) ?? 0) + times)
        if (done) return resolve(null)
        if (last === null) {
          findings.push({
            at: from,
            base: '',
            what: `could not begin: exit ${code ?? signal}. ${said}`,
            path: undefined,
          })
          return resolve(null)
        }
        const { at, base } = last
        const what = killed || `ended its process: ${signal ?? `exit ${code}`}. ${said}`
        const end = (input: Uint8Array): void => {
          note(at, base, what, () => input)
          resolve(at + 1)
        }
        if (at < 0) end(new Uint8Array())
        else inputOf(at, base).then(end, reject)
      })
    })
  try {
    for (let next: number | null = -replayed; next !== null; ) next = await runFrom(next)
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
  return { replayed, made: count, ends, findings, peakBytes }
}
