/**
 * The millionth token against the thousandth. One session reads on and on; another stands at token 1,000 again before
 * each of its stretches. Stretches of both alternate, so what drifts in the machine drifts in both, and their ratio
 * says what length costs.
 */
import type { Context, ContextHead } from '../../engine/context.ts'
import type { Model } from '../../engine/types.ts'
import { sequence } from './exactness-cases.ts'
import { type Spread, spread } from './statistics.ts'

export interface LongEnd {
  /** Token at which the measured stretches of the long session begin. */
  readonly from: number
  readonly tokensPerSecond: Spread
  /** Of the session at token 1,000, next to it. */
  readonly controlTokensPerSecond: Spread
  /** Long session over control, of stretches next to each other. */
  readonly ratio: Spread
  readonly contextBytes: number
  readonly residentBytes: number
}

export interface LongReport {
  readonly stretch: number
  readonly stretches: number
  /** Both sessions at token 1,000: what the ratio is when nothing but the machine can make it differ from 1. */
  readonly begin: LongEnd | null
  readonly end: LongEnd | null
}

export interface LongOptions {
  readonly model: Model
  readonly tokens?: number
  readonly stretches?: number
  readonly signal: AbortSignal
  readonly onProgress?: (tokens: number) => void
}

const START = 1000
const STRETCH = 512
/** Pieces of the way between, which is not measured. */
const PIECE = 4096

interface Place {
  readonly state: Uint8Array
  readonly head: ContextHead
}

export const measureLong = async (options: LongOptions): Promise<LongReport> => {
  const { model, tokens = 1_000_000, stretches = 64, signal, onProgress } = options
  const ids = sequence(0, PIECE, model.vocabSize)
  const read = async (context: Context, count: number): Promise<number> => {
    const started = performance.now()
    await model.process([{ context, tokens: ids.subarray(0, count), nats: false }])
    return count / ((performance.now() - started) / 1000)
  }
  const long = model.createContext()
  const control = model.createContext()

  /** `before` puts the long session where its next stretch begins. Null when it was aborted. */
  const compare = async (thousandth: Place, before: () => void): Promise<LongEnd | null> => {
    const from = Number(long.pulse)
    const speeds: { readonly long: number; readonly control: number }[] = []
    const measure = {
      long: () => {
        before()
        return read(long, STRETCH)
      },
      control: () => {
        control.restore(thousandth.state, thousandth.head)
        return read(control, STRETCH)
      },
    }
    for (let pair = 0; pair < stretches; pair += 1) {
      if (signal.aborted) return null
      onProgress?.(Number(long.pulse))
      // The two take turns at going first, in case going first costs something.
      if (pair % 2 === 0) {
        const first = await measure.long()
        speeds.push({ long: first, control: await measure.control() })
      } else {
        const first = await measure.control()
        speeds.push({ long: await measure.long(), control: first })
      }
    }
    return {
      from,
      tokensPerSecond: spread(speeds.map((pair) => pair.long)),
      controlTokensPerSecond: spread(speeds.map((pair) => pair.control)),
      ratio: spread(speeds.map((pair) => pair.long / pair.control)),
      contextBytes: long.bytes,
      residentBytes: process.memoryUsage.rss(),
    }
  }

  try {
    await read(long, START)
    const thousandth = {
      state: long.serialize(),
      head: { pulse: long.pulse, origin: long.origin, chain: long.chain },
    }
    for (let warm = 0; warm < 4; warm += 1) await read(control, STRETCH)
    const begin = await compare(thousandth, () => long.restore(thousandth.state, thousandth.head))
    const rest = tokens - stretches * STRETCH
    while (!signal.aborted && Number(long.pulse) < rest) {
      onProgress?.(Number(long.pulse))
      await read(long, Math.min(PIECE, rest - Number(long.pulse)))
    }
    const end = signal.aborted ? null : await compare(thousandth, () => {})
    return { stretch: STRETCH, stretches, begin, end }
  } finally {
    long.close()
    control.close()
  }
}
