/**
 * A worker as a process of its own (`continuo run`), with what the benches ask of it: its CPU time, its memory and its
 * metrics.
 */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { modelDir, root } from './support.ts'

/** On SIGUSR2 the worker collects its garbage and tells what memory is left. */
const TELL_MEMORY =
  'process.on("SIGUSR2",()=>{gc();setTimeout(()=>{gc();console.error("memory "+JSON.stringify(process.memoryUsage()))},100)})'

export interface Memory {
  readonly rss: number
  readonly heapUsed: number
  readonly external: number
}

export interface WorkerProcess {
  readonly pid: number
  /** Resolves with the exit code, or null after a signal. */
  readonly gone: Promise<number | null>
  readonly exited: boolean
  /** CPU time so far, ms; null where the system has no /proc. */
  cpu(): number | null
  /** Bytes in use after a collection of garbage. */
  memory(): Promise<Memory>
  /** Of its metrics and health, without a path; resolves when they are served. Only with the flag `--metrics-port`. */
  readonly url: Promise<string>
  stop(signal: 'SIGTERM' | 'SIGKILL'): Promise<void>
}

export const startWorkerProcess = (
  url: string,
  flags: readonly string[] = [],
  model: string = modelDir,
): WorkerProcess => {
  const preload = `--import=data:text/javascript,${encodeURIComponent(TELL_MEMORY)}`
  const args = ['src/cli/main.ts', 'run', '--log', url, '--model', model, '--json', ...flags]
  const child = spawn(process.execPath, ['--expose-gc', preload, ...args], {
    cwd: root,
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  let said = ''
  let told = ''
  let killed = false
  const address = Promise.withResolvers<string>()
  address.promise.catch(() => {})
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    if (told.length > 10_000) return
    told += text
    const found = /"metrics":"([^"]+)"/.exec(told)
    if (found !== null) address.resolve(found[1]!)
  })
  const looks = new Set<() => void>()
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    said = (said + text).slice(-20_000)
    for (const look of looks) look()
  })
  const gone = once(child, 'exit').then(([code]): number | null => {
    if (!killed && code !== 0) console.error(`The worker ended with ${code}: ${said}`)
    address.reject(new Error(`The worker ended with ${code}: ${said}`))
    return code
  })
  const pid = child.pid!
  return {
    pid,
    gone,
    get exited() {
      return child.exitCode !== null || child.signalCode !== null
    },
    url: address.promise,
    cpu() {
      try {
        const stat = readFileSync(`/proc/${pid}/stat`, 'utf8')
        // User and system time, after the name in brackets, in hundredths of a second.
        const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
        return 10 * (Number(fields[11]) + Number(fields[12]))
      } catch {
        return null
      }
    },
    memory() {
      said = ''
      return new Promise((resolve, reject) => {
        const look = (): void => {
          const found = /memory (\{.*\})\n/.exec(said)
          if (found === null) return
          looks.delete(look)
          resolve(JSON.parse(found[1]!))
        }
        looks.add(look)
        void gone.then(() => reject(new Error(`The worker ended: ${said}`)))
        child.kill('SIGUSR2')
      })
    },
    async stop(signal) {
      killed = signal === 'SIGKILL'
      child.kill(signal)
      await gone
    },
  }
}
