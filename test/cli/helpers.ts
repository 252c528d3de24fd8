/** The real command line beside the tests, in processes of its own, on logs in temporary folders. */
import { type ChildProcess, fork, spawn } from 'node:child_process'
import { mkdtempSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { EventLog, StoredRecord } from '../../src/streams/log.ts'
import { openLog } from '../../src/streams/open.ts'
import type { Line } from './lines.ts'

export { eventually } from '../streams/helpers.ts'

export const ROOT = join(import.meta.dirname, '..', '..')
export const MODEL = join(ROOT, 'models', 'demo')
export const DOCUMENT = join(ROOT, 'docs', 'demo', 'harbour-log.txt')

/** A folder that goes away after the file's tests (test/own-folder.ts). */
export const temporary = (): string => mkdtempSync(join(tmpdir(), 'continuo-cli-'))

export interface Done {
  readonly code: number | null
  readonly signal: NodeJS.Signals | null
  readonly out: string
  readonly err: string
}

export interface Running {
  readonly child: ChildProcess
  readonly done: Promise<Done>
  /**
   * Resolves with the match as soon as stdout and stderr together hold it; rejects when the process ends without it.
   */
  saw(pattern: RegExp): Promise<RegExpExecArray>
}

export interface StartOptions {
  readonly input?: string | Uint8Array
  /** Standard input is a pipe that stays open; the test writes to `child.stdin`. */
  readonly live?: boolean
  readonly env?: Readonly<Record<string, string>>
  /** Default: the checkout. */
  readonly cwd?: string
  /** Default: the command line. */
  readonly program?: string
}

export const start = (
  args: readonly string[],
  { input, live = false, env = {}, cwd = ROOT, program = join(ROOT, 'src', 'cli', 'main.ts') }: StartOptions = {},
): Running => {
  const child = spawn(process.execPath, [program, ...args], {
    cwd,
    env: { ...process.env, ...env },
    stdio: [input === undefined && !live ? 'ignore' : 'pipe', 'pipe', 'pipe'],
  })
  if (!live) child.stdin?.end(input)
  let out = ''
  let err = ''
  let over = false
  const waiting = new Set<() => void>()
  const moved = (): void => {
    for (const look of [...waiting]) look()
  }
  child.stdout?.setEncoding('utf8').on('data', (text: string) => {
    out += text
    moved()
  })
  child.stderr?.setEncoding('utf8').on('data', (text: string) => {
    err += text
    moved()
  })
  const done = new Promise<Done>((resolve) => {
    child.once('close', (code, signal) => {
      over = true
      moved()
      resolve({ code, signal, out, err })
    })
  })
  return {
    child,
    done,
    saw: (pattern) =>
      new Promise((resolve, reject) => {
        const look = (): void => {
          const match = pattern.exec(out) ?? pattern.exec(err)
          if (match === null && !over) return
          waiting.delete(look)
          if (match !== null) resolve(match)
          else reject(new Error(`The process ended without ${pattern}:\n${out}\n${err}`))
        }
        waiting.add(look)
        look()
      }),
  }
}

/** Processes that wait for a command line (lines.ts), and how many lines each has run. */
const idle: { readonly child: ChildProcess; lines: number }[] = []
/** What no command writes. */
const MARK = '\0'
/** What a line leaves behind it in such a process, a model's memory say, goes with the process. */
const MOST_LINES = 50

const startLines = (): (typeof idle)[number] => {
  const child = fork(join(ROOT, 'test', 'cli', 'lines.ts'), { cwd: ROOT, stdio: ['ignore', 'pipe', 'pipe', 'ipc'] })
  child.stdout!.setEncoding('utf8')
  child.stderr!.setEncoding('utf8')
  return { child, lines: 0 }
}

/** Whether the test's process stays for this one. */
const hold = ({ stdout, stderr, channel }: ChildProcess, on: boolean): void => {
  // Pipes have these methods; their type does not say so.
  const parts = [stdout, stderr, channel] as unknown as { ref(): void; unref(): void }[]
  for (const part of parts)
    if (on) part?.ref()
    else part?.unref()
}

/** Runs a line in such a process, which nobody else has meanwhile. */
const inProcess = (args: readonly string[]): Promise<Done> => {
  const lines = idle.pop() ?? startLines()
  const { child } = lines
  hold(child, true)
  lines.lines += 1
  return new Promise((resolve) => {
    let out = ''
    let err = ''
    const over = (code: number | null, signal: NodeJS.Signals | null): void => {
      child.stdout!.off('data', moreOut)
      child.stderr!.off('data', moreErr)
      child.off('close', over)
      resolve({ code, signal, out, err })
    }
    const look = (): void => {
      // A connection that closes late may write behind the mark.
      const [written, end] = out.split(MARK)
      const [said, saidAll] = err.split(MARK)
      const code = end === undefined ? null : /^\d+(?=\n)/.exec(end)
      if (code === null || saidAll === undefined) return
      out = written!
      err = said!
      over(Number(code), null)
      if (lines.lines >= MOST_LINES) child.kill()
      else {
        hold(child, false)
        child.unref()
        idle.push(lines)
      }
    }
    const moreOut = (text: string): void => {
      out += text
      look()
    }
    const moreErr = (text: string): void => {
      err += text
      look()
    }
    child.stdout!.on('data', moreOut)
    child.stderr!.on('data', moreErr)
    child.once('close', over)
    const line: Line = { args, env: process.env, mark: MARK }
    child.send(line)
  })
}

/**
 * Runs a command to its end: in a process of its own where it needs an input or an environment, else in one that others
 * use after it.
 */
export const continuo = (args: readonly string[], options?: StartOptions): Promise<Done> =>
  options === undefined ? inProcess(args) : start(args, options).done

/** Runs a command that must succeed, with --json; its lines, parsed. */
export const json = async <T = Record<string, unknown>>(...args: readonly string[]): Promise<T[]> => {
  const { code, out, err } = await continuo([...args, '--json'])
  if (code !== 0) throw new Error(`continuo ${args.join(' ')} ended with ${code}:\n${err}${out}`)
  return out
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => JSON.parse(line) as T)
}

export const runUntilIdle = (log: string, ...more: readonly string[]): Promise<Done> =>
  continuo(['run', '--log', log, '--model', MODEL, '--until-idle', '50', '--log-level', 'warn', ...more])

export interface SessionRow {
  readonly session: string
  readonly status: string
  readonly pulse: number
  readonly tokens: number
  readonly generated: number
  readonly chain: string
  readonly complete: boolean
  readonly offset: number
  readonly snapshotAge: number | null
}

export const sessionRow = async (log: string, session: string): Promise<SessionRow> =>
  (await json<SessionRow>('sessions', '--log', log, '--session', session))[0]!

export const withLog = async <T>(url: string, use: (log: EventLog) => Promise<T>): Promise<T> => {
  const log = await openLog(url)
  try {
    return await use(log)
  } finally {
    await log.close()
  }
}

/** All records of partition 0. */
export const recordsOf = (url: string, topic: string): Promise<StoredRecord[]> =>
  withLog(url, async (log) => {
    const { begin, end } = await log.bounds(topic, 0)
    const records: StoredRecord[] = []
    for await (const batch of log.read(topic, 0, begin, { until: end })) records.push(...batch.records)
    return records
  })

export const valuesOf = <T>(records: readonly StoredRecord[]): T[] =>
  records.map(({ value }) => JSON.parse(Buffer.from(value!).toString()) as T)
