import { Registry } from 'prom-client'
import { describe, expect, it } from 'vitest'
import { openModel } from '../../src/models/open.ts'
import { createExpertMetrics } from '../../src/observe/expert-metrics.ts'
import { hasShared, sharedModel } from '../engine/paths.ts'

describe.skipIf(!hasShared)('metrics of a store of experts', () => {
  it('add up to what the store counts, and are not there for a model without one', async () => {
    const none = new Registry()
    createExpertMetrics(none, { experts: null })
    expect(await none.metrics()).not.toContain('continuo_expert')

    const model = await openModel(sharedModel('perspective-tiny'), {
      threads: 1,
      keepPacked: false,
      experts: { bytes: 2 ** 17, frequencies: false },
    })
    const registry = new Registry()
    createExpertMetrics(registry, model)
    const context = model.createContext()
    await model.process([{ context, tokens: Int32Array.from({ length: 60 }, (_, i) => (i * 31) % 256), nats: false }])
    const shown = async (name: string, labels: Readonly<Record<string, string>> = {}): Promise<number> => {
      const { values } = (await registry.getSingleMetric(name)!.get()) as {
        values: { labels: Record<string, string>; value: number }[]
      }
      const own = values.filter((each) =>
        Object.entries(labels).every(([label, value]) => each.labels[label] === value),
      )
      return own.reduce((sum, { value }) => sum + value, 0)
    }
    const { uses, hits, demandBytes, aheadBytes, deltaBytes, residentBytes, evictions, ahead } =
      model.experts!.statistics
    expect(uses).toBeGreaterThan(hits)
    expect(await shown('continuo_expert_uses_total')).toBe(uses)
    expect(await shown('continuo_expert_uses_total', { place: 'memory' })).toBe(hits)
    expect(await shown('continuo_expert_read_bytes_total', { reason: 'demand' })).toBe(demandBytes)
    expect(await shown('continuo_expert_read_bytes_total', { reason: 'ahead' })).toBe(aheadBytes)
    expect(await shown('continuo_expert_read_bytes_total', { reason: 'delta' })).toBe(deltaBytes)
    expect(await shown('continuo_expert_resident_bytes')).toBe(residentBytes)
    expect(await shown('continuo_expert_bound_bytes')).toBe(2 ** 17)
    expect(await shown('continuo_expert_evictions_total')).toBe(evictions)
    expect(evictions).toBeGreaterThan(0)
    for (const k of [1, 2]) {
      const { predictions, right } = ahead[k - 1]!
      expect(predictions).toBeGreaterThan(0)
      expect(await shown('continuo_expert_predictions_total', { k: String(k), outcome: 'all' })).toBe(predictions)
      expect(await shown('continuo_expert_predictions_total', { k: String(k), outcome: 'right' })).toBe(right)
    }
    model.close()
  })
})
