/** Metrics of memories outside: where archived blocks lie, and what it costs to bring them back. */
import { Counter, Gauge, Histogram, type Registry } from 'prom-client'
import type { ContextStoreStats } from '../operators/context-store.ts'

const SECONDS = [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5]

export interface ArchiveMetrics {
  /** A block came back from a file of the process or from the blob store. */
  brought(tier: 'file' | 'store', seconds: number): void
}

/** `contexts`: null while there is no worker. */
export const createArchiveMetrics = (registry: Registry, contexts: () => ContextStoreStats | null): ArchiveMetrics => {
  const seen = () => contexts()?.blocks ?? null
  const registers = [registry]
  new Gauge({
    name: 'continuo_archived_bytes',
    help: 'Archived blocks of memories outside, by where they lie in this process',
    labelNames: ['place'],
    registers,
    collect() {
      const stats = seen()
      if (stats === null) return
      this.set({ place: 'memory' }, stats.bytes)
      this.set({ place: 'file' }, stats.fileBytes)
    },
  })
  new Counter({
    name: 'continuo_archived_uses_total',
    help: 'Archived blocks that were laid into a list of slots, or copied',
    registers,
    collect() {
      this.reset()
      this.inc(seen()?.uses ?? 0)
    },
  })
  new Counter({
    name: 'continuo_retrievals_total',
    help: 'Retrievals of archived blocks by their reason, replays included',
    labelNames: ['reason'],
    registers,
    collect() {
      this.reset()
      for (const [reason, count] of Object.entries(contexts()?.retrievals ?? {})) this.inc({ reason }, count)
    },
  })
  const seconds = new Histogram({
    name: 'continuo_archived_read_seconds',
    help: 'Time until an archived block that was wanted was in memory, by where it lay',
    labelNames: ['tier'],
    buckets: SECONDS,
    registers,
  })
  return { brought: (tier, took) => seconds.observe({ tier }, took) }
}
