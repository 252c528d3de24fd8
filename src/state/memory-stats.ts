/**
 * Statistics of a session's memory, for people: a few numbers that its snapshot carries beside the state. Nothing is
 * computed from them, and a replay may find others (gates are averages since the context is in memory).
 */
import { z } from 'zod'
import type { GateStatistics, LayoutEntry, MemoryDeclaration, MemoryTable, StateTensors } from '../memory.ts'
import { type TensorHealth, tableLevels, tensorHealth } from './health.ts'

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

export const memoryStatsSchema = z.object({
  /** Positions of the attention's window that are in use, and how many there are; null without a window. */
  window: z.object({ used: z.int().nonnegative(), places: z.int().positive() }).nullable(),
  levels: z.array(level),
  /** Tensors whose second axis counts levels, and which; for readers of the file that do not have the model. */
  tables: z.record(z.string(), z.array(z.int().nonnegative())).optional(),
})
export type MemoryStats = z.infer<typeof memoryStatsSchema>

/** The properties of a model that statistics of its memory need. */
export interface ModelMemory {
  readonly layout: StateTensors
  readonly levels: readonly number[]
  readonly positions: number | null
  readonly memory: MemoryDeclaration
}

/** A session's clock. */
export interface Clock {
  readonly globalStep: number
  readonly origin: number
}

const mean = (values: readonly number[]): number => values.reduce((sum, value) => sum + value, 0) / values.length
const largest = (values: readonly number[]): number | null => (values.length === 0 ? null : Math.max(...values))

const windowOf = ({ memory, positions }: ModelMemory, { globalStep, origin }: Clock): MemoryStats['window'] => {
  const used = globalStep - origin
  const { window } = memory
  if (window === null) return positions === null ? null : { used, places: positions }
  const { kind, places } = window
  return { used: Math.min(used, kind === 'sliding' ? places : globalStep % places), places }
}

const levelsOf = (
  { memory, levels }: ModelMemory,
  health: readonly TensorHealth[],
  gates: readonly GateStatistics[],
): MemoryStats['levels'] => {
  /** Norms of one level, one for each layer. */
  const norms = (role: MemoryTable['role'], at: number): readonly number[] => {
    const names = memory.tables.filter((table) => table.role === role).map(({ name }) => name)
    return health.filter(({ name, level }) => level === at && names.includes(name)).map(({ norm }) => norm)
  }
  return levels.map((period, at) => {
    const written = norms('memory', at)
    const buffer = norms('buffer', at)
    const seen = gates.filter((gate) => gate.level === at)
    const average = (of: (gate: GateStatistics) => number): number => mean(seen.map(of))
    return {
      period,
      memory: largest(written) ?? 0,
      momentum: largest(norms('momentum', at)),
      buffer: largest(buffer),
      bufferRatio: largest(buffer.map((norm, layer) => (norm === 0 ? 0 : norm / written[layer]!))),
      gates:
        seen.length === 0
          ? null
          : { theta: average((g) => g.theta), eta: average((g) => g.eta), alpha: average((g) => g.alpha) },
    }
  })
}

/** Norms and statistics of a memory that was just saved. */
export interface MemoryReport {
  /** Norms of every f32 tensor. */
  readonly health: readonly TensorHealth[]
  readonly stats: MemoryStats
}

/**
 * Statistics of a serialised context; `tensors`: those in `state`, where it is not the whole. Rejects with REFUSED when
 * the state does not fit the model's layout.
 */
export const memoryStats = async (
  model: ModelMemory,
  clock: Clock,
  state: Uint8Array,
  gates: readonly GateStatistics[],
  tensors: readonly LayoutEntry[] = model.layout.tensors(state),
): Promise<MemoryReport> => {
  const tables = tableLevels(model.memory)
  const health = await tensorHealth(tensors, state, tables)
  const stats = { window: windowOf(model, clock), levels: levelsOf(model, health, gates) }
  return { health, stats: Object.keys(tables).length === 0 ? stats : { ...stats, tables } }
}
