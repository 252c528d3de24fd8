/**
 * Metrics of external memories: where archived blocks lie, how often they are wanted, and what it costs to bring them
 * back.
 */
import { Counter, Gauge, Histogram, type Registry } from 'prom-client'
import type { Model } from '../engine/types.ts'
import type { ContextStoreStats } from '../operators/sessions/context-store.ts'

const SECONDS = [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5]

export interface ArchiveMetrics {
  /** A block came back from a file of the process or from the blob store. */
  brought(tier: 'file' | 'store', seconds: number): void
}

/** `contexts`: null while there is no worker. */
export const createArchiveMetrics = (
  registry: Registry,
  model: Pick<Model, 'stats'>,
  contexts: () => ContextStoreStats | null,
): ArchiveMetrics => {
  const seen = () => contexts()?.blocks ?? null
  const registers = [registry]
  new Gauge({
    name: 'continuo_archived_bytes',
    help: 'Archived blocks of external memories, by where they lie in this process',
    labelNames: ['place'],
    registers,
    collect() {
      const stats = seen()
      if (stats === null) return
      this.set({ place: 'memory' }, stats.bytes)
      this.set({ place: 'file' }, stats.fileBytes)
    },
  })
  const total = (name: string, help: string, value: () => number): void => {
    new Counter({
      ...{ name, help, registers },
      collect() {
        this.reset()
        this.inc(value())
      },
    })
  }
  const totals = (name: string, help: string, label: string, values: () => Readonly<Record<string, number>>): void => {
    new Counter({
      ...{ name, help, registers, labelNames: [label] },
      collect() {
        this.reset()
        for (const [of, value] of Object.entries(values())) this.inc({ [label]: of }, value)
      },
    })
  }
  totals(
    'continuo_archived_uses_total',
    'Archived blocks that were laid into a list or copied, by where they lay when they were wanted',
    'tier',
    () => {
      const { uses = 0, fileUses = 0, storeUses = 0 } = seen() ?? {}
      return { memory: uses - fileUses - storeUses, file: fileUses, store: storeUses }
    },
  )
  totals(
    'continuo_archived_read_bytes_total',
    'Bytes of archived blocks that were read, by where they lay',
    'tier',
    () => {
      const { fileReadBytes = 0, storeReadBytes = 0 } = seen() ?? {}
      return { file: fileReadBytes, store: storeReadBytes }
    },
  )
  const seconds = new Histogram({
    name: 'continuo_archived_read_seconds',
    help: 'Time until an archived block that was wanted was in memory, by where it lay',
    labelNames: ['tier'],
    buckets: SECONDS,
    registers,
  })
  totals(
    'continuo_retrievals_total',
    'Retrievals of archived blocks by their reason, replays included',
    'reason',
    () => contexts()?.retrievals ?? {},
  )
  total(
    'continuo_retrieval_waits_total',
    'How often a session stood still until archived blocks were in memory',
    () => model.stats.blockWaits,
  )
  total(
    'continuo_retrieval_wait_seconds_total',
    'Time that sessions stood still until archived blocks were in memory',
    () => model.stats.blockWaitSeconds,
  )
  return { brought: (tier, took) => seconds.observe({ tier }, took) }
}
