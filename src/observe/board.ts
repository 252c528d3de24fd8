/**
 * The board of a worker: what only the worker knows, as one JSON value for whoever draws it (the console of a gateway,
 * in this process or over
 * /board of the observation server). Reports and events are numbered, and a reader asks for those behind the last that
 * it has; of each the board keeps the newest few, so it stays small however long the worker runs and however seldom it
 * is read.
 */
import { randomUUID } from 'node:crypto'
import { z } from 'zod'
import type { ExpertPort, Model } from '../engine/types.ts'
import { messageOf } from '../errors.ts'
import type { Commit } from '../operators/pipeline/commit.ts'
import type { Worker } from '../operators/worker/worker.ts'
import type { Head } from '../state/head.ts'
import type { MemoryReport } from '../state/memory-stats.ts'
import type { TaskState } from '../streams/lifecycle.ts'
import { readiness } from './readiness.ts'
import type { Tally } from './tally.ts'

/** Reports of memories, and events, that the board keeps. */
const MOST_REPORTS = 256
const MOST_EVENTS = 256
/** Norms of one report: layers times levels times tensors. */
const MOST_NORMS = 512

const count = z.number().int().nonnegative()
/** JSON has no word for infinite, which a norm may be. */
const measured = z.number().nullable()

const partitionSchema = z.object({
  partition: count,
  /** Of `TaskState`, or `refused` or `waiting`. */
  state: z.string().max(32),
  reason: z.string().max(2000).optional(),
  /** Input records delivered and not finished, and steps that wait for their commit. */
  records: count,
  steps: count,
  sessions: count,
  /** Contexts in use, and their bytes. */
  contexts: count,
  bytes: count,
  /** Every input record below is finished; −1 before the state was read. */
  offset: z.number().int().min(-1),
  commits: count,
  /** Of the last commit; null before there was one. */
  commitMs: z.number().nullable(),
})

const reportSchema = z.object({
  seq: count,
  session: z.string().max(512),
  pulse: count,
  /** Norms by tensor, layer and level, in the order of the state. */
  norms: z
    .array(
      z.object({ name: z.string().max(256), layer: count, level: count.nullable(), norm: measured, max: measured }),
    )
    .max(MOST_NORMS),
  window: z.object({ used: count, places: count }).nullable(),
  levels: z
    .array(
      z.object({
        period: count,
        memory: measured,
        bufferRatio: measured,
        gates: z.object({ theta: measured, eta: measured, alpha: measured }).nullable(),
      }),
    )
    .max(64),
})
export type BoardReport = z.infer<typeof reportSchema>

const eventSchema = z.object({
  seq: count,
  /** ms since the epoch. */
  at: z.number(),
  partition: count,
  /** A state of the task; `running` has where it begins: the offset, and the pulses of all its sessions together. */
  state: z.string().max(32),
  reason: z.string().max(2000).optional(),
  offset: z.number().int().optional(),
  sessions: count.optional(),
  pulse: count.optional(),
})
export type BoardEvent = z.infer<typeof eventSchema>

export const boardSchema = z.object({
  version: z.literal(1),
  /** Another one for each life of a worker. */
  instance: z.string().max(64),
  /** ms since the epoch. */
  began: z.number(),
  ready: z.boolean(),
  device: z.string().max(16),
  /** Pulses between two firings of each memory level. */
  levels: z.array(count).max(64),
  partitions: z.array(partitionSchema).max(65_536),
  contexts: z.object({ residentBytes: count, resident: count, spilled: count, spillBytes: count }).nullable(),
  /** Archived blocks of external memories, by where they lie; null: the model has no such memory. */
  blocks: z.object({ bytes: count, fileBytes: count, uses: count, fileUses: count, storeUses: count }).nullable(),
  /** Experts that lie in a store; null: the model has none. */
  experts: z.object({ resident: count, residentBytes: count, bound: count, uses: count, hits: count }).nullable(),
  engine: z.object({ steps: count, tokens: count, items: count }),
  /** Tokens a second over the last seconds. */
  speed: z.number(),
  reports: z.array(reportSchema).max(MOST_REPORTS),
  events: z.array(eventSchema).max(MOST_EVENTS),
})
export type BoardView = z.infer<typeof boardSchema>

export interface Board {
  /** `reports` and `events` behind these numbers; 0 gives all that the board still has. */
  read(after: { readonly report: number; readonly event: number }): BoardView
  committed(commit: Commit): void
  state(partition: number, state: TaskState, error?: unknown): void
  /** Statistics of a memory that was just saved. */
  health(seen: MemoryReport, head: Head): void
}

const finite = (value: number): number | null => (Number.isFinite(value) ? value : null)

const expertsOf = (experts: ExpertPort | null | undefined): BoardView['experts'] => {
  if (experts == null) return null
  const { resident, residentBytes, bound, uses, hits } = experts.statistics
  return { resident, residentBytes, bound, uses, hits }
}

/** The newest values of a growing list, with their numbers. */
const numbered = <T extends { readonly seq: number }>(most: number) => {
  const kept: T[] = []
  let last = 0
  return {
    add(value: (seq: number) => T): void {
      last += 1
      kept.push(value(last))
      if (kept.length > most) kept.shift()
    },
    after: (seq: number): T[] => kept.filter((each) => each.seq > seq),
  }
}

export interface BoardDeps {
  readonly model: Pick<Model, 'stats' | 'levels' | 'device'> & Partial<Pick<Model, 'experts'>>
  /** null until the worker has joined its group. */
  readonly worker: () => Worker | null
  readonly tally: Pick<Tally, 'speed'>
}

export const createBoard = ({ model, worker, tally }: BoardDeps): Board => {
  const instance = randomUUID()
  const began = Date.now()
  const reports = numbered<BoardReport>(MOST_REPORTS)
  const events = numbered<BoardEvent>(MOST_EVENTS)
  const commits = new Map<number, { commits: number; ms: number }>()

  const partitionsOf = (): BoardView['partitions'] =>
    readiness(worker()).partitions.map(({ partition, state, reason }) => {
      const task = worker()?.tasks.get(partition)
      const done = commits.get(partition)
      return {
        partition,
        state,
        ...(reason !== undefined && { reason: reason.slice(0, 2000) }),
        records: task?.load.records ?? 0,
        steps: task?.load.steps ?? 0,
        sessions: task?.sessions.size ?? 0,
        contexts: task?.liveContexts ?? 0,
        bytes: task?.liveBytes ?? 0,
        offset: task?.offset ?? -1,
        commits: done?.commits ?? 0,
        commitMs: done?.ms ?? null,
      }
    })

  const contextsOf = (): Pick<BoardView, 'contexts' | 'blocks'> => {
    const stats = worker()?.contexts
    if (stats === undefined) return { contexts: null, blocks: null }
    const { residentBytes, resident, spilled, spillBytes, blocks } = stats
    const { bytes, fileBytes, uses, fileUses, storeUses } = blocks ?? {}
    return {
      contexts: { residentBytes, resident, spilled, spillBytes },
      blocks:
        blocks === null
          ? null
          : { bytes: bytes!, fileBytes: fileBytes!, uses: uses!, fileUses: fileUses!, storeUses: storeUses! },
    }
  }

  return {
    read: (after) => ({
      version: 1,
      instance,
      began,
      ready: readiness(worker()).ready,
      device: model.device,
      levels: [...model.levels],
      partitions: partitionsOf(),
      ...contextsOf(),
      experts: expertsOf(model.experts),
      engine: { steps: model.stats.steps, tokens: model.stats.tokens, items: model.stats.items },
      speed: tally.speed.now,
      reports: reports.after(after.report),
      events: events.after(after.event),
    }),
    committed({ partition, ms }) {
      commits.set(partition, { commits: (commits.get(partition)?.commits ?? 0) + 1, ms })
    },
    state(partition, state, error) {
      const task = worker()?.tasks.get(partition)
      const begins = state === 'running' && task !== undefined
      events.add((seq) => ({
        seq,
        at: Date.now(),
        partition,
        state,
        ...(error !== undefined && { reason: messageOf(error).slice(0, 2000) }),
        ...(begins && {
          offset: task.offset,
          sessions: task.sessions.size,
          pulse: [...task.sessions.values()].reduce((sum, { conductor }) => sum + conductor.globalStep, 0),
        }),
      }))
    },
    health({ health, stats }, { session, conductor }) {
      reports.add((seq) => ({
        seq,
        session,
        pulse: conductor.globalStep,
        norms: health
          .slice(0, MOST_NORMS)
          .map(({ name, layer, level, norm, max }) => ({ name, layer, level, norm: finite(norm), max: finite(max) })),
        window: stats.window,
        levels: stats.levels.map(({ period, memory, bufferRatio, gates }) => ({
          period,
          memory: finite(memory),
          bufferRatio: bufferRatio === null ? null : finite(bufferRatio),
          gates: gates && { theta: finite(gates.theta), eta: finite(gates.eta), alpha: finite(gates.alpha) },
        })),
      }))
    },
  }
}
