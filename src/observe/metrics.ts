/** Metrics of a worker in a registry of their own, so that several workers of one process (tests) do not mix. */
import { Counter, collectDefaultMetrics, Gauge, Histogram, Registry } from 'prom-client'
import type { TopicNames } from '../../topics/index.ts'
import type { Model } from '../engine/types.ts'
import type { Commit } from '../operators/pipeline/commit.ts'
import type { ContextStoreStats } from '../operators/sessions/context-store.ts'
import type { Worker } from '../operators/worker/worker.ts'
import { largestNorms } from '../state/health.ts'
import type { MemoryReport } from '../state/memory-stats.ts'
import type { TaskState } from '../streams/lifecycle.ts'
import type { EventLog } from '../streams/log.ts'
import { type AdaptMetrics, createAdaptMetrics } from './adapt-metrics.ts'
import { type ArchiveMetrics, createArchiveMetrics } from './archive-metrics.ts'
import { createExpertMetrics } from './expert-metrics.ts'
import type { Totals } from './tally.ts'

export interface MetricsDeps {
  readonly log: EventLog
  readonly names: TopicNames
  readonly model: Pick<Model, 'stats'> & Partial<Pick<Model, 'experts'>>
  /** null until the worker has joined its group. */
  readonly worker: () => Worker | null
}

export interface Metrics extends ArchiveMetrics, AdaptMetrics {
  readonly registry: Registry
  /** `added` is what the tally says of this commit. */
  committed(commit: Commit, added: Totals): void
  restored(ms: number): void
  /** Statistics of a memory that was just saved. */
  health(seen: MemoryReport): void
  state(partition: number, state: TaskState): void
}

const SECONDS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10]

export const createMetrics = ({ log, names, model, worker }: MetricsDeps): Metrics => {
  const registry = new Registry()
  const registers = [registry]
  collectDefaultMetrics({ register: registry })
  createExpertMetrics(registry, model)
  const counter = (name: string, help: string): Counter => new Counter({ name, help, registers })
  const read = counter('continuo_tokens_read_total', 'Tokens read by sessions, committed')
  const generated = counter('continuo_tokens_generated_total', 'Tokens generated, committed')
  const nats = counter('continuo_nats_total', 'Surprisal of the tokens read, nats')
  const predictions = counter('continuo_predictions_total', 'Tokens read that the model had predicted')
  const commits = counter('continuo_commits_total', 'Transactions committed')
  const deadLetters = counter('continuo_dead_letters_total', 'Events that could not be used')
  const commitSeconds = new Histogram({
    name: 'continuo_commit_seconds',
    help: 'Time a transaction took',
    buckets: SECONDS,
    registers,
  })
  const restoreSeconds = new Histogram({
    name: 'continuo_restore_seconds',
    help: 'Time it took to rebuild a context from snapshot and events',
    buckets: SECONDS,
    registers,
  })
  const fromStats = (name: string, help: string, value: () => number): Counter =>
    new Counter({
      name,
      help,
      registers,
      collect() {
        this.reset()
        this.inc(value())
      },
    })
  fromStats('continuo_engine_steps_total', 'Steps of the engine: passes over the weights', () => model.stats.steps)
  fromStats(
    'continuo_engine_items_total',
    'Items of work that the engine has answered, each of one session',
    () => model.stats.items,
  )
  fromStats('continuo_engine_tokens_total', 'Tokens processed, replays included', () => model.stats.tokens)
  fromStats(
    'continuo_engine_drafted_total',
    'Tokens that were guessed ahead of sessions (--speculate)',
    () => model.stats.drafted,
  )
  fromStats('continuo_engine_drafts_kept_total', 'Those of them that were drawn', () => model.stats.kept)
  const taskState = new Gauge({
    name: 'continuo_task_state',
    help: '1 for the state the task of a partition is in',
    labelNames: ['partition', 'state'],
    registers,
  })
  new Gauge({
    name: 'continuo_live_contexts',
    help: 'Contexts in use, in memory or spilled',
    labelNames: ['partition'],
    registers,
    collect() {
      this.reset()
      for (const [partition, { liveContexts }] of worker()?.tasks ?? []) this.set({ partition }, liveContexts)
    },
  })
  new Gauge({
    name: 'continuo_context_bytes',
    help: 'State of those contexts; grows where a model has tables that grow',
    labelNames: ['partition'],
    registers,
    collect() {
      this.reset()
      for (const [partition, { liveBytes }] of worker()?.tasks ?? []) this.set({ partition }, liveBytes)
    },
  })
  const ofContexts = (name: string, help: string, value: (stats: ContextStoreStats) => number): Gauge =>
    new Gauge({
      name,
      help,
      registers,
      collect() {
        const stats = worker()?.contexts
        if (stats !== undefined) this.set(value(stats))
      },
    })
  ofContexts('continuo_resident_bytes', 'Memory of contexts; --max-resident-bytes bounds it', (s) => s.residentBytes)
  ofContexts('continuo_resident_contexts', 'Contexts in memory', (s) => s.resident)
  ofContexts('continuo_paged_contexts', 'Contexts spilled to files', (s) => s.spilled)
  ofContexts('continuo_spill_bytes', 'Bytes of spill files; --max-spill-bytes bounds it', (s) => s.spillBytes)
  const moved = (name: string, help: string, value: (stats: ContextStoreStats) => number): Counter =>
    fromStats(name, help, () => {
      const stats = worker()?.contexts
      return stats === undefined ? 0 : value(stats)
    })
  moved('continuo_page_ins_total', 'Contexts read back from their spill file', (s) => s.spillReads)
  moved('continuo_page_outs_total', 'Contexts written to a spill file', (s) => s.spillWrites)
  moved('continuo_page_failures_total', 'Spill files that could not be written', (s) => s.failures)
  new Gauge({
    name: 'continuo_sessions',
    help: 'Sessions that have a head',
    labelNames: ['partition'],
    registers,
    collect() {
      this.reset()
      for (const [partition, { sessions }] of worker()?.tasks ?? []) this.set({ partition }, sessions.size)
    },
  })
  new Gauge({
    name: 'continuo_stopped_sessions',
    help: 'Sessions that were set aside: their events are dead letters',
    labelNames: ['partition'],
    registers,
    collect() {
      this.reset()
      for (const [partition, { sessions }] of worker()?.tasks ?? []) {
        let stopped = 0
        for (const { status } of sessions.values()) if (status === 'stopped') stopped += 1
        this.set({ partition }, stopped)
      }
    },
  })
  new Gauge({
    name: 'continuo_lag_records',
    help: 'Input records that are not finished',
    labelNames: ['partition'],
    registers,
    async collect() {
      this.reset()
      for (const [partition, { offset }] of worker()?.tasks ?? []) {
        if (offset < 0) continue
        const { end } = await log.bounds(names.chunks, partition)
        this.set({ partition }, Math.max(0, end - offset))
      }
    },
  })
  /** Largest since the last scrape. One value for each tensor of the model, whatever the number of sessions. */
  const norms = new Map<string, number>()
  new Gauge({
    name: 'continuo_memory_norm',
    help: 'Largest Frobenius norm of a tensor of the memory, over layers and the sessions saved since the last scrape',
    labelNames: ['tensor'],
    registers,
    collect() {
      for (const [tensor, norm] of norms) this.set({ tensor }, norm)
      norms.clear()
    },
  })
  const ofSaved = (name: string, help: string, labelNames: readonly string[] = []): Gauge =>
    new Gauge({ name, help: `${help}, of the session saved last`, labelNames: [...labelNames], registers })
  const windowFill = ofSaved('continuo_window_fill', "Part of the attention's window that is in use")
  const buffers = ofSaved(
    'continuo_buffer_ratio',
    'Errors that wait for the next firing of a memory level, over the memory',
    ['level'],
  )
  const gateMeans = ofSaved(
    'continuo_gate_mean',
    'Learning rate (theta), momentum (eta) and retention (alpha) on average',
    ['level', 'gate'],
  )
  const states = new Map<number, TaskState>()
  return {
    ...createArchiveMetrics(registry, model, () => worker()?.contexts ?? null),
    ...createAdaptMetrics(registry),
    registry,
    committed({ ms }, added) {
      read.inc(added.read)
      generated.inc(added.generated)
      nats.inc(Math.max(0, added.nats))
      predictions.inc(added.predictions)
      deadLetters.inc(added.deadLetters)
      commits.inc()
      commitSeconds.observe(ms / 1000)
    },
    health({ health, stats }) {
      for (const [tensor, norm] of largestNorms(health)) norms.set(tensor, Math.max(norms.get(tensor) ?? 0, norm))
      if (stats.window !== null) windowFill.set(stats.window.used / stats.window.places)
      for (const [level, { bufferRatio, gates }] of stats.levels.entries()) {
        if (bufferRatio !== null) buffers.set({ level }, bufferRatio)
        for (const [gate, value] of Object.entries(gates ?? {})) gateMeans.set({ level, gate }, value)
      }
    },
    restored: (ms) => restoreSeconds.observe(ms / 1000),
    state(partition, state) {
      const before = states.get(partition)
      if (before !== undefined) taskState.remove({ partition, state: before })
      states.set(partition, state)
      taskState.set({ partition, state }, 1)
    },
  }
}
