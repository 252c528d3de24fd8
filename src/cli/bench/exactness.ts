/**
 * One arithmetic: every instruction set, and a CUDA device where asked, in a process of its own; all cases compared
 * with the first.
 */
import { spawn } from 'node:child_process'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { kernelFeatures } from '../../engine/inspect.ts'
import type { DeviceKind } from '../../engine/options.ts'
import { ContinuoError } from '../../errors.ts'
import { beside } from '../../places.ts'
import type { Case, Matrix } from './exactness-cases.ts'

export const MATRIX: Matrix = { threads: [1, 2, 3], chunks: [1, 7, 64, 512], batches: [1, 3, 16], tokens: 640 }

/** The kernels of a CUDA device, among the names of instruction sets. */
const CUDA = 'cuda'
const ISAS = ['generic', 'avx2', 'avx512', 'avx512vnni']
const CHILD = fileURLToPath(beside(import.meta.url, 'exactness-child'))

export interface IsaCase extends Case {
  readonly isa: string
}

export interface Verdict {
  readonly combinations: number
  readonly same: number
  /** Those that gave other bits than the first case of their model, by what they are. */
  readonly differing: readonly { readonly case: string; readonly session: number }[]
  /** Of the first session of each model. */
  readonly chains: Readonly<Record<string, string>>
}

const nameOf = ({ isa, threads, chunk, batch }: IsaCase): string =>
  `${isa}, ${threads} threads, chunks of ${chunk}, batch of ${batch}`

/** A session's print must be that of the first case that had the session, whatever stood beside it. */
export const judge = (cases: readonly IsaCase[]): Verdict => {
  const first = new Map<string, string>()
  const differing: { case: string; session: number }[] = []
  for (const one of cases) {
    const session = one.prints.findIndex((print, at) => {
      const key = `${at} ${one.dir}`
      if (!first.has(key)) first.set(key, print)
      return first.get(key) !== print
    })
    if (session >= 0) differing.push({ case: nameOf(one), session })
  }
  const dirs = [...new Set(cases.map(({ dir }) => dir))]
  return {
    combinations: cases.length,
    same: cases.length - differing.length,
    differing,
    chains: Object.fromEntries(dirs.map((dir) => [dir, first.get(`0 ${dir}`)!.split(' ')[0]!])),
  }
}

export interface ExactnessOptions {
  readonly dirs: readonly string[]
  readonly matrix?: Matrix
  /** `cuda`: there as well as on the CPU. Default: the CPU alone. */
  readonly device?: DeviceKind
  readonly signal?: AbortSignal
  readonly onCase?: (one: IsaCase) => void
}

export interface Exactness {
  readonly cases: readonly IsaCase[]
  readonly ran: readonly string[]
  /** Instruction sets that this CPU does not have. */
  readonly missing: readonly string[]
}

/** The cases of one instruction set; null if this CPU does not run it. What an abort leaves is what was done. */
const casesOf = async (isa: string, options: ExactnessOptions): Promise<readonly IsaCase[] | null> => {
  const { dirs, matrix = MATRIX, signal, onCase } = options
  // On a device the engine's threads only prepare what it runs.
  const work =
    isa === CUDA
      ? { dirs, matrix: { ...matrix, threads: matrix.threads.slice(0, 1) }, device: 'cuda' }
      : { dirs, matrix, device: 'cpu' }
  const child = spawn(process.execPath, [CHILD, JSON.stringify(work)], {
    env: isa === CUDA ? process.env : { ...process.env, CONTINUO_ISA: isa },
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  let said = ''
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    said += text
  })
  const stop = (): void => void child.kill()
  signal?.addEventListener('abort', stop)
  if (signal?.aborted) stop()
  const ended = new Promise<number | null>((resolve, reject) => {
    child.once('error', reject)
    child.once('close', resolve)
  })
  const cases: IsaCase[] = []
  let found: string | null = null
  try {
    for await (const line of createInterface({ input: child.stdout })) {
      if (found === null) {
        found = (JSON.parse(line) as { isa: string | null }).isa
        if (found === null) break
        if (found !== isa) throw new ContinuoError('INTERNAL', `CONTINUO_ISA=${isa} ran the kernels of ${found}.`)
        continue
      }
      const one = { isa, ...(JSON.parse(line) as Case) }
      cases.push(one)
      onCase?.(one)
    }
    const code = await ended
    if (code !== 0 && !signal?.aborted)
      throw new ContinuoError('INVALID', `The cases of ${isa} ended with ${code}: ${said.trim()}`)
  } finally {
    child.kill()
    signal?.removeEventListener('abort', stop)
  }
  return found === null && !signal?.aborted ? null : cases
}

/** Runs all cases, one set of kernels after the other, the plainest first: it is what the others are compared with. */
export const runExactness = async (options: ExactnessOptions): Promise<Exactness> => {
  const cases: IsaCase[] = []
  const ran: string[] = []
  const missing: string[] = []
  for (const isa of new Set([...ISAS, kernelFeatures(), ...(options.device === 'cuda' ? [CUDA] : [])])) {
    if (options.signal?.aborted) break
    const found = await casesOf(isa, options)
    if (found === null) missing.push(isa)
    else {
      ran.push(isa)
      cases.push(...found)
    }
  }
  return { cases, ran, missing }
}
