/**
 * How a session's memory is doing, for people: a few numbers that its snapshot carries beside the state. Nothing is computed
 * from them, and a replay may find others (gates are averages since the context is in memory).
 */
import { z } from 'zod'
import type { GateStatistics, LayoutEntry, StateTensors } from '../memory.ts'
import { type TensorHealth, tensorHealth } from './health.ts'

const level = z.object({
  /** Pulses between two firings. */
  period: z.int().positive(),
  /** Largest Frobenius norm over layers: of the memory, of its momentum, of the errors it is yet to write. */
  memory: z.number(),
  momentum: z.number().nullable(),
  buffer: z.number().nullable(),
  /** ‖buffer‖ / ‖memory‖, the largest over layers: how much waits for the next firing. */
  bufferRatio: z.number().nullable(),
  /** Learning rate, momentum and retention, on average over heads, layers and tokens; null where none were seen. */
  gates: z.object({ theta: z.number(), eta: z.number(), alpha: z.number() }).nullable(),
})

export const vitalsSchema = z.object({
  /** Positions of the attention's window that are in use, and how many there are; null without a window. */
  window: z.object({ used: z.int().nonnegative(), places: z.int().positive() }).nullable(),
  levels: z.array(level),
})
export type Vitals = z.infer<typeof vitalsSchema>
export type LevelVitals = z.infer<typeof level>

/** What of a model its statistics need. */
export interface Examined {
  readonly layout: StateTensors
  readonly levels: readonly number[]
  readonly positions: number | null
}
/** What the titans family calls its persistents (docs/titans.md). */
const MEMORY = 'memory.M'
const MOMENTUM = 'memory.S'
const BUFFER = 'memory.G'
const WINDOW = 'attn.k'
const SEGMENT = 'segment.k'

const mean = (values: readonly number[]): number => values.reduce((sum, value) => sum + value, 0) / values.length

/** A session's clock. */
export interface Clock {
  readonly globalStep: number
  readonly origin: number
}

const vitalsOf = (
  { levels, positions }: Examined,
  { globalStep: pulse, origin }: Clock,
  tensors: readonly LayoutEntry[],
  parts: readonly TensorHealth[],
  gates: readonly GateStatistics[],
): Vitals => {
  const used = pulse - origin
  const shapeOf = (name: string): readonly number[] | undefined => tensors.find((tensor) => tensor.name === name)?.shape
  const window = (): Vitals['window'] => {
    if (positions !== null) return { used, places: positions }
    const [, ring] = shapeOf(WINDOW) ?? []
    if (ring !== undefined) return { used: Math.min(used, ring), places: ring }
    const [, segment] = shapeOf(SEGMENT) ?? []
    return segment === undefined ? null : { used: Math.min(used, pulse % segment), places: segment }
  }
  const norms = (name: string, at: number): readonly number[] =>
    parts.filter((part) => part.name === name && part.level === at).map(({ norm }) => norm)
  const largest = (values: readonly number[]): number | null => (values.length === 0 ? null : Math.max(...values))
  let slow = 0
  return {
    window: window(),
    levels: levels.map((period, at) => {
      const memory = norms(MEMORY, at)
      // Buffers there are only of the levels that stand still in between.
      const buffer = period > 1 ? norms(BUFFER, slow++) : []
      const seen = gates.filter((gate) => gate.level === at)
      const average = (of: (gate: GateStatistics) => number): number => mean(seen.map(of))
      return {
        period,
        memory: largest(memory) ?? 0,
        momentum: largest(norms(MOMENTUM, at)),
        buffer: largest(buffer),
        bufferRatio: largest(buffer.map((norm, layer) => (norm === 0 ? 0 : norm / memory[layer]!))),
        gates:
          seen.length === 0
            ? null
            : { theta: average((g) => g.theta), eta: average((g) => g.eta), alpha: average((g) => g.alpha) },
      }
    }),
  }
}

export interface Examination {
  /** Norms of every f32 tensor. */
  readonly parts: readonly TensorHealth[]
  readonly vitals: Vitals
}

/** Looks at a serialised context. Throws REFUSED when the state does not fit the model's layout. */
export const examine = (
  model: Examined,
  clock: Clock,
  state: Uint8Array,
  gates: readonly GateStatistics[],
): Examination => {
  const tensors = model.layout.tensors(state)
  const parts = tensorHealth(tensors, state, model.levels)
  return { parts, vitals: vitalsOf(model, clock, tensors, parts, gates) }
}
